"""Memory stays flat: objects of the native module are made and dropped many times in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.models.bundles import lowered_bundle_of
from tests.models.tiny_vision import VISION_VARIANTS, write_vision_checkpoint
from tests.native.runtime_driver import BundleMaker
from tests.native.sanitizer import measures_memory

REPOSITORY = Path(__file__).parents[2]
PROCESS_TIMEOUT_SECONDS = 900

pytestmark = measures_memory

# Growth is what the second half of the rounds added, after the first half filled every cache there is. The allocator
# alone moves by less than this; a leak of one object a round is more.
ALLOWED_GROWTH_BYTES = 2 * 2**20


@pytest.mark.parametrize(
    ("what", "rounds"),
    [
        ("requests", 4000),
        ("replaced_references", 4000),
        ("channels", 100_000),
        ("media", 4000),
        ("guides", 20_000),
        ("refusals", 4000),
    ],
)
def test_values_do_not_leak(what: str, rounds: int) -> None:
    assert growth_bytes(what, rounds) < ALLOWED_GROWTH_BYTES


@pytest.mark.parametrize(
    ("what", "rounds"), [("engines", 300), ("runtimes", 300), ("generations", 3000), ("failed_engines", 8000)]
)
def test_runtimes_do_not_leak(what: str, rounds: int, tiny_bundle: BundleMaker) -> None:
    assert growth_bytes(what, rounds, tiny_bundle("llama")) < ALLOWED_GROWTH_BYTES


@pytest.mark.parametrize(("what", "rounds"), [("seen_images", 2000), ("vision_engines", 200)])
def test_images_do_not_leak(what: str, rounds: int, tmp_path: Path) -> None:
    checkpoint = write_vision_checkpoint(tmp_path / "model", VISION_VARIANTS["smolvlm"])
    bundle = lowered_bundle_of(checkpoint, tmp_path / "bundle").directory
    assert growth_bytes(what, rounds, bundle) < ALLOWED_GROWTH_BYTES


def growth_bytes(what: str, rounds: int, bundle: Path = Path()) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "tests.native.leak_rounds", what, str(rounds), str(bundle)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=PROCESS_TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)
