"""Models: their states, and what holds for sampling fields that a request leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.serving.scripted_lane import ScriptedLane, spec_of

from edgellm.errors import ConfigError, ModelUnavailableError
from edgellm.serving.admission import TicketState
from edgellm.serving.model import TRANSITIONS, ModelEvent, ModelState, ServedModel
from edgellm.serving.model_spec import ModelSpec, OpenedModel
from edgellm.serving.opened_llm import read_generation_config
from edgellm.serving.sampling_defaults import SamplingDefaults
from edgellm.serving.settings import ServingSettings


def served(*lanes: ScriptedLane, **sampling: object) -> ServedModel:
    model = ServedModel(spec_of(*lanes, sampling=sampling), ServingSettings())
    model.opened(OpenedModel(lanes, {"temperature": 0.2, "top_p": 0.9, "max_new_tokens": 77}))
    return model


def test_every_state_can_be_closed_and_only_a_model_that_lacks_lanes_opens() -> None:
    for state in ModelState:
        assert TRANSITIONS[state, ModelEvent.CLOSE] is ModelState.UNLOADED
    opening = {state for state in ModelState if (state, ModelEvent.OPENED) in TRANSITIONS}
    assert opening == {ModelState.LOADING, ModelState.DEGRADED}


def test_a_model_that_loses_a_lane_is_degraded_and_one_that_loses_all_is_unavailable() -> None:
    first, second = ScriptedLane(max_batch_size=1), ScriptedLane(max_batch_size=1)
    model = served(first, second)
    running = [model.admission.enter("a"), model.admission.enter("a")]
    model.lane_lost(first)
    assert (model.state, model.admission.capacity, model.is_alive) == (ModelState.DEGRADED, 1, True)
    waiting = model.admission.enter("a")
    model.lane_lost(second)
    assert (model.state, waiting.state) == (ModelState.UNAVAILABLE, TicketState.TURNED_AWAY)
    assert isinstance(waiting.error, ModelUnavailableError)
    with pytest.raises(ModelUnavailableError):
        model.require_capabilities()
    for ticket in running:
        ticket.leases[0].release()
    assert model.admission.running == 0


def test_a_model_whose_only_lane_is_coming_back_lets_requests_wait_for_it() -> None:
    lane, replacement = ScriptedLane(max_batch_size=1), ScriptedLane(max_batch_size=1)
    model = served(lane)
    model.lane_lost(lane, is_coming_back=True)
    assert (model.state, model.is_alive, model.admission.capacity) == (ModelState.LOADING, False, 0)
    assert model.require_lane() is lane  # what the model can do is known, and prompts can be encoded
    waiting = model.admission.enter("a")
    assert waiting.state is TicketState.WAITING
    model.lane_back(replacement)
    assert (model.state, waiting.state) == (ModelState.READY, TicketState.GRANTED)
    assert waiting.leases[0].lane is replacement


def test_a_model_with_one_lane_of_two_back_is_degraded_until_the_other_is() -> None:
    lanes = [ScriptedLane(), ScriptedLane()]
    model = served(*lanes)
    for lane in lanes:
        model.lane_lost(lane, is_coming_back=True)
    assert model.state is ModelState.LOADING
    model.lane_back(ScriptedLane())
    assert model.state is ModelState.DEGRADED
    model.lane_back(ScriptedLane())
    assert model.state is ModelState.READY


def test_a_lane_that_was_given_up_leaves_the_model_degraded_or_unavailable() -> None:
    first, second = ScriptedLane(), ScriptedLane()
    model = served(first, second)
    model.lane_lost(first, is_coming_back=True)
    model.lane_given_up()
    assert model.state is ModelState.DEGRADED
    model.lane_lost(second, is_coming_back=True)
    waiting = model.admission.enter("a")
    model.lane_given_up()
    assert (model.state, waiting.state) == (ModelState.UNAVAILABLE, TicketState.TURNED_AWAY)
    with pytest.raises(ModelUnavailableError):
        model.require_lane()


def test_a_model_that_nothing_brings_back_names_no_time_to_ask_again() -> None:
    lane, waiting = ScriptedLane(max_batch_size=1), ScriptedLane(max_batch_size=1)
    gone, coming = served(lane), served(waiting)
    gone.lane_lost(lane)
    coming.lane_lost(waiting, is_coming_back=True)
    with pytest.raises(ModelUnavailableError) as refused:
        gone.require_lane()
    assert (refused.value.retry_after_seconds, gone.retry_after_seconds) == (None, None)
    assert coming.retry_after_seconds == ServingSettings().loading_retry_after_seconds


def test_a_model_that_is_loaded_on_demand_names_the_time_of_its_next_try() -> None:
    model = ServedModel(spec_of(ScriptedLane(), on_demand=True), ServingSettings())
    model.failed(ModelUnavailableError("x"), retry_after_seconds=60.0)
    assert model.retry_after_seconds == pytest.approx(60.0, abs=5.0)


def test_a_lane_that_comes_back_beside_one_that_was_given_up_does_not_make_the_model_whole() -> None:
    first, second = ScriptedLane(), ScriptedLane()
    model = served(first, second)
    model.lane_lost(first, is_coming_back=True)
    model.lane_given_up()
    model.lane_lost(second, is_coming_back=True)
    model.lane_back(ScriptedLane())
    assert model.state is ModelState.DEGRADED


def test_the_operator_wins_over_the_model_and_the_model_over_openai() -> None:
    sampling = served(ScriptedLane(), temperature=0.7).sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.max_tokens) == (0.7, 0.9, 0, 77)


def test_a_model_that_does_not_sample_is_greedy() -> None:
    assert SamplingDefaults().with_generation_config({"do_sample": False, "temperature": 0.6}).temperature == 0
    assert SamplingDefaults().with_generation_config({"do_sample": True, "temperature": 0.6}).temperature == 0.6


@pytest.mark.parametrize(
    "config",
    [
        {"temperature": "hot", "top_p": None, "top_k": 1.5, "max_new_tokens": True},
        {"temperature": 9, "top_p": 0, "top_k": -5, "max_new_tokens": 0, "repetition_penalty": 0, "min_p": 2},
        {"frequency_penalty": 3, "presence_penalty": float("nan"), "eos_token_id": [1, 2], "transformers_version": "5"},
    ],
    ids=["types", "ranges", "others"],
)
def test_values_of_a_checkpoint_that_no_request_could_have_are_left_aside(config: dict[str, object]) -> None:
    assert SamplingDefaults().with_generation_config(config) == SamplingDefaults()


@pytest.mark.parametrize("content", [None, b"", b"[1]", b"{", b"[" * 100_000, b"\xff"], ids=str)
def test_a_generation_config_that_cannot_be_read_is_none(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "generation_config.json").write_bytes(content)
    assert read_generation_config(tmp_path) == {}


@pytest.mark.parametrize(
    "settings", [{"max_queued_requests": -1}, {"queue_timeout_seconds": 0}, {"request_timeout_seconds": -1}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        ServingSettings(**settings)  # type: ignore[arg-type]


def test_a_model_needs_a_name() -> None:
    with pytest.raises(ConfigError):
        ModelSpec("", spec_of(ScriptedLane()).open)
