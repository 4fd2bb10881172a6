"""Inspects one runtime module in a process of its own: prints its dump and how it behaved, as JSON.

``python -m tests.contract.inspect_module native``, or ``nvidia FOLDER`` with the folder that holds the binary.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.contract.all_behaviours import BEHAVIOURS
from tests.contract.contract_parts import extensions
from tests.contract.module_dump import dump
from tests.contract.nvidia_binary import NvidiaBinary


def load(arguments: list[str]) -> ModuleType:
    if arguments[0] == "nvidia":
        return NvidiaBinary(Path(arguments[1])).load()
    from edgellm.runtime.native_module import load_native_module

    return load_native_module(os.environ)


def failure_of(module: ModuleType, name: str) -> str:
    try:
        BEHAVIOURS[name](module)
    except Exception:  # a behaviour may fail with anything; the report carries it
        return traceback.format_exc(limit=-3)
    return ""


def passes(module: Any, keyword: str) -> bool:
    """Whether a schema with the keyword is left to the grammar."""
    guide = module.GuidedDecodingParams(module.GuideType.JSON_SCHEMA, json.dumps({keyword: {}}))
    return bool(module.validate_guided_decoding_params(guide)[0])


def main(arguments: list[str]) -> int:
    module = load(arguments)
    report = {
        "dump": dump(module),
        "failures": {name: failure_of(module, name) for name in BEHAVIOURS},
        "keywords_passed": {
            keyword: passes(module, keyword) for keyword in extensions()["schema_keywords_enforced_here_only"]
        },
    }
    json.dump(report, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
