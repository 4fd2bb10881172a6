"""The official OpenAI client, against the real daemon and a real model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gguf
import openai
import pytest
from tests.http.daemon_process import MODEL, Daemon

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0, "max_tokens": 24}


def test_it_answers(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(messages=QUESTION, **GREEDY)
    assert answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.model == MODEL
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens > 10


def test_a_stream_says_what_a_whole_answer_says(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(messages=QUESTION, **GREEDY)
    chunks = list(
        client.chat.completions.create(messages=QUESTION, stream=True, stream_options={"include_usage": True}, **GREEDY)
    )
    *content, usage = chunks
    assert "".join(c.choices[0].delta.content or "" for c in content) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in content if c.choices[0].finish_reason] == [
        whole.choices[0].finish_reason
    ]
    assert whole.usage is not None
    assert usage.usage is not None
    assert usage.usage.completion_tokens == whole.usage.completion_tokens
    assert len({chunk.id for chunk in chunks}) == 1
    assert len(content) > 5  # it comes piece by piece


def test_the_asynchronous_client_runs_several_at_a_time(daemon: Daemon) -> None:
    async def scenario() -> None:
        async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as client:
            answers = await asyncio.gather(
                *(client.chat.completions.create(messages=QUESTION, **GREEDY) for _ in range(4))
            )
            assert len({answer.choices[0].message.content for answer in answers}) == 1
            stream = await client.chat.completions.create(messages=QUESTION, stream=True, **GREEDY)
            text = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
            assert text == answers[0].choices[0].message.content

    asyncio.run(scenario())


def test_text_is_continued(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": MODEL, "prompt": "The capital of France is", "temperature": 0, "max_tokens": 5}
    whole = client.completions.create(**asked)
    assert "Paris" in whole.choices[0].text
    streamed = "".join(chunk.choices[0].text for chunk in client.completions.create(stream=True, **asked))
    assert streamed == whole.choices[0].text


def test_several_prompts_are_answered_in_their_order(client: openai.OpenAI) -> None:
    prompts = ["The capital of France is", "Two plus two is", "The sky is"]
    together = client.completions.create(model=MODEL, prompt=prompts, temperature=0, max_tokens=5)
    alone = [
        client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=5).choices[0].text
        for prompt in prompts
    ]
    assert [choice.text for choice in together.choices] == alone


def test_models_are_listed_and_shown(client: openai.OpenAI) -> None:
    [model] = client.models.list().data
    assert model.id == MODEL
    shown = client.models.retrieve(MODEL)
    assert shown == model
    assert shown.model_extra is not None
    assert shown.model_extra["edgellm"]["state"] == "ready"
    assert shown.model_extra["edgellm"]["streaming"] == "incremental"
    assert shown.model_extra["edgellm"]["executor"] in ("fused", "ggml")
    assert shown.model_extra["edgellm"]["executor_reason"]
    assert shown.model_extra["edgellm"]["executor_device"]


def test_logprobs_are_those_of_the_text(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(messages=QUESTION, logprobs=True, top_logprobs=3, **GREEDY)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert answer.usage is not None
    joined = b"".join(bytes(token.bytes or []) for token in logprobs.content)
    assert joined.decode().startswith(answer.choices[0].message.content or "?")
    for token in logprobs.content:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 3
        best = max(token.top_logprobs, key=lambda entry: entry.logprob)
        assert best.logprob == pytest.approx(token.logprob, abs=1e-4)  # greedy takes the likeliest


def test_errors_are_the_clients_own_types(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="other", messages=QUESTION)
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model=MODEL, messages=QUESTION, temperature=9)
    assert (wrong.value.code, wrong.value.param) == ("invalid_value", "temperature")
    with pytest.raises(openai.BadRequestError) as lacking:
        client.embeddings.create(model=MODEL, input="x")
    assert (lacking.value.code, lacking.value.param) == ("unsupported_parameter", "model")


def test_a_seed_makes_an_answer_repeatable(client: openai.OpenAI) -> None:
    def ask(seed: int) -> str | None:
        answer = client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=1.5, max_tokens=16, seed=seed
        )
        return answer.choices[0].message.content

    assert ask(7) == ask(7)
    assert len({ask(seed) for seed in range(4)}) > 1


def test_choices_of_a_seeded_request_differ_and_repeat(client: openai.OpenAI) -> None:
    def ask() -> list[str | None]:
        answer = client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=1.5, max_tokens=16, seed=11, n=5
        )
        return [choice.message.content for choice in answer.choices]

    first = ask()
    assert len(set(first)) > 1
    assert ask() == first


def test_a_stop_string_ends_the_text_and_is_not_in_it(client: openai.OpenAI) -> None:
    full = client.chat.completions.create(messages=QUESTION, **GREEDY).choices[0].message.content or ""
    stop = full[6:11]
    expected = full[: full.index(stop)]
    whole = client.chat.completions.create(messages=QUESTION, stop=[stop], **GREEDY)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (expected, "stop")
    stream = client.chat.completions.create(messages=QUESTION, stop=stop, stream=True, **GREEDY)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == expected


def test_a_banned_token_does_not_come(client: openai.OpenAI, model_source: Path) -> None:
    def first_token(**further: Any) -> str:
        answer = client.chat.completions.create(
            model=MODEL, messages=QUESTION, temperature=0, max_tokens=1, logprobs=True, **further
        )
        assert answer.choices[0].logprobs is not None
        assert answer.choices[0].logprobs.content is not None
        return answer.choices[0].logprobs.content[0].token

    usual = first_token()
    assert first_token(logit_bias={str(_token_id(model_source, usual)): -100}) != usual


def _token_id(model_source: Path, token: str) -> int:
    field = gguf.GGUFReader(model_source).fields["tokenizer.ggml.tokens"]
    wanted = token.replace(" ", "Ġ").encode()
    return next(index for index, part in enumerate(field.data) if bytes(field.parts[part]) == wanted)


def test_a_second_turn_reuses_the_first(client: openai.OpenAI) -> None:
    messages: list[Any] = [{"role": "user", "content": "Tell me about the sea. " * 40}]
    first = client.chat.completions.create(messages=messages, **GREEDY)
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "Go on."},
    ]
    second = client.chat.completions.create(messages=messages, **GREEDY)
    assert second.usage is not None
    assert second.usage.prompt_tokens_details is not None
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) > 200
    cold = client.chat.completions.create(messages=messages, extra_body={"reuse_context": False}, **GREEDY)
    assert cold.usage is not None
    assert cold.usage.prompt_tokens_details is not None
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert cold.choices[0].message.content == second.choices[0].message.content


def test_a_large_max_tokens_is_clamped_and_a_long_prompt_refused(client: openai.OpenAI) -> None:
    asked: list[Any] = [{"role": "user", "content": "Name the capital of France."}]  # it answers in a sentence
    answer = client.chat.completions.create(model=MODEL, messages=asked, temperature=0, max_tokens=1_000_000, stop=".")
    assert answer.choices[0].finish_reason == "stop"
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "word " * 9000}])
    assert refused.value.code == "context_length_exceeded"
    assert "9" in refused.value.message
