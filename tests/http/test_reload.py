"""The configuration is taken on anew under load: models come, are replaced and go; nothing is dropped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from tests.http.daemon_process import Daemon
from tests.http.test_worker_loss import worker_pids
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf

NOBODY = 65534


class Configured:
    """A daemon and the configuration that it reads."""

    def __init__(self, folder: Path, real_model: Path) -> None:
        self.folder = folder
        self.file = folder / "edgellm.toml"
        tiny = {name: write_gguf(folder / f"{name}.gguf", VARIANTS[name], "Q8_0") for name in ("llama", "qwen2")}
        self.sources = {**tiny, "real": real_model}
        self.daemon: Daemon | None = None

    def write(self, *models: str, server: str = "", further: str = "") -> None:
        text = f'cache_dir = "{self.folder / "cache"}"\n[server]\n{server}\n{further}\n' + "\n".join(models)
        self.file.write_text(text)

    def model(self, name: str, source: str = "llama", *further: str) -> str:
        lines = [f'name = "{name}"', f'source = "{self.sources.get(source, source)}"', "threads = 1", *further]
        return "\n".join(["[[models]]", *lines, ""])

    def start(self, *options: str) -> Daemon:
        self.daemon = Daemon(None, "--config", str(self.file), *options)
        return self.daemon.wait_until_ready()

    def reload(self) -> list[str]:
        assert self.daemon is not None
        code, said = self.daemon.reload()
        assert code == 0, said
        return self.what_changed(said)

    def what_changed(self, said: str) -> list[str]:
        """Without the lines that say who answered and how to go on."""
        assert self.daemon is not None
        first, *lines = said.splitlines()
        assert first == f"daemon of pid {self.daemon.process.pid}, configuration file {self.file}:"
        return [line for line in lines if not line.startswith("GET /v1/models")]


@pytest.fixture
def configured(tmp_path: Path, model_source: Path) -> Iterator[Configured]:
    made = Configured(tmp_path, model_source)
    try:
        yield made
    finally:
        if made.daemon is not None:
            made.daemon.stop()


def models(daemon: Daemon) -> dict[str, str]:
    return {model["id"]: model["edgellm"]["state"] for model in daemon.get("/v1/models").json()["data"]}


def ask(daemon: Daemon, model: str, max_tokens: int = 4) -> httpx.Response:
    body = {"model": model, "prompt": "hello", "max_tokens": max_tokens, "temperature": 0, "logit_bias": {"2": -100}}
    return daemon.post("/v1/completions", body)


class Stream:
    """A long stream of the real model, read by a thread of its own."""

    def __init__(self, daemon: Daemon, model: str, max_tokens: int = 400) -> None:
        self._body = {"model": model, "prompt": "hello", "max_tokens": max_tokens, "stream": True}
        self._body |= {"logit_bias": {"2": -100}}
        self._url = f"{daemon.url}/v1/completions"
        self.began = threading.Event()
        self.received = ""
        self._thread = threading.Thread(target=self._read)
        self._thread.start()
        assert self.began.wait(60)

    def _read(self) -> None:
        with httpx.stream("POST", self._url, json=self._body, timeout=120) as answer:
            for text in answer.iter_text():
                self.received += text
                self.began.set()

    def ended_well(self) -> bool:
        self._thread.join(120)
        assert not self._thread.is_alive(), "it still runs"
        events = [line.removeprefix("data: ") for line in self.received.split("\n\n") if line.startswith("data: ")]
        assert events[-1] == "[DONE]", events[-1]
        # By its key: a piece of text may well be the word "error".
        return not any("error" in json.loads(event) for event in events[:-1])


def test_models_come_and_go_under_a_stream_that_is_not_dropped(configured: Configured) -> None:
    configured.write(configured.model("a"), configured.model("b", "real"))
    daemon = configured.start()
    stream = Stream(daemon, "b")
    configured.write(configured.model("a"), configured.model("c", "qwen2", 'aliases = ["see"]'))
    assert configured.reload() == ["model b: removed; 1 request(s) finish first", "model c: added, and loading"]
    assert set(models(daemon)) == {"a", "c", "see"}
    gone = ask(daemon, "b")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "model_not_found")
    added = ask(daemon, "see")
    assert (added.status_code, added.json()["model"]) == (200, "c"), "its requests wait until it is open"
    assert daemon.get("/health/ready").status_code == 200
    assert stream.ended_well()
    daemon.wait_for(lambda: len(worker_pids(daemon)) == 2)
    assert configured.reload() == ["nothing changed"]


def test_a_model_is_replaced_while_requests_keep_coming(configured: Configured) -> None:
    configured.write(configured.model("a"))
    daemon = configured.start()
    stopped = threading.Event()
    codes: list[int] = []

    def keep_asking() -> None:
        while not stopped.is_set():
            codes.append(ask(daemon, "a", 16).status_code)

    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(keep_asking)
        (before,) = worker_pids(daemon)
        configured.write(configured.model("a", "qwen2", "max_batch_size = 2"))
        assert configured.reload() == ["model a: being replaced; what it runs finishes first"]
        daemon.wait_for(lambda: before not in worker_pids(daemon) and len(worker_pids(daemon)) == 1)
        stopped.set()
    assert set(codes) == {200}
    assert daemon.get("/v1/models/a").json()["edgellm"]["max_batch_size"] == 2


def test_where_memory_holds_one_only_the_old_model_finishes_first(configured: Configured) -> None:
    room = "[residency]\nmodel_memory_gb = 0.1"
    configured.write(configured.model("a", "real"), further=room)
    daemon = configured.start()
    stream = Stream(daemon, "a")
    configured.write(configured.model("a", "qwen2"), further=room)
    configured.reload()
    daemon.wait_for(lambda: models(daemon) == {"a": "loading"})
    waiting = ask(daemon, "a")
    assert waiting.status_code == 200, "it waits for the new model, which waits for the old one"
    assert stream.ended_well()
    daemon.wait_for(lambda: len(worker_pids(daemon)) == 1)


def test_what_needs_no_other_workers_keeps_them(configured: Configured) -> None:
    configured.write(configured.model("a"))
    daemon = configured.start()
    before = worker_pids(daemon)
    configured.write(
        configured.model("a", "llama", "required = false", "[models.sampling]", "temperature = 0.25"),
        server="requests_per_minute = 1",
        further='[admission]\nmax_queued_requests = 3\n[log]\nlevel = "debug"',
    )
    lines = configured.reload()
    assert set(lines) == {
        "server.requests_per_minute",
        "admission.max_queued_requests",
        "log.level",
        "model a: changed: required, sampling, max_queued_requests",
    }
    assert worker_pids(daemon) == before
    assert daemon.get("/v1/models/a").json()["edgellm"]["sampling_defaults"]["temperature"] == 0.25
    assert [ask(daemon, "a").status_code for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(
    ("model", "server", "further", "code", "said"),
    [
        ("llama", "connections_max = 5", "", 78, "server.connections_max (1024 → 5) cannot change"),
        ("llama", "", '[log]\nformat = "json"', 78, "log.format (text → json) cannot change"),
        ("llama", 'colour = "red"', "", 78, "unknown key server.colour"),
        ("llama", "", "this is no TOML", 78, "no valid TOML"),
        ("/nowhere/model.gguf", "", "", 66, "/nowhere/model.gguf"),
    ],
)
def test_what_is_wrong_changes_nothing_and_is_said_to_both(
    configured: Configured, model: str, server: str, further: str, code: int, said: str
) -> None:
    configured.write(configured.model("a"))
    daemon = configured.start()
    before = worker_pids(daemon)
    configured.write(configured.model("z", model), server=server, further=further)
    found_code, found = daemon.reload()
    assert (found_code, said in found) == (code, True), found
    daemon.wait_for(lambda: said in daemon.log)
    assert models(daemon) == {"a": "ready"}
    assert worker_pids(daemon) == before
    assert ask(daemon, "a").status_code == 200


def test_a_file_of_keys_that_is_wrong_changes_nothing_else_either(configured: Configured) -> None:
    keys = configured.folder / "keys"
    keys.write_text(f"somebody:{'k' * 20}\n")
    keys.chmod(0o600)
    configured.write(configured.model("a"), server=f'api_keys_file = "{keys}"')
    daemon = configured.start()
    with keys.open("a") as stream:
        stream.write("garbage\n")
    configured.write(
        configured.model("z"), server=f'api_keys_file = "{keys}"', further="[admission]\nmax_queued_requests = 1"
    )
    code, said = daemon.reload()
    assert (code, "keys line 2: expected name:key" in said) == (78, True), said
    asked = httpx.get(f"{daemon.url}/v1/models", headers={"Authorization": f"Bearer {'k' * 20}"})
    assert [model["id"] for model in asked.json()["data"]] == ["a"]
    checked = subprocess.run(
        [sys.executable, "-m", "edgellm", "config", "check", "--config", str(configured.file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (checked.returncode, "keys line 2: expected name:key" in checked.stderr) == (78, True), checked.stderr


def test_flags_still_win_and_a_hangup_does_the_same(configured: Configured) -> None:
    configured.write(configured.model("a"))
    daemon = configured.start("--max-queued-requests", "7")
    configured.write(
        configured.model("a"), configured.model("b"), server="port = 1", further="[admission]\nmax_queued_requests = 1"
    )
    daemon.process.send_signal(signal.SIGHUP)
    daemon.wait_for(lambda: models(daemon) == {"a": "ready", "b": "ready"})
    assert "configuration read anew: model b: added" in daemon.log
    assert "max_queued_requests" not in daemon.log


def test_reloads_at_the_same_time_follow_each_other(configured: Configured) -> None:
    configured.write(configured.model("a"))
    daemon = configured.start()
    configured.write(configured.model("a"), configured.model("b"))
    with ThreadPoolExecutor(4) as pool:
        said = list(pool.map(lambda _: daemon.reload(), range(4)))
    changed = sorted(line for _, text in said for line in configured.what_changed(text))
    assert changed == ["model b: added, and loading"] + ["nothing changed"] * 3
    # Back and forth, faster than models open.
    for _ in range(3):
        configured.write(configured.model("a", "qwen2"), configured.model("b", "llama", "max_batch_size = 1"))
        configured.reload()
        configured.write(configured.model("a"))
        configured.reload()
    daemon.wait_for(lambda: models(daemon) == {"a": "ready"} and len(worker_pids(daemon)) == 1)
    assert ask(daemon, "a").status_code == 200


def test_a_new_model_that_does_not_load_leaves_the_old_one_in_place(configured: Configured) -> None:
    configured.write(configured.model("a"))
    daemon = configured.start()
    damaged = configured.folder / "damaged.gguf"
    damaged.write_bytes(configured.sources["llama"].read_bytes()[:-5000])
    configured.write(configured.model("a", str(damaged)), configured.model("b", str(damaged)))
    code, _ = daemon.reload()
    if code == 0:  # what is wrong with it is found when it is opened
        daemon.wait_for(lambda: "model a stays as it was before" in daemon.log)
        daemon.wait_for(lambda: models(daemon).get("b") == "unavailable")
    assert ask(daemon, "a").status_code == 200
    assert daemon.get("/health/ready").status_code == 200


def test_waiting_says_what_did_not_load_and_why(configured: Configured) -> None:
    configured.write(configured.model("a"))
    daemon = configured.start()
    damaged = configured.folder / "damaged.gguf"
    # Of the right form up to its weights, so that only loading finds it out.
    whole = configured.sources["llama"].read_bytes()
    damaged.write_bytes(whole[: len(whole) // 2] + b"\xff" * (len(whole) - len(whole) // 2))
    configured.write(configured.model("a"), configured.model("good"), configured.model("bad", str(damaged)))
    code, said = daemon.reload("--wait", "60")
    assert code == 65, said
    assert "model bad: added, and loading" in said
    assert f"model bad ({damaged}): " in said
    assert "edgellm reload --wait" not in said
    assert models(daemon) == {"a": "ready", "good": "ready", "bad": "unavailable"}
    configured.write(configured.model("a"), configured.model("good"), configured.model("other", "qwen2"))
    code, said = daemon.reload("--wait")
    assert code == 0, said
    assert models(daemon)["other"] == "ready"
    configured.write(configured.model("a", str(damaged)), configured.model("good"))
    code, said = daemon.reload("--wait")
    assert (code, "model a (" in said) == (65, True), said
    assert ask(daemon, "a").status_code == 200, "the one of before stays"
    configured.write(configured.model("a"), configured.model("late", "real"))
    code, said = daemon.reload("--wait", "0.001")
    assert (code, "model late is still loading after 0.001 s" in said) == (75, True), said
    assert daemon.reload("--wait", "soon")[0] == 64


def test_another_configuration_than_the_daemons_is_refused(configured: Configured, tmp_path: Path) -> None:
    configured.write(configured.model("a"))
    daemon = configured.start()
    two = tmp_path / "two.toml"
    two.write_text("")
    code, said = daemon.reload("--config", str(two))
    assert code == 78, said
    assert f"(pid {daemon.process.pid}) has the configuration file {configured.file}, not {two}" in said
    code, said = daemon.reload("--config", os.path.relpath(configured.file))
    assert (code, configured.what_changed(said)) == (0, ["nothing changed"])


def test_only_root_and_the_daemons_user_may_ask(configured: Configured) -> None:
    configured.write(configured.model("a"))
    daemon = configured.start()
    assert daemon.admin_socket.stat().st_mode & 0o777 == 0o600
    with socket.socket(socket.AF_UNIX) as garbage:
        garbage.connect(str(daemon.admin_socket))
        garbage.sendall(b'{"verb": "sing"}\n')
        assert json.loads(garbage.recv(65536))["code"] == "usage"
    if os.geteuid() != 0:
        pytest.skip("another user can be only where root starts the tests")
    for folder in (daemon.admin_socket, daemon.admin_socket.parent):
        folder.chmod(0o777)
    answer = json.loads(_as_nobody(daemon.admin_socket))
    assert (answer["answer"], answer["code"]) == ("refused", "not_allowed")
    daemon.wait_for(lambda: f"user {NOBODY} was refused" in daemon.log)


def _as_nobody(path: Path) -> bytes:
    """What another user is answered."""
    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setuid(NOBODY)
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(str(path))
                asking.sendall(b'{"verb": "reload"}\n')
                os.write(theirs, asking.recv(65536))
        finally:
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    received = os.read(mine, 65536)
    os.close(mine)
    return received
