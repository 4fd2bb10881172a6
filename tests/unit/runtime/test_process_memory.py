"""Memory that a long prompt took is given back to the system."""

from __future__ import annotations

import resource
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from tests.models.tiny_tokenizer import TinyTokenizer
from tests.unit.parsing.codecs import codec

from edgellm.runtime import process_memory, prompt_front_end
from edgellm.runtime.generation import GenerationRequest, TextPrompt
from edgellm.runtime.length_limits import LengthLimits
from edgellm.runtime.prompt_front_end import TokenisingFrontEnd
from edgellm.runtime.sampling_params import SamplingParams

REPOSITORY = Path(__file__).parents[3]
PROMPT = "the quick brown fox jumps. " * 40_000  # 1.1 MB
# What is given back is most of it: a fifth of what stays otherwise is a wide margin.
SHARE_LEFT_MAX = 0.2


def test_a_long_prompt_leaves_no_memory_behind() -> None:
    kept, given_back = growth_bytes("keep"), growth_bytes("give_back")
    assert kept > 20 << 20, kept  # or there would be nothing to give back
    assert given_back < SHARE_LEFT_MAX * kept, (given_back, kept)


def test_threads_share_arenas_where_there_is_glibc() -> None:
    done = _python("from edgellm.runtime.process_memory import *\nprint(limit_malloc_arenas(), return_freed_memory())")
    assert done in ("True True", "False False")


def test_short_prompts_give_nothing_back() -> None:
    calls = _count_calls(lambda: _front_end().encode(_request("short")))
    assert calls == 0
    assert _count_calls(lambda: _front_end().encode(_request("\n" * 1_100_000))) == 1


def growth_bytes(what: str) -> int:
    return int(_python(f"from tests.unit.runtime.test_process_memory import measure\nmeasure({what!r})"))


def measure(what: str) -> None:
    """Print by how much this process grew: run in a process of its own."""
    process_memory.limit_malloc_arenas()
    if what == "keep":
        prompt_front_end.return_freed_memory = lambda: False
    front_end = _front_end()
    front_end.encode(_request("a first prompt fills what is kept for all"))
    before = _resident_bytes()
    thread = threading.Thread(target=front_end.encode, args=[_request(PROMPT)])  # with an arena of its own
    thread.start()
    thread.join()
    print(_resident_bytes() - before)


def _count_calls(work: Callable[[], object]) -> int:
    calls = 0

    def count() -> bool:
        nonlocal calls
        calls += 1
        return True

    kept, prompt_front_end.return_freed_memory = prompt_front_end.return_freed_memory, count
    try:
        work()
    finally:
        prompt_front_end.return_freed_memory = kept
    return calls


def _front_end() -> TokenisingFrontEnd:
    tokenizer = codec(TinyTokenizer())
    return TokenisingFrontEnd(tokenizer, LengthLimits(1 << 30, 1 << 31), tokenizer.vocab_size)


def _request(text: str) -> GenerationRequest:
    return GenerationRequest(TextPrompt(text), SamplingParams())


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
