"""Requests that run together give exactly what each gives alone, whatever the others do.

Bit for bit: every number of an answer (tokens, text, log-probabilities) is compared with ==. Each row of a step is
computed by the same operations in the same order whatever else is in the step.
"""

from __future__ import annotations

import codecs
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_tokenizer import byte_characters
from tests.native.runtime_driver import Answer, Ask, BundleMaker, NativeEngine, Submitted

STATE_DEADLINE_SECONDS = 60.0
_random = np.random.default_rng(21)


def prompt_of(length: int) -> list[int]:
    """Random ids; another prompt at every call of one test."""
    return [int(token) for token in _random.integers(10, 340, length)]


@pytest.fixture(autouse=True)
def _the_same_prompts_whichever_tests_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "_random", np.random.default_rng(22))


GREEDY = [Ask(prompt_of(length), 24, logprobs=3, extensions={"ignore_eos": True}) for length in (1, 5, 33, 70)]
SEEDED = [
    Ask(prompt_of(40), 32, temperature=1.2, top_p=0.95, top_k=50, seed=7, logprobs=2),
    Ask(prompt_of(3), 40, temperature=0.8, seed=2**64 - 1, extensions={"min_p": 0.05}),
    Ask(prompt_of(19), 28, temperature=1.5, top_p=0.8, seed=0, extensions={"frequency_penalty": 0.7}),
    Ask(prompt_of(64), 20, temperature=1.0, seed=3, extensions={"repetition_penalty": 1.3, "presence_penalty": -0.5}),
]
# Variant, matrix type, threads, and whether the tensor library's own operators do the work.
MODELS = (
    ("llama-heads-6-2", "F32", 1, False),
    ("qwen2", "Q8_0", 1, False),
    ("qwen3", "Q4_1", 1, False),
    ("llama", "F16", 1, False),
    ("llama-multi-query", "Q8_0", 1, True),
    ("qwen3", "F32", 1, True),
    ("qwen3", "Q8_0", 2, False),
)


def wait_until(reached: object, what: str) -> None:
    assert callable(reached)
    deadline = time.monotonic() + STATE_DEADLINE_SECONDS
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: "-".join(map(str, model)))
def engine(request: pytest.FixtureRequest, tiny_bundle: BundleMaker) -> Iterator[NativeEngine]:
    variant, matrix_type, threads, portable = request.param
    options = {"threads": threads, "portable_attention": portable, "max_kv_tokens": 256}
    engine = NativeEngine(tiny_bundle(variant, matrix_type), sequences=4, **options)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def one_engine(tiny_bundle: BundleMaker) -> Iterator[NativeEngine]:
    engine = NativeEngine(tiny_bundle("llama"), sequences=4, threads=1, max_kv_tokens=512)
    yield engine
    engine.close()


@pytest.fixture
def caching_engine(tiny_bundle: BundleMaker) -> Iterator[NativeEngine]:
    engine = NativeEngine(tiny_bundle("qwen3"), sequences=4, threads=1, max_kv_tokens=512, caches_context=True)
    yield engine
    engine.close()


@pytest.mark.parametrize("asks", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_together_as_alone(engine: NativeEngine, asks: list[Ask]) -> None:
    alone = [engine.answer(ask) for ask in asks]
    together = engine.answers(asks)
    assert together == alone


def test_more_requests_than_places(engine: NativeEngine) -> None:
    asks = [replace(ask, max_tokens=ask.max_tokens - extra) for extra in range(3) for ask in GREEDY + SEEDED]
    alone = [engine.answer(ask) for ask in asks]
    assert engine.answers(asks) == alone


def test_joining_and_leaving_changes_nothing_for_those_who_stay(engine: NativeEngine) -> None:
    """Sequences join in mid-flight with long prompts, end early, and are cancelled while one stays the whole time."""
    staying = Ask(prompt_of(12), 200, temperature=1.1, seed=99, logprobs=2, extensions={"ignore_eos": True})
    alone = engine.answer(staying)
    stays = engine.submit(staying)
    for round_index in range(8):
        others = [engine.submit(ask) for ask in (GREEDY[3], SEEDED[round_index % 4])]
        cancelled = engine.submit(replace(GREEDY[2], max_tokens=150))
        cancelled.next_chunk()
        cancelled.handle.cancel()
        for other in others:
            other.answer()
    assert stays.answer() == alone


def test_threads_that_submit_at_once(engine: NativeEngine) -> None:
    alone = {index: engine.answer(ask) for index, ask in enumerate(GREEDY + SEEDED)}
    got: dict[tuple[int, int], Answer] = {}

    def ask_all(thread: int) -> None:
        for index, ask in enumerate(GREEDY + SEEDED):
            got[thread, index] = engine.answer(ask)

    threads = [threading.Thread(target=ask_all, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {(thread, index): answer for thread in range(4) for index, answer in alone.items()}


def test_a_seed_repeats_and_another_differs(one_engine: NativeEngine) -> None:
    ask = Ask(prompt_of(8), 40, temperature=1.5, seed=1, extensions={"ignore_eos": True})
    first = one_engine.answer(ask)
    assert one_engine.answer(ask) == first
    assert one_engine.answer(replace(ask, seed=2)).token_ids != first.token_ids
    unseeded = {tuple(one_engine.answer(replace(ask, seed=None)).token_ids) for _ in range(3)}
    assert len(unseeded) == 3


def test_sampling_follows_the_distribution(one_engine: NativeEngine) -> None:
    """2,000 first tokens: counts of the likely ones lie within five standard deviations of their probabilities."""
    prompt, draws = prompt_of(10), 2000
    listed = one_engine.answer(Ask(prompt, 1, logprobs=8, extensions={"ignore_eos": True})).logprobs[0][1:]
    asks = [Ask(prompt, 1, temperature=1.0, seed=seed, extensions={"ignore_eos": True}) for seed in range(draws)]
    counts: Counter[int] = Counter()
    for start in range(0, draws, 50):
        counts.update(answer.token_ids[0] for answer in one_engine.answers(asks[start : start + 50]))
    for token, logprob, _ in listed:
        probability = float(np.exp(logprob))
        deviation = np.sqrt(draws * probability * (1 - probability))
        assert abs(counts[token] - draws * probability) < 5 * deviation + 1


def test_top_k_top_p_and_min_p_cut_the_tail(one_engine: NativeEngine) -> None:
    prompt = prompt_of(10)
    listed = one_engine.answer(Ask(prompt, 1, logprobs=20, extensions={"ignore_eos": True})).logprobs[0][1:]
    probabilities = np.exp([logprob for _, logprob, _ in listed])
    order = [token for token, _, _ in listed]

    def drawn(**settings: object) -> set[int]:
        extensions = {"ignore_eos": True}
        if "min_p" in settings:
            extensions["min_p"] = settings.pop("min_p")  # type: ignore[assignment]
        base = Ask(prompt, 1, temperature=1.0, extensions=extensions)
        asks = [replace(base, seed=seed, **settings) for seed in range(300)]  # type: ignore[arg-type]
        batches = [one_engine.answers(asks[start : start + 50]) for start in range(0, len(asks), 50)]
        return {answer.token_ids[0] for batch in batches for answer in batch}

    assert drawn(top_k=3) <= set(order[:3])
    assert drawn(top_k=1) == {order[0]}
    nucleus = int(np.searchsorted(np.cumsum(probabilities), 0.5)) + 1
    assert drawn(top_p=0.5) <= set(order[:nucleus])
    kept = {
        token for token, probability in zip(order, probabilities, strict=True) if probability >= 0.3 * probabilities[0]
    }
    assert drawn(min_p=0.3) <= kept
    assert drawn(temperature=0.0) == {order[0]}


def test_logit_bias_forces_and_forbids(one_engine: NativeEngine) -> None:
    ask = Ask(prompt_of(6), 12, extensions={"ignore_eos": True})
    plain = one_engine.answer(ask)
    forced = one_engine.answer(replace(ask, logit_bias={200: 100.0}))
    assert forced.token_ids == [200] * 12
    forbidden = one_engine.answer(replace(ask, logit_bias=dict.fromkeys(set(plain.token_ids), -100.0)))
    assert not set(forbidden.token_ids) & set(plain.token_ids)


def test_penalties_act_on_what_was_said(one_engine: NativeEngine) -> None:
    """With a bias that makes one token always win, each penalty takes it down as its definition says."""
    prompt = prompt_of(6)
    ask = Ask(prompt, 12, logit_bias={200: 15.0}, extensions={"ignore_eos": True})
    assert one_engine.answer(ask).token_ids == [200] * 12
    frequency = one_engine.answer(replace(ask, extensions={"ignore_eos": True, "frequency_penalty": 2.0}))
    assert 1 < Counter(frequency.token_ids)[200] < 12, "grows with every use until another token wins"
    repetition = one_engine.answer(
        replace(ask, logit_bias={}, extensions={"ignore_eos": True, "repetition_penalty": 2.0})
    )
    plain = one_engine.answer(replace(ask, logit_bias={}))
    assert max(Counter(repetition.token_ids).values()) <= max(Counter(plain.token_ids).values())
    presence = one_engine.answer(replace(ask, extensions={"ignore_eos": True, "presence_penalty": 2.0}))
    assert presence.token_ids == [200] * 12, "a single step of 2 does not outweigh a bias of 15"


def ordinary_text_ask(engine: NativeEngine, **changes: object) -> Ask:
    """An ask whose greedy text is 40 tokens of printable ASCII, so that stop strings can be cut out of it."""
    tokenizer = VARIANTS["llama"].tokenizer
    ids, _ = tokenizer.vocabulary()
    unprintable = {
        index: -100.0 for token, index in ids.items() if not all("!" <= character <= "~" for character in token)
    } | {tokenizer.id_of(token): -100.0 for token in tokenizer.special_tokens}
    ask = Ask(prompt_of(9), 40, temperature=1.5, seed=4, logit_bias=unprintable)
    return replace(ask, **changes)  # type: ignore[arg-type]


def test_stop_strings_end_the_text_before_them_wherever_token_borders_lie(one_engine: NativeEngine) -> None:
    ask = ordinary_text_ask(one_engine)
    text = one_engine.answer(ask).text
    assert len(text) >= 40
    for start, length in ((5, 1), (7, 3), (10, 9), (20, 15)):
        stop = text[start : start + length]
        expected = text[: text.index(stop)]
        submitted = one_engine.submit(replace(ask, stop=["\x00never", stop]))
        pieces = "".join(chunk.text for chunk in submitted.chunks())
        answer = submitted.answer()
        assert (answer.text, pieces, answer.finish, answer.matched_stop) == (expected, expected, "STOP_WORDS", 1)


def test_a_stop_string_that_only_begins_is_given_out_at_the_end(one_engine: NativeEngine) -> None:
    ask = ordinary_text_ask(one_engine)
    text = one_engine.answer(ask).text
    submitted = one_engine.submit(replace(ask, stop=[text[-6:] + "\x00"]))
    assert "".join(chunk.text for chunk in submitted.chunks()) == text
    answer = submitted.answer()
    assert (answer.text, answer.finish, answer.matched_stop) == (text, "LENGTH", -1)


def text_of(pieces: list[bytes]) -> str:
    """What bytes say as text: a code point that is not complete at the end is left out, nonsense becomes U+FFFD."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(b"".join(pieces), final=False)


def test_deltas_are_whole_code_points_and_concatenate_to_the_text(one_engine: NativeEngine) -> None:
    """Hot sampling over single bytes: most of what comes is no valid UTF-8, the rest is split over tokens."""
    tokenizer = VARIANTS["llama"].tokenizer
    no_specials = {tokenizer.id_of(token): -100.0 for token in tokenizer.special_tokens}
    replacements = 0
    for seed in range(40):
        ask = Ask(prompt_of(4), 40, temperature=2.0, seed=seed, logprobs=1, logit_bias=no_specials)
        submitted = one_engine.submit(ask)
        chunks = submitted.chunks()
        answer = submitted.answer()
        assert "".join(chunk.text for chunk in chunks) == answer.text
        assert [token for chunk in chunks for token in chunk.token_ids] == answer.token_ids
        assert answer.text == text_of([entries[0][2] for entries in answer.logprobs])
        replacements += answer.text.count("\ufffd")
    assert replacements > 40


def test_a_code_point_split_over_tokens_arrives_whole(one_engine: NativeEngine) -> None:
    """Two tokens of one byte each, allowed alone: of each pair that makes a letter, the first gives out no text."""
    vocabulary, _ = VARIANTS["llama"].tokenizer.vocabulary()
    characters = byte_characters()
    lead, tail = (vocabulary[characters[byte]] for byte in "é".encode())
    ask = Ask(prompt_of(3), 30, temperature=1.0, seed=3, logit_bias={lead: 100.0, tail: 100.0}, logprobs=1)
    submitted = one_engine.submit(ask)
    chunks = submitted.chunks()
    answer = submitted.answer()
    assert set(answer.token_ids) == {lead, tail}
    assert "é" in answer.text
    assert answer.text == text_of([entries[0][2] for entries in answer.logprobs])
    text = ""
    for chunk in chunks:
        text += chunk.text
        assert answer.text.startswith(text)
    assert text == answer.text


def test_logprobs_are_consistent_with_each_other(one_engine: NativeEngine) -> None:
    ask = Ask(prompt_of(9), 16, temperature=1.3, seed=3, logprobs=6, extensions={"ignore_eos": True})
    submitted = one_engine.submit(ask)
    streamed = [entries for chunk in submitted.chunks() for entries in chunk.logprobs]
    answer = submitted.answer()
    assert [[(e.token_id, e.logprob, e.piece) for e in entries] for entries in streamed] == answer.logprobs
    assert len(answer.logprobs) == len(answer.token_ids)
    for token, entries in zip(answer.token_ids, answer.logprobs, strict=True):
        assert entries[0][0] == token
        best = [logprob for _, logprob, _ in entries[1:]]
        assert len(best) == 6
        assert best == sorted(best, reverse=True)
        assert all(logprob <= 0 for logprob in best)
        assert sum(np.exp(best)) <= 1 + 1e-6
        assert {entry[0]: entry[1] for entry in entries[1:]}.get(token, entries[0][1]) == entries[0][1]
    alone = one_engine.answer(replace(ask, logprobs=0))
    assert alone.token_ids == answer.token_ids
    assert alone.logprobs in ([], [[] for _ in alone.token_ids])


def test_cached_prefixes_give_the_answers_of_cold_ones(caching_engine: NativeEngine) -> None:
    prefix = prompt_of(100)
    warm_up = caching_engine.answer(Ask(prefix, 8))
    assert warm_up.reused_tokens == 0
    for ask in (
        Ask(prefix + prompt_of(20), 20, logprobs=3, extensions={"ignore_eos": True}),
        Ask(prefix[:70] + prompt_of(5), 20, logprobs=3, temperature=1.1, seed=5),
        Ask(prefix, 20, logprobs=3),
        Ask(prefix + warm_up.token_ids + prompt_of(3), 20, logprobs=3),
    ):
        warm = caching_engine.answer(ask)
        cold = caching_engine.answer(replace(ask, reuse=False))
        assert warm.reused_tokens > 60
        assert cold.reused_tokens == 0
        assert replace(warm, reused_tokens=0) == cold


def test_a_conversation_reuses_its_own_turns(caching_engine: NativeEngine) -> None:
    history = prompt_of(40)
    reused = []
    for _ in range(5):
        answer = caching_engine.answer(Ask(history, 12, extensions={"ignore_eos": True}))
        reused.append(answer.reused_tokens)
        cold = caching_engine.answer(Ask(history, 12, reuse=False, extensions={"ignore_eos": True}))
        assert cold.token_ids == answer.token_ids
        history = history + answer.token_ids + prompt_of(9)
    assert reused[0] == 0
    assert all(later >= earlier + 12 for earlier, later in pairwise(reused))


def test_concurrent_requests_over_one_cached_prefix_are_right(caching_engine: NativeEngine) -> None:
    prefix = prompt_of(90)
    caching_engine.answer(Ask(prefix, 4))
    asks = [Ask(prefix + prompt_of(7), 30, logprobs=2, seed=seed, temperature=0.9) for seed in range(8)]
    cold = [caching_engine.answer(replace(ask, reuse=False)) for ask in asks]
    warm = caching_engine.answers(asks)
    assert [replace(answer, reused_tokens=0) for answer in warm] == cold
    assert all(answer.reused_tokens > 0 for answer in warm)


def test_domains_share_nothing(caching_engine: NativeEngine) -> None:
    prompt = prompt_of(90)
    caching_engine.answer(Ask(prompt, 4, extensions={"cache_domain": "one"}))
    for domain in ("two", "", "one "):
        other = caching_engine.answer(Ask(prompt, 4, reuse=True, extensions={"cache_domain": domain}))
        assert other.reused_tokens == 0, domain
    again = caching_engine.answer(Ask(prompt, 4, extensions={"cache_domain": "one"}))
    assert again.reused_tokens > 0


def test_prefill_only_commits_leave_generated_tokens_out(caching_engine: NativeEngine) -> None:
    prompt = prompt_of(64)
    first = caching_engine.answer(Ask(prompt, 40, commit_generated=False, extensions={"ignore_eos": True}))
    longer = prompt + first.token_ids + prompt_of(2)
    assert 0 < caching_engine.answer(Ask(longer, 2, reuse=True)).reused_tokens <= len(prompt)


def test_the_cache_stays_within_its_bounds_and_right_under_pressure(tiny_bundle: BundleMaker) -> None:
    engine = NativeEngine(
        tiny_bundle("qwen2"),
        sequences=2,
        threads=1,
        max_kv_tokens=128,
        context_cache_tokens=192,
        caches_context=True,
        max_records=3,
    )
    prompts = [prompt_of(80) for _ in range(6)]
    expected = [engine.answer(Ask(prompt, 6, reuse=False)).token_ids for prompt in prompts]
    for _ in range(3):
        for prompt, tokens in zip(prompts, expected, strict=True):
            assert engine.answer(Ask(prompt, 6)).token_ids == tokens
    metrics = engine.native.get_context_cache_metrics()
    assert metrics.current_records <= 3
    assert metrics.evicted_records > 0
    assert 0 <= metrics.base_kv_pages.free <= metrics.base_kv_pages.capacity
    engine.close()


def test_a_cancelled_request_frees_its_place_and_raises(one_engine: NativeEngine) -> None:
    submitted = one_engine.submit(Ask(prompt_of(5), 450, extensions={"ignore_eos": True}))
    submitted.next_chunk()
    wait_until(lambda: one_engine.native.resident == 1, "the request runs")
    submitted.channel.cancel()
    wait_until(lambda: one_engine.native.resident == 0, "the cancelled request leaves")
    with pytest.raises(RuntimeError, match="cancel"):
        submitted.handle.get()


def test_queued_requests_that_are_cancelled_never_run(one_engine: NativeEngine) -> None:
    running = [one_engine.submit(Ask(prompt_of(5), 300, extensions={"ignore_eos": True})) for _ in range(4)]
    for submitted in running:
        submitted.next_chunk()
    waiting: list[Submitted] = [one_engine.submit(Ask(prompt_of(5), 10)) for _ in range(3)]
    for submitted in waiting + running:
        submitted.handle.cancel()
    wait_until(lambda: one_engine.native.resident == 0 and one_engine.native.queued == 0, "all are gone")
    for submitted in waiting:
        assert [token for chunk in submitted.chunks() for token in chunk.token_ids] == []
        with pytest.raises(RuntimeError, match="cancel"):
            submitted.handle.get()
