"""Chat streams from a server that speaks OpenAI's protocol over a real socket, and an interrupt stops one answer."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from edgellm.cli import chat
from edgellm.cli.chat_over_http import Server, ServerAnswerError
from edgellm.cli.main import main
from edgellm.errors import UsageError

DEADLINE_SECONDS = 20


@dataclass
class Scripted:
    """What the server answers, and what it was asked."""

    url: str = ""
    models: list[str] = field(default_factory=lambda: ["tiny"])
    events: list[Any] = field(default_factory=list)
    finish: bool = True
    endless: bool = False
    status: int = 200
    loading_answers: int = 0
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    client_left: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def server() -> Iterator[Scripted]:
    script = Scripted()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            script.keys.append(self.headers.get("Authorization"))
            if script.loading_answers:
                script.loading_answers -= 1
                self._json(503, {"error": {"code": "model_loading", "message": "loading"}})
            else:
                self._json(200, {"data": [{"id": name} for name in script.models]})

        def do_POST(self) -> None:
            script.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            if script.status != 200:
                self._json(script.status, {"error": {"code": "x", "message": "no room"}})
                return
            self.send_response(200)
            self.end_headers()
            for event in script.events:
                self._send(f"data: {json.dumps(event)}\n\n")
            try:
                while script.endless:
                    self._send(f"data: {json.dumps(delta('more '))}\n\n")
            except OSError:
                script.client_left.set()
                return
            if script.finish:
                self._send("data: [DONE]\n\n")

        def _send(self, text: str) -> None:
            self.wfile.write(text.encode())
            self.wfile.flush()

        def _json(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        script.url = f"http://127.0.0.1:{running.server_address[1]}"
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield script
        running.shutdown()
        thread.join()


def delta(text: str | None) -> dict[str, Any]:
    return {"choices": [{"delta": {} if text is None else {"content": text}}]}


def connect(script: Scripted, **options: Any) -> Server:
    return Server(script.url, **{"key": None, "model": None, "temperature": None, "max_tokens": None, **options})


def test_one_question_prints_the_answer_alone(server: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    server.events = [delta(None), delta("Hel"), delta("lo"), {"choices": [], "usage": {}}]
    assert main(["chat", "Hi?", "--url", server.url, "--system", "Be brief.", "--max-tokens", "5"]) == 0
    assert capsys.readouterr().out == "Hello\n"
    (asked,) = server.asked
    assert asked == {
        "model": "tiny",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi?"}],
        "stream": True,
        "max_tokens": 5,
    }


def test_piped_text_is_one_question(
    server: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.events = [delta("ok")]
    monkeypatch.setattr("sys.stdin", io.StringIO("line one\nline two\n"))
    assert main(["chat", "--url", server.url]) == 0
    assert capsys.readouterr().out == "ok\n"
    assert server.asked[0]["messages"] == [{"role": "user", "content": "line one\nline two\n"}]


def test_an_empty_pipe_is_a_usage_error(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("\n"))
    assert main(["chat"]) == 64
    assert "there is no question" in capsys.readouterr().err


@pytest.mark.parametrize("locale", ["C.UTF-8", "C", "POSIX"])
def test_piped_bytes_that_are_no_text_are_called_that(locale: str) -> None:
    told = subprocess.run(
        [sys.executable, "-m", "edgellm", "chat"],
        input=b"\xff\xfe\n",
        env={**os.environ, "LC_ALL": locale},
        capture_output=True,
        check=False,
    )
    assert (told.returncode, told.stdout) == (64, b"")
    assert told.stderr.startswith(b"edgellm: standard input is not UTF-8")
    assert told.stderr.count(b"\n") == 1


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(["a\udcff"], "QUESTION"), (["a", "--system", "\udcff"], "--system"), (["a", "--model", "\udcff"], "--model")],
)
def test_an_argument_that_is_no_text_is_named(
    arguments: list[str], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", *arguments]) == 64
    assert capsys.readouterr().err.startswith(f"edgellm: {name} is not UTF-8")


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 65), (404, 65), (413, 65), (401, 77), (403, 77), (429, 69), (408, 69), (500, 69), (503, 69)],
)
def test_the_exit_code_tells_a_refused_request_from_a_server_that_is_not_well(
    server: Scripted, status: int, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    server.status = status
    assert main(["chat", "Hi", "--url", server.url]) == code
    err = capsys.readouterr().err
    assert err.startswith(f"edgellm: the server answered {status}: no room")
    assert err.count("\n") == 1
    assert ("— give your key with --api-key-file FILE, or in EDGELLM_API_KEY" in err) == (status == 401)


def test_a_key_that_is_refused_is_told_from_none(
    server: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGELLM_API_KEY", "wrong")
    server.status = 401
    assert main(["chat", "Hi", "--url", server.url]) == 77
    assert "— send another key: with --api-key-file FILE, or in EDGELLM_API_KEY" in capsys.readouterr().err


def test_a_server_that_speaks_no_https_is_told(server: Scripted, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "Hi", "--url", server.url.replace("http:", "https:")]) == 69
    err = capsys.readouterr().err
    assert "does not speak HTTPS" in err
    assert f"try --url {server.url.removesuffix('/v1')}" in err


def test_no_server_is_one_line_with_remedies(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "Hi", "--url", "http://127.0.0.1:9"]) == 69
    err = capsys.readouterr().err
    assert err.startswith("edgellm: no server answers at http://127.0.0.1:9 (Connection refused) — start one with: ")
    assert err.count("\n") == 1


def test_a_loading_server_is_waited_for(
    server: Scripted, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgellm.cli.chat_over_http.LOADING_POLL_SECONDS", 0.01)
    server.loading_answers = 3
    server.events = [delta("ok")]
    assert main(["chat", "Hi", "--url", server.url]) == 0
    assert capsys.readouterr().err.count("the model is loading") == 1


def test_several_models_must_be_chosen_between(server: Scripted) -> None:
    server.models = ["a", "b"]
    with pytest.raises(UsageError, match="several models — choose with --model: a, b"):
        connect(server)
    assert connect(server, model="b").name.startswith("b at ")
    with pytest.raises(UsageError, match="no model 'c' — choose with --model: a, b"):
        connect(server, model="c")


def test_a_key_is_sent_as_bearer(server: Scripted) -> None:
    connect(server, key="secret")
    assert server.keys == ["Bearer secret"]


def test_a_key_that_no_header_can_hold_is_refused(server: Scripted) -> None:
    with pytest.raises(UsageError, match="visible ASCII"):
        connect(server, key="a\r\nX: y")


def test_a_refusal_says_the_servers_reason(server: Scripted) -> None:
    server.status = 400
    with pytest.raises(ServerAnswerError, match="the server answered 400: no room"):
        list(connect(server).answer([]))


def test_an_error_in_the_stream_is_an_error(server: Scripted) -> None:
    server.events = [delta("a"), {"error": {"message": "lost"}}]
    pieces = connect(server).answer([])
    assert next(pieces) == "a"
    with pytest.raises(ServerAnswerError, match="the server broke off: lost"):
        next(pieces)


def test_a_stream_that_just_ends_is_an_error(server: Scripted) -> None:
    server.events, server.finish = [delta("a")], False
    with pytest.raises(ServerAnswerError, match="without finishing"):
        list(connect(server).answer([]))


def test_an_answer_that_is_left_closes_the_connection(server: Scripted) -> None:
    server.endless = True
    pieces = connect(server).answer([])
    assert next(pieces) == "more "
    pieces.close()
    assert server.client_left.wait(DEADLINE_SECONDS)


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://h:99999999", "http://h:x", "http://a..b", f"http://{'h' * 64}.local"]
)
def test_an_address_that_is_none_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="is no address of a server"):
        Server(url, key=None, model=None, temperature=None, max_tokens=None)


class FakeConversant:
    """Answers from a script; an entry that is an exception is raised in the middle of the answer."""

    name = "fake"

    def __init__(self, answers: list[list[str | BaseException]]) -> None:
        self.answers = answers
        self.asked: list[list[dict[str, str]]] = []
        self.closed_answers = 0

    def answer(self, messages: list[dict[str, str]]) -> Generator[str]:
        self.asked.append(list(messages))
        try:
            for piece in self.answers.pop(0):
                if isinstance(piece, BaseException):
                    raise piece
                yield piece
        finally:
            self.closed_answers += 1

    def close(self) -> None:
        """Nothing is held."""


def type_lines(monkeypatch: pytest.MonkeyPatch, lines: list[str | type[BaseException]]) -> None:
    waiting = iter(lines)

    def typed(_prompt: str) -> str:
        line = next(waiting, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", typed)


def test_a_conversation_keeps_its_turns_until_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    conversant = FakeConversant([["A", "1"], ["A2"], ["A3"]])
    type_lines(monkeypatch, ["q1", "", "q2", "/reset", "q3"])
    opening = [{"role": "system", "content": "s"}]
    output = io.StringIO()
    assert chat.converse(conversant, opening, output) == 0
    assert [[message["content"] for message in messages] for messages in conversant.asked] == [
        ["s", "q1"],
        ["s", "q1", "A1", "q2"],
        ["s", "q3"],
    ]
    assert "A1\n" in output.getvalue()


def test_bytes_that_are_no_text_cost_their_turn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    conversant = FakeConversant([["A"]])
    type_lines(monkeypatch, ["\udcff", "q"])
    output = io.StringIO()
    assert chat.converse(conversant, [], output) == 0
    assert "[the question is not UTF-8" in output.getvalue()
    assert [message["content"] for message in conversant.asked[0]] == ["q"]


def test_an_interrupt_stops_the_answer_and_not_the_conversation(monkeypatch: pytest.MonkeyPatch) -> None:
    conversant = FakeConversant([["half", KeyboardInterrupt()], ["whole"]])
    type_lines(monkeypatch, ["q1", "q2"])
    output = io.StringIO()
    assert chat.converse(conversant, [], output) == 0
    assert "half [stopped]\n" in output.getvalue()
    assert [message["content"] for message in conversant.asked[1]] == ["q1", "half", "q2"]
    assert conversant.closed_answers == 2


def test_an_error_costs_its_turn_only(monkeypatch: pytest.MonkeyPatch) -> None:
    conversant = FakeConversant([[ServerAnswerError("too long")], ["fine"]])
    type_lines(monkeypatch, ["q1", "q2"])
    output = io.StringIO()
    assert chat.converse(conversant, [], output) == 0
    assert "[too long]\n" in output.getvalue()
    assert [message["content"] for message in conversant.asked[1]] == ["q2"]


def test_an_interrupt_at_the_prompt_shows_how_to_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    type_lines(monkeypatch, [KeyboardInterrupt, "/exit"])
    output = io.StringIO()
    assert chat.converse(FakeConversant([]), [], output) == 0
    assert output.getvalue().count(chat.HELP) == 2


def test_control_characters_are_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, pipe = Terminal(), io.StringIO()
    for output in (terminal, pipe):
        chat._show("a\x1b[2Jb\n", output)
    assert terminal.getvalue() == "a\\x1b[2Jb\n"
    assert pipe.getvalue() == "a\x1b[2Jb\n"


@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_temperature_that_is_no_number_is_refused_by_its_option(
    number: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["chat", "Hi?", "--url", "http://127.0.0.1:1", "--temperature", number]) == 64
    assert capsys.readouterr().err == "edgellm: --temperature must be a finite number\n"
