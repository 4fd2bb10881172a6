"""Answers of chats that are said: OpenAI's ``audio`` of a message, whole or as it comes.

The text of such an answer is the transcript of its sound, and there is no other content. No sound is kept: it can be
referred to no longer than until it was sent.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from json.encoder import encode_basestring as json_text
from typing import Any

from edgellm.api.body_writer import TextFrame
from edgellm.api.stream_format import ChatStreamFormat, StreamHead
from edgellm.api.whole_format import Choice, chat_answer
from edgellm.parsing.answer_events import AnswerEvent, TextPiece
from edgellm.runtime.outputs import StreamDelta


class SpokenStreamFormat(ChatStreamFormat):
    """Chunks with ``audio`` in their delta: transcript, data, and at the end when it expires."""

    def __init__(self, head: StreamHead, choices: int, *, with_usage: bool) -> None:
        super().__init__(head, choices, None, with_usage)
        self._audio_ids = [json_text(audio_id(head, index)) for index in range(choices)]
        self._expires_at = expires_at(head)

    def delta(self, index: int, delta: StreamDelta) -> str:
        chunks = self._transcript(index, delta.text) if delta.text else ""
        return chunks + (self._last(index, delta.finish_reason) if delta.finished else "")

    def sound(self, index: int, data: bytes) -> str:
        return self._audio_chunk(index, f'"data":"{base64.b64encode(data).decode()}"')

    def text_frame(self, index: int) -> TextFrame | None:
        return None

    def _event(self, index: int, event: AnswerEvent) -> str:
        if isinstance(event, TextPiece):
            return self._transcript(index, event.text)
        return super()._event(index, event)

    def _transcript(self, index: int, text: str) -> str:
        return self._audio_chunk(index, f'"transcript":{json_text(text)}')

    def _last(self, index: int, reason: str | None) -> str:
        return self._audio_chunk(index, f'"expires_at":{self._expires_at}') + super()._last(index, reason)

    def _audio_chunk(self, index: int, fields: str) -> str:
        return self._chunk(index, f'"audio":{{"id":{self._audio_ids[index]},{fields}}}')


def spoken_answer(head: StreamHead, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
    """A whole answer."""
    answer = chat_answer(head, None, choices, usage)
    for index, choice in enumerate(choices):
        answer["choices"][index]["message"] |= {
            "content": None,
            "audio": {
                "id": audio_id(head, index),
                "data": base64.b64encode(b"".join(choice.sounds)).decode(),
                "transcript": choice.text,
                "expires_at": expires_at(head),
            },
        }
    return answer


def audio_id(head: StreamHead, index: int) -> str:
    return f"audio-{head.id.removeprefix('chatcmpl-')}-{index}"


def expires_at(head: StreamHead) -> int:
    return head.created
