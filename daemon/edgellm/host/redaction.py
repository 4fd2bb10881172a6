"""Redaction: what leaves a board for support holds no key, token, password or private key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from edgellm.host.paths import HostPaths

REMOVED = "[removed]"
SECRET_FOLDERS = ("etc/edgellm/credentials", "etc/edgellm/tls")
DEVICE_KEY_FILE = "device-key"  # below the host's state
# Where an administrator may have written a token down: what a program then says of it is known by it.
SETTINGS = (
    *("etc/edgellm/edgellm.toml", "etc/environment", "etc/systemd/system/edgellm*.d/*.conf"),
    *("etc/containers/systemd/edgellm*.d/*.conf", "etc/containers/systemd/edgellm*.container"),
)
SECRET_FILE_BYTES_MAX = 1 << 20
SECRET_CHARACTERS_MIN = 8  # a shorter one would take ordinary words out
_SHAPES = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(r"\bedgellm-[A-Za-z0-9_-]{40,}"),
    re.compile(r"\b(?:hf|sk|ghp|github_pat)[_-][A-Za-z0-9_-]{16,}"),
    re.compile(r"(?i)(?P<kept>\bbearer\s+)[^\s\"']+"),
    re.compile(r"(?i)(?P<kept>\bauthorization[\"']?[:=]\s*[\"']?basic\s+)[^\s\"']+"),
    re.compile(r"(?i)(?P<kept>x-api-key[\"']?[:=]\s*[\"']?)[^\s\"']+"),
    re.compile(r"(?<=://)[^/\s\"'<>]+(?=@)"),  # before a host's name; a password may hold the sign itself
    re.compile(r"(?i)(?P<kept>[?&][\w.-]*(?:key|token|secret|passw(?:or)?d|sig|signature|credential)=)[^&\s\"'<>]+"),
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
        settings = [file for pattern in SETTINGS for file in sorted(paths.root.glob(pattern))]
        own = (secret for file in [*files, kept] for secret in _secrets_in(file))
        return cls(chain(own, (secret for file in settings for secret in _secrets_of_settings(file))))

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REMOVED)
        for shape in _SHAPES:
            text = shape.sub(_without_secret, text)
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


def _without_secret(found: re.Match[str]) -> str:
    return (found.groupdict().get("kept") or "") + REMOVED


def _secrets_of_settings(file: Path) -> Iterator[str]:
    """The values of secret settings, and who a URL lets in."""
    text = _text_of(file)
    for setting in _SECRET_SETTING.finditer(text):
        value = setting[0].removeprefix(setting[1])
        words = re.findall(r"[^\s\"',\[\]\\]+", value)[: None if value.startswith("[") else 1]
        yield from (word for word in words if not word.isdecimal())  # a number of tokens is none
    for user in re.findall(r"://([^/\s\"'<>]+)@", text):
        yield from (user, user.partition(":")[2])


def _text_of(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            return stream.read(SECRET_FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""


def _secrets_in(file: Path) -> Iterator[str]:
    text = _text_of(file)
    if "PRIVATE KEY" in text:
        yield from (line for line in text.splitlines() if not line.startswith("-----"))
    elif "BEGIN CERTIFICATE" not in text:
        for line in text.splitlines():
            secret = line.strip().partition(":")[2] or line.strip()
            yield secret.split(" priority=")[0].removeprefix("sha256:")
