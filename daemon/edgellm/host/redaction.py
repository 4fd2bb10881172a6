"""Redaction: what leaves a board for support holds no key, token, password or private key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from edgellm.host.paths import HostPaths

REMOVED = "[removed]"
SECRET_FOLDERS = ("etc/edgellm/credentials", "etc/edgellm/tls")
DEVICE_KEY_FILE = "device-key"  # below the host's state
SECRET_FILE_BYTES_MAX = 1 << 20
SECRET_CHARACTERS_MIN = 8  # a shorter one would take ordinary words out
_SHAPES = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\bedgellm-[A-Za-z0-9_-]{40,}"),
    re.compile(r"\b(?:hf|sk|ghp|github_pat)[_-][A-Za-z0-9_-]{16,}"),
    re.compile(r"(?i)(?<=bearer )[^\s\"']+"),
    re.compile(r"(?i)(?<=x-api-key: )[^\s\"']+"),
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),
    re.compile(r"(?<=sha256:)[0-9a-f]{64}(?=\s*(?:priority=|$))", re.MULTILINE),  # of a key, in the keys' file
)
# Anywhere in a line: settings of TOML, variables in a unit's Environment=, options of a command.
_SECRET_SETTING = re.compile(r"(?im)([\w.-]*(?:key|token|secret|password|passphrase)[\w.-]*(?<!_file)[\"']?\s*=\s*).+$")


class Redaction:
    """``secrets`` are the very texts that must not be seen, beside all that has the shape of one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = sorted({one for one in secrets if len(one) >= SECRET_CHARACTERS_MIN}, key=len, reverse=True)

    @classmethod
    def of_host(cls, paths: HostPaths) -> Redaction:
        """What the host itself holds as a secret."""
        files = [file for folder in SECRET_FOLDERS for file in sorted(paths.at(folder).glob("*"))]
        kept = paths.state / DEVICE_KEY_FILE
        return cls(secret for file in [*files, kept] for secret in _secrets_in(file))

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REMOVED)
        for shape in _SHAPES:
            text = shape.sub(REMOVED, text)
        return text

    def configuration(self, text: str) -> str:
        """Without comments: people write down in them what no pattern finds."""
        lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
        return self.text(_SECRET_SETTING.sub(rf'\1"{REMOVED}"', "\n".join(lines) + "\n"))


def _secrets_in(file: Path) -> Iterator[str]:
    try:
        with file.open("rb") as stream:
            text = stream.read(SECRET_FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return
    if "PRIVATE KEY" in text:
        yield from (line for line in text.splitlines() if not line.startswith("-----"))
    elif "BEGIN CERTIFICATE" not in text:
        for line in text.splitlines():
            secret = line.strip().partition(":")[2] or line.strip()
            yield secret.split(" priority=")[0].removeprefix("sha256:")
