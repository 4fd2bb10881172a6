"""pydantic-ai: agents with tools and typed output, over chat completions and over Responses."""

from __future__ import annotations

import asyncio
import sys

from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelSettings, NativeOutput
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from tests.http.clients.arguments import MODEL, QUESTION, base_url


class Capital(BaseModel):
    city: str = Field(max_length=20)


async def run(model: Model) -> None:
    settings = ModelSettings(temperature=0, max_tokens=50)
    plain = Agent(model, instructions="You are helpful.", model_settings=settings)
    whole = await plain.run(QUESTION)
    assert whole.output, whole
    async with plain.run_stream(QUESTION) as stream:
        assert await stream.get_output() == whole.output
    again = await plain.run("And of Spain?", message_history=whole.all_messages())
    assert again.output

    structured = Agent(model, output_type=NativeOutput(Capital), model_settings=settings)
    assert isinstance((await structured.run("The capital of France as JSON.")).output, Capital)

    # Typed output by a tool is a call that must be made.
    called = Agent(model, output_type=Capital, model_settings=settings)
    assert isinstance((await called.run("The capital of France?")).output, Capital)


def main() -> None:
    provider = OpenAIProvider(base_url=base_url(sys.argv), api_key="none")
    for model in (OpenAIChatModel(MODEL, provider=provider), OpenAIResponsesModel(MODEL, provider=provider)):
        asyncio.run(run(model))


if __name__ == "__main__":
    main()
