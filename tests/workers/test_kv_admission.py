"""A slot is a promise of memory: with all slots at full length and a full context cache, each request ends whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.workers.worker_scenario import begin, only_model, real, serving, token_ids

from edgellm.errors import ContextLengthError

SLOTS = 4
CAPACITY_TOKENS = 256


def test_every_slot_can_be_filled_to_its_end_beside_a_full_cache(tiny_model: Path, cache_dir: Path) -> None:
    async def scenario() -> None:
        limits = {"max_batch_size": SLOTS, "max_kv_cache_capacity": CAPACITY_TOKENS, "max_input_len": 200}
        async with serving(real(tiny_model, cache_dir, **limits)) as client:
            for number in range(3 * SLOTS):  # answers that stay in the cache until it has no page left
                await token_ids(await begin(client, 100, f"{number} " * 40, ignore_eos=True))
            # Far more than fits, as clients send it: it is cut to what the prompt leaves.
            together = [await begin(client, 100_000, f"{number} once more", ignore_eos=True) for number in range(SLOTS)]
            answers = await asyncio.gather(*map(token_ids, together))
            for generation, answer in zip(together, answers, strict=True):
                assert len(answer) == CAPACITY_TOKENS - generation.prompt_tokens
                assert generation.report.finish_reasons == {"length": 1}
            with pytest.raises(
                ContextLengthError, match=r"the prompt has (at least )?\d+ tokens, and its answer may have up to 7 more"
            ):
                await begin(client, 7, "too long " * 300)
            assert only_model(client).lanes_lost_total == 0

    asyncio.run(scenario())
