"""JsonScanner: finds the end of a JSON value in text that arrives in pieces, and its first error at once."""

from __future__ import annotations

import json
import re
from enum import Enum, auto

MAX_DEPTH_LEVELS = 128
MAX_SCALAR_CHARACTERS = 512

_SPACE = re.compile(r"[ \t\r\n]*")
_PLAIN_IN_STRING = re.compile(r'[^"\\]*')
_SCALAR = re.compile(r"[-+.0-9a-zA-Z]*")
_SIMPLE_ESCAPES = frozenset('"\\/bfnrt')
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")


class _Expect(Enum):
    VALUE = auto()
    VALUE_OR_END = auto()  # after [
    KEY_OR_END = auto()  # after {
    KEY = auto()  # after a comma in an object
    COLON = auto()
    COMMA_OR_END = auto()


class JsonScanner:
    """Each character is looked at once. Control characters in strings are let pass, as models write them.

    ``complete`` tells that a value has ended, ``failed`` that the text cannot be JSON. A scalar at the top level is
    never complete: nothing but more text would tell where it ends.
    """

    def __init__(self) -> None:
        self.complete = False
        self.failed = False
        self._expect = _Expect.VALUE
        self._closers: list[str] = []
        self._in_string = False
        self._string_is_key = False
        self._escape = ""  # of a string, as far as it has come
        self._scalar = ""

    def feed(self, text: str) -> int:
        """How many characters of ``text`` belong to the value. Fewer than all once it is complete or has failed."""
        at, end = 0, len(text)
        while at < end and not (self.complete or self.failed):
            if self._in_string:
                at = self._string(text, at)
            elif self._scalar:
                at = self._more_scalar(text, at)
            else:
                at = _SPACE.match(text, at).end()  # type: ignore[union-attr]  # matches the empty string, too
                if at < end:
                    at = self._token(text, at)
        return at

    def _string(self, text: str, at: int) -> int:
        if self._escape:
            return self._escaped(text, at)
        at = _PLAIN_IN_STRING.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        if text[at] == "\\":
            self._escape = "\\"
        else:
            self._in_string = False
            if self._string_is_key:
                self._expect = _Expect.COLON
            else:
                self._value_ended()
        return at + 1

    def _escaped(self, text: str, at: int) -> int:
        character = text[at]
        if self._escape == "\\":
            if character in _SIMPLE_ESCAPES:
                self._escape = ""
            elif character == "u":
                self._escape = "\\u"
            else:
                return self._fail(at)
        elif character in _HEX_DIGITS:
            self._escape += character
            if len(self._escape) == len("\\uffff"):
                self._escape = ""
        else:
            return self._fail(at)
        return at + 1

    def _more_scalar(self, text: str, at: int) -> int:
        end = _SCALAR.match(text, at).end()  # type: ignore[union-attr]
        self._scalar += text[at:end]
        if len(self._scalar) > MAX_SCALAR_CHARACTERS:
            return self._fail(end)
        if end < len(text):
            if not _is_scalar(self._scalar):
                return self._fail(end)
            self._scalar = ""
            self._value_ended()
        return end

    def _token(self, text: str, at: int) -> int:
        character = text[at]
        expect = self._expect
        if character in "]}":
            may_end = expect in (_Expect.COMMA_OR_END, _Expect.VALUE_OR_END, _Expect.KEY_OR_END)
            if not may_end or not self._closers or self._closers.pop() != character:
                return self._fail(at)
            self._value_ended()
        elif expect is _Expect.COLON:
            if character != ":":
                return self._fail(at)
            self._expect = _Expect.VALUE
        elif expect is _Expect.COMMA_OR_END:
            if character != ",":
                return self._fail(at)
            self._expect = _Expect.KEY if self._closers[-1] == "}" else _Expect.VALUE
        elif expect in (_Expect.KEY, _Expect.KEY_OR_END):
            if character != '"':
                return self._fail(at)
            self._in_string = self._string_is_key = True
        else:
            return self._value(character, at)
        return at + 1

    def _value(self, character: str, at: int) -> int:
        if character == '"':
            self._in_string, self._string_is_key = True, False
        elif character in "{[":
            if len(self._closers) == MAX_DEPTH_LEVELS:
                return self._fail(at)
            self._closers.append("}" if character == "{" else "]")
            self._expect = _Expect.KEY_OR_END if character == "{" else _Expect.VALUE_OR_END
        elif _SCALAR.fullmatch(character):
            self._scalar = character
        else:
            return self._fail(at)
        return at + 1

    def _value_ended(self) -> None:
        self._expect = _Expect.COMMA_OR_END
        self.complete = not self._closers

    def _fail(self, at: int) -> int:
        self.failed = True
        return at


def _is_scalar(text: str) -> bool:
    if text in ("true", "false", "null"):
        return True
    try:
        return isinstance(json.loads(text, parse_constant=lambda _: None), int | float)
    except ValueError:
        return False
