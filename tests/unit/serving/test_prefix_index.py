"""A prompt goes to the lane that knows its beginning, as far as that is worth a busier lane."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.serving.scripted_lane import ScriptedLane

from edgellm.runtime.generation import GenerationRequest, TextPrompt
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.admission import Admission
from edgellm.serving.prefix_index import PAGE_TOKENS, PrefixAffinity, PrefixIndex, pages_of
from edgellm.serving.settings import ServingSettings


def prompt(*tokens: int, domain: str = "", **params: object) -> GenerationRequest:
    chosen = SamplingParams(**params)  # type: ignore[arg-type]
    return GenerationRequest(TextPrompt(""), chosen, prompt_token_ids=list(tokens), cache_domain=domain)


def pages(*firsts: int) -> list[int]:
    """Token ids of whole pages, each of one number."""
    return [first for first in firsts for _ in range(PAGE_TOKENS)]


def test_a_page_stands_for_everything_before_it_and_for_its_domain() -> None:
    both, second = pages_of(pages(1, 2), ""), pages_of(pages(3, 2), "")
    assert both[0] == pages_of(pages(1), "")[0]
    assert both[1] != second[1]
    assert pages_of(pages(1), "alice") != pages_of(pages(1), "bob")
    assert pages_of(pages(1)[:-1], "") == []


def test_what_is_forgotten_first_is_the_end_of_the_oldest_prompt() -> None:
    index, lane = PrefixIndex(pages_max=3), ScriptedLane()
    index.remember(lane, pages_of(pages(1, 2), ""))
    index.remember(lane, pages_of(pages(7, 8), ""))
    assert index.known_pages(lane, pages_of(pages(1, 2), "")) == 1
    assert index.known_pages(lane, pages_of(pages(7, 8), "")) == 2


def choose(index: PrefixIndex, request: GenerationRequest, **loads: float) -> str:
    affinity = PrefixAffinity.of(request, index)
    assert affinity is not None
    lanes = {name: LANES[name] for name in loads}
    chosen = affinity.choose({lane: loads[name] for name, lane in lanes.items()})
    return next(name for name, lane in lanes.items() if lane is chosen)


LANES = {name: ScriptedLane() for name in ("one", "two")}


def test_the_lane_that_knows_the_prompt_is_chosen_where_it_saves_half() -> None:
    index = PrefixIndex()
    index.remember(LANES["two"], pages_of(pages(1, 2), ""))
    assert choose(index, prompt(*pages(1, 2, 3)), one=0.0, two=0.5) == "two"
    assert choose(index, prompt(*pages(1, 9, 9)), one=0.0, two=0.5) == "one", "a third is not worth a busier lane"
    assert choose(index, prompt(*pages(1, 9, 9)), one=0.5, two=0.5) == "two"
    assert choose(index, prompt(*pages(9)), one=0.5, two=0.0) == "two"


def test_a_prompt_that_looks_nothing_up_goes_to_the_least_busy_lane() -> None:
    index = PrefixIndex()
    index.remember(LANES["two"], pages_of(pages(1), ""))
    assert choose(index, prompt(*pages(1), reuse_context=False), one=0.0, two=0.5) == "one"
    assert choose(index, prompt(*pages(1), domain="bob"), one=0.0, two=0.5) == "one"


def test_a_prompt_without_a_whole_page_or_without_ids_has_no_affinity() -> None:
    assert PrefixAffinity.of(prompt(1, 2, 3), PrefixIndex()) is None
    assert PrefixAffinity.of(replace(prompt(), prompt_token_ids=None), PrefixIndex()) is None


def test_admission_remembers_where_a_prompt_went() -> None:
    admission, index = Admission(ServingSettings()), PrefixIndex()
    for lane in LANES.values():
        admission.add_lane(lane, 2)
    first = admission.enter("", 1, PrefixAffinity.of(prompt(*pages(1)), index))
    (lease,) = first.leases
    second = admission.enter("", 1, PrefixAffinity.of(prompt(*pages(1, 2)), index))
    other = admission.enter("", 1, PrefixAffinity.of(prompt(*pages(5)), index))
    assert second.leases[0].lane is lease.lane
    assert other.leases[0].lane is not lease.lane
    third = admission.enter("", 1, PrefixAffinity.of(prompt(*pages(1, 2)), index))
    assert third.leases[0].lane is not lease.lane, "it is full"


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=6), max_size=40))
def test_the_index_stays_within_its_bound_and_never_claims_what_was_not_given(prompts: list[list[int]]) -> None:
    index, lane = PrefixIndex(pages_max=8), ScriptedLane()
    given_pages: set[int] = set()
    for firsts in prompts:
        its = pages_of(pages(*firsts), "")
        known = index.known_pages(lane, its)
        assert set(its[:known]) <= given_pages
        index.remember(lane, its)
        given_pages |= set(its)
        assert index.known_pages(lane, its) >= min(len(its), 8)
        assert len(index._pages[lane]) <= 8
