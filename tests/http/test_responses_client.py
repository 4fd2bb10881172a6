"""The Responses API through the official OpenAI client, against the real daemon and a real model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from tests.http.daemon_process import MODEL, Daemon

QUESTION = "What is the capital of France?"
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_output_tokens": 24}


def test_it_answers_as_chat_completions_do(client: openai.OpenAI) -> None:
    response = client.responses.create(input=QUESTION, **GREEDY)
    chat = client.chat.completions.create(
        model=MODEL, temperature=0, max_tokens=24, messages=[{"role": "user", "content": QUESTION}]
    )
    assert response.output_text == chat.choices[0].message.content
    assert response.status == ("incomplete" if chat.choices[0].finish_reason == "length" else "completed")
    assert response.usage is not None
    assert chat.usage is not None
    assert response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.usage.output_tokens == chat.usage.completion_tokens


def test_a_stream_says_what_a_whole_answer_says(client: openai.OpenAI) -> None:
    whole = client.responses.create(input=QUESTION, **GREEDY)
    with client.responses.stream(input=QUESTION, **GREEDY) as stream:
        events = list(stream)
        final = stream.get_final_response() if whole.status == "completed" else None
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    assert len(deltas) > 5  # it comes piece by piece
    assert [event.sequence_number for event in events] == list(range(len(events)))
    last = events[-1]
    assert last.type == f"response.{whole.status}"
    assert last.response.output_text == whole.output_text
    assert final is None or final.output_text == whole.output_text


def test_the_asynchronous_client_streams(daemon: Daemon) -> None:
    async def scenario() -> None:
        async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
            whole = await client.responses.create(input=QUESTION, **GREEDY)
            stream = await client.responses.create(input=QUESTION, stream=True, **GREEDY)
            deltas = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            assert "".join(deltas) == whole.output_text

    asyncio.run(scenario())


def test_turns_are_the_same_by_id_and_by_items(client: openai.OpenAI) -> None:
    instructions = "You are a helpful guide."
    first = client.responses.create(input=QUESTION, instructions=instructions, **GREEDY)
    by_id = client.responses.create(
        input="And of Spain?", instructions=instructions, previous_response_id=first.id, **GREEDY
    )
    items: list[Any] = [
        {"role": "user", "content": QUESTION},
        *first.output,
        {"role": "user", "content": "And of Spain?"},
    ]
    by_items = client.responses.create(input=items, instructions=instructions, **GREEDY)
    assert by_id.output_text == by_items.output_text
    assert by_id.usage is not None
    assert by_items.usage is not None
    assert by_id.usage.input_tokens == by_items.usage.input_tokens
    assert client.responses.retrieve(by_id.id).output_text == by_id.output_text
    client.responses.delete(by_id.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(by_id.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(input="?", previous_response_id=by_id.id, **GREEDY)


@pytest.mark.parametrize(
    "dumped",
    [
        lambda item: item,
        lambda item: item.to_dict(),
        lambda item: item.model_dump(),
        lambda item: item.model_dump(by_alias=True),
        lambda item: item.model_dump(exclude_none=True),
    ],
    ids=["item", "to_dict", "model_dump", "by_alias", "exclude_none"],
)
def test_a_call_is_taken_back_however_it_was_written_down(client: openai.OpenAI, dumped: Callable[[Any], Any]) -> None:
    tool: Any = {
        "type": "function",
        "name": "get_time",
        "parameters": {"type": "object", "properties": {}},
        "strict": True,
    }
    asked: Any = {"role": "user", "content": "What time is it?"}
    called = client.responses.create(input=[asked], tools=[tool], tool_choice="required", **GREEDY)
    [call] = [item for item in called.output if item.type == "function_call"]
    items = [asked, dumped(call), {"type": "function_call_output", "call_id": call.call_id, "output": "10:15"}]
    assert client.responses.create(input=items, tools=[tool], **GREEDY).status in ("completed", "incomplete")


class Capital(BaseModel):
    city: str
    inhabitants: int


def test_structured_answers_fit_their_schema(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "input": "The capital of France as JSON.", "temperature": 0}
    parsed = client.responses.parse(text_format=Capital, max_output_tokens=120, **asked)
    assert parsed.status == "completed"
    assert isinstance(parsed.output_parsed, Capital)
    with client.responses.stream(text_format=Capital, max_output_tokens=120, **asked) as stream:
        assert stream.get_final_response().output_parsed == parsed.output_parsed


def test_log_probabilities_come_with_the_text(client: openai.OpenAI) -> None:
    response = client.responses.create(
        input=QUESTION, include=["message.output_text.logprobs"], top_logprobs=2, **GREEDY
    )
    [item] = response.output
    assert item.type == "message"
    [part] = item.content
    assert part.type == "output_text"
    assert part.logprobs
    assert b"".join(bytes(token.bytes) for token in part.logprobs).decode().startswith(part.text)
    assert all(len(token.top_logprobs) == 2 for token in part.logprobs)


def test_errors_are_the_clients_own_types(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(input="word " * 9000, **GREEDY)
    assert (refused.value.code, refused.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(input="?", tools=[{"type": "web_search"}], **GREEDY)
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "tools[0].type")
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="other", input="?")
