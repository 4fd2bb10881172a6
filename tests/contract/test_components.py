"""The components of every family: ours equal those of NVIDIA's builder, whole checkpoints and partial ones."""

from __future__ import annotations

from pathlib import Path

from tests.contract.checkpoint_configs import variants_of, write_files
from tests.contract.nvidia_binary import NvidiaBinary
from tests.contract.nvidia_verdicts import ask

from edgellm.engines.tensorrt.components import BUILD_ORDER, checkpoint_components, in_build_order

# Checkpoints of one encoder or decoder without a model around it: no runtime serves them, so nothing asks for them.
PARTS = ("_vision", "_audio", "_talker", "_talker_text", "_code_predictor", "_code2wav", "_encoder")

# A driving policy, whose description the builder completes from the hub.
NOT_SERVED = ("alpamayo_r1",)


def test_every_family_has_the_components_that_nvidias_builder_finds(
    nvidia_binary: NvidiaBinary, tmp_path: Path
) -> None:
    (types,) = ask(nvidia_binary.site, "root_model_types", [{}])
    served = [name for name in types if not name.endswith(PARTS) and name not in NOT_SERVED]
    folders = [
        write_files(tmp_path / model_type / str(number), files)
        for model_type in served
        for number, files in enumerate(variants_of(model_type))
    ]
    verdicts = ask(nvidia_binary.site, "components", [{"model_dir": str(folder)} for folder in folders])
    for folder, verdict in zip(folders, verdicts, strict=True):
        theirs = tuple(name.replace("-", "_") for name in verdict) if isinstance(verdict, list) else verdict
        assert checkpoint_components(folder) == theirs, (folder, verdict)
        assert in_build_order(reversed(theirs)) == theirs
    assert {name for verdict in verdicts for name in verdict} <= {name.replace("_", "-") for name in BUILD_ORDER}


def test_parts_of_models_and_unknown_families_are_left_to_the_builder(
    nvidia_binary: NvidiaBinary, tmp_path: Path
) -> None:
    (types,) = ask(nvidia_binary.site, "root_model_types", [{}])
    for model_type in (*(name for name in types if name.endswith(PARTS)), *NOT_SERVED, "llama9"):
        folder = write_files(tmp_path / model_type, {"config.json": {"model_type": model_type}})
        assert checkpoint_components(folder) is None
    assert in_build_order(("later", "visual", "llm")) == ("llm", "visual", "later")
