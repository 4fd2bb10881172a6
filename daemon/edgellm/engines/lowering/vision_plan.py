"""VisionPlan: the visual part of a bundle, planned beside the decoder and written below it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from edgellm.engines.checkpoint import Checkpoint
from edgellm.engines.lowering.model_config import DecoderConfig
from edgellm.engines.lowering.plan import write_json
from edgellm.engines.lowering.vision_config import vision_config
from edgellm.engines.lowering.vision_file import plan_vision_tensors, vision_file_bytes, write_vision_file
from edgellm.engines.lowering.vocabulary import Vocabulary
from edgellm.engines.resources.native_memory import VisionShape
from edgellm.engines.visual_part import (
    AROUND_IMAGE,
    IMAGE_PLACEHOLDER,
    VISUAL_CONFIG_FILE,
    VISUAL_FOLDER,
    VISUAL_MODEL_FILE,
)
from edgellm.errors import CheckpointError

DECODER_OF_VISION_MODEL = "model.text_model."
"""Before the names of the decoder's tensors."""


class VisionPlan:
    """Raises as ``vision_config`` and ``plan_vision_tensors`` do when it is made."""

    def __init__(self, checkpoint: Checkpoint, decoder: DecoderConfig, quantisation: str) -> None:
        self.model_type = str(checkpoint.config["model_type"])
        self._config = vision_config(checkpoint, decoder.hidden_size, decoder.vocab_size)
        self._located = plan_vision_tensors(self._config, checkpoint)
        self._quantisation = quantisation
        self.output_bytes = vision_file_bytes(self._located, quantisation)

    @property
    def sources(self) -> frozenset[str]:
        """Names of the checkpoint's tensors that are read here."""
        return frozenset(mapped.source for mapped, _ in self._located)

    @property
    def memory_shape(self) -> VisionShape:
        config = self._config
        return VisionShape(
            self.output_bytes, config.patch_count, config.head_count, config.hidden_size, config.intermediate_size
        )

    def check_vocabulary(self, path: Path, vocabulary: Vocabulary) -> None:
        """Raise CheckpointError unless the tokens that mark images are tokens."""
        declared = self._config.processing.image_token_id
        if vocabulary.id_of(IMAGE_PLACEHOLDER) != declared:
            raise CheckpointError(
                f"{path}: token {IMAGE_PLACEHOLDER} does not have the id {declared} that config.json gives it"
            )
        if vocabulary.id_of(AROUND_IMAGE) is None:
            raise CheckpointError(f"{path}: token {AROUND_IMAGE} is missing")

    def write(self, directory: Path, name: str, on_bytes: Callable[[int], None]) -> None:
        folder = directory / VISUAL_FOLDER
        folder.mkdir()
        write_vision_file(folder / VISUAL_MODEL_FILE, name, self._config, self._located, self._quantisation, on_bytes)
        write_json(folder / VISUAL_CONFIG_FILE, self._config.processing.as_config(self.model_type))
