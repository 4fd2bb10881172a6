"""Bundle check: whether a build made all that the model owns, for the profile and the checkpoint that were asked."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from edgellm.engines.build_profile import BuildProfile
from edgellm.engines.json_file import Fields, read_object
from edgellm.engines.tensorrt.engine_metadata import MAX_CONFIG_BYTES
from edgellm.engines.tensorrt.layout import FILES_BY_COMPONENT, bundle_components, check_layout
from edgellm.engines.tensorrt.speculation import NO_METHOD
from edgellm.errors import BundleDamagedError, BundleMismatchError

IDENTITY = "checkpoint_identity"
_COMPILED = ("max_input_len", "max_kv_cache_capacity", "max_batch_size")
_MAIN_ROLES = ("llm", "dllm", "base")


def check_build(root: Path, model_components: Iterable[str], profile: BuildProfile) -> tuple[str, ...]:
    """Give the components of the bundle, all of them whole and as asked.

    Raises BundleDamagedError for what is missing, BundleMismatchError for what is compiled otherwise.
    """
    components = bundle_components(model_components, speculative=profile.spec_type != NO_METHOD)
    check_layout(root, components)
    paths = [root / FILES_BY_COMPONENT[name].config for name in components]
    configs = [(path, read_object(path, MAX_CONFIG_BYTES)) for path in paths]
    path, main = _main_config(root, configs)
    compiled = Fields(path, Fields(path, main).mapping("builder_config"), "builder_config.")
    for name in _COMPILED:
        asked = getattr(profile, name)
        if compiled.values.get(name) != asked:
            raise BundleMismatchError(
                f"{path}: compiled for {name} {compiled.values.get(name)}, and {asked} was asked — build it again"
            )
    method = main.get("spec_decode_type", NO_METHOD)
    if profile.spec_type not in (NO_METHOD, method):
        raise BundleMismatchError(
            f"{path}: compiled for the speculative method {method}, and {profile.spec_type} was asked — build it again"
        )
    if not any(IDENTITY in config for _, config in configs):
        raise BundleDamagedError(f"{path}: no {IDENTITY}, so nothing ties the engines to the checkpoint's weights")
    return components


def _main_config(root: Path, configs: list[tuple[Path, dict[str, Any]]]) -> tuple[Path, dict[str, Any]]:
    for path, config in configs:
        compiled = config.get("builder_config")
        if config.get("engine_role") in _MAIN_ROLES and isinstance(compiled, dict) and "max_input_len" in compiled:
            return path, config
    raise BundleDamagedError(f"{root}: no configuration says what its engines were compiled for")
