"""Bundles of every kind of model: NVIDIA's readiness check and ours agree, whole and without each file in turn."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.contract.checkpoint_configs import Files, write_files
from tests.contract.nvidia_binary import NvidiaBinary
from tests.contract.nvidia_verdicts import ask

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.tensorrt.arguments import BuildFolders, builder_arguments
from edgellm.engines.tensorrt.bundle_check import check_build
from edgellm.engines.tensorrt.components import checkpoint_components
from edgellm.engines.tensorrt.engine_metadata import EngineMetadata
from edgellm.engines.tensorrt.layout import FILES_BY_COMPONENT, EngineLayout, bundle_components
from edgellm.errors import ConfigError, EngineError
from edgellm.runtime.engine_shape import refuse_in_flight

REPOSITORY = Path(__file__).parents[2]
TIMEOUT_SECONDS = 300
PROFILE = BuildProfile(max_input_len=512, max_batch_size=2, max_kv_cache_capacity=1024)
DRAFT: Files = {"config.json": {"model_type": "qwen3", "block_size": 8, "hidden_size": 64}}


@dataclass(frozen=True)
class Kind:
    name: str
    config: dict[str, Any]
    components: tuple[str, ...]
    spec_type: str = "none"
    draft: bool = False


OMNI = ("llm", "visual", "audio", "talker", "code_predictor", "code2wav")
PAIR = ("spec_base", "spec_draft")
KINDS = [
    Kind("text", {"model_type": "qwen3"}, ("llm",)),
    Kind("vlm", {"model_type": "qwen3_vl"}, ("llm", "visual")),
    Kind("asr", {"model_type": "qwen3_asr"}, ("llm", "audio")),
    Kind("both", {"model_type": "gemma4", "vision_config": {}, "audio_config": {}}, ("llm", "visual", "audio")),
    Kind("omni", {"model_type": "qwen3_omni"}, OMNI),
    Kind("tts", {"model_type": "qwen3_tts"}, ("talker", "code_predictor", "code2wav")),
    Kind("diffusion", {"model_type": "diffusion_gemma_text"}, ("dllm",)),
    Kind("eagle3", {"model_type": "qwen3"}, PAIR, "eagle3", draft=True),
    Kind("mtp", {"model_type": "qwen3_5", "vision_config": {}}, (*PAIR, "visual"), "mtp"),
    Kind("gemma4_mtp", {"model_type": "gemma4_text"}, PAIR, "gemma4_mtp", draft=True),
    Kind("dflash", {"model_type": "qwen3"}, PAIR, "dflash", draft=True),
    Kind("jetspec", {"model_type": "qwen3"}, PAIR, "jetspec", draft=True),
    Kind("dspark", {"model_type": "qwen3_vl"}, (*PAIR, "visual"), "dspark", draft=True),
]


@dataclass(frozen=True)
class Built:
    kind: Kind
    profile: BuildProfile
    model: Path
    bundle: Path

    def nvidia_case(self, bundle: Path | None = None, **options: Any) -> dict[str, Any]:
        # The server's own name for mtp with a checkpoint of its own is mtp and that checkpoint.
        method = "mtp" if self.kind.spec_type == "gemma4_mtp" else self.kind.spec_type
        asked = {
            "max_input_len": self.profile.max_input_len,
            "max_batch_size": self.profile.max_batch_size,
            "max_kv_cache_capacity": self.profile.max_kv_cache_capacity,
            "spec_type": method,
            "draft_model_dir": "draft" if self.kind.draft else "",
        }
        return {"model_dir": str(self.model), "bundle_dir": str(bundle or self.bundle), "options": {**asked, **options}}

    def ours(self, bundle: Path | None = None, **options: Any) -> bool:
        profile = BuildProfile(**{**self.profile_values(), **options})
        components = checkpoint_components(self.model)
        assert components is not None
        try:
            check_build(bundle or self.bundle, components, profile)
        except EngineError:
            return False
        return True

    def profile_values(self) -> dict[str, Any]:
        names = ("max_input_len", "max_batch_size", "max_kv_cache_capacity", "spec_type")
        return {name: getattr(self.profile, name) for name in names}


def build(site: Path, kind: Kind, folder: Path) -> Built:
    profile = BuildProfile(
        max_input_len=PROFILE.max_input_len,
        max_batch_size=PROFILE.max_batch_size,
        max_kv_cache_capacity=PROFILE.max_kv_cache_capacity,
        spec_type=kind.spec_type,
    )
    model = write_files(folder / "model", {"config.json": {"hidden_size": 64, **kind.config}})
    draft = write_files(folder / "draft", DRAFT) if kind.draft else None
    bundle = folder / "bundle"
    bundle.mkdir()
    arguments = builder_arguments(profile, BuildFolders(model, bundle, draft))
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.stand_in_builder", *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(site), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return Built(kind, profile, model, bundle)


@pytest.fixture(scope="module")
def bundles(nvidia_binary: NvidiaBinary, tmp_path_factory: pytest.TempPathFactory) -> list[Built]:
    return [build(nvidia_binary.site, kind, tmp_path_factory.mktemp(kind.name)) for kind in KINDS]


def test_complete_bundles_of_every_kind_are_ready(nvidia_binary: NvidiaBinary, bundles: list[Built]) -> None:
    assert ask(nvidia_binary.site, "is_ready", [built.nvidia_case() for built in bundles]) == [True] * len(bundles)
    for built in bundles:
        assert built.ours(), built.kind
        components = bundle_components(
            checkpoint_components(built.model) or (), speculative=built.kind.spec_type != "none"
        )
        assert components == built.kind.components
        layout = EngineLayout.inspect(built.bundle)
        assert set(layout.components) == set(components)


def test_a_bundle_without_any_one_file_is_not_ready(
    nvidia_binary: NvidiaBinary, bundles: list[Built], tmp_path: Path
) -> None:
    cases, ours = [], []
    for built in bundles:
        for component in built.kind.components:
            for name in (FILES_BY_COMPONENT[component].engine, FILES_BY_COMPONENT[component].config):
                damaged = tmp_path / built.kind.name / name.replace("/", "-")
                shutil.copytree(built.bundle, damaged)
                (damaged / name).unlink()
                cases.append(built.nvidia_case(damaged))
                ours.append(built.ours(damaged))
    assert ask(nvidia_binary.site, "is_ready", cases) == [False] * len(cases)
    assert ours == [False] * len(cases)


def test_a_bundle_with_a_broken_configuration_or_without_identity_is_not_ready(
    nvidia_binary: NvidiaBinary, bundles: list[Built], tmp_path: Path
) -> None:
    cases, ours = [], []
    for built in bundles:
        for name, damage in (("broken", lambda text: text[:-2]), ("nameless", lambda text: text.replace("_id", "_ad"))):
            damaged = tmp_path / built.kind.name / name
            shutil.copytree(built.bundle, damaged)
            for component in built.kind.components:
                config = damaged / FILES_BY_COMPONENT[component].config
                config.write_text(damage(config.read_text()))
            cases.append(built.nvidia_case(damaged))
            ours.append(built.ours(damaged))
    assert ask(nvidia_binary.site, "is_ready", cases) == [False] * len(cases) == ours


@pytest.mark.parametrize("name", ["max_input_len", "max_batch_size", "max_kv_cache_capacity"])
def test_an_engine_of_another_profile_is_not_ready(
    name: str, nvidia_binary: NvidiaBinary, bundles: list[Built]
) -> None:
    other = {name: getattr(PROFILE, name) * 2}
    theirs = ask(nvidia_binary.site, "is_ready", [built.nvidia_case(**other) for built in bundles])
    assert theirs == [False] * len(bundles) == [built.ours(**other) for built in bundles]


def test_an_engine_of_another_method_is_not_ready(nvidia_binary: NvidiaBinary, bundles: list[Built]) -> None:
    cases, ours = [], []
    for built in bundles:
        if "llm" not in (checkpoint_components(built.model) or ()):
            continue
        for method in ("none", "eagle3", "mtp", "dflash", "jetspec", "dspark"):
            cases.append(built.nvidia_case(spec_type=method, draft_model_dir=""))
            ours.append(built.ours(spec_type=method))
    theirs = ask(nvidia_binary.site, "is_ready", cases)
    assert theirs == ours
    assert 0 < sum(theirs) < len(theirs)


def test_layouts_are_seen_alike(nvidia_binary: NvidiaBinary, bundles: list[Built]) -> None:
    seen = ask(nvidia_binary.site, "layout", [{"bundle_dir": str(built.bundle)} for built in bundles])
    for built, theirs in zip(bundles, seen, strict=True):
        layout = EngineLayout.inspect(built.bundle)
        assert (layout.engine_type, layout.has_speech) == (theirs["engine_type"], theirs["has_speech"])
        for component in ("visual", "audio", "talker", "code_predictor", "code2wav"):
            folder = layout.folder(component)
            assert (folder and folder.name) == theirs[f"{component}_dir"]


def test_in_flight_batching_is_refused_where_nvidias_server_refuses_it(
    nvidia_binary: NvidiaBinary, bundles: list[Built]
) -> None:
    cases = [{"bundle_dir": str(built.bundle), "model_type": built.kind.config["model_type"]} for built in bundles]
    verdicts = ask(nvidia_binary.site, "in_flight_refusal", cases)
    for built, theirs in zip(bundles, verdicts, strict=True):
        try:
            refuse_in_flight(EngineLayout.inspect(built.bundle), built.kind.config["model_type"])
        except ConfigError:
            assert theirs is not None, built.kind
        else:
            assert theirs is None, built.kind
    assert 0 < verdicts.count(None) < len(verdicts)


def test_what_was_compiled_is_read_back(bundles: list[Built]) -> None:
    for built in bundles:
        metadata = EngineMetadata.load(built.bundle)
        assert metadata.speculation.method == built.kind.spec_type
        if built.kind.name == "tts":
            assert metadata.max_input_len is None
            continue
        assert metadata.max_input_len == 512
        assert metadata.max_batch_size == 2
        assert metadata.max_kv_cache_capacity == 1024
        assert (metadata.max_image_tokens is not None) == ("visual" in built.kind.components)


def test_encoders_that_clone_voices_are_whole_by_the_names_that_the_builder_writes(
    nvidia_binary: NvidiaBinary, tmp_path: Path
) -> None:
    """NVIDIA's check looks for one config.json of two engines in one folder, and so never takes such a bundle."""
    kind = Kind("base", {"model_type": "qwen3_tts", "speaker_encoder_config": {}}, ())
    speech: Files = {"speech_tokenizer/config.json": {"encoder_config": {}}}
    write_files(tmp_path / "model", speech)
    built = build(nvidia_binary.site, kind, tmp_path)
    assert built.ours()
    assert ask(nvidia_binary.site, "is_ready", [built.nvidia_case()]) == [False]
    (built.bundle / "clone_encoders" / "speaker_encoder.engine").unlink()
    assert not built.ours()
