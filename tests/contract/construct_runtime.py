"""Constructs NVIDIA's runtime objects through the product's adapter without a GPU, and prints what stops each.

``python -m tests.contract.construct_runtime nvidia FOLDER``: arguments of a wrong number or type are a TypeError.
"""

from __future__ import annotations

import json
import sys

from tests.contract.inspect_module import load

from edgellm.runtime.assembly import make_driver
from edgellm.runtime.llm_options import ContextCacheConfig, LLMOptions
from edgellm.runtime.loaded_model import BundleLayout
from edgellm.runtime.speculative import SpeculativeShape


def main(arguments: list[str]) -> None:
    module, stops = load(arguments), {}
    layout = BundleLayout("/bundle", engine_type="spec_decode", visual_dir="/bundle/visual")
    for name, in_flight, speculation in (
        ("blocking", False, None),
        ("speculative", False, SpeculativeShape(4, 1, 16, 8)),
        ("in flight", True, None),
    ):
        options = LLMOptions("m", enable_in_flight_batching=in_flight, context_cache=ContextCacheConfig(True))
        shape = options.shape("tensorrt", 1024)
        try:
            make_driver(module, layout, "/checkpoint", shape, speculation=speculation, draft_checkpoint_dir="/draft")
        except Exception as error:  # what it is, is the answer
            stops[name] = [type(error.__cause__).__name__, str(error.__cause__)]
    json.dump(stops, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
