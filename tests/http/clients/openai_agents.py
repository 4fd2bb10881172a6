"""openai-agents: an agent with two tools over the Responses API, whole and streamed, over several turns."""

from __future__ import annotations

import asyncio
import sys

from agents import (
    Agent,
    ModelSettings,
    Runner,
    SQLiteSession,
    function_tool,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai import AsyncOpenAI
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel, Field
from tests.http.clients.arguments import MODEL, base_url

asked: list[str] = []


@function_tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    asked.append(city)
    return "12 degrees and dry"


@function_tool
def get_time(city: str) -> str:
    """Time of a city."""
    asked.append(city)
    return "noon"


class Report(BaseModel):
    city: str = Field(max_length=20)
    degrees: int = Field(ge=-50, le=50)


def agent(**further: object) -> Agent[None]:
    settings = ModelSettings(temperature=0, max_tokens=50, tool_choice="required", parallel_tool_calls=False)
    return Agent(
        name="Forecaster",
        instructions="You tell the weather.",
        model=MODEL,
        tools=[get_weather, get_time],
        model_settings=settings,
        **further,  # type: ignore[arg-type]
    )


async def run() -> None:
    # The first turn must call; after it the library lets the model choose, and it answers or calls again.
    session = SQLiteSession("weather")
    first = await Runner.run(agent(), "How is the weather in Oslo?", session=session, max_turns=6)
    assert first.final_output, first
    assert asked
    turns = len(first.raw_responses)
    assert turns >= 2

    calls = len(asked)
    streamed = Runner.run_streamed(agent(), "And what time is it there?", session=session, max_turns=6)
    pieces = [
        event.data.delta
        async for event in streamed.stream_events()
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent)
    ]
    assert len(asked) > calls
    assert str(streamed.final_output) in "".join(pieces)

    by_id = await Runner.run(agent(), "Thanks.", previous_response_id=streamed.last_response_id, max_turns=6)
    assert by_id.final_output

    structured = Agent(
        name="Reporter",
        instructions="You report as JSON.",
        model=MODEL,
        output_type=Report,
        model_settings=ModelSettings(temperature=0, max_tokens=80),
    )
    report = await Runner.run(structured, "12 degrees in Oslo.")
    assert isinstance(report.final_output, Report), report


def main() -> None:
    set_tracing_disabled(True)
    set_default_openai_client(
        AsyncOpenAI(base_url=base_url(sys.argv), api_key="none", max_retries=0), use_for_tracing=False
    )
    asyncio.run(run())


if __name__ == "__main__":
    main()
