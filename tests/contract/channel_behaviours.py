"""Channels: waiting, cancelling, settings."""

from __future__ import annotations

import threading
import time
from typing import Any

from tests.contract.behaviours import Behaviours, refused

CHANNELS = Behaviours()

WAIT_MILLISECONDS = 60_000


def _channels(rt: Any) -> list[Any]:
    return [rt.StreamChannel.create(), rt.AudioStreamChannel()]


@CHANNELS
def a_new_channel_is_empty_and_open(rt: Any) -> None:
    for channel in _channels(rt):
        assert channel.try_pop() is None
        assert channel.wait_pop(0) is None
        assert channel.wait_pop(-1) is None
        assert not channel.is_finished()
        assert not channel.is_cancelled()


@CHANNELS
def cancelling_wakes_a_waiting_reader(rt: Any) -> None:
    for channel in _channels(rt):
        popped: list[object] = []
        reader = threading.Thread(target=lambda c=channel, p=popped: p.append(c.wait_pop(WAIT_MILLISECONDS)))
        reader.start()
        time.sleep(0.05)
        channel.cancel()
        reader.join(WAIT_MILLISECONDS / 2000)
        assert not reader.is_alive()
        assert popped == [None]


@CHANNELS
def a_cancelled_channel_is_neither_finished_nor_has_a_reason(rt: Any) -> None:
    for channel in _channels(rt):
        channel.cancel()
        channel.cancel()
        assert channel.is_cancelled()
        assert not channel.is_finished()
        assert channel.wait_pop(WAIT_MILLISECONDS) is None
        assert channel.try_pop() is None
    channel = rt.StreamChannel.create()
    channel.cancel()
    assert channel.get_reason() == rt.FinishReason.NOT_FINISHED


@CHANNELS
def waiting_lasts_and_lets_other_threads_run(rt: Any) -> None:
    for channel in _channels(rt):
        running, steps = threading.Event(), 0
        running.set()

        def work(running: threading.Event = running) -> None:
            nonlocal steps
            while running.is_set():
                steps += 1
                time.sleep(0.001)

        worker = threading.Thread(target=work)
        worker.start()
        try:
            before, started = steps, time.monotonic()
            channel.wait_pop(timeout_ms=200)
            waited, made = time.monotonic() - started, steps - before
        finally:
            running.clear()
            worker.join()
        assert waited > 0.19
        assert made > 1


@CHANNELS
def a_stream_interval_below_one_acts_as_one(rt: Any) -> None:
    channel = rt.StreamChannel.create()
    assert channel.get_stream_interval() == 1
    channel.set_stream_interval(n=7)
    assert channel.get_stream_interval() == 7
    for below in (0, -1):
        channel.set_stream_interval(below)
        assert channel.get_stream_interval() == 1
    assert refused(TypeError, lambda: channel.set_stream_interval(2**31))
    assert refused(TypeError, lambda: channel.wait_pop(1.5))


@CHANNELS
def a_channel_says_whether_it_skips_special_tokens(rt: Any) -> None:
    channel = rt.StreamChannel.create()
    assert channel.get_skip_special_tokens() is True
    channel.set_skip_special_tokens(skip=False)
    assert channel.get_skip_special_tokens() is False
