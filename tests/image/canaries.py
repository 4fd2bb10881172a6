"""Texts that nobody else writes, planted on a device wherever secrets and people's words are: a report holds none."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass

import httpx
from tests.image.reports import Report
from tests.service.appliance import READY_SECONDS, UNIT, Appliance

from edgellm.service.pairing.code import PairingCode

CANARY = "canary-7f3a-of-nobody-else"
TOKEN, PASSWORD = "7f3a-word-without-a-shape", "7f3a-p@ssword-of-a-proxy"
RECORDS = "/var/lib/edgellm/records.jsonl"
TLS_FOLDER = "/etc/edgellm/tls"
CREDENTIALS = "/etc/edgellm/credentials"
CORE_FILE = "/var/lib/systemd/coredump/core.edgellm.780.1"
# What a program says of where it fetched from.
URLS = (
    f"https://me:{PASSWORD}@hub.example/model.gguf",
    f"https://cdn.example/model.gguf?X-Amz-Signature={CANARY}-signature&part=1",
)


@dataclass(frozen=True, slots=True)
class Canaries:
    """``key`` is one of the server's. ``texts`` must be in no report, and ``in_the_journal`` of them are there."""

    key: str
    texts: list[str]
    in_the_journal: list[str]


def plant(appliance: Appliance, *, token_drop_in: tuple[str, str]) -> Canaries:
    """The server has been asked and has crashed with them, and serves. ``token_drop_in`` is where this mode's
    administrators put variables: a file, and what is before ``NAME=value`` there."""
    run = appliance.device.run
    added = run("/usr/local/bin/edgellm", "keys", "add", "canary").output
    key = next(line for line in added.splitlines() if re.fullmatch(r"edgellm-\S{40,}", line))
    code = str(PairingCode.make())
    run("rm", "-rf", TLS_FOLDER)
    run("/usr/local/bin/edgellm", "tls", "init", "--folder", TLS_FOLDER)
    private = {name: appliance.device.read(f"{TLS_FOLDER}/{name}") for name in ("ca.key", "server.key")}
    appliance.device.write(f"{CREDENTIALS}/hub-token", f"{CANARY}-token\n", 0o640)
    appliance.device.write("/var/lib/edgellm-host/device-key", f"{CANARY}-device\n", 0o600)
    appliance.device.write(CORE_FILE, f"{CANARY}-core {key}\n", 0o640)
    file, before = token_drop_in
    section, name = before.split("\n")
    variables = (f"HF_TOKEN={TOKEN}", f"HTTPS_PROXY=http://me:{PASSWORD}@127.0.0.1:1")
    appliance.device.write(file, "\n".join([section, *(f"{name}{one}" for one in variables), ""]))
    _speak_carelessly(appliance, [key, code, TOKEN, PASSWORD, *URLS], f"{CREDENTIALS}/hub-token")
    appliance.configure(
        f'# {CANARY}-comment\n[server]\napi_keys_file = "/run/credentials/edgellm.service/api-keys"\n'
        f'[records]\nfile = "{RECORDS}"\ninclude_text = true\n'
        f'[log]\nlevel = "debug"  # {CANARY}-trailing\n'
    )
    run("systemctl", "restart", UNIT)
    _ask_and_crash(appliance, key)
    run("journalctl", "--rotate")  # what was said before lies in other files
    run("systemctl", "restart", UNIT)
    lines = [line for text in private.values() for line in text.splitlines() if not line.startswith("-----")]
    said = [key, code, TOKEN, PASSWORD, f"{CANARY}-token", f"{CANARY}-device", f"{CANARY}-signature", *lines]
    return Canaries(key, [*said, CANARY], said)


def check_report(appliance: Appliance, report: Report, canaries: Canaries) -> None:
    """None of them is in it, and each that it could have taken up was there."""
    journal = appliance.journal()
    assert [text for text in canaries.in_the_journal if text not in journal] == [], "it was not planted"
    found = {text: name for name, content in report.texts.items() for text in canaries.texts if text in content}
    assert found == {}
    kept = report.texts["journal/edgellm.service.txt"]
    assert kept.count("[removed]") >= len(canaries.in_the_journal)
    assert "https://hub.example" not in kept
    assert "@hub.example/model.gguf" in kept


def _speak_carelessly(appliance: Appliance, words: list[str], *files: str) -> None:
    """Somebody's own additions to the unit print what they should not: it is in the journal then."""
    appliance.device.write("/root/careless", "\n".join([*words, ""]), 0o600)
    printed = ["/root/careless", f"{TLS_FOLDER}/ca.key", f"{TLS_FOLDER}/server.key"]
    printed += ["/var/lib/edgellm-host/device-key", *files]
    appliance.drop_in("60-careless", f"[Service]\nExecStartPre=+/bin/cat {' '.join(printed)}\n")


def _ask_and_crash(appliance: Appliance, key: str) -> None:
    prompt = [{"role": "user", "content": f"Say {CANARY}-prompt."}]
    answers = [
        appliance.request("/v1/chat/completions", body, Authorization=f"Bearer {used}")
        for body, used in (
            ({"messages": prompt, "max_tokens": 8}, key),
            ({"messages": prompt, "max_tokens": -1}, key),
            ({"messages": prompt, "stop": [f"{CANARY}-stop"], "no_such_field": f"{CANARY}-field"}, key),
            ({"messages": prompt}, f"{CANARY}-guess"),
        )
    ]
    assert [answer.status_code for answer in answers] == [200, 400, 400, 401]
    recorded = ("grep", "--quiet", CANARY, RECORDS)
    appliance.device.wait_for(lambda: appliance.device.run(*recorded, check=False).code == 0, "the record")
    with suppress(httpx.HTTPError), appliance.stream(key=key, messages=prompt, max_tokens=2_000) as events:
        (worker,) = appliance.worker_pids()
        appliance.device.run("kill", "-SEGV", str(worker))
        list(events)
    appliance.device.wait_for(lambda: worker not in appliance.worker_pids(), "the worker's end")

    def is_ready() -> bool:
        with suppress(OSError):
            return appliance.request("/health/ready").status_code == 200
        return False

    appliance.device.wait_for(is_ready, "another worker", READY_SECONDS)
