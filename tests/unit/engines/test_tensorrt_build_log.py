"""Lines of NVIDIA's builder become progress, the list of what was made, and the reason of a failure."""

from __future__ import annotations

import pytest

from edgellm.engines.progress import Progress
from edgellm.engines.tensorrt.build_log import MAX_FAILURE_CHARACTERS, BuildLog

START = "2026-11-29 18:00:00,123"
LINES = [
    "UserWarning: something of no interest",
    f"{START} INFO __main__: Building 3 engines for qwen3_vl: spec-base, spec-draft, visual",
    f"{START} INFO __main__: Building component spec-base",
    f"{START} INFO experimental.builder.core.builder: model_type=qwen3 layers=28 hidden=1024 experts=0 quant=int4",
    f"{START} INFO experimental.builder.models.qwen3: building layer 3/28",
    f"{START} INFO experimental.builder.models.omni: building thinker layer 4/28",
    f"{START} WARNING experimental.builder.core.builder: [TRT] a warning that is no failure",
    f"{START} INFO experimental.builder.core.builder: Building serialized engine (this may take several minutes)...",
    f"{START} INFO experimental.builder.core.builder: Engine written to /s/spec_base.engine (123456789 bytes)",
    f"{START} INFO __main__: Building component visual",
    "Engine outputs:",
    "  spec-base: /s/spec_base.engine (123456789 bytes)",
    "  spec-draft: /s/spec_draft.engine (1 bytes)",
    "  visual: /s/a folder/visual.engine (1 bytes)",
    "something after the list",
]


def read(*lines: str) -> tuple[BuildLog, list[str]]:
    told: list[Progress] = []
    log = BuildLog(told.append)
    for line in lines:
        log.read(line)
    assert {progress.stage for progress in told} <= {"build"}
    return log, [progress.message for progress in told]


def test_each_step_is_told_with_its_engine() -> None:
    log, told = read(*LINES)
    assert told == [
        "engine 1 of 3 (spec_base): reading the checkpoint",
        "engine 1 of 3 (spec_base): layer 3 of 28",
        "engine 1 of 3 (spec_base): layer 4 of 28",
        "engine 1 of 3 (spec_base): compiling, which takes minutes",
        "engine 1 of 3 (spec_base): 123 MB written",
        "engine 2 of 3 (visual): reading the checkpoint",
    ]
    assert log.components == ("spec_base", "spec_draft", "visual")
    assert log.planned == ("spec_base", "spec_draft", "visual")
    assert log.failure == ""
    assert log.position == "engine 2 of 3 (visual)"


def test_before_the_first_engine_there_is_only_a_start() -> None:
    log, told = read(LINES[1])
    assert (told, log.position) == ([], "its start")


@pytest.mark.parametrize(
    ("lines", "failure"),
    [
        (["Traceback (most recent call last):", '  File "x.py", line 1', "RuntimeError: no tactic"], "no tactic"),
        (["tensorrt_edgellm._native.NativeSelectionError: none of 8 rows"], "none of 8 rows"),
        (["__main__.py: error: unrecognized arguments: --x"], "unrecognized arguments: --x"),
        ([f"{START} ERROR experimental.builder.core.builder: [TRT] out of memory"], "[TRT] out of memory"),
        ([f"{START} ERROR a: [TRT] first", "ValueError: last"], "ValueError: last"),
        (["ValueError: " + "x" * 10_000], "x" * 300),
    ],
)
def test_the_last_reason_is_the_failure(lines: list[str], failure: str) -> None:
    log, _ = read(*lines)
    assert failure in log.failure
    assert len(log.failure) <= MAX_FAILURE_CHARACTERS
