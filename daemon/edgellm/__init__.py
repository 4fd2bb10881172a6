"""edgellm: LLMs on the edge, served to OpenAI clients."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgellm.errors import EdgeLLMError
    from edgellm.runtime.audio_params import AudioParams
    from edgellm.runtime.llm import LLM
    from edgellm.runtime.llm_options import BuildOptions, ContextCacheConfig, SpeculativeConfig
    from edgellm.runtime.load_model import load_model
    from edgellm.runtime.outputs import CompletionOutput, LogprobEntry, StreamDelta
    from edgellm.runtime.sampling_params import GuidedDecoding, SamplingParams
    from edgellm.runtime.tts import TTS

__version__ = "0.1.0"

__all__ = [
    "LLM",
    "TTS",
    "AudioParams",
    "BuildOptions",
    "CompletionOutput",
    "ContextCacheConfig",
    "EdgeLLMError",
    "GuidedDecoding",
    "LogprobEntry",
    "SamplingParams",
    "SpeculativeConfig",
    "StreamDelta",
    "__version__",
    "errors",
    "load_model",
]

# Found when first asked for: importing the package costs next to nothing and loads no native code.
_MODULE_OF_EXPORT = {
    "LLM": "edgellm.runtime.llm",
    "TTS": "edgellm.runtime.tts",
    "AudioParams": "edgellm.runtime.audio_params",
    "BuildOptions": "edgellm.runtime.llm_options",
    "CompletionOutput": "edgellm.runtime.outputs",
    "ContextCacheConfig": "edgellm.runtime.llm_options",
    "EdgeLLMError": "edgellm.errors",
    "GuidedDecoding": "edgellm.runtime.guided_decoding",
    "LogprobEntry": "edgellm.runtime.outputs",
    "SamplingParams": "edgellm.runtime.sampling_params",
    "SpeculativeConfig": "edgellm.runtime.llm_options",
    "StreamDelta": "edgellm.runtime.outputs",
    "load_model": "edgellm.runtime.load_model",
}


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("edgellm.errors")
    module = _MODULE_OF_EXPORT.get(name)
    if module is None:
        raise AttributeError(f"module 'edgellm' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
