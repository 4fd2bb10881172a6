"""langchain-openai: answers, streams, tools and structured output, over chat completions and over Responses."""

from __future__ import annotations

import asyncio
import sys

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, Field
from tests.http.clients.arguments import MODEL, QUESTION, base_url


class Capital(BaseModel):
    """A capital city."""

    city: str = Field(max_length=20)


@tool
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"12 degrees in {city}"


async def run(chat: ChatOpenAI) -> None:
    messages = [SystemMessage("You are helpful."), HumanMessage(QUESTION)]
    whole = chat.invoke(messages)
    assert whole.text, whole
    assert whole.usage_metadata is not None
    assert whole.usage_metadata["output_tokens"] > 0
    streamed = "".join(chunk.text for chunk in chat.stream(messages))
    assert streamed == whole.text, (streamed, whole.text)
    assert (await chat.ainvoke(messages)).text == whole.text

    calling = chat.bind_tools([get_weather], tool_choice="get_weather")
    called = calling.invoke([HumanMessage("How is the weather in Oslo?")])
    assert isinstance(called, AIMessage)
    [call] = called.tool_calls
    assert (call["name"], list(call["args"])) == ("get_weather", ["city"]), call
    result = ToolMessage(get_weather.invoke(call["args"]), tool_call_id=call["id"])
    assert chat.invoke([HumanMessage("How is the weather in Oslo?"), called, result]).text

    structured = chat.with_structured_output(Capital, method="json_schema").invoke("The capital of France as JSON.")
    assert isinstance(structured, Capital), structured


async def run_both() -> None:
    for with_responses in (False, True):
        chat = ChatOpenAI(
            model=MODEL,
            base_url=base_url(sys.argv),
            api_key="none",
            temperature=0,
            max_tokens=60,
            max_retries=0,
            use_responses_api=with_responses,
        )
        await run(chat)


def main() -> None:
    asyncio.run(run_both())


if __name__ == "__main__":
    main()
