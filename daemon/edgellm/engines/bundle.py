"""Bundle: a directory that a runtime can load, and what its config.json says about it.

Files of a native bundle: ``llm.gguf``, ``tokenizer.json``, ``tokenizer_config.json``, ``config.json``, and when the
checkpoint has them ``chat_template.jinja``, ``generation_config.json`` and ``visual/`` (see ``visual_part``). Keys of
config.json are those of TensorRT bundles where both have the fact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from edgellm import __version__
from edgellm.engines.json_file import read_object
from edgellm.engines.visual_part import ImageProcessing
from edgellm.errors import BundleDamagedError, BundleMismatchError, CheckpointError

MODEL_FILE = "llm.gguf"
TOKENIZER_FILE = "tokenizer.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
GENERATION_CONFIG_FILE = "generation_config.json"
CONFIG_FILE = "config.json"
REQUIRED_FILES = (MODEL_FILE, TOKENIZER_FILE, TOKENIZER_CONFIG_FILE)

CHECKPOINT_IDENTITY_VERSION = 1
MAX_CONFIG_BYTES = 1 << 20
MAX_COUNT = (1 << 31) - 1
SOURCE_KINDS = ("gguf", "safetensors")


@dataclass(frozen=True, slots=True)
class Bundle:
    """A validated bundle. ``context_length`` is in tokens; ``quantisation`` names the type most weights have.

    ``model_type`` is the checkpoint's family, ``architecture`` the name the model file uses for it.
    """

    directory: Path
    model_id: str
    architecture: str
    model_type: str
    context_length: int
    vocab_size: int
    layer_count: int
    kv_head_count: int
    head_size: int
    quantisation: str
    source_kind: str
    bos_token_id: int | None
    end_token_ids: tuple[int, ...]
    checkpoint_digest: str
    lowering_version: int
    edgellm_version: str = __version__
    kv_cache_dtype: str = "f16"

    @property
    def model_file(self) -> Path:
        return self.directory / MODEL_FILE

    @property
    def chat_template_file(self) -> Path | None:
        path = self.directory / CHAT_TEMPLATE_FILE
        return path if path.is_file() else None

    @property
    def generation_config_file(self) -> Path | None:
        path = self.directory / GENERATION_CONFIG_FILE
        return path if path.is_file() else None

    def require_checkpoint(self, digest: str) -> None:
        """Raise BundleMismatchError naming both digests unless the bundle was made from the checkpoint ``digest``."""
        if self.checkpoint_digest != digest:
            raise BundleMismatchError(
                f"{self.directory / CONFIG_FILE}: made from checkpoint {self.checkpoint_digest}, while the manifest is "
                f"for checkpoint {digest} — remove the engine and build it again"
            )

    def as_config(self) -> dict[str, Any]:
        """The contents of config.json."""
        return {
            "model": self.model_type,
            "model_id": self.model_id,
            "architecture": self.architecture,
            "runtime": "native",
            "engine_role": "llm",
            "spec_decode_type": "none",
            "edgellm_version": self.edgellm_version,
            "lowering_version": self.lowering_version,
            "quantisation": self.quantisation,
            "source_kind": self.source_kind,
            "vocab_size": self.vocab_size,
            "max_position_embeddings": self.context_length,
            "kv_cache_dtype": self.kv_cache_dtype,
            "num_hidden_layers": self.layer_count,
            "num_key_value_heads": self.kv_head_count,
            "head_dim": self.head_size,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": list(self.end_token_ids),
            # Lengths and batch of a native engine are chosen at every start, so they are no part of the bundle or of
            # its key: recorded are the bounds that the model itself sets (null: none).
            "builder_config": {
                "max_input_len": self.context_length,
                "max_kv_cache_capacity": self.context_length,
                "max_batch_size": None,
            },
            "checkpoint_identity": {"version": CHECKPOINT_IDENTITY_VERSION, "digest": self.checkpoint_digest},
        }

    @classmethod
    def load(cls, directory: Path) -> Bundle:
        """Raises BundleDamagedError naming the file and field that is missing or wrong."""
        path = directory / CONFIG_FILE
        fields = _Fields(path, _read_config(path))
        identity = fields.mapping("checkpoint_identity")
        if identity.get("version") != CHECKPOINT_IDENTITY_VERSION:
            fields.fail("checkpoint_identity.version", f"is not {CHECKPOINT_IDENTITY_VERSION}")
        vocab_size = fields.count("vocab_size")
        bundle = cls(
            directory=directory,
            model_id=fields.text("model_id"),
            architecture=fields.text("architecture"),
            model_type=fields.text("model"),
            context_length=fields.count("max_position_embeddings"),
            vocab_size=vocab_size,
            layer_count=fields.count("num_hidden_layers"),
            kv_head_count=fields.count("num_key_value_heads"),
            head_size=fields.count("head_dim"),
            quantisation=fields.text("quantisation"),
            source_kind=fields.choice("source_kind", SOURCE_KINDS),
            bos_token_id=fields.optional_token("bos_token_id", vocab_size),
            end_token_ids=fields.tokens("eos_token_id", vocab_size),
            checkpoint_digest=fields.hexadecimal(identity, "digest"),
            lowering_version=fields.count("lowering_version"),
            edgellm_version=fields.text("edgellm_version"),
            kv_cache_dtype=fields.text("kv_cache_dtype"),
        )
        fields.choice("runtime", ("native",))
        fields.choice("engine_role", ("llm",))
        fields.choice("spec_decode_type", ("none",))
        if fields.mapping("builder_config") != bundle.as_config()["builder_config"]:
            fields.fail("builder_config", "contradicts max_position_embeddings")
        for name in REQUIRED_FILES:
            file = directory / name
            if not file.is_file() or file.stat().st_size == 0:
                raise BundleDamagedError(f"{file}: missing or empty: the bundle is damaged")
        ImageProcessing.of_bundle(directory)  # checked as the rest is
        return bundle


def _read_config(path: Path) -> Mapping[str, Any]:
    try:
        return read_object(path, MAX_CONFIG_BYTES)
    except CheckpointError as error:
        raise BundleDamagedError(f"{error}: not a bundle, or a damaged one") from None


class _Fields:
    """Typed access to config.json; every miss names file and field."""

    def __init__(self, path: Path, values: Mapping[str, Any]) -> None:
        self._path = path
        self._values = values

    def fail(self, name: str, reason: str) -> NoReturn:
        raise BundleDamagedError(f"{self._path}: {name} {reason}")

    def text(self, name: str) -> str:
        value = self._values.get(name)
        if not isinstance(value, str) or not value:
            self.fail(name, "is not a text")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        value = self.text(name)
        if value not in choices:
            self.fail(name, f"is {value!r}, not one of {', '.join(choices)}")
        return value

    def count(self, name: str) -> int:
        value = self._values.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_COUNT:
            self.fail(name, "is not a positive number")
        return value

    def mapping(self, name: str) -> Mapping[str, Any]:
        value = self._values.get(name)
        if not isinstance(value, dict):
            self.fail(name, "is not an object")
        return value

    def optional_token(self, name: str, vocab_size: int) -> int | None:
        if self._values.get(name, 0) is None:
            return None
        return self._token(name, self._values.get(name), vocab_size)

    def tokens(self, name: str, vocab_size: int) -> tuple[int, ...]:
        values = self._values.get(name)
        if not isinstance(values, list):
            self.fail(name, "is not a list of token ids")
        return tuple(self._token(name, value, vocab_size) for value in values)

    def _token(self, name: str, value: object, vocab_size: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < vocab_size:
            self.fail(name, f"is no token id of the {vocab_size} of this model")
        return value

    def hexadecimal(self, values: Mapping[str, Any], name: str) -> str:
        value = values.get(name)
        if not isinstance(value, str) or len(value) != 64 or set(value) - set("0123456789abcdef"):
            self.fail(f"checkpoint_identity.{name}", "is not a SHA-256")
        return value
