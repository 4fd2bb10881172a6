"""A new Debian machine and an ordinary user: missing prerequisites are named, then two commands are enough.

The tests build on each other, in the order of the file: the machine gets what it was told it lacks.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.lab.rootfs import mirror_of_this_machine, missing_tools
from tests.setup.fresh_machine import FreshMachine

pytestmark = pytest.mark.long

CHECKOUT = Path(__file__).resolve().parents[2]
READY_SECONDS_MAX = 3000  # set-up included; ten times what is measured without other load

EXAMINE = """python3 -c '
import sys
sys.path.insert(0, "daemon/setup")
import preflight
print(*("edgellm: " + problem for problem in preflight.examine(preflight.Machine(), ".", "serve")[1]), sep="\\n")
'"""

# Starts a server in the background, waits until it answered a question, ends it; prints seconds a stage took.
SERVE_AND_ASK = """
set -u
began=$(date +%s.%N)
make serve ARGS='{arguments}' >serve.log 2>&1 &
server=$!
until grep -q '^  curl ' serve.log; do
    kill -0 $server 2>/dev/null || {{ cat serve.log; exit 1; }}
    sleep 0.1
done
echo "ready after $(echo "$(date +%s.%N) $began" | awk '{{ printf "%.1f", $1 - $2 }}') s"
eval "$(sed -n 's/^  curl    //p' serve.log)" >answer.json || {{ cat serve.log; exit 1; }}
echo "curl: $(tail -c 600 answer.json)"
eval "$(sed -n 's/^  Python  //p' serve.log)" >answer.txt || {{ cat serve.log; exit 1; }}
echo "python: $(wc -c <answer.txt) bytes"
echo 'Say hello.' | .venv/bin/edgellm chat {chat_arguments} >chat.txt || {{ cat serve.log; exit 1; }}
echo "chat: $(wc -c <chat.txt) bytes"
kill -TERM $(pgrep -f '[b]in/edgellm serve')
wait $server
echo "ended with $?"
cat serve.log
"""


@pytest.fixture(scope="module")
def machine() -> Iterator[FreshMachine]:
    """Debian with Python and make, and nothing else of what is needed."""
    lack = missing_tools()
    mirror = "" if lack else mirror_of_this_machine()
    if lack or not mirror:
        pytest.skip(f"a fresh machine {lack or 'needs an apt source of Debian bookworm here'}")
    root = Path(tempfile.mkdtemp(prefix="edgellm-fresh-", dir="/var/tmp"))
    try:
        made = FreshMachine.make(root / "system", ("ca-certificates", "python3", "make", "procps", "curl"), mirror)
        made.copy_checkout(CHECKOUT)
        yield made
    finally:
        shutil.rmtree(root)


@pytest.mark.ci_slice
@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("g++", "edgellm: no C++ compiler was found — sudo apt install g++"),
        ("python3-dev", "edgellm: Python.h of /usr/bin/python3 is missing — sudo apt install python3-dev"),
        ("python3-venv", "edgellm: /usr/bin/python3 has no venv module — sudo apt install python3-venv"),
    ],
)
def test_what_is_missing_is_one_line_until_it_is_installed(machine: FreshMachine, package: str, line: str) -> None:
    outcome = machine.run("make serve", offline=True)
    assert outcome.code != 0
    assert line in outcome.output.splitlines()
    assert machine.run("test -e .venv").code != 0
    machine.install(package)
    assert line not in machine.run(EXAMINE, offline=True).output.splitlines()


def test_one_command_serves_and_the_printed_lines_work(
    machine: FreshMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    script = SERVE_AND_ASK.format(arguments="--port 18473", chat_arguments="--url http://127.0.0.1:18473")
    outcome = machine.run(script, deadline_seconds=READY_SECONDS_MAX)
    _show(outcome.output, "first make serve", capsys)
    assert outcome.code == 0, outcome.output[-4000:]
    assert '"finish_reason"' in outcome.output
    assert re.search(r"^python: [1-9]", outcome.output, re.MULTILINE)
    assert re.search(r"^chat: [1-9]", outcome.output, re.MULTILINE)
    assert re.search(r"^ended with 0$", outcome.output, re.MULTILINE)


def test_the_second_time_it_starts_without_network(machine: FreshMachine, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = machine.run(SERVE_AND_ASK.format(arguments="", chat_arguments=""), offline=True)
    _show(outcome.output, "second make serve, offline", capsys)
    assert outcome.code == 0, outcome.output[-4000:]
    assert "set-up:" not in outcome.output
    assert "listening on http://127.0.0.1:8000" in outcome.output
    assert re.search(r"^ended with 0$", outcome.output, re.MULTILINE)


def test_a_port_in_use_is_one_line(machine: FreshMachine) -> None:
    holder = "python3 -c 'import socket,time; s=socket.create_server((\"127.0.0.1\",8000)); time.sleep(60)'"
    outcome = machine.run(f"{holder} & sleep 1; .venv/bin/edgellm serve; echo code $?; kill %1", offline=True)
    assert re.search(
        r"^edgellm: port 8000 on 127\.0\.0\.1 is in use by python3 \(pid \d+\)", outcome.output, re.MULTILINE
    )
    assert "code 69" in outcome.output


def test_an_interrupted_setup_resumes(machine: FreshMachine) -> None:
    interrupted = machine.run(
        "rm .venv/build/native.stamp; touch native/src/bindings/*.cpp; "
        "(env --default-signal=INT make native >interrupted.log 2>&1 & "
        "until grep -q native interrupted.log; do sleep 0.1; done; sleep 1; "
        "kill -INT -- $(pgrep -f '[e]nvironment.py'); while pgrep -f '[e]nvironment.py'; do sleep 0.1; done); "
        "cat interrupted.log; ls .venv/build"
    )
    assert "native.begun" in interrupted.output, interrupted.output
    assert "run the same command again; it resumes where it was" in interrupted.output
    resumed = machine.run("make native && .venv/bin/edgellm doctor")
    assert resumed.code == 0, resumed.output[-4000:]
    assert re.findall(r"^set-up: (.*?)(?: …|:)", resumed.output, re.MULTILINE)[0] == "native runtime (C++)"
    assert "set-up: virtual environment" not in resumed.output


def test_the_tests_pass(machine: FreshMachine, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = machine.run("time make test", deadline_seconds=3 * 3600)
    _show(outcome.output, "make test", capsys)
    assert outcome.code == 0, outcome.output[-6000:]
    again = machine.run("time make test ARGS='-q tests/unit'", offline=True)
    assert again.code == 0, again.output[-4000:]
    assert "set-up:" not in again.output


def _show(output: str, title: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Timings are printed, never asserted."""
    shown = [line for line in output.splitlines() if re.search(r"\(\d+ s\)|after [\d.]+ s|^real|passed|failed", line)]
    with capsys.disabled():
        print(f"\n{title}:", *shown, sep="\n  ")
