"""Unit files and files of variables, read by systemd's rules (systemd.syntax, systemd.exec), of Quadlets too.

It is for who looks for a secret: what systemd would refuse, such as a quote without its end, is read as far as it goes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

BLANKS = " \t\n\r"
QUOTES = "'\""
COMMENT_MARKS = "#;"
_LINE_ENDS = re.compile(r"\r\n|\n\r|\n|\r|\0")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "s": " ", "t": "\t", "v": "\v"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]{3})|(.))", re.DOTALL)
_NUMBER_BASES = (16, 16, 16, 8)  # of the groups above
# Of the system's manager. What another one stands for is not known here.
_SPECIFIERS = {
    "%": "%",
    "E": "/etc",
    "S": "/var/lib",
    "t": "/run",
    "C": "/var/cache",
    "L": "/var/log",
    "T": "/tmp",  # noqa: S108  # its meaning
    "V": "/var/tmp",  # noqa: S108  # its meaning
    "h": "/root",
    "u": "root",
    "g": "root",
    "U": "0",
    "G": "0",
}
_SPECIFIER = re.compile(r"%(.)", re.DOTALL)
_TAKEN_IN_QUOTES = '"\\`$'  # after a backslash in a file of variables


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Word:
    """``raw`` is as it was written, ``text`` without its quotes and escapes."""

    raw: str
    text: str


def settings_of(unit: str) -> Iterator[Setting | str]:
    """The settings, and the heads of sections as they stand. Comments are none, between continued lines either."""
    continued = ""
    for line in [*_LINE_ENDS.split(unit.removeprefix("\ufeff")), None]:
        if line is not None:
            if line.lstrip(BLANKS)[:1] in (*COMMENT_MARKS,):
                continue
            continued += line
            if (len(line) - len(line.rstrip("\\"))) % 2:
                continued = f"{continued[:-1]} "
                continue
        logical, continued = continued.strip(BLANKS), ""
        name, sign, value = logical.partition("=")
        if logical.startswith("["):
            yield logical
        elif sign:
            yield Setting(name.strip(BLANKS), value.strip(BLANKS))


def words_of(value: str) -> Iterator[Word]:
    """Divided at blanks outside of quotes."""
    start, quote, pieces, position = -1, "", [""], 0
    while position < len(value):
        character = value[position]
        taken = 1
        if start < 0 and character in BLANKS:
            position += 1
            continue
        start = position if start < 0 else start
        if character == "\\" and (escape := _ESCAPE.match(value, position)):
            pieces.append(unescaped(escape[0]))
            taken = len(escape[0])
        elif quote and character == quote:
            quote = ""
        elif not quote and character in QUOTES:
            quote = character
        elif not quote and character in BLANKS:
            yield Word(value[start:position], "".join(pieces))
            start, pieces = -1, [""]
        else:
            pieces.append(character)
        position += taken
    if start >= 0:
        yield Word(value[start:], "".join(pieces))


def unescaped(text: str) -> str:
    """As in C; what is no escape stays."""
    return _ESCAPE.sub(_meant, text)


def _meant(escape: re.Match[str]) -> str:
    for group, base in zip(escape.groups()[:-1], _NUMBER_BASES, strict=True):
        if group is not None:
            number = int(group, base)
            return chr(number) if number <= 0x10FFFF else escape[0]
    character = escape.groups()[-1]
    return _ESCAPES.get(character, character if character in ("\\", *QUOTES) else escape[0])


def specified(text: str, unknown: str) -> str:
    """With the specifiers (``%%``, ``%h``) that are known replaced, and ``unknown`` in the place of others."""
    return _SPECIFIER.sub(lambda found: _SPECIFIERS.get(found[1], unknown), text)


def variables_of(text: str) -> Iterator[tuple[str, str]]:
    """Of a file that ``EnvironmentFile=`` names: names and values. A quoted value may go on over lines."""
    position, end = 0, len(text)
    while position < end:
        while position < end and text[position] in BLANKS:
            position += 1
        line_end = _line_end(text, position)
        sign = text.find("=", position, line_end)
        if sign < 0 or text[position : position + 1] in (*COMMENT_MARKS,):
            position = line_end + 1
            continue
        name = text[position:sign].strip(BLANKS)
        value, position = _value_from(text, sign + 1)
        yield name, value


def _value_from(text: str, position: int) -> tuple[str, int]:
    """The value, and where its last line ends. A quote opens before the value's first bare character alone."""
    value, quote, is_bare, bare_end = "", "", False, 0
    while position < len(text):
        character, following = text[position], text[position + 1 : position + 2]
        if not quote and character in "\n\r":
            break
        position += 1
        if quote and character == quote:
            quote = ""
        elif not quote and not is_bare and character in QUOTES:
            quote = character
        elif character == "\\" and quote != "'" and following == "\n":
            position += 1
        elif character == "\\" and (not quote or (quote == '"' and following in _TAKEN_IN_QUOTES)):
            value, position, is_bare = value + following, position + 1, not quote
            bare_end = len(value)
        elif quote or is_bare or character not in BLANKS:
            value, is_bare = value + character, is_bare or not quote
            bare_end = len(value) if quote or character not in BLANKS else bare_end
    return (value[:bare_end] if is_bare else value), position


def _line_end(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found
