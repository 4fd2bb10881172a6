"""litellm: OpenAI's chat completions and Anthropic's messages, whole, streamed and with tools."""

from __future__ import annotations

import json
import sys
from typing import Any

import litellm
from tests.http.clients.arguments import MODEL, QUESTION, base_url, daemon_url

MESSAGES = [{"role": "user", "content": QUESTION}]
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "It.", "parameters": PARAMETERS}}


def run(provider: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"messages": MESSAGES, "max_tokens": 50, "num_retries": 0, **provider}
    whole = litellm.completion(**asked)
    text = whole.choices[0].message.content
    assert text, whole
    assert whole.usage.completion_tokens > 0
    chunks = list(litellm.completion(stream=True, **asked))
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert streamed == text, (streamed, text)
    named = {"type": "function", "function": {"name": "get_weather"}}
    called = litellm.completion(**{**asked, "tools": [TOOL], "tool_choice": named})
    [call] = called.choices[0].message.tool_calls
    assert list(json.loads(call.function.arguments)) == ["city"], call
    result = {"role": "tool", "tool_call_id": call.id, "content": "12 degrees"}
    turn = [*MESSAGES, called.choices[0].message.model_dump(exclude_none=True), result]
    answer = litellm.completion(**{**asked, "messages": turn, "tools": [TOOL]})
    assert answer.choices[0].finish_reason in ("stop", "length", "tool_calls"), answer


def main() -> None:
    litellm.telemetry = False
    run({"model": f"openai/{MODEL}", "api_base": base_url(sys.argv), "api_key": "none", "temperature": 0})
    # As an Anthropic model: this protocol's clients of today send no temperature, so the seed of chance is the top one.
    run({"model": f"anthropic/{MODEL}", "api_base": daemon_url(sys.argv), "api_key": "none", "top_k": 1})


if __name__ == "__main__":
    main()
