"""StreamSignal: one descriptor tells an event loop of every chunk and every end, and of nothing twice."""

from __future__ import annotations

import select
from collections.abc import Iterator
from typing import Any

import pytest
from tests.native.runtime_driver import Ask, BundleMaker, native_module, runtime_options

module = native_module()

DEADLINE_SECONDS = 120.0
TOKENS = 40


@pytest.fixture(scope="module")
def engine(tiny_bundle: BundleMaker) -> Iterator[Any]:
    made = module.RequestEngine(str(tiny_bundle("llama")), max_batch_size=2, options=runtime_options(threads=1))
    yield made
    made.shutdown(module.ShutdownMode.CANCEL)


class Reader:
    """Waits for the signal alone, as an event loop does."""

    def __init__(self) -> None:
        self.signal = module.StreamSignal()
        self.open: list[tuple[Any, Any]] = []
        self.tokens: dict[int, list[int]] = {}

    def submit(self, engine: Any, ask: Ask) -> Any:
        request = ask.native()
        channel = request.stream_channels[0]
        handle = engine.submit(request)
        channel.set_signal(self.signal)
        self.open.append((handle, channel))
        self.tokens[handle.id] = []
        return handle

    def raised(self, timeout_seconds: float = 0) -> bool:
        return bool(select.select([self.signal.fileno()], [], [], timeout_seconds)[0])

    def read_until_all_have_ended(self) -> None:
        while self.open:
            assert self.raised(DEADLINE_SECONDS), "nobody said that there is something to read"
            self.signal.clear()
            for handle, channel in list(self.open):
                ended = handle.ready()
                while (chunk := channel.try_pop()) is not None:
                    self.tokens[handle.id] += chunk.token_ids
                if ended:
                    self.open.remove((handle, channel))


def test_a_reader_that_waits_for_the_signal_alone_misses_nothing(engine: Any) -> None:
    reader = Reader()
    asks = [Ask([5, 6, 7, number], max_tokens=TOKENS, extensions={"ignore_eos": True}) for number in range(6)]
    handles = [reader.submit(engine, ask) for ask in asks]
    reader.read_until_all_have_ended()
    for handle in handles:
        assert reader.tokens[handle.id] == handle.get().output_ids[0]
        assert len(reader.tokens[handle.id]) == TOKENS
    reader.signal.clear()
    assert not reader.raised()


def test_a_cancelled_request_is_told_by_its_end(engine: Any) -> None:
    reader = Reader()
    handle = reader.submit(engine, Ask([5, 6], max_tokens=400, extensions={"ignore_eos": True}))
    handle.cancel()
    handle.stream().cancel()
    reader.read_until_all_have_ended()
    with pytest.raises(RuntimeError, match="cancelled"):
        handle.get()


def test_a_signal_may_be_set_after_everything_was_said(engine: Any) -> None:
    request = Ask([5, 6], max_tokens=3).native()
    handle = engine.submit(request)
    handle.get()
    reader = Reader()
    assert not reader.raised()
    handle.stream().set_signal(reader.signal)
    assert reader.raised()


def test_a_signal_lives_as_long_as_a_channel_may_raise_it(engine: Any) -> None:
    handle = engine.submit(Ask([5, 6], max_tokens=TOKENS, extensions={"ignore_eos": True}).native())
    handle.stream().set_signal(module.StreamSignal())
    assert len(handle.get().output_ids[0]) == TOKENS
    with pytest.raises(TypeError):
        handle.stream().set_signal(5)
