"""Memory of compiled grammars: ten thousand schemas, none seen before, leave the process as large as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models.real_model import CATALOGUE_NAME

from edgellm.runtime.llm import LLM
from edgellm.runtime.sampling_params import SamplingParams

pytestmark = pytest.mark.model

MIB = 2**20
# Where allocators keep what was freed; a cache without a bound would take ten times this.
GROWTH_BYTES_MAX = 48 * MIB


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(CATALOGUE_NAME, max_kv_cache_capacity=128, max_input_len=64) as model:
        yield model


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _compile(llm: LLM, number: int) -> None:
    properties = {f"field_{number}_{index}": {"type": "string", "maxLength": 8 + index} for index in range(6)}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    params = SamplingParams(
        temperature=0.0, max_tokens=1, guided_decoding={"json_schema": json.dumps(schema)}, reuse_context=False
    )
    assert llm.generate("x", params)[0].finish_reason == "length"


def _growth(llm: LLM, warm: int, count: int) -> int:
    for number in range(warm):
        _compile(llm, number)
    before = _resident_bytes()
    for number in range(warm, count):
        _compile(llm, number)
    return _resident_bytes() - before


@pytest.mark.long
@pytest.mark.ci_slice
def test_hundreds_of_schemas_leave_nothing_behind(llm: LLM) -> None:
    assert _growth(llm, 100, 400) < GROWTH_BYTES_MAX


@pytest.mark.long
def test_ten_thousand_schemas_leave_nothing_behind(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    growth = _growth(llm, 1000, 10_000)
    with capsys.disabled():
        print(f"\n9,000 further schemas: {growth / MIB:+.1f} MiB resident")
    assert growth < GROWTH_BYTES_MAX
