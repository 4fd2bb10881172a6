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
    re.compile(r"\b[0-9A-HJKMNP-TV-Z]{5}(?:-[0-9A-HJKMNP-TV-Z]{5}){3}\b"),  # a pairing code
    re.compile(r"(?<=sha256:)[0-9a-f]{64}(?=\s*(?:priority=|$))", re.MULTILINE),  # of a key, in the keys' file
)
# Anywhere in a line: settings of TOML, variables in a unit's Environment=, options of a command. A value may go on over
# lines: as a string or array of TOML, or after a backslash.
_SECRET_SETTING = re.compile(
    r"((?<![\w.-])[\w.-]*(?:key|token|secret|passw(?:or)?d|passphrase|setcredential)[\w.-]*(?<!_file)[\"']?\s*=\s*)"
    r"(?:\"\"\"(?s:.*?)(?:\"\"\"|\Z)|\'\'\'(?s:.*?)(?:\'\'\'|\Z)|\[(?s:[^\]]*)(?:\]|\Z)|(?:.*\\\n)*.).*$",
    re.IGNORECASE | re.MULTILINE,
)
_BEFORE_COMMENT = re.compile(r"""(?:[^"'#]|"(?:\\.|[^"\\])*"|'[^']*')*""")
_COMMENT_MARKS = ("#", ";")  # a unit has both


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
        lines = [_without_comment(line) for line in text.splitlines() if not line.lstrip().startswith(_COMMENT_MARKS)]
        kept = "\n".join(line for line in lines if line.strip())
        return self.text(_SECRET_SETTING.sub(rf'\1"{REMOVED}"', kept)) + "\n"


def _without_comment(line: str) -> str:
    """A mark in quotes is none. In a line whose quotes are not closed everything after a mark goes."""
    before = _BEFORE_COMMENT.match(line)
    end = before.end() if before else 0
    return line if end == len(line) else line[: line.index("#", end) if "#" in line[end:] else len(line)].rstrip()


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
