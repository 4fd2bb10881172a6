"""Secrets that a host's settings hold: in its configuration, its units with their drop-ins, and what those name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgellm.host.paths import HostPaths
from edgellm.host.unit_file import Setting, settings_of, specified, unescaped, variables_of, words_of

REMOVED = "[removed]"
VARIABLES = "etc/environment"
# Where systemd and podman look for units, and edgellm's own among them, or of every unit.
_UNIT_FOLDERS = (
    *("etc/systemd/system", "etc/systemd/system.control", "run/systemd/system", "run/systemd/system.control"),
    *("run/systemd/transient", "usr/local/lib/systemd/system", "usr/lib/systemd/system"),
    *("etc/containers/systemd", "run/containers/systemd", "usr/share/containers/systemd"),
)
_UNITS = ("edgellm*", "edgellm*.d/*.conf", "service.d/*.conf", "container.d/*.conf")
_OF_MANAGER = ("etc/systemd/system.conf", "etc/systemd/system.conf.d/*.conf")  # DefaultEnvironment=
_STORES = ("etc/credstore", "run/credstore", "usr/local/lib/credstore", "usr/lib/credstore")
FILE_BYTES_MAX = 1 << 20
_OF_SECRETS = r"(?:key|token|secret|passw(?:or)?d|passphrase|pwd|credential|(?<![a-z])(?:pass|auth)(?![a-z]))"
# One that ends so is where a secret is, and none.
_SECRET_NAME = re.compile(
    rf"[\w.-]*{_OF_SECRETS}[\w.-]*(?<!_file)(?<!_path)(?<!_dir)(?<!_folder)(?<!-file)(?<!-path)\Z", re.IGNORECASE
)
# In TOML anywhere in a line. A value may go on over lines, as a string or an array.
SECRET_SETTING = re.compile(
    rf"((?<![\w.-])[\w.-]*{_OF_SECRETS}[\w.-]*(?<!_file)[\"']?\s*=\s*)"
    r"(?:\"\"\"(?s:.*?)(?:\"\"\"|\Z)|\'\'\'(?s:.*?)(?:\'\'\'|\Z)|\[(?s:[^\]]*)(?:\]|\Z)|.).*$",
    re.IGNORECASE | re.MULTILINE,
)
# In an argument that is a script: NAME=VALUE, with quotes or without.
_IN_SCRIPT = re.compile(rf"([\w.-]*{_OF_SECRETS}[\w.-]*)=(?:\"([^\"]*)\"|'([^']*)'|([^\s;&|\"']+))", re.IGNORECASE)
_BEARER = re.compile(r"(?i)\bbearer\s+([^\s\"']+)")
_USER_OF_URL = re.compile(r"://([^/\s\"'<>]+)@")
# Their names have such a word, and their values are no secrets.
_NO_SECRETS = frozenset({"KeyringMode", "Secret", "LoadCredential", "LoadCredentialEncrypted", "ImportCredential"})
_GIVEN_CREDENTIALS = ("SetCredential", "SetCredentialEncrypted")
_STORED_CREDENTIALS = ("LoadCredential", "LoadCredentialEncrypted", "ImportCredential")
_UNKNOWN = "*"  # in the place of a specifier: for a file's name it is a pattern
_PLAIN = re.compile(
    r"\d+|/[^\s:]*(?::/[^\s:]*)*|[\d.:]+|localhost|[a-z]{2}_[A-Z]{2}\.UTF-8"
)  # paths, addresses, a locale


def is_secret_name(name: str) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None


def secrets_of_host(paths: HostPaths) -> Iterator[str]:
    """Whatever a setting here gives as a secret, as programs may print it."""
    yield from secrets_of_toml(text_of(paths.configuration))
    for name, value in variables_of(text_of(paths.at(VARIABLES))):
        yield from _of_value(value, whole=is_secret_name(name))
    for file in unit_files(paths):
        for setting in settings_of(text_of(file)):
            if isinstance(setting, Setting):
                yield from _of_setting(setting)
                yield from _of_named_files(setting, paths, f"/{file.parent.relative_to(paths.root)}")


def unit_files(paths: HostPaths) -> Iterator[Path]:
    patterns = (*(f"{folder}/{name}" for folder in _UNIT_FOLDERS for name in _UNITS), *_OF_MANAGER)
    yield from (file for pattern in patterns for file in sorted(paths.root.glob(pattern)) if file.is_file())


def secrets_of_toml(text: str) -> Iterator[str]:
    try:
        yield from _of_tables(tomllib.loads(text), is_secret=False)
    except ValueError:  # of a file that is not right, more than needed
        for setting in SECRET_SETTING.finditer(text):
            value = setting[0].removeprefix(setting[1])
            yield from (value, value.strip("\"' "), *re.findall(r"[^\s\"',\[\]\\]+", value))
        yield from _of_value(text, whole=False)


def _of_tables(value: Any, *, is_secret: bool) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _of_tables(inner, is_secret=is_secret or is_secret_name(name))
    elif isinstance(value, list):
        for inner in value:
            yield from _of_tables(inner, is_secret=is_secret)
    elif isinstance(value, str):
        yield from _of_value(value, whole=is_secret)


def _of_setting(setting: Setting) -> Iterator[str]:
    if setting.name in _GIVEN_CREDENTIALS:
        data = setting.value.partition(":")[2]
        if not data.startswith("#"):  # a remark that takes a credential's place
            yield from _as_printed(data)
            yield from _as_printed(unescaped(data))
            yield from data.split()  # of an encrypted one the lines
        return
    if is_secret_name(setting.name) and setting.name not in _NO_SECRETS:
        yield from _as_printed(setting.value)
    for word in _secret_parts([word.text for word in words_of(setting.value)]):
        yield from _as_printed(word)
    yield from _secret_parts([word.raw for word in words_of(setting.value)])  # what is refused is logged as written
    yield from _of_value(setting.value, whole=False)


def _secret_parts(words: Sequence[str]) -> Iterator[str]:
    """Of variables and of arguments: NAME=VALUE, --name=VALUE, --name VALUE, --env NAME=VALUE, and of small scripts."""
    for index, word in enumerate(words):
        following = words[index + 1 : index + 3]
        name, sign, value = word.partition("=")
        while sign and not is_secret_name(name):
            name, sign, value = value.partition("=")
        if sign and value:
            yield value
        elif sign:  # a slip: systemd refuses the word after the blank, and logs it
            yield from following[:1]
        elif is_secret_name(word) and following and following[0].startswith("="):
            yield following[0].removeprefix("=") or following[-1]
        elif is_secret_name(word) and word.startswith("-") and following and not following[0].startswith("-"):
            yield following[0]
        for found in _IN_SCRIPT.finditer(word):
            if is_secret_name(found[1]):
                yield next(group for group in found.groups()[1:] if group is not None)
        yield from (found[1] for found in _BEARER.finditer(word))


def _of_value(value: str, *, whole: bool) -> Iterator[str]:
    if whole and not value.isdecimal():
        yield from _as_printed(value)
    for user in _USER_OF_URL.findall(value):
        for part in (user, user.partition(":")[2]):
            yield from _as_printed(part)


def _as_printed(value: str) -> Iterator[str]:
    """As it was written, and as it is once systemd has put in what specifiers and doubled signs stand for."""
    if value.isdecimal():
        return  # a number of tokens
    for text in (value, value.replace("$$", "$")):
        yield text
        yield from specified(text, "\0").split("\0")


def _of_named_files(setting: Setting, paths: HostPaths, folder: str) -> Iterator[str]:
    """``folder`` is the unit's: a Quadlet may name a file beside it."""
    if setting.name == "EnvironmentFile":
        for word in words_of(setting.value):
            name = word.text.removeprefix("-")
            for file in _files(paths, name if name.startswith(("/", "%")) else f"{folder}/{name}"):
                yield from _of_environment_file(text_of(file))
    elif setting.name in _STORED_CREDENTIALS:
        name, _, place = setting.value.partition(":")
        places = [place] if place.startswith(("/", "%")) else [f"/{store}*/{place or name}" for store in _STORES]
        for file in (file for one in places for pattern in (one, f"{one}/*") for file in _files(paths, pattern)):
            yield from secrets_in_file(file)


def _of_environment_file(text: str) -> Iterator[str]:
    """Such a file is where secrets are kept, whatever they are called. podman takes its values with their quotes."""
    written = (line.partition("=") for line in text.splitlines())
    for value in (*(value for _, value in variables_of(text)), *(value for _, sign, value in written if sign)):
        yield from _of_value(value, whole=_PLAIN.fullmatch(value) is None)


def _files(paths: HostPaths, name: str) -> Iterator[Path]:
    pattern = specified(name, _UNKNOWN)
    if pattern.startswith("/") and ".." not in Path(pattern).parts and pattern.strip("/"):
        yield from (file for file in sorted(paths.root.glob(pattern.strip("/"))) if file.is_file())


def secrets_in_file(file: Path) -> Iterator[str]:
    """Of a file that is a secret itself: a key, a token a line, or names with keys."""
    text = text_of(file)
    if "PRIVATE KEY" in text:
        yield from (line for line in text.splitlines() if not line.startswith("-----"))
    elif "BEGIN CERTIFICATE" not in text:
        for line in text.splitlines():
            secret = line.strip().partition(":")[2] or line.strip()
            yield secret.split(" priority=")[0].removeprefix("sha256:")


def text_of(file: Path) -> str:
    """Empty where it cannot be read."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as stream:
            return stream.read(FILE_BYTES_MAX).decode("utf-8", "replace")
    except OSError:
        return ""


def without_secrets(unit: str) -> str:
    """A unit or drop-in without its comments, each setting in one line."""
    lines = (one if isinstance(one, str) else f"{one.name}={_shown(one)}" for one in settings_of(unit))
    return "".join(f"{line}\n" for line in lines)


def _shown(setting: Setting) -> str:
    if setting.name in _GIVEN_CREDENTIALS:
        return f"{setting.value.partition(':')[0]}:{REMOVED}" if ":" in setting.value else REMOVED
    if is_secret_name(setting.name) and setting.name not in _NO_SECRETS:
        return REMOVED
    words = list(words_of(setting.value))
    secrets = sorted({part for part in _secret_parts([word.text for word in words]) if part}, key=len, reverse=True)
    shown = []
    for word in words:
        text = word.text
        for secret in secrets:
            text = text.replace(secret, REMOVED)
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')
        shown.append(word.raw if text == word.text else f'"{quoted}"')
    return " ".join(shown)
