"""The native runtime against llama.cpp on the real model, SmolLM2-135M-Instruct.

With the Q4_1 weights as shipped, both multiply the same 4-bit weights, and both round activations to 8 bits in blocks
of 32, as do the tensor library's kernels (``portable_attention``); sums and where scales are rounded differ. So the
distributions differ by that rounding: measured on the text below, llama.cpp is a mean of 2.9e-3 nats a position from
the exact numpy reference, our own kernels 2.0e-3, and the two 2.8e-3 from each other. A reference that rounds as our
kernels do is no nearer over 30 layers: what float32 sums differ by decides which way activations on a border go, and
everything after follows. That the rounding is as stated is tested bit by bit in test_panel_kernels.cpp, and in whole
small models in test_correctness.py. Over an 8-bit copy of the weights our own kernels keep activations in 16 bits and
are 4.7e-7 from exact.

Greedy texts therefore agree until two tokens are nearly equally likely: there a rounding decides, and everything after
differs. A logarithm of a probability is off by 0.1 nats typically and by a few times that at worst, so that every
first difference must be a tie within those. Over a half-precision copy of the same weights the rounding is a thousand
times smaller, and so the agreement is long. The lengths are printed (``pytest -rP``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.models.bundles import lowered_bundle_of
from tests.models.real_model import smollm2_file
from tests.models.requantise import write_requantised_copy
from tests.native.runtime_driver import Answer, Ask, NativeEngine, NativeRuntime
from tests.reference.decoder import ReferenceDecoder, log_softmax
from tests.reference.gguf_weights import read_gguf_checkpoint
from tests.reference.llama_cpp_peer import LlamaCppPeer, PeerOptions
from tokenizers import Tokenizer

from edgellm.engines.bundle import Bundle

pytestmark = pytest.mark.model

Array = NDArray[Any]

CONTINUATION_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Agreement:
    """What greedy continuations of the 20 prompts must reach; the docstring of the test has what was measured."""

    near_tie_nats: float
    whole_at_least: int
    median_at_least: int


AS_SHIPPED = Agreement(near_tie_nats=0.7, whole_at_least=1, median_at_least=8)
IN_HALF_PRECISION = Agreement(near_tie_nats=0.03, whole_at_least=15, median_at_least=CONTINUATION_TOKENS)
# Own kernels over 8-bit weights against the exact reference of the same: a tie closer than this may fall either way.
EXACT_TIE_NATS = 0.01
MEAN_DIVERGENCE_FROM_LLAMA_CPP = 1e-2
MAX_DIVERGENCE_FROM_LLAMA_CPP = 5e-2
OWN_EIGHT_BIT_MEAN_DIVERGENCE_FROM_EXACT = 1e-5

PROMPTS = (
    "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a haiku about the sea.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>system\nYou are a careful cook.<|im_end|>\n<|im_start|>user\nHow do I boil an egg?<|im_end|>\n"
    "<|im_start|>assistant\n",
    "<|im_start|>user\nExplain what a prime number is to a child.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nTranslate 'good morning' into Spanish.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nList three uses of a brick.<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nSumme von 12 und 30?<|im_end|>\n<|im_start|>assistant\n",
    "Once upon a time, in a village by a river, there lived",
    "The three laws of thermodynamics state that",
    "def fibonacci(n):\n    ",
    "SELECT name, count(*) FROM orders",
    "1, 1, 2, 3, 5, 8, 13,",
    "The quick brown fox",
    "In 1969, the first human being",
    "Dear Sir or Madam,\n\nI am writing to",
    "Les avantages de la lecture sont",
    "Water boils at 100 degrees",
    "<html>\n<head>\n<title>",
    "The patient presented with a cough and",
    "Albert Einstein was born in",
)
TEXT = (
    "The tides are caused by the gravitational pull of the Moon and, to a lesser extent, the Sun. As the Earth turns, "
    "coastal waters rise and fall roughly twice a day; the height of the tide depends on the shape of the coast, the "
    "depth of the sea and the alignment of the three bodies. In 1687 Newton published the first explanation, and "
    "Laplace later wrote the equations that are still used: 42 constituents are enough for most harbours.\n\n"
    "def area(r):\n    return 3.14159 * r ** 2\n"
)
POSITION_STRIDE = 4
TOKENISED_TEXTS = (
    *PROMPTS,
    TEXT,
    "",
    " ",
    "   leading and   inner    spaces  ",
    "tabs\tand\r\nline\n\n\nbreaks\r",
    "digits 0 12 345 6789 3.14159 1,000,000",
    "it's we'll they've I'd CAN'T",
    "naïve café Straße ÅÄÖ — “quotes” … €",
    "日本語のテキストと한국어와 中文",
    "مرحبا שלום Привет ελληνικά",
    "emoji 🎉👩‍👩‍👧‍👦🇩🇪 and combining é",
    "\x00\x01\x7f control",
    "a" * 300,
    "http://example.org/path?query=1&x=%20#frag",
    "<|im_start|><|im_end|><|endoftext|> text <|im_start|>user",
    "<|im_start |> <|unknown|> < | im_end | >",
    "\u200b\u00a0\ufeff\u2028",
)


def bundle_of(gguf_file: Path, cache: Path) -> Path:
    return lowered_bundle_of(gguf_file, cache / "bundle").directory


@pytest.fixture(scope="module")
def bundle_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bundle_of(smollm2_file(), tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def half_precision_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("half") / "SmolLM2-135M-Instruct.F16.gguf"
    write_requantised_copy(smollm2_file(), path, "F16")
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def eight_bit_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("eight-bit") / "SmolLM2-135M-Instruct.Q8_0.gguf"
    write_requantised_copy(smollm2_file(), path, "Q8_0")
    yield path
    path.unlink()


@pytest.fixture(scope="module")
def peer() -> Iterator[LlamaCppPeer]:
    with LlamaCppPeer(smollm2_file(), PeerOptions(context_tokens=1024)) as peer:
        yield peer


def agreement(first: list[int], second: list[int]) -> int:
    """Tokens until the first difference."""
    return next((index for index, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1]), len(first))


def test_texts_become_the_same_tokens(bundle_directory: Path, peer: LlamaCppPeer) -> None:
    tokenizer = Tokenizer.from_file(str(bundle_directory / "tokenizer.json"))
    for text in TOKENISED_TEXTS:
        assert tokenizer.encode(text, add_special_tokens=False).ids == peer.tokenize(text), repr(text)


def continuations(directory: Path, prompts: list[list[int]], **options: Any) -> list[Answer]:
    """Greedy and past end tokens, which are forbidden; with the 20 likeliest tokens of each place."""
    forbidden = dict.fromkeys(Bundle.load(directory).end_token_ids, -100.0)
    engine = NativeEngine(directory, sequences=4, threads=1, max_kv_tokens=256, **options)
    answers = engine.answers([Ask(ids, CONTINUATION_TOKENS, logprobs=20, logit_bias=forbidden) for ids in prompts])
    engine.close()
    return answers


def assert_agreement(
    directory: Path, peer: LlamaCppPeer, prompts: list[list[int]], answers: list[Answer], expected: Agreement
) -> None:
    end_tokens = Bundle.load(directory).end_token_ids
    lengths, gaps = [], []
    for prompt, answer in zip(prompts, answers, strict=True):
        theirs = peer.greedy(prompt, CONTINUATION_TOKENS, end_tokens)
        length = agreement(answer.token_ids, theirs)
        lengths.append(length)
        if length < CONTINUATION_TOKENS:
            likely = {token: logprob for token, logprob, _ in answer.logprobs[length]}
            assert theirs[length] in likely, "their choice is among our 20 likeliest"
            gaps.append(likely[answer.token_ids[length]] - likely[theirs[length]])
    print(f"agreement in tokens: {sorted(lengths)}; nats between the two choices where they part: {np.round(gaps, 4)}")
    assert max(gaps, default=0.0) < expected.near_tie_nats
    assert lengths.count(CONTINUATION_TOKENS) >= expected.whole_at_least
    assert np.median(lengths) >= expected.median_at_least


@pytest.fixture(scope="module")
def prompts(bundle_directory: Path) -> list[list[int]]:
    tokenizer = Tokenizer.from_file(str(bundle_directory / "tokenizer.json"))
    return [tokenizer.encode(text, add_special_tokens=False).ids for text in PROMPTS]


@pytest.fixture(scope="module")
def own_continuations(bundle_directory: Path, prompts: list[list[int]]) -> list[Answer]:
    return continuations(bundle_directory, prompts)


@pytest.fixture(scope="module")
def reference() -> ReferenceDecoder:
    return ReferenceDecoder(*read_gguf_checkpoint(smollm2_file()))


@pytest.mark.parametrize("kernels", ["own", "library"])
def test_greedy_continuations_agree(
    request: pytest.FixtureRequest, bundle_directory: Path, peer: LlamaCppPeer, prompts: list[list[int]], kernels: str
) -> None:
    """Measured, in tokens of 64: own kernels 0 to 64, median 18; the library's kernels 1 to 64, median 19. They part
    at ties of up to 0.28 and 0.40 nats."""
    if kernels == "own":
        answers = request.getfixturevalue("own_continuations")
    else:
        answers = continuations(bundle_directory, prompts, portable_attention=True)
    assert_agreement(bundle_directory, peer, prompts, answers, AS_SHIPPED)


def test_greedy_continuations_agree_long_in_half_precision(
    half_precision_file: Path, prompts: list[list[int]], tmp_path: Path
) -> None:
    """Measured: all 20 agree in all 64 tokens."""
    directory = bundle_of(half_precision_file, tmp_path)
    with LlamaCppPeer(half_precision_file, PeerOptions(context_tokens=1024)) as peer:
        assert_agreement(directory, peer, prompts, continuations(directory, prompts), IN_HALF_PRECISION)


def test_greedy_continuations_are_those_of_the_exact_reference(
    eight_bit_file: Path, prompts: list[list[int]], tmp_path: Path
) -> None:
    """Every token over 8-bit weights is the likeliest of the reference, save for ties within 0.01 nats."""
    directory = bundle_of(eight_bit_file, tmp_path)
    reference = ReferenceDecoder(*read_gguf_checkpoint(eight_bit_file))
    end_tokens = list(Bundle.load(directory).end_token_ids)
    for prompt, answer in zip(prompts, continuations(directory, prompts), strict=True):
        rows = reference.logprobs(prompt + answer.token_ids)[len(prompt) - 1 : -1]
        rows[:, end_tokens] = -np.inf
        chosen = rows[np.arange(len(rows)), answer.token_ids]
        assert (rows.max(axis=1) - chosen).max() < EXACT_TIE_NATS


def divergence(expected: Array, got: Array) -> Array:
    return (np.exp(expected) * (expected - got)).sum(axis=-1)


def test_distributions_are_near_llama_cpp_and_as_near_to_exact(
    bundle_directory: Path, peer: LlamaCppPeer, reference: ReferenceDecoder
) -> None:
    """Teacher-forced over TEXT. Measured, mean and largest in nats: llama.cpp from exact 2.9e-3 and 9.2e-3; own
    kernels from exact 2.0e-3 and 7.2e-3, from llama.cpp 2.8e-3 and 1.1e-2; the library's kernels from exact 2.7e-3 and
    8.3e-3, from llama.cpp 3.1e-3 and 9.6e-3. The likeliest token of own kernels is llama.cpp's in all 30 positions."""
    ids = peer.tokenize(TEXT)
    positions = range(0, len(ids), POSITION_STRIDE)
    exact = reference.logprobs(ids)[positions].astype(np.float64)
    plain_token = peer.tokenize("A")[0]
    theirs = np.array([peer.next_logprobs(ids[: index + 1], exact.shape[1], plain_token) for index in positions])
    rows: dict[str, Array] = {"llama.cpp from exact": divergence(exact, theirs)}
    for name, portable_attention in (("own kernels", False), ("library kernels", True)):
        runtime = NativeRuntime(bundle_directory, portable_attention=portable_attention, threads=1, max_kv_tokens=256)
        ours = log_softmax(runtime.score(ids)[positions].astype(np.float64))
        rows[f"{name} from exact"] = divergence(exact, ours)
        rows[f"{name} from llama.cpp"] = divergence(theirs, ours)
        agreeing = (theirs.argmax(axis=1) == ours.argmax(axis=1)).mean()
        print(f"{name}: likeliest token that of llama.cpp in {agreeing:.1%} of {len(ours)} positions")
    for name, values in rows.items():
        print(f"{name}: mean {values.mean():.1e}, median {np.median(values):.1e}, max {values.max():.1e} nats")
    for name in ("own kernels from llama.cpp", "library kernels from llama.cpp"):
        assert rows[name].mean() < MEAN_DIVERGENCE_FROM_LLAMA_CPP
        assert rows[name].max() < MAX_DIVERGENCE_FROM_LLAMA_CPP
    assert rows["own kernels from exact"].mean() < 1.2 * rows["llama.cpp from exact"].mean()
    assert rows["library kernels from exact"].mean() < 2 * rows["llama.cpp from exact"].mean()


def test_weights_of_eight_bits_are_multiplied_exactly(eight_bit_file: Path, peer: LlamaCppPeer, tmp_path: Path) -> None:
    """Measured over TEXT, mean and largest in nats: 4.7e-7 and 3.8e-6."""
    ids = peer.tokenize(TEXT)
    positions = range(0, len(ids), POSITION_STRIDE)
    exact = ReferenceDecoder(*read_gguf_checkpoint(eight_bit_file)).logprobs(ids)[positions].astype(np.float64)
    runtime = NativeRuntime(bundle_of(eight_bit_file, tmp_path), threads=1, max_kv_tokens=256)
    rows = divergence(exact, log_softmax(runtime.score(ids)[positions].astype(np.float64)))
    print(f"own kernels over 8-bit weights from exact: mean {rows.mean():.1e}, max {rows.max():.1e} nats")
    assert rows.mean() < OWN_EIGHT_BIT_MEAN_DIVERGENCE_FROM_EXACT
