"""The service from its first start to its stop: READY after a token, stages in STATUS, a drain at the end."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from contextlib import suppress

import pytest
from tests.service.appliance import LONG, PREWARM, READY_TARGET, UNIT, Appliance
from tests.service.conftest import MakeAppliance, Say

LARGE = [{"role": "user", "content": "word " * 800}]


@pytest.fixture(scope="module")
def appliance(make_appliance: MakeAppliance) -> Appliance:
    made = make_appliance("lifecycle").boot()
    made.install()
    return made


def test_a_missing_engine_ends_the_start_for_good_and_prewarming_mends_it(appliance: Appliance) -> None:
    appliance.device.run("systemctl", "start", UNIT, check=False)
    state = appliance.wait_until_failed()
    assert (state["ExecMainStatus"], state["NRestarts"]) == ("72", "0")
    (line,) = [line for line in appliance.journal().splitlines() if line.startswith("edgellm: model smollm2")]
    assert "no engine" in line
    assert "edgellm engine build" in line
    assert state["StatusText"] == line.removeprefix("edgellm: ")
    appliance.device.run("systemctl", "start", PREWARM)
    appliance.wait_until_active("the server that prewarming starts again")
    assert appliance.chat().status_code == 200
    appliance.device.run("systemctl", "stop", UNIT)


def test_ready_comes_after_a_token_and_the_stages_are_seen(appliance: Appliance) -> None:
    appliance.device.run("systemctl", "--no-block", "start", UNIT)
    seen: list[str] = []
    early: set[int] = set()
    deadline = time.monotonic() + 120
    while (state := appliance.state())["ActiveState"] != "active":
        assert time.monotonic() < deadline, seen
        assert state["ActiveState"] in ("activating", "inactive"), state
        if state["StatusText"] and state["StatusText"] not in seen:
            seen.append(state["StatusText"])
        with suppress(OSError):
            early.add(appliance.request("/health/ready").status_code)
    # Ready in systemd's eyes: the first request is answered, not refused.
    assert appliance.chat().status_code == 200
    assert any("smollm2-135m-instruct: " in text for text in seen), seen
    assert 503 in early
    assert appliance.state()["StatusText"] == "serving on http://127.0.0.1:8000"


def test_starts_that_people_ask_for_are_not_limited(appliance: Appliance) -> None:
    for _ in range(7):  # more than StartLimitBurst
        appliance.device.run("systemctl", "restart", UNIT)
    assert appliance.state()["ActiveState"] == "active"
    assert appliance.chat().status_code == 200


def test_a_name_that_the_machine_gets_while_it_serves_is_its_own(appliance: Appliance) -> None:
    before = appliance.device.run("uname", "-n").output.strip()
    appliance.configure('[server]\nhost = "0.0.0.0"\ninsecure_no_keys = true\n')
    try:
        appliance.device.run("systemctl", "restart", UNIT)
        assert appliance.request("/v1/models", Host="renamed:8000").status_code == 403
        appliance.device.run("python3", "-c", "import socket; socket.sethostname('renamed')")
        answered = lambda: appliance.request("/v1/models", Host="renamed:8000").status_code == 200  # noqa: E731
        appliance.device.wait_for(answered, "an answer by the new name")
    finally:
        appliance.device.run("python3", "-c", f"import socket; socket.sethostname({before!r})")
        appliance.configure("")
        appliance.device.run("systemctl", "restart", UNIT)


def test_the_ready_target_follows_the_server(appliance: Appliance) -> None:
    appliance.wait_until_active()
    assert appliance.is_active(READY_TARGET)
    appliance.device.run("systemctl", "stop", UNIT)
    assert appliance.state(READY_TARGET)["ActiveState"] == "inactive"
    appliance.start()
    appliance.device.wait_for(lambda: appliance.is_active(READY_TARGET), "the target")


def test_more_time_to_start_is_asked_for_while_a_model_loads(appliance: Appliance) -> None:
    appliance.loads_longer_than(15)


def test_a_stream_in_flight_is_finished_before_the_stop(appliance: Appliance, say: Say) -> None:
    appliance.wait_until_it_answers()
    with appliance.stream(max_tokens=400) as events:
        began = time.monotonic()
        stop = subprocess.Popen([*appliance.device.enter(), "systemctl", "stop", UNIT])
        appliance.device.wait_for(lambda: appliance.state()["ActiveState"] == "deactivating", "the stop")
        assert "finishing 1 running request(s)" in appliance.state()["StatusText"]
        chunks = list(events)
        assert stop.wait(60) == 0
    stop_seconds = time.monotonic() - began
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    state = appliance.state()
    assert (state["ActiveState"], state["Result"], state["ExecMainStatus"]) == ("inactive", "success", "0")
    say(f"stop with a drain of a 400-token stream: {stop_seconds:.1f} s")


def test_an_idle_server_stops_at_once(appliance: Appliance, say: Say) -> None:
    appliance.start()
    began = time.monotonic()
    appliance.device.run("systemctl", "stop", UNIT)
    say(f"stop of an idle server: {time.monotonic() - began:.1f} s")
    assert appliance.state()["Result"] == "success"


def test_a_stop_while_models_load_is_orderly(appliance: Appliance) -> None:
    appliance.device.run("systemctl", "--no-block", "start", UNIT)
    appliance.device.wait_for(lambda: "smollm2" in appliance.state()["StatusText"], "the load")
    appliance.device.run("systemctl", "stop", UNIT)
    state = appliance.state()
    assert (state["ActiveState"], state["ExecMainStatus"]) == ("inactive", "0")


def test_a_configuration_error_is_one_line_and_no_restart(appliance: Appliance) -> None:
    appliance.configure("[server]\nprot = 8000\n")
    try:
        appliance.device.run("systemctl", "start", UNIT, check=False)
        state = appliance.wait_until_failed()
        assert (state["ExecMainStatus"], state["NRestarts"]) == ("78", "0")
        said = [line for line in _lines_of_last_start(appliance) if line["PRIORITY"] == "3"]
        assert len(said) == 1
        assert "prot" in said[0]["MESSAGE"]
        assert "/etc/edgellm/edgellm.toml" in said[0]["MESSAGE"]
    finally:
        appliance.configure("")


def test_a_crash_loop_ends_in_failed(appliance: Appliance) -> None:
    appliance.device.run("systemctl", "stop", UNIT)
    appliance.device.run("systemctl", "reset-failed", UNIT, check=False)
    taking = "import socket, time; taken = socket.create_server(('127.0.0.1', 8000)); time.sleep(3600)"
    appliance.device.run("systemd-run", "--quiet", "--unit=holder", "python3", "-c", taking)
    try:
        appliance.device.wait_for(lambda: ":8000" in appliance.device.run("ss", "-ltn").output, "the port's holder")
        appliance.device.run("systemctl", "start", UNIT, check=False)
        appliance.device.wait_for(
            lambda: "Start request repeated too quickly" in appliance.journal(), "the start limit", 240
        )
    finally:
        appliance.device.run("systemctl", "stop", "holder")
    state = appliance.state()
    assert (state["ActiveState"], state["ExecMainStatus"]) == ("failed", "69")
    assert not appliance.is_active(READY_TARGET)
    assert appliance.journal().count("edgellm: port 8000 on 127.0.0.1 is in use") == 5
    appliance.device.run("systemctl", "reset-failed", UNIT)
    appliance.start()
    assert appliance.chat().status_code == 200


def test_a_reload_takes_settings_on_and_drops_no_request(appliance: Appliance) -> None:
    appliance.wait_until_it_answers()
    pid = appliance.pid()
    appliance.configure("[server]\nrequest_body_bytes_max = 2048\n")
    with appliance.stream(max_tokens=200) as events:
        appliance.device.run("systemctl", "reload", UNIT)
        assert appliance.chat(messages=LARGE).status_code == 413
        chunks = list(events)
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    state = appliance.state()
    assert (state["ActiveState"], state["SubState"], int(state["MainPID"])) == ("active", "running", pid)
    assert state["StatusText"] == "serving on http://127.0.0.1:8000"
    assert "request_body_bytes_max" in appliance.journal()


def test_a_reload_of_a_wrong_configuration_fails_and_changes_nothing(appliance: Appliance) -> None:
    pid = appliance.pid()
    appliance.configure("[server]\nrequest_body_bytes_max = 1\n")
    try:
        refused = appliance.device.run("systemctl", "reload", UNIT, check=False)
        assert refused.code != 0
        assert appliance.chat(messages=LARGE).status_code == 413  # that of before holds on
        assert appliance.chat().status_code == 200
        assert (appliance.state()["ActiveState"], appliance.pid()) == ("active", pid)
        assert "the configuration was not taken on" in appliance.journal()
    finally:
        appliance.configure("")
    appliance.device.run("systemctl", "reload", UNIT)
    assert appliance.chat(messages=LARGE).status_code == 200


def test_only_root_and_the_server_s_user_may_reload(appliance: Appliance) -> None:
    others = ("setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups")
    refused = appliance.device.run(*others, "/opt/edgellm/bin/edgellm", "reload", check=False)
    assert refused.code == 77
    assert "only root and the daemon's own user may do this" in refused.output
    assert "nothing changed" in appliance.device.run("/usr/local/bin/edgellm", "reload").output


def test_many_requests_at_once_do_not_stop_the_pings(appliance: Appliance) -> None:
    appliance.drop_in("watchdog", "[Service]\nWatchdogSec=4s\n")
    try:
        appliance.device.run("systemctl", "restart", UNIT)
        pid = appliance.pid()
        codes: list[int] = []
        threads = [
            threading.Thread(target=lambda: codes.append(appliance.chat(**LONG, max_tokens=200).status_code))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == [200] * 8
        assert appliance.pid() == pid
    finally:
        appliance.drop_in("watchdog", "")


def _lines_of_last_start(appliance: Appliance) -> list[dict[str, str]]:
    invocation = appliance.state()["InvocationID"]
    printed = appliance.device.journal("", f"_SYSTEMD_INVOCATION_ID={invocation}", "--output=json")
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
