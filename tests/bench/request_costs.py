"""CPU time of a request before it runs: parsing and validation beside json.loads, a prompt beside a bare encode."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from tests.bench.http_comparison import WORDS, Finding
from tests.bench.statistics_of_rounds import Spread, ratio_by_round
from tokenizers import Tokenizer

from edgellm.api.json_body import parse_json_object
from edgellm.api.wire.chat import ChatRequest
from edgellm.api.wire.fields import ParseContext
from edgellm.api.wire.validation import validated
from edgellm.engines.bundle import TOKENIZER_FILE, Bundle
from edgellm.runtime.bundle_codec import bundle_codec
from edgellm.runtime.generation import ChatPrompt, GenerationRequest
from edgellm.runtime.length_limits import LengthLimits
from edgellm.runtime.prompt_front_end import TokenisingFrontEnd
from edgellm.runtime.sampling_params import SamplingParams

MESSAGES = 50
WORDS_PER_MESSAGE = 40
TOKENS_REPORTED_PER = 1000
REPEATS = 50


def long_chat() -> list[dict[str, str]]:
    """A conversation in turns, about 2,000 words of it."""
    return [
        {
            "role": "user" if number % 2 == 0 else "assistant",
            "content": " ".join(WORDS[(number * 7 + word * word) % len(WORDS)] for word in range(WORDS_PER_MESSAGE)),
        }
        for number in range(MESSAGES)
    ]


def cpu_microseconds(work: Callable[[], Any]) -> float:
    """Of one call, over some repeats."""
    work()
    start = time.process_time()
    for _ in range(REPEATS):
        work()
    return 1e6 * (time.process_time() - start) / REPEATS


def request_costs(bundle: Bundle, rounds: int) -> list[Finding]:
    chat = long_chat()
    body = json.dumps({"model": "m", "messages": chat, "temperature": 0.5, "max_tokens": 100, "stream": True}).encode()
    codec = bundle_codec(bundle.directory)
    limits = LengthLimits(max_input_len=1 << 20, max_kv_cache_capacity=1 << 20)
    front_end = TokenisingFrontEnd(codec, limits, bundle.vocab_size)
    prompt = GenerationRequest(ChatPrompt(chat), SamplingParams())
    bare = Tokenizer.from_file(str(bundle.directory / TOKENIZER_FILE))
    rendered = codec.render_chat(chat)
    tokens = front_end.encode(prompt).prompt_token_ids
    if tokens != bare.encode(rendered, add_special_tokens=False).ids:
        raise RuntimeError("the two tokenise differently: not comparable")
    per_thousand = TOKENS_REPORTED_PER / len(tokens)
    parsed, loaded, encoded, bare_encoded = [], [], [], []
    for _ in range(rounds):
        parsed.append(cpu_microseconds(lambda: validated(ChatRequest, parse_json_object(body), ParseContext("refuse"))))
        loaded.append(cpu_microseconds(lambda: json.loads(body)))
        encoded.append(per_thousand * cpu_microseconds(lambda: front_end.encode(prompt)))
        bare_encoded.append(per_thousand * cpu_microseconds(lambda: bare.encode(rendered, add_special_tokens=False)))
    return [
        Finding(f"parse and validate, chat of {MESSAGES} messages", Spread.of(parsed), "us", 0, "", None),
        Finding("json.loads of the same body", Spread.of(loaded), "us", 0, "", None),
        Finding("parse and validate to json.loads", ratio_by_round(parsed, loaded), "x", 1, "", None),
        Finding("template and tokenise, 1,000 tokens", Spread.of(encoded), "us", 0, "", None),
        Finding("bare encode of the rendered text, 1,000 tokens", Spread.of(bare_encoded), "us", 0, "", None),
        Finding("template and tokenise to bare encode", ratio_by_round(encoded, bare_encoded), "x", 2, "", None),
    ]
