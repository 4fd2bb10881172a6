"""A safetensors checkpoint becomes a bundle: weights lowered to GGUF, tokenizer and template kept exactly."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgellm.engines import checkpoint_names as names
from edgellm.engines.bundle import (
    CHAT_TEMPLATE_FILE,
    GENERATION_CONFIG_FILE,
    MODEL_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    Bundle,
)
from edgellm.engines.checkpoint import Checkpoint
from edgellm.engines.checkpoint_digest import checkpoint_digest
from edgellm.engines.gguf_file import read_gguf
from edgellm.engines.gguf_model import model_shape
from edgellm.engines.json_file import Fields, parse_object
from edgellm.engines.lowering.model_config import decoder_config
from edgellm.engines.lowering.model_file import (
    ModelFileContent,
    model_file_bytes,
    shared_embedding_bytes,
    write_model_file,
)
from edgellm.engines.lowering.plan import describe_bundle, write_json, write_text
from edgellm.engines.lowering.tensor_map import plan_tensors
from edgellm.engines.lowering.vision_config import is_vision_model, text_config
from edgellm.engines.lowering.vision_plan import DECODER_OF_VISION_MODEL, VisionPlan
from edgellm.engines.lowering.vocabulary import Vocabulary, read_vocabulary
from edgellm.engines.progress import Progress, ProgressCallback
from edgellm.engines.resources.native_memory import NativeShape
from edgellm.engines.source import SAVE_TOKENIZER, ModelSource
from edgellm.engines.template_file import chat_template
from edgellm.errors import ModelSourceError, UnsupportedModelError

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


class CheckpointPlan:
    """Configuration, tensor table and shapes are checked at once; tokenizer and weights are read by ``write``."""

    def __init__(self, source: ModelSource, quantisation: str) -> None:
        self._source = source
        # q8_0 keeps what 16-bit weights can do, at half their size.
        self.quantisation = "q8_0" if quantisation == "auto" else quantisation
        try:
            self._checkpoint = Checkpoint(source.path)
            if not (source.path / names.TOKENIZER_FILE).exists():
                raise UnsupportedModelError(
                    f"{source.path}: no {names.TOKENIZER_FILE}, which the native runtime needs — {SAVE_TOKENIZER}"
                )
            self._vision: VisionPlan | None = None
            config_path = source.path / names.CONFIG_FILE
            if is_vision_model(self._checkpoint.config):
                values = text_config(config_path, self._checkpoint.config)
                self._config = decoder_config(config_path, values, "text_config.")
                self._vision = VisionPlan(self._checkpoint, self._config, self.quantisation)
                self._tensors = plan_tensors(
                    self._config, self._checkpoint, inside=DECODER_OF_VISION_MODEL, elsewhere=self._vision.sources
                )
            else:
                self._config = decoder_config(config_path, self._checkpoint.config)
                self._tensors = plan_tensors(self._config, self._checkpoint)
            self.checkpoint_digest = checkpoint_digest(source.path)
        except OSError as error:
            raise ModelSourceError(f"{source.path}: {error.strerror}") from None
        self._model_bytes = model_file_bytes(self._tensors, self.quantisation)
        self.output_bytes = self._model_bytes + (self._vision.output_bytes if self._vision else 0)

    @property
    def runtime_shape(self) -> NativeShape:
        config = self._config
        return NativeShape(
            self._model_bytes,
            config.layer_count,
            self._tensors.kv_head_count,
            config.head_size,
            config.vocab_size,
            config.usable_context_length,
            shared_embedding_bytes=shared_embedding_bytes(self._tensors, self.quantisation),
            vision=self._vision.memory_shape if self._vision else None,
        )

    def write(self, directory: Path, on_progress: ProgressCallback) -> Bundle:
        checkpoint, config = self._checkpoint, self._config
        tokenizer_path = checkpoint.directory / names.TOKENIZER_FILE
        tokenizer_json = checkpoint.tokenizer_json()
        vocabulary = read_vocabulary(
            tokenizer_path, parse_object(tokenizer_path, tokenizer_json), tokenizer_json, config.vocab_size
        )
        if self._vision is not None:
            self._vision.check_vocabulary(tokenizer_path, vocabulary)
        generation = checkpoint.optional_object(names.GENERATION_CONFIG_FILE)
        tokens = _named_tokens(checkpoint)
        template = chat_template(checkpoint.directory, of_processor=self._vision is not None)
        content = ModelFileContent(
            name=self._source.model_id,
            config=config,
            tensors=self._tensors,
            vocabulary=vocabulary,
            bos_token_id=_first_id(vocabulary, tokens, "bos_token", self._declared("bos_token_id", generation)),
            pad_token_id=vocabulary.id_of(tokens["pad_token"]),
            unknown_token_id=vocabulary.id_of(tokens["unk_token"]),
            end_token_ids=_end_tokens(vocabulary, tokens, self._declared("eos_token_id", generation)),
            chat_template=template or None,
            quantisation=self.quantisation,
        )
        write_text(directory / TOKENIZER_FILE, tokenizer_json)
        write_json(
            directory / TOKENIZER_CONFIG_FILE,
            {**tokens, "add_bos_token": vocabulary.adds_bos, "add_eos_token": vocabulary.adds_eos},
        )
        if template:
            write_text(directory / CHAT_TEMPLATE_FILE, template)
        if generation:
            write_json(directory / GENERATION_CONFIG_FILE, generation)
        total_bytes, model_path = self.output_bytes, directory / MODEL_FILE

        def on_bytes(done_bytes: int) -> None:
            on_progress(Progress("lower", "lowering the weights", done_bytes, total_bytes))

        write_model_file(model_path, content, on_bytes)
        if self._vision is not None:
            self._vision.write(directory, self._source.model_id, lambda done: on_bytes(self._model_bytes + done))
        # What the bundle says is read back from the file just written, so that the two cannot differ.
        shape = model_shape(read_gguf(model_path))
        return describe_bundle(directory, self._source, shape, self._model_type, self.checkpoint_digest)

    @property
    def _model_type(self) -> str:
        return self._config.model_type if self._vision is None else self._vision.model_type

    def _declared(self, name: str, generation: Mapping[str, Any]) -> tuple[int, ...]:
        """Ids of generation_config.json first, then of config.json, each once."""
        directory, vocab_size = self._checkpoint.directory, self._config.vocab_size
        ids = [
            *Fields(directory / names.GENERATION_CONFIG_FILE, generation).token_ids(name, vocab_size),
            *Fields(directory / names.CONFIG_FILE, self._checkpoint.config).token_ids(name, vocab_size),
        ]
        return tuple(dict.fromkeys(ids))


def _named_tokens(checkpoint: Checkpoint) -> dict[str, str | None]:
    """The texts of named tokens: a token is a text, or an object with its text as content."""
    sources = [
        checkpoint.optional_object(names.TOKENIZER_CONFIG_FILE),
        checkpoint.optional_object(names.SPECIAL_TOKENS_FILE),
    ]
    tokens: dict[str, str | None] = {}
    for name in NAMED_TOKENS:
        values = [source.get(name) for source in sources]
        texts = [value.get("content") if isinstance(value, dict) else value for value in values]
        tokens[name] = next((text for text in texts if isinstance(text, str)), None)
    return tokens


def _first_id(
    vocabulary: Vocabulary, tokens: Mapping[str, str | None], name: str, declared: tuple[int, ...]
) -> int | None:
    named = vocabulary.id_of(tokens[name])
    return named if named is not None else (declared[0] if declared else None)


def _end_tokens(vocabulary: Vocabulary, tokens: Mapping[str, str | None], declared: tuple[int, ...]) -> tuple[int, ...]:
    named = vocabulary.id_of(tokens["eos_token"])
    return tuple(dict.fromkeys([*([] if named is None else [named]), *declared]))
