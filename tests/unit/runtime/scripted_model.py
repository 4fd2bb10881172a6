"""LLMs over the scripted runtime, assembled by the product's own loader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.unit.runtime.scripted_runtime import ScriptedModule

from edgellm.parsing.messages import normalise_messages
from edgellm.runtime.assembly import assemble, make_driver
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.guided_decoding import GUIDE_TYPES
from edgellm.runtime.llm import LLM
from edgellm.runtime.llm_options import LLMOptions
from edgellm.runtime.loaded_model import BundleLayout
from edgellm.runtime.native_request import EXTENSION_PARAMETERS
from edgellm.runtime.prompt_front_end import TokenisingFrontEnd

VOCAB_SIZE = 1000
CONTEXT_TOKENS = 8192
LONGEST_WORD_BYTES = 8


class WordCodec:
    """One token a word; remembers what it was given."""

    def __init__(self) -> None:
        self.encoded: list[str] = []
        self.chats: list[tuple[list[dict[str, Any]], dict[str, Any]]] = []

    def encode_chat(
        self, messages: Sequence[Mapping[str, Any]], check_length: Callable[[int], None] | None = None, **options: Any
    ) -> list[int]:
        normalise_messages(messages)
        if not options.pop("apply_chat_template", True):
            return self.encode_text("".join(message["content"] for message in messages), check_length=check_length)
        self.chats.append(([dict(message) for message in messages], options))
        text = " ".join(str(message.get("content")) for message in messages)
        return self.encode_text(text, check_length=check_length)

    def encode_text(self, text: str, *, check_length: Callable[[int], None] | None = None) -> list[int]:
        if check_length is not None:
            check_length(-(-len(text.encode()) // LONGEST_WORD_BYTES))
        self.encoded.append(text)
        return [len(word) % VOCAB_SIZE for word in text.split()]


def scripted_llm(module: ScriptedModule, *, codec: WordCodec | None = None, **options: Any) -> LLM:
    """A native-like model when the module has extensions, else one as on TensorRT."""
    kind = "native" if hasattr(module.Request(), "extensions") else "tensorrt"
    parsed = LLMOptions("model", **options)
    shape = parsed.shape(kind, CONTEXT_TOKENS)
    layout = BundleLayout("/bundles/scripted")
    front_end = TokenisingFrontEnd(codec or WordCodec(), shape.limits, VOCAB_SIZE) if kind == "native" else None
    loaded = assemble(
        module,
        make_driver(module, layout, "/checkpoints/scripted", shape),
        front_end,
        layout=layout,
        model_id="scripted",
        model_path=Path("/checkpoints/scripted"),
        limits=shape.limits,
        capabilities=Capabilities(
            runtime=kind,
            executor="",
            max_batch_size=shape.max_batch_size,
            max_input_len=shape.limits.max_input_len,
            max_kv_cache_capacity=shape.limits.max_kv_cache_capacity,
            vocab_size=VOCAB_SIZE,
            in_flight_batching=shape.in_flight_batching,
            context_cache=bool(shape.context_cache.enabled),
            guided_decoding=GUIDE_TYPES,
            parameters=frozenset(EXTENSION_PARAMETERS) if kind == "native" else frozenset(),
        ),
    )
    return LLM.over(loaded, "/cache")
