"""Opens model files one after the other in a process that may die: one JSON request a line, one JSON answer a line.

``bundle``: an engine directory is loaded by the native runtime, scored and run for a few tokens.
``vision``: an engine directory that sees is loaded with its tower, and shown an image.
``source``: a model argument is resolved and lowered by the product's code, in this process.
Address space is limited, so that a length believed blindly shows as an error of memory and not as a machine that
starts to swap. The address sanitizer needs terabytes of it, and sees such lengths itself.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from pathlib import Path
from typing import Any

ADDRESS_SPACE_BYTES = 6 << 30


def open_bundle(directory: str) -> None:
    from tests.native.runtime_driver import Ask, NativeRuntime

    runtime = NativeRuntime(Path(directory), threads=1, max_kv_tokens=64)
    runtime.score([1, 2, 3, 4])
    runtime.answer(Ask(prompt=[1, 2, 3, 4], max_tokens=3))


def open_vision(directory: str) -> None:
    from tests.models.pictures import noise
    from tests.native.vision_driver import VisionAsk, VisionEngine

    engine = VisionEngine(Path(directory), threads=1, max_kv_tokens=256)
    try:
        engine.see(VisionAsk("<image>", [noise(20, 20)], max_tokens=2, do_resize=False))
    finally:
        engine.close()


def open_source(model: str, cache_dir: str) -> None:
    from tests.models.bundles import lowered_bundle_of

    cache = Path(cache_dir)
    try:
        lowered_bundle_of(Path(model), cache / "bundle")
    finally:
        shutil.rmtree(cache, ignore_errors=True)


def outcome_of(request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request["kind"] == "bundle":
            open_bundle(request["path"])
        elif request["kind"] == "vision":
            open_vision(request["path"])
        else:
            open_source(request["path"], request["cache_dir"])
    except Exception as error:
        kinds = [kind.__name__ for kind in type(error).__mro__]
        return {"opened": False, "kinds": kinds, "message": str(error)}
    return {"opened": True, "kinds": [], "message": ""}


def main() -> None:
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        answers.write(json.dumps(outcome_of(json.loads(line))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
