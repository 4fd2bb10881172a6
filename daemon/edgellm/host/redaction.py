"""Redaction: what leaves a board for support holds no key, token, password or private key."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from urllib.parse import quote, unquote

from edgellm.host.paths import HostPaths
from edgellm.host.secret_settings import REMOVED, SECRET_SETTING, secrets_in_file, secrets_of_host, without_secrets

SECRET_FOLDERS = ("etc/edgellm/credentials", "etc/edgellm/tls")
DEVICE_KEY_FILE = "device-key"  # below the host's state
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
_BEFORE_COMMENT = re.compile(r"""(?:[^"'#]|"(?:\\.|[^"\\])*"|'[^']*')*""")
_COMMENT_MARK = "#"


class Redaction:
    """``secrets`` are the very texts that must not be seen, beside all that has the shape of one."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = {form for secret in secrets for form in _forms(secret) if len(form) >= SECRET_CHARACTERS_MIN}
        self._secrets = sorted(found, key=len, reverse=True)

    @classmethod
    def of_host(cls, paths: HostPaths) -> Redaction:
        """What the host itself holds as a secret."""
        files = [file for folder in SECRET_FOLDERS for file in sorted(paths.at(folder).glob("*"))]
        kept = paths.state / DEVICE_KEY_FILE
        own = (secret for file in [*files, kept] for secret in secrets_in_file(file))
        return cls(chain(own, secrets_of_host(paths)))

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REMOVED)
        for shape in _SHAPES:
            text = shape.sub(_without_secret, text)
        return text

    def unit(self, text: str) -> str:
        """A unit or drop-in, without comments as a configuration is."""
        return self.text(without_secrets(text))

    def configuration(self, text: str) -> str:
        """TOML without comments: people write down in them what no pattern finds."""
        lines = [_without_comment(line) for line in text.splitlines() if not line.lstrip().startswith(_COMMENT_MARK)]
        kept = "\n".join(line for line in lines if line.strip())
        return self.text(SECRET_SETTING.sub(rf'\1"{REMOVED}"', kept)) + "\n"


def _without_comment(line: str) -> str:
    """A mark in quotes is none. In a line whose quotes are not closed everything after a mark goes."""
    before = _BEFORE_COMMENT.match(line)
    end = before.end() if before else 0
    return line if end == len(line) else line[: line.index("#", end) if "#" in line[end:] else len(line)].rstrip()


def _without_secret(found: re.Match[str]) -> str:
    return (found.groupdict().get("kept") or "") + REMOVED


def _forms(secret: str) -> Iterator[str]:
    """Of several lines each: a journal parts them. In JSON and in a URL it looks otherwise."""
    for line in secret.strip().splitlines():
        text = line.strip()
        yield from (text, unquote(text), quote(text, safe=""), quote(text))
        yield from (json.dumps(text, ensure_ascii=is_ascii)[1:-1] for is_ascii in (True, False))
