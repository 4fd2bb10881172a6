"""Clients of a gateway: streams that are held open, and a client that never stops asking."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import openai

DEADLINE_SECONDS = 120.0
# The end token is banned: the answer is as long as max_tokens.
LONG = {"messages": [{"role": "user", "content": "Count."}], "logit_bias": {"2": -100}, "temperature": 0}
SHORT = {"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 4, "temperature": 0}


def chat(url: str, key: str, verify: Any = True, **fields: object) -> httpx.Response:
    return httpx.post(
        f"{url}/v1/chat/completions",
        json={**SHORT, **fields},
        headers={"Authorization": f"Bearer {key}"},
        timeout=DEADLINE_SECONDS,
        verify=verify,
    )


class Stream:
    """An answer that is being streamed; ``rest`` reads it to its end, whatever that is."""

    def __init__(self, response: httpx.Response) -> None:
        self._events = (
            json.loads(line.removeprefix("data: "))
            for line in response.iter_lines()
            if line.startswith("data: ") and line != "data: [DONE]"
        )
        self.first = next(self._events)
        assert "error" not in self.first, self.first

    def rest(self) -> str:
        """How it ended: its finish reason, or "lost"."""
        finish = "lost"
        try:
            for event in self._events:
                if "error" in event:
                    return "lost"
                finish = event["choices"][0]["finish_reason"] or finish
        except httpx.HTTPError:
            return "lost"
        return finish


@contextmanager
def stream(url: str, key: str, max_tokens: int, verify: Any = True) -> Iterator[Stream]:
    """Held once its first event is there."""
    with (
        httpx.Client(timeout=DEADLINE_SECONDS, verify=verify) as client,
        client.stream(
            "POST",
            f"{url}/v1/chat/completions",
            json={**LONG, "max_tokens": max_tokens, "stream": True},
            headers={"Authorization": f"Bearer {key}"},
        ) as response,
    ):
        assert response.status_code == 200, response.read()
        held = Stream(response)
        yield held  # by a name here too: a stream that nobody holds is closed


class SteadyClient:
    """An OpenAI client that asks one thing after another until ``stop``; ``failures`` says what went wrong."""

    def __init__(self, url: str, key: str, http_client: httpx.Client | None = None) -> None:
        self._client = openai.OpenAI(
            base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=DEADLINE_SECONDS, http_client=http_client
        )
        self._stopping = threading.Event()
        self.answered = 0
        self.failures: list[str] = []
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> SteadyClient:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_SECONDS)
        self._client.close()

    def _ask(self) -> None:
        while not self._stopping.is_set():
            try:
                self._client.chat.completions.create(model="smollm2", **SHORT)  # type: ignore[call-overload]
                self.answered += 1
            except openai.OpenAIError as error:
                self.failures.append(f"{type(error).__name__}: {error}")
