"""One model behind an EngineClient, by an in-process lane or a worker's, in a process of its own.

It gets one JSON line an order. What is measured is serving without HTTP: from the job to its last delta, taken as the
HTTP layer takes them.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import uvloop

from edgellm.runtime.generation import ChatPrompt, GenerationRequest
from edgellm.runtime.llm import LLM
from edgellm.runtime.outputs import StreamDelta
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.engine_client import EngineClient, GenerationJob
from edgellm.serving.model_spec import ModelSpec, OpenedModel, ReportProgress
from edgellm.serving.opened_llm import opened_llm
from edgellm.serving.worker.lane import WorkerLane
from edgellm.serving.worker.replicas import Replicas
from edgellm.serving.worker.settings import WorkerSettings, WorkerSpec

NAME = "measured"
NANOSECONDS_PER_SECOND = 1e9
WORKER = "worker"
IN_PROCESS = "in-process"


def client_over(lane: str, model: str, cache_dir: str) -> EngineClient:
    async def open_model(report: ReportProgress) -> OpenedModel:
        if lane == IN_PROCESS:
            return opened_llm(LLM(model, cache_dir=cache_dir))
        spec = WorkerSpec(NAME, {"model": model, "cache_dir": cache_dir}, log_level="warning")
        return await Replicas([spec], WorkerSettings(), report).open()

    return EngineClient([ModelSpec(NAME, open_model)])


def worker_pid(client: EngineClient) -> int:
    """0 where the lane has no worker."""
    (lane,) = client.model(NAME).lanes
    return lane.process.pid if isinstance(lane, WorkerLane) else 0


def event_loop_cpu_seconds(pid: int) -> float:
    """CPU time of a process's first thread: in a worker, the one that reads and writes frames."""
    if not pid:
        return 0.0
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / NANOSECONDS_PER_SECOND


class Stream:
    """Takes deltas as a response does: on the spot, without a wake-up of its task for each; then text alone."""

    def __init__(self) -> None:
        self.start_seconds = time.perf_counter()
        self.first_token_seconds = 0.0
        self.tokens = 0

    def take(self, index: int, delta: StreamDelta) -> bool:
        if delta.token_ids and not self.first_token_seconds:
            self.first_token_seconds = time.perf_counter() - self.start_seconds
        return True

    def text_writer(self, index: int) -> Callable[[str], bool]:
        return bool  # text that is there was taken

    async def run(self, client: EngineClient, order: Mapping[str, Any], number: int) -> None:
        params = SamplingParams(temperature=0.0, max_tokens=order["max_tokens"], ignore_eos=True, reuse_context=False)
        prompt = ChatPrompt([{"role": "user", "content": order["content"]}])
        job = GenerationJob(NAME, [GenerationRequest(prompt, params)], f"stream-{number}")
        generation = await client.generate(job)
        while deltas := await generation.next_deltas(self):
            for each in deltas:
                self.take(each.index, each.delta)
        await generation.ended()
        self.tokens = generation.report.generated_tokens


async def stream(client: EngineClient, order: Mapping[str, Any], number: int) -> dict[str, float]:
    pid = worker_pid(client)
    cpu_start, worker_cpu_start = time.thread_time(), event_loop_cpu_seconds(pid)
    one = Stream()
    await one.run(client, order, number)
    return {
        "seconds": time.perf_counter() - one.start_seconds,
        "first_token_seconds": one.first_token_seconds,
        "tokens": one.tokens,
        "cpu_seconds": time.thread_time() - cpu_start,
        "worker_cpu_seconds": event_loop_cpu_seconds(pid) - worker_cpu_start,
    }


async def recover(client: EngineClient, order: Mapping[str, Any], number: int) -> dict[str, float]:
    """A cached load up to the first token, then the first token after the worker was killed. Opens a client anew."""
    await client.close()
    again = client_over(WORKER, order["model"], order["cache_dir"])
    load = Stream()
    again.start()
    await again.opened()
    await load.run(again, order, number)
    pid = worker_pid(again)
    after = Stream()
    os.kill(pid, signal.SIGKILL)
    await after.run(again, order, number)
    if worker_pid(again) == pid:
        raise RuntimeError("the worker that was killed answered")
    await again.close()
    return {"load_seconds": load.first_token_seconds, "recovery_seconds": after.first_token_seconds}


async def obey(lane: str, model: str, cache_dir: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    client = client_over(lane, model, cache_dir)
    client.start()
    await client.opened()
    answer({"name": lane})
    numbers = count()
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        if order.pop("recover", False):
            answer(await recover(client, {"model": model, "cache_dir": cache_dir, **order}, next(numbers)))
        else:
            answer(await stream(client, order, next(numbers)))
    await client.close()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(obey(*sys.argv[1:4]))
