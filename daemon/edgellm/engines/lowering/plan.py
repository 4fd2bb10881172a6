"""LoweringPlan: what it takes to make a bundle of one source, known before anything is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from edgellm.engines.bundle import CONFIG_FILE, Bundle
from edgellm.engines.fingerprint import LOWERING_VERSION
from edgellm.engines.gguf_model import ModelShape
from edgellm.engines.progress import ProgressCallback
from edgellm.engines.resources.native_memory import NativeShape
from edgellm.engines.source import ModelSource
from edgellm.errors import CheckpointError


class LoweringPlan(Protocol):
    """``checkpoint_digest`` identifies the source whatever its path; ``output_bytes`` is what the bundle will take."""

    @property
    def checkpoint_digest(self) -> str: ...

    @property
    def quantisation(self) -> str:
        """What ``auto`` came to: "as-is" where the source decides."""
        ...

    @property
    def output_bytes(self) -> int: ...

    @property
    def runtime_shape(self) -> NativeShape:
        """What the memory of a load of the bundle will depend on."""
        ...

    def write(self, directory: Path, on_progress: ProgressCallback) -> Bundle:
        """Fill the empty ``directory`` with every file of the bundle."""
        ...


def describe_bundle(
    directory: Path, source: ModelSource, shape: ModelShape, model_type: str, checkpoint_digest: str
) -> Bundle:
    """Write what the bundle in ``directory`` says about itself, ``shape`` being that of its model file."""
    bundle = Bundle(
        directory=directory,
        model_id=source.model_id,
        architecture=shape.architecture,
        model_type=model_type,
        context_length=shape.context_length,
        vocab_size=shape.vocab_size,
        layer_count=shape.layer_count,
        kv_head_count=shape.kv_head_count,
        head_size=shape.head_size,
        quantisation=shape.weight_type,
        source_kind=source.kind.value,
        bos_token_id=shape.bos_token_id,
        end_token_ids=shape.end_token_ids,
        checkpoint_digest=checkpoint_digest,
        lowering_version=LOWERING_VERSION,
    )
    write_json(directory / CONFIG_FILE, bundle.as_config())
    return bundle


def write_json(path: Path, content: dict[str, Any]) -> None:
    write_text(path, json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n")


def write_text(path: Path, text: str) -> None:
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError:
        raise CheckpointError(f"the checkpoint's {path.name} holds a lone surrogate, which is not valid text") from None
    with path.open("xb") as stream:
        stream.write(content)
