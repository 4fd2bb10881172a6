"""Layout: where each component of a TensorRT bundle lies, which are there, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from edgellm.engines.json_file import read_object
from edgellm.engines.tensorrt.components import SPEECH_COMPONENTS, TEXT_COMPONENTS, in_build_order
from edgellm.engines.tensorrt.engine_metadata import BASE_CONFIG_FILE, CONFIG_FILE, DRAFT_CONFIG_FILE, MAX_CONFIG_BYTES
from edgellm.errors import BundleDamagedError, CheckpointError

SPECULATIVE_COMPONENTS = ("spec_base", "spec_draft")


@dataclass(frozen=True, slots=True)
class ComponentFiles:
    """``engine`` and ``config`` of one component, relative to the bundle."""

    engine: str
    config: str


FILES_BY_COMPONENT = {
    "llm": ComponentFiles("llm.engine", CONFIG_FILE),
    "dllm": ComponentFiles("dllm.engine", CONFIG_FILE),
    "spec_base": ComponentFiles("spec_base.engine", BASE_CONFIG_FILE),
    "spec_draft": ComponentFiles("spec_draft.engine", DRAFT_CONFIG_FILE),
    "visual": ComponentFiles("visual/visual.engine", "visual/config.json"),
    "audio": ComponentFiles("audio/audio_encoder.engine", "audio/config.json"),
    "rnnt": ComponentFiles("rnnt/rnnt_step.engine", "rnnt/config.json"),
    "talker": ComponentFiles("talker/llm.engine", "talker/config.json"),
    "code_predictor": ComponentFiles("code_predictor/llm.engine", "code_predictor/config.json"),
    "code2wav": ComponentFiles("code2wav/code2wav.engine", "code2wav/config.json"),
    # Two engines in one folder, so their configurations have names of their own.
    "speaker_encoder": ComponentFiles(
        "clone_encoders/speaker_encoder.engine", "clone_encoders/speaker_encoder_config.json"
    ),
    "speech_tokenizer_encoder": ComponentFiles(
        "clone_encoders/speech_tokenizer_encoder.engine", "clone_encoders/speech_tokenizer_encoder_config.json"
    ),
    "action": ComponentFiles("action/action.engine", "action/config.json"),
    "und_prefill": ComponentFiles("und_prefill/und_prefill.engine", "und_prefill/config.json"),
    "gen": ComponentFiles("gen/gen.engine", "gen/config.json"),
    "vae_encoder": ComponentFiles("vae_encoder/vae_encoder.engine", "vae_encoder/config.json"),
}


@dataclass(frozen=True, slots=True)
class EngineLayout:
    """The components of a bundle, each with its engine. ``root`` is the bundle."""

    root: Path
    components: tuple[str, ...]

    @classmethod
    def inspect(cls, root: Path) -> EngineLayout:
        """See what is there; whether that is all is for ``check_layout``."""
        found = [name for name, files in FILES_BY_COMPONENT.items() if (root / files.engine).is_file()]
        # Half a pair is no component: without its other half it runs nothing.
        pair = [name for name in found if name in SPECULATIVE_COMPONENTS]
        if len(pair) < len(SPECULATIVE_COMPONENTS):
            found = [name for name in found if name not in pair]
        return cls(root, tuple(found))

    @property
    def engine_type(self) -> str:
        """Tell what runs the text: ``spec_decode``, ``llm``, or ``unknown`` for a bundle without text."""
        if set(SPECULATIVE_COMPONENTS) <= set(self.components):
            return "spec_decode"
        return "llm" if TEXT_COMPONENTS & set(self.components) else "unknown"

    @property
    def has_speech(self) -> bool:
        return set(self.components) >= SPEECH_COMPONENTS

    def folder(self, component: str) -> Path | None:
        """Give the folder of a component's files; None for a component that the bundle lacks."""
        if component not in self.components:
            return None
        return (self.root / FILES_BY_COMPONENT[component].engine).parent

    @property
    def media_dir(self) -> str:
        """What the runtime takes for the encoders: the bundle itself, "" for a model of text alone."""
        return str(self.root) if {"visual", "audio"} & set(self.components) else ""


def bundle_components(model_components: Iterable[str], *, speculative: bool) -> tuple[str, ...]:
    """Give the components of a bundle of such a model: speculative decoding has two engines for its text."""
    names: list[str] = []
    for name in in_build_order(model_components):
        names += SPECULATIVE_COMPONENTS if speculative and name == "llm" else (name,)
    return tuple(names)


def components_begun(root: Path) -> tuple[str, ...]:
    """Give every component that has a file in ``root``, whole or not."""
    begun = {
        name: [file for file in (files.engine, files.config) if (root / file).is_file()]
        for name, files in FILES_BY_COMPONENT.items()
    }
    # Two kinds of text engine share a configuration: it belongs to the one that is there.
    diffusion_alone = [(root / FILES_BY_COMPONENT[name].engine).is_file() for name in ("dllm", "llm")] == [True, False]
    begun["llm" if diffusion_alone else "dllm"] = []
    return tuple(name for name, files in begun.items() if files)


def check_layout(root: Path, components: Iterable[str]) -> None:
    """Check that each component is whole and that a runtime can run them. Raises BundleDamagedError naming a file."""
    components = tuple(components)
    for problem in problems_of_layout(root, components):
        raise BundleDamagedError(problem)


def problems_of_layout(root: Path, components: tuple[str, ...]) -> Iterator[str]:
    """Give what is wrong, one sentence a file, nothing for a complete bundle."""
    for name in components:
        files = FILES_BY_COMPONENT.get(name)
        if files is None:
            yield f"{root}: no runtime of this version has a component {name!r}"
            continue
        engine, config = root / files.engine, root / files.config
        if not engine.is_file() or engine.stat().st_size == 0:
            yield f"{engine}: missing or empty: the engine of {name}"
        try:
            read_object(config, MAX_CONFIG_BYTES)
        except CheckpointError as error:
            yield f"{error}: the configuration of {name}"
    if not (TEXT_COMPONENTS | {"spec_base"}) & set(components) and not set(components) >= SPEECH_COMPONENTS:
        yield f"{root}: neither a text engine nor a whole speech decoder is part of it ({', '.join(components)})"
