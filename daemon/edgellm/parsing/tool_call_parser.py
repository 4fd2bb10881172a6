"""ToolCallParser: finds calls in an answer's text as it comes.

A call is given out when it is complete and names a known tool; what turns out to be none is text, as it was written.
Each character is looked at a bounded number of times, and only an unfinished call is ever held back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from edgellm.parsing.answer_events import ParserEvent, TextPiece
from edgellm.parsing.held_text import MAX_HELD_SPACE_CHARACTERS
from edgellm.parsing.json_scanner import JsonScanner
from edgellm.parsing.tool_call_styles import FUNCTION_SYNTAX, INVOKE_SYNTAX, Body, ElementSyntax, ToolCallStyle
from edgellm.parsing.tool_call_values import CallCounter, ParsedCall, Tools, call_of_texts, calls_of_json

MAX_NAME_CHARACTERS = 256
MAX_ARGUMENTS = 1024
MAX_CALL_CHARACTERS = 4 << 20

_NAMED_ARGUMENTS = "[ARGS]"
_NAMED_CALL_ID = "[CALL_ID]"
_SEPARATORS = ";,"
_BARE_KEYS = ("name", "type", "function", "id", "arguments", "parameters", "tool_calls")
_BARE_HEADS = tuple(f'{{"{key}"' for key in _BARE_KEYS)
_SPACE = re.compile(r"\s+")


class ToolCallParser:
    def __init__(self, style: ToolCallStyle, tools: Tools, calls: CallCounter | None = None) -> None:
        self.broke_off = False  # the text ended within a call
        self._tools = tools
        self._calls = calls or CallCounter()
        self._bare_json = style.bare_json
        self._openers = {opener.mark: opener for opener in style.openers}
        self._marks = style.marks
        self._step: Callable[[list[ParserEvent]], bool] = self._in_text
        self._rest = ""  # not looked at yet; a few characters at most between two feeds
        # Text: white space beside a call belongs to it, unless text stands on both sides.
        self._space = ""
        self._said = False
        # A block: what an opener began.
        self._body = Body.JSON
        self._closers: list[str] = []
        self._raw: list[str] = []  # what becomes text if no call comes of it
        self._raw_characters = 0
        self._block_calls = 0
        # A call in it.
        self._scanner = JsonScanner()
        self._json: list[str] = []
        self._syntax: ElementSyntax = FUNCTION_SYNTAX
        self._name: str | None = None
        self._key: str | None = None
        self._value: list[str] = []
        self._arguments: dict[str, str] = {}

    def feed(self, text: str) -> list[ParserEvent]:
        events: list[ParserEvent] = []
        if self._said and not self._rest and self._step == self._in_text and self._marks.are_out_of_sight(text):
            self._say(text, events)
            return events
        self._rest += text
        while self._rest and self._step(events):
            pass
        return events

    def finish(self) -> list[ParserEvent]:
        events: list[ParserEvent] = []
        rest, self._rest = self._rest, ""
        if self._step == self._in_text:
            self._say(rest, events)
        elif not self._closes_anyway(rest):
            self.broke_off = True
            self._raw.append(rest)
            self._say("".join(self._raw), events)
        if self._space and not self._calls.count:
            events.append(TextPiece(self._space))
        return events

    @property
    def unread_characters(self) -> int:
        """How much of the text will be looked at again with the next piece: never more than a few names."""
        return len(self._rest)

    def _closes_anyway(self, rest: str) -> bool:
        """The text ended after a call and before its closing mark was whole."""
        awaited = "".join(reversed(self._closers))
        return self._step == self._in_block and self._block_calls > 0 and awaited.startswith(rest.strip())

    # Text

    def _in_text(self, events: list[ParserEvent]) -> bool:
        if self._bare_json and not self._said and not self._calls.count and self._at_bare_json(events):
            return True
        found = self._marks.search(self._rest)
        if found is None:
            held = self._marks.partial_characters(self._rest)
            self._say(self._rest[: len(self._rest) - held], events)
            self._rest = self._rest[len(self._rest) - held :]
            return False
        self._say(self._rest[: found.start()], events)
        opener = self._openers[found[0]]
        self._open_block(opener.body, [opener.closer] if opener.closer else [])
        if opener.mark == FUNCTION_SYNTAX.open:
            self._rest = self._rest[found.start() :]
        else:
            self._take(found.end(), from_character=found.start())
        return True

    def _at_bare_json(self, events: list[ParserEvent]) -> bool:
        start = len(self._rest) - len(self._rest.lstrip())
        if self._rest[start : start + 1] not in ("{", "["):
            return False
        if any(mark.startswith(self._rest[start : start + len(mark)]) for mark in self._marks.all):
            return False  # may become a mark
        self._say(self._rest[:start], events)
        self._rest = self._rest[start:]
        self._open_block(Body.JSON, [])
        self._step = self._in_bare_head
        return True

    def _in_bare_head(self, events: list[ParserEvent]) -> bool:
        """The first key tells whether JSON without a mark can be a call; other JSON is not held back."""
        head = _SPACE.sub("", self._rest[: 2 * MAX_HELD_SPACE_CHARACTERS]).removeprefix("[")
        if head.startswith(_BARE_HEADS):
            self._step = self._in_block
            return True
        if len(self._rest) < 2 * MAX_HELD_SPACE_CHARACTERS and any(known.startswith(head) for known in _BARE_HEADS):
            return False
        # The bracket is said by itself, so that it is not taken for the start of a call again.
        self._take(1)
        self._fail(events)
        return True

    def _say(self, text: str, events: list[ParserEvent]) -> None:
        said = text.rstrip()
        if said:
            if self._calls.count and not self._said:
                self._space, said = "", said.lstrip()
                text = text.lstrip()
            events.append(TextPiece(self._space + said))
            self._said = True
            self._space = text[len(said) :]
        else:
            self._space += text
        excess = len(self._space) - MAX_HELD_SPACE_CHARACTERS
        if excess > 0:
            if self._said or not self._calls.count:
                events.append(TextPiece(self._space[:excess]))
                self._said = True
            self._space = self._space[excess:]

    # Blocks

    def _open_block(self, body: Body, closers: list[str]) -> None:
        self._step = self._in_block
        self._body = body
        self._closers = closers
        self._block_calls = 0
        self._raw = []
        self._raw_characters = 0

    def _take(self, end: int, from_character: int = 0) -> str:
        """Move text from what is not looked at yet to what may become text again."""
        taken = self._rest[from_character:end]
        self._raw.append(taken)
        self._raw_characters += len(taken)
        self._rest = self._rest[end:]
        return taken

    def _fail(self, events: list[ParserEvent]) -> None:
        """No call comes of this: it is text, and more text follows."""
        self._step = self._in_text
        raw = "".join(self._raw)
        self._raw = []
        self._say(raw, events)

    def _call_found(self, calls: Sequence[ParsedCall], events: list[ParserEvent]) -> None:
        if not calls:
            self._fail(events)
            return
        events += self._calls.events(calls)
        self._block_calls += len(calls)
        self._raw = []
        self._raw_characters = 0
        self._step = self._in_block

    def _in_block(self, events: list[ParserEvent]) -> bool:
        start = len(self._rest) - len(self._rest.lstrip())
        if start:
            self._take(start)
            if self._raw_characters > MAX_HELD_SPACE_CHARACTERS + MAX_NAME_CHARACTERS:
                self._fail(events)
            return True
        if self._block_calls and self._after_a_call(events):
            return True
        marks = (self._closers[-1],) if self._closers else self._marks.all
        if self._block_calls and any(mark.startswith(self._rest) for mark in marks):
            return False
        if Body.JSON in self._body and self._rest[0] in "{[":
            self._name = None
            self._start_json()
            return True
        waits = False
        for kind, syntax in ((Body.FUNCTION, FUNCTION_SYNTAX), (Body.INVOKE, INVOKE_SYNTAX)):
            if kind in self._body:
                if self._rest.startswith(syntax.open):
                    self._start_elements(syntax)
                    return True
                waits = waits or syntax.open.startswith(self._rest)
        if Body.NAMED in self._body and not self._block_calls and self._rest[0] not in "[{":
            self._step = self._in_named
            return True
        if waits:
            return False
        self._fail(events)
        return True

    def _after_a_call(self, events: list[ParserEvent]) -> bool:
        if self._closers and self._rest.startswith(self._closers[-1]):
            self._rest = self._rest[len(self._closers.pop()) :]
            self._raw = []
            if not self._closers:
                self._step = self._in_text
            return True
        if not self._closers and self._rest.startswith(self._marks.all):
            self._fail(events)  # the next block; only white space lies between
            return True
        if not self._closers and self._rest[0] in _SEPARATORS and Body.JSON in self._body:
            self._take(1)
            self._body &= ~Body.NAMED
            return self._separated()
        return False

    def _separated(self) -> bool:
        """Between calls without marks; a run of separators is text."""
        if sum(text in _SEPARATORS for text in self._raw) > 1:
            self._block_calls, self._body = 0, Body(0)
        return True

    # A call as JSON

    def _start_json(self) -> None:
        self._scanner = JsonScanner()
        self._json = []
        self._step = self._in_json

    def _in_json(self, events: list[ParserEvent]) -> bool:
        taken = self._take(self._scanner.feed(self._rest))
        self._json.append(taken)
        if self._scanner.complete:
            self._call_found(calls_of_json("".join(self._json), self._tools, self._name), events)
        elif self._scanner.failed or self._raw_characters > MAX_CALL_CHARACTERS:
            self._fail(events)
        return True

    def _in_named(self, events: list[ParserEvent]) -> bool:
        end = self._rest.find(_NAMED_ARGUMENTS)
        if 0 <= end <= MAX_NAME_CHARACTERS:
            written = self._take(end + len(_NAMED_ARGUMENTS)).removesuffix(_NAMED_ARGUMENTS)
            self._name = written.partition(_NAMED_CALL_ID)[0].strip()
            self._start_json()
        elif len(self._rest) > MAX_NAME_CHARACTERS + len(_NAMED_ARGUMENTS):
            self._fail(events)
        else:
            return False
        return True

    # A call as elements

    def _start_elements(self, syntax: ElementSyntax) -> None:
        self._take(len(syntax.open))
        self._syntax = syntax
        self._name = None
        self._arguments = {}
        self._step = self._in_element_name

    def _in_element_name(self, events: list[ParserEvent]) -> bool:
        name = self._name_up_to(self._syntax.name_end, events)
        if name is None:
            return self._step == self._in_text
        if name not in self._tools:
            self._fail(events)
        else:
            self._name = name
            self._step = self._in_elements
        return True

    def _name_up_to(self, mark: str, events: list[ParserEvent]) -> str | None:
        end = self._rest.find(mark)
        if 0 <= end <= MAX_NAME_CHARACTERS:
            return self._take(end + len(mark)).removesuffix(mark).strip()
        if len(self._rest) > MAX_NAME_CHARACTERS + len(mark):
            self._fail(events)
        return None

    def _in_elements(self, events: list[ParserEvent]) -> bool:
        syntax = self._syntax
        start = len(self._rest) - len(self._rest.lstrip())
        if start:
            self._take(start)
            if self._raw_characters > MAX_CALL_CHARACTERS:
                self._fail(events)
            return True
        if self._rest.startswith(syntax.argument_open) and len(self._arguments) < MAX_ARGUMENTS:
            self._take(len(syntax.argument_open))
            self._step = self._in_argument_name
        elif self._rest.startswith(syntax.close):
            self._take(len(syntax.close))
            call = call_of_texts(self._name or "", self._arguments, self._tools)
            self._call_found([] if call is None else [call], events)
        elif self._rest[0] == "{" and not self._arguments:
            self._closers.append(syntax.close)
            self._start_json()
        elif syntax.argument_open.startswith(self._rest) or syntax.close.startswith(self._rest):
            return False
        else:
            self._fail(events)
        return True

    def _in_argument_name(self, events: list[ParserEvent]) -> bool:
        key = self._name_up_to(self._syntax.argument_name_end, events)
        if key is None:
            return self._step == self._in_text
        self._key = key
        self._value = []
        self._step = self._in_argument
        return True

    def _in_argument(self, events: list[ParserEvent]) -> bool:
        close = self._syntax.argument_close.all[0]
        end = self._rest.find(close)
        if end >= 0:
            self._value.append(self._rest[:end])
            self._take(end + len(close))
            self._arguments[self._key or ""] = _unwrapped("".join(self._value))
            self._step = self._in_elements
            return True
        known = len(self._rest) - self._syntax.argument_close.partial_characters(self._rest)
        self._value.append(self._take(known))
        if self._raw_characters > MAX_CALL_CHARACTERS:
            self._fail(events)
            return True
        return False


def _unwrapped(value: str) -> str:
    """Without the line breaks that set a value apart from its marks."""
    return value.removeprefix("\n").removesuffix("\n")
