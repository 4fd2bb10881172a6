"""The edgellm command as a person uses it: what serve prints works as it stands, chat streams and stops."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import MODEL, STATE_DEADLINE_SECONDS, Daemon


def edgellm(*arguments: str, question: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgellm", *arguments],
        input=question,
        stdin=subprocess.DEVNULL if question is None else None,
        capture_output=True,
        text=True,
        timeout=2 * STATE_DEADLINE_SECONDS,
        check=False,
        env={**os.environ, **environ},
    )


def printed_line(daemon: Daemon, label: str) -> str:
    daemon.wait_for(lambda: f"  {label} " in daemon.log)
    match = re.search(rf"^  {label} +(.*)$", daemon.log, re.MULTILINE)
    assert match is not None
    return match[1]


def test_the_printed_curl_line_works_as_it_stands(daemon: Daemon) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    line = printed_line(daemon, "curl")
    completed = subprocess.run(["/bin/sh", "-c", f"{line} --silent"], capture_output=True, text=True, check=False)
    assert '"finish_reason"' in completed.stdout, completed.stderr


def test_the_printed_python_line_works_as_it_stands(daemon: Daemon) -> None:
    completed = subprocess.run(
        ["/bin/sh", "-c", printed_line(daemon, "Python")], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    assert completed.stdout.strip()


def test_with_keys_the_printed_lines_take_the_key_from_the_environment(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    keys = tmp_path / "keys"
    keys.write_text("alice:alices-long-secret-key\n")
    keys.chmod(0o600)
    daemon = start_daemon("--api-keys-file", str(keys), "--host", "127.0.0.1")
    environ = {**os.environ, "EDGELLM_API_KEY": "alices-long-secret-key"}
    for label in ("curl", "Python") if shutil.which("curl") else ("Python",):
        line = printed_line(daemon, label)
        assert "alices-long" not in daemon.log
        completed = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False, env=environ)
        assert completed.returncode == 0, completed.stderr
        assert "invalid_api_key" not in completed.stdout
    asked = edgellm("chat", "Hello", "--url", daemon.url, "--max-tokens", "4", EDGELLM_API_KEY="alices-long-secret-key")
    assert asked.returncode == 0, asked.stderr
    refused = edgellm("chat", "Hello", "--url", daemon.url)
    assert refused.returncode == 77
    assert "401" in refused.stderr


def test_chat_answers_a_piped_question(daemon: Daemon) -> None:
    first = edgellm("chat", "--url", daemon.url, "--temperature", "0", "--max-tokens", "12", question="Say hello.\n")
    again = edgellm("chat", "Say hello.\n", "--url", daemon.url, "--temperature", "0", "--max-tokens", "12")
    assert first.returncode == 0, first.stderr
    assert first.stdout.strip()
    assert first.stdout == again.stdout
    assert first.stderr == ""


def test_chat_can_load_the_model_itself(model_source: Path) -> None:
    answer = edgellm("chat", "Say hello.", "--local", str(model_source), "--temperature", "0", "--max-tokens", "8")
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()


class Terminal:
    """A program on a pseudo-terminal: what a person types and sees."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.execve(  # noqa: S606
                sys.executable,
                [sys.executable, "-m", "edgellm", *arguments],
                {**os.environ, "TERM": "dumb", "INPUTRC": "/dev/null"},
            )
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str, start: int = 0) -> int:
        """Read on until the pattern is seen after ``start``; give where it ended."""
        deadline = time.monotonic() + 2 * STATE_DEADLINE_SECONDS
        while (match := re.compile(pattern).search(self.seen, start)) is None:
            left_seconds = deadline - time.monotonic()
            readable, _, _ = select.select([self._master], [], [], max(0.0, left_seconds))
            assert readable, self.seen
            try:
                self.seen += os.read(self._master, 65536).decode(errors="replace")
            except OSError:
                raise AssertionError(f"it ended:\n{self.seen}") from None
        return match.end()

    def exit_code(self) -> int:
        try:
            while data := os.read(self._master, 65536):
                self.seen += data.decode(errors="replace")
        except OSError:
            pass
        _, status = os.waitpid(self.pid, 0)
        self.pid = 0
        return os.waitstatus_to_exitcode(status)

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._master)


@pytest.fixture
def chat(daemon: Daemon) -> Iterator[Terminal]:
    terminal = Terminal("chat", "--url", daemon.url, "--temperature", "0")
    try:
        yield terminal
    finally:
        terminal.close()


def test_in_a_terminal_chat_streams_and_an_interrupt_stops_the_answer_only(chat: Terminal, daemon: Daemon) -> None:
    chat.wait_for(rf"{MODEL} at .*\r\n> ")
    chat.type("Write a very long story about the sea.\n")
    asked = chat.wait_for(r"about the sea\.\r\n")
    begun = chat.wait_for(r"\w+ \w+ \w+", asked)
    assert daemon.model_health()["running"] >= 1
    chat.type("\x03")
    stopped = chat.wait_for(r"\[stopped\]\r\n> ", begun)
    daemon.wait_for(daemon.is_idle)
    chat.type("Say hello.\n")
    chat.wait_for(r"Say hello\.\r\n.*\w[\s\S]*\r\n> ", stopped)
    chat.type("/exit\n")
    assert chat.exit_code() == 0


def test_in_a_terminal_end_of_input_leaves(chat: Terminal) -> None:
    chat.wait_for("> ")
    chat.type("\x04")
    assert chat.exit_code() == 0


def test_serve_says_who_holds_the_port_before_it_loads_anything(model_source: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        completed = edgellm("serve", str(model_source), "--port", str(port))
    assert completed.returncode == 69
    assert completed.stdout == ""
    (line,) = completed.stderr.splitlines()
    assert line.startswith(f"edgellm: port {port} on 127.0.0.1 is in use by ")


def test_a_model_that_is_not_here_names_the_command_that_brings_it(tmp_path: Path) -> None:
    completed = edgellm("serve", "--port", "0", "--no-build-on-start", EDGELLM_CACHE_DIR=str(tmp_path))
    assert completed.returncode == 66
    assert completed.stderr.splitlines()[-1] == (
        f"edgellm: the model smollm2-135m-instruct is not on this machine yet: it is not in {tmp_path}/models, by "
        f"EDGELLM_CACHE_DIR — correct that variable, or run: env EDGELLM_CACHE_DIR={tmp_path} edgellm models add "
        "smollm2-135m-instruct"
    )


@pytest.mark.parametrize(
    ("name", "content", "exit_code"),
    [("absent.gguf", None, 66), ("empty.gguf", b"", 65), ("text.gguf", b"not a model", 65), ("model.bin", b"x", 66)],
)
def test_a_source_that_is_no_model_ends_serve_with_one_line_naming_it(
    name: str, content: bytes | None, exit_code: int, tmp_path: Path
) -> None:
    source = tmp_path / name
    if content is not None:
        source.write_bytes(content)
    completed = edgellm("serve", str(source), "--port", "0")
    assert completed.returncode == exit_code, completed.stderr
    last = completed.stderr.splitlines()[-1]
    assert last.startswith("edgellm: ")
    assert name in last
    assert "Traceback" not in completed.stderr


def test_systemd_hears_ready_only_after_a_token(start_daemon: StartDaemon, tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(path))
        receiver.settimeout(STATE_DEADLINE_SECONDS)
        daemon = start_daemon(ready=False, env={**os.environ, "NOTIFY_SOCKET": str(path)})
        heard: list[str] = []
        while "READY=1" not in heard:
            heard += receiver.recv(4096).decode().split("\n")
        assert any(state.startswith("STATUS=") for state in heard[: heard.index("READY=1")])
        assert daemon.model_health()["state"] == "ready"
        daemon.terminate()
        assert daemon.exit_code() == 0
        while "STOPPING=1" not in heard:
            heard += receiver.recv(4096).decode().split("\n")
