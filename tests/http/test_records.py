"""Records of a real daemon: written for every request, opened anew on SIGHUP, read by whoever sent the request."""

from __future__ import annotations

import json
import signal
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.http.conftest import StartDaemon
from tests.http.daemon_process import MODEL, Daemon

CANARY = "zanzibar-canary-7731"


def lines_of(path: Path) -> dict[str, dict[str, Any]]:
    return {line["id"]: line for line in map(json.loads, path.read_text().splitlines())} if path.exists() else {}


def chat_as(daemon: Daemon, name: str, **fields: Any) -> httpx.Response:
    message = {"role": "user", "content": f"Say {CANARY}."}
    body = {"messages": [message], "max_tokens": 4, "temperature": 0, **fields}
    return daemon.post("/v1/chat/completions", body, headers={"x-request-id": name})


def test_a_daemon_records_what_became_of_requests_and_no_text(start_daemon: StartDaemon, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    daemon = start_daemon("--records", str(path))
    assert chat_as(daemon, "whole").status_code == 200
    assert chat_as(daemon, "stream", stream=True).status_code == 200
    assert chat_as(daemon, "refused", temperature=9).status_code == 400
    daemon.wait_for(lambda: len(lines_of(path)) == 3)
    found = lines_of(path)
    assert {name: line["outcome"] for name, line in found.items()} == {
        "whole": "success",
        "stream": "success",
        "refused": "refused",
    }
    whole = found["whole"]
    assert (whole["generated_tokens"], whole["finish_reasons"], whole["lanes"]) == (4, {"length": 1}, ["0"])
    assert 0 < whole["prefill_seconds"] < whole["native_seconds"] < whole["total_seconds"]
    assert whole["prompt_tokens"] == found["stream"]["prompt_tokens"] > 4
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert daemon.get("/v1/records/whole").json() == whole
    assert daemon.get("/v1/records/other").status_code == 404
    path.rename(tmp_path / "moved.jsonl")
    daemon.process.send_signal(signal.SIGHUP)
    assert chat_as(daemon, "after").status_code == 200
    daemon.wait_for(lambda: set(lines_of(path)) == {"after"})
    daemon.stop()
    for kept in (path.read_text(), (tmp_path / "moved.jsonl").read_text(), daemon.log):
        assert CANARY not in kept


def test_the_prompt_of_a_request_that_was_cut_while_it_was_computed_counts(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    path, config = tmp_path / "records.jsonl", tmp_path / "edgellm.toml"
    config.write_text('[records]\nfile = "records.jsonl"\n[admission]\nrequest_timeout_seconds = 0.5\n')
    daemon = start_daemon("--config", str(config))
    prompt = list(range(100, 1900))
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 200, "temperature": 0, "logit_bias": {"0": -100, "2": -100}}
    cut = daemon.post("/v1/completions", body, headers={"x-request-id": "cut"})
    assert cut.json()["error"]["code"] == "request_timeout", cut.text
    daemon.wait_for(lambda: "cut" in lines_of(path))
    record = lines_of(path)["cut"]
    assert (record["outcome"], record["prompt_tokens"]) == ("timed_out", len(prompt))


def test_a_file_that_cannot_be_written_any_more_costs_records_and_no_request(
    start_daemon: StartDaemon, tmp_path: Path
) -> None:
    path = tmp_path / "folder" / "records.jsonl"
    path.parent.mkdir()
    daemon = start_daemon("--records", str(path))
    path.parent.rename(tmp_path / "moved")
    daemon.process.send_signal(signal.SIGHUP)
    for number in range(2):
        assert chat_as(daemon, str(number)).status_code == 200
    daemon.wait_for(lambda: 'edgellm_records_total{result="lost"} 2.0' in daemon.get("/metrics").text)
    assert daemon.log.count(f"{path} cannot be written") == 1
    assert daemon.get("/v1/records/1").json()["outcome"] == "success"


@pytest.mark.parametrize(("name", "reason"), [("nowhere/r", "No such file or directory"), (".", "Is a directory")])
def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path, name: str, reason: str) -> None:
    daemon = Daemon(None, "--records", str(tmp_path / name))
    try:
        assert daemon.exit_code() == 78
        assert f"records.file {tmp_path / name} cannot be written ({reason})" in daemon.log
        assert "listening on" not in daemon.log
    finally:
        daemon.stop()


def test_prompts_and_answers_are_recorded_when_the_operator_says_so(start_daemon: StartDaemon, tmp_path: Path) -> None:
    path, config = tmp_path / "records.jsonl", tmp_path / "edgellm.toml"
    config.write_text('[records]\nfile = "records.jsonl"\ninclude_text = true\n')
    daemon = start_daemon("--config", str(config))
    answer = chat_as(daemon, "kept").json()["choices"][0]["message"]["content"]
    daemon.wait_for(lambda: "kept" in lines_of(path))
    record = lines_of(path)["kept"]
    assert record["prompts"][0]["messages"][0]["content"] == f"Say {CANARY}."
    assert record["answers"] == [answer]
    assert "prompts" not in daemon.get("/v1/records/kept").json()
