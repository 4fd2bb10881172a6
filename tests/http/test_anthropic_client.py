"""The official Anthropic client, against the real daemon and a real model."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from pydantic import BaseModel
from tests.http.daemon_process import MODEL, Daemon

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: dict[str, Any] = {"model": MODEL, "max_tokens": 24, "extra_body": {"temperature": 0}}


@pytest.fixture
def claude(daemon: Daemon) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=daemon.url, api_key="none", max_retries=0) as made:
        yield made


def text_of(message: anthropic.types.Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_it_answers(claude: anthropic.Anthropic) -> None:
    message = claude.messages.create(messages=QUESTION, system="You are helpful.", **GREEDY)
    assert (message.type, message.role, message.model) == ("message", "assistant", MODEL)
    assert text_of(message)
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert message.usage.input_tokens > 10
    assert message.usage.output_tokens > 0
    assert message._request_id
    assert message.id == f"msg_{message._request_id}"


def test_a_stream_says_what_a_whole_answer_says(claude: anthropic.Anthropic) -> None:
    whole = claude.messages.create(messages=QUESTION, **GREEDY)
    with claude.messages.stream(messages=QUESTION, **GREEDY) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(pieces) == text_of(whole) == text_of(final)
    assert len(pieces) > 5  # it comes piece by piece
    assert (final.stop_reason, final.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert final.usage.output_tokens == whole.usage.output_tokens
    read = (final.usage.cache_read_input_tokens or 0) + final.usage.input_tokens
    assert read == (whole.usage.cache_read_input_tokens or 0) + whole.usage.input_tokens


def test_raw_events_come_in_the_order_of_the_protocol(claude: anthropic.Anthropic) -> None:
    events = [event.type for event in claude.messages.create(messages=QUESTION, stream=True, **GREEDY)]
    assert events[:2] == ["message_start", "content_block_start"]
    assert events[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(events[2:-3]) == {"content_block_delta"}


def test_the_asynchronous_client_runs_several_at_a_time(daemon: Daemon) -> None:
    async def scenario() -> None:
        async with anthropic.AsyncAnthropic(base_url=daemon.url, api_key="none", max_retries=0) as claude:
            answers = await asyncio.gather(*(claude.messages.create(messages=QUESTION, **GREEDY) for _ in range(3)))
            assert len({text_of(answer) for answer in answers}) == 1
            async with claude.messages.stream(messages=QUESTION, **GREEDY) as stream:
                assert "".join([text async for text in stream.text_stream]) == text_of(answers[0])

    asyncio.run(scenario())


def test_the_sequence_that_stopped_it_is_reported(claude: anthropic.Anthropic) -> None:
    full = text_of(claude.messages.create(messages=QUESTION, **GREEDY))
    stop = full[6:11]
    message = claude.messages.create(messages=QUESTION, stop_sequences=["\u2603", stop], **GREEDY)
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", stop)
    assert text_of(message) == full[: full.index(stop)]
    with claude.messages.stream(messages=QUESTION, stop_sequences=["\u2603", stop], **GREEDY) as stream:
        assert stream.get_final_message().stop_sequence == stop


def test_a_prompt_that_is_too_long_to_answer_is_counted(claude: anthropic.Anthropic) -> None:
    messages: Any = [{"role": "user", "content": "word " * 9000}]
    assert claude.messages.count_tokens(model=MODEL, messages=messages).input_tokens > 9000
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model=MODEL, messages=messages, max_tokens=5)


def test_counting_equals_what_the_model_reads(claude: anthropic.Anthropic) -> None:
    messages: list[Any] = [*QUESTION, {"role": "assistant", "content": "Paris."}, {"role": "user", "content": "And?"}]
    counted = claude.messages.count_tokens(model=MODEL, messages=messages, system="Be brief.")
    usage = claude.messages.create(messages=messages, system="Be brief.", **GREEDY).usage
    assert counted.input_tokens == usage.input_tokens + (usage.cache_read_input_tokens or 0)


def test_a_second_turn_reuses_the_first(claude: anthropic.Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "Tell me about the mountains. " * 40}]
    first = claude.messages.create(messages=messages, **GREEDY)
    messages += [first.to_param(), {"role": "user", "content": "Go on."}]
    second = claude.messages.create(messages=messages, **GREEDY)
    assert (second.usage.cache_read_input_tokens or 0) > 200


class Capital(BaseModel):
    city: str
    inhabitants: int


def test_a_structured_answer_fits_its_schema(claude: anthropic.Anthropic) -> None:
    message = claude.messages.parse(
        model=MODEL,
        max_tokens=120,
        messages=[{"role": "user", "content": "The capital of France as JSON."}],
        output_format=Capital,
        extra_body={"temperature": 0},
    )
    assert isinstance(message.parsed_output, Capital)


def test_errors_are_the_clients_own_types(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="other", max_tokens=5, messages=QUESTION)
    with pytest.raises(anthropic.BadRequestError) as refused:
        claude.messages.create(messages=[{"role": "user", "content": "word " * 9000}], **GREEDY)
    error: Any = refused.value.body
    assert error["error"]["type"] == "invalid_request_error"
    assert error["request_id"] == refused.value.request_id
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    for ask in (claude.messages.count_tokens, lambda **fields: claude.messages.create(max_tokens=5, **fields)):
        with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[1\]"):
            ask(model=MODEL, messages=[{"role": "user", "content": [{"type": "text", "text": "?"}, image]}])
