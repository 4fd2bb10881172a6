"""Which runtime is taken, and what is said when none can be."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgellm.engines.source import ModelSource, SourceKind
from edgellm.errors import EdgeLLMError, RuntimeUnavailableError
from edgellm.runtime.modules import runtime_for, select_runtime

Installer = Callable[..., None]

ERRORS = """
class NativeRuntimeError(RuntimeError): pass
class NativeDetectionError(NativeRuntimeError): pass
class TensorRTDependencyError(NativeDetectionError): pass
class NativeSelectionError(NativeRuntimeError): pass
class NativeManifestError(NativeSelectionError): pass
class NativeManifestNotFoundError(NativeManifestError): pass
class NativeLoadError(NativeRuntimeError): pass
"""
LOADS = "import types\ndef load(): return types.ModuleType('payload')\n"


def error_classes() -> set[type[EdgeLLMError]]:
    found, new = set(), {EdgeLLMError}
    while new:
        found |= new
        new = {below for kind in new for below in kind.__subclasses__()} - found
    return found


def raising(error: str, message: str = "the cause") -> str:
    return f"{ERRORS}\ndef load(): raise {error}({message!r})\n"


@pytest.fixture(autouse=True)
def nvidia_packages_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("EDGELLM_PLUGIN_PATH", raising=False)
    yield
    for name in list(sys.modules):
        if name.partition(".")[0] in ("tensorrt_edgellm", "experimental", "_edgellm_runtime"):
            del sys.modules[name]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installer:
    """``install(runtime=source, **packages)``: a package that looks like NVIDIA's from outside."""

    def write(runtime: str = "", *, extension: str = "", builder: str = "") -> None:
        site = tmp_path / "site"
        package = site / "tensorrt_edgellm"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        if runtime:
            (package / "runtime.py").write_text(runtime)
        if extension:
            (package / "_edgellm_runtime.py").write_text(extension)
        if builder:
            folder = site.joinpath(*builder.split("."))
            folder.mkdir(parents=True)
            (folder / "__init__.py").write_text("")
            (folder.parent / "__init__.py").touch()
        monkeypatch.syspath_prepend(str(site))

    return write


@pytest.fixture
def no_device_file(tmp_path: Path) -> Path:
    return tmp_path / "absent.json"


@pytest.fixture
def jetson(tmp_path: Path) -> Path:
    path = tmp_path / "device.json"
    path.write_text('{"module": "Orin NX 16GB", "l4t": "R39.2"}')
    return path


def test_without_nvidias_package_auto_takes_the_native_runtime_and_says_why(no_device_file: Path) -> None:
    selected = select_runtime("auto", device_file=no_device_file)
    assert selected.kind == "native"
    assert "not installed" in selected.reason
    assert selected.module.__name__ == "edgellm._native"


def test_the_native_runtime_comes_with_a_guidance_library(no_device_file: Path) -> None:
    library = select_runtime("native", device_file=no_device_file).guidance_library
    assert Path(library).is_file()


def test_auto_takes_tensorrt_where_its_payload_loads(install: Installer, no_device_file: Path) -> None:
    install(LOADS)
    selected = select_runtime("auto", device_file=no_device_file)
    assert (selected.kind, selected.module.__name__) == ("tensorrt", "payload")


@pytest.mark.parametrize("builder", ["tensorrt_edgellm.builder", "experimental.builder"])
def test_both_layouts_of_the_builder_are_known(builder: str, install: Installer, no_device_file: Path) -> None:
    install(LOADS, builder=builder)
    assert select_runtime("auto", device_file=no_device_file).builder == builder


def test_the_announced_layout_wins_over_the_old_one(install: Installer, no_device_file: Path, tmp_path: Path) -> None:
    install(LOADS, builder="experimental.builder")
    announced = tmp_path / "site" / "tensorrt_edgellm" / "builder"
    announced.mkdir()
    (announced / "__init__.py").write_text("")
    assert select_runtime("auto", device_file=no_device_file).builder == "tensorrt_edgellm.builder"


@pytest.mark.parametrize("error", ["NativeDetectionError", "NativeSelectionError"])
def test_a_machine_without_a_supported_gpu_falls_back_to_the_cpu(
    error: str, install: Installer, no_device_file: Path
) -> None:
    install(raising(error, "no CUDA device is\nvisible."))
    selected = select_runtime("auto", device_file=no_device_file)
    assert selected.kind == "native"
    assert selected.reason == "no TensorRT: no CUDA device is visible"


@pytest.mark.parametrize("error", ["TensorRTDependencyError", "NativeManifestError", "NativeLoadError", "ValueError"])
def test_a_broken_installation_is_never_papered_over(error: str, install: Installer, no_device_file: Path) -> None:
    install(raising(error))
    with pytest.raises(RuntimeUnavailableError, match=r"cannot be loaded: the cause\. Repair it, or set runtime"):
        select_runtime("auto", device_file=no_device_file)


@pytest.mark.parametrize("runtime", [raising("NativeManifestNotFoundError"), "import no_such_module_anywhere\n", ""])
def test_without_a_manifest_the_extension_of_a_source_build_is_tried(
    runtime: str, install: Installer, no_device_file: Path
) -> None:
    install(runtime, extension="origin = 'source build'\n")
    selected = select_runtime("auto", device_file=no_device_file)
    assert selected.kind == "tensorrt"
    assert selected.module.origin == "source build"


@pytest.mark.parametrize("runtime", ["", raising("NativeDetectionError"), raising("NativeManifestNotFoundError")])
def test_a_declared_jetson_never_falls_back_to_the_cpu(runtime: str, install: Installer, jetson: Path) -> None:
    install(runtime)
    with pytest.raises(RuntimeUnavailableError, match=r"device\.json declares a Jetson \(Orin NX 16GB\), and TensorRT"):
        select_runtime("auto", device_file=jetson)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"module": 3}'])
def test_a_device_file_that_says_nothing_useful_still_declares_a_jetson(content: str, tmp_path: Path) -> None:
    path = tmp_path / "device.json"
    path.write_text(content)
    with pytest.raises(RuntimeUnavailableError, match="declares a Jetson, and TensorRT"):
        select_runtime("auto", device_file=path)


def test_a_declared_jetson_runs_on_the_cpu_when_told_so(jetson: Path) -> None:
    assert select_runtime("native", device_file=jetson).kind == "native"


def test_a_gguf_file_runs_on_the_native_runtime_where_auto_took_tensorrt(
    install: Installer, no_device_file: Path, jetson: Path, tmp_path: Path
) -> None:
    install(LOADS)
    gguf = ModelSource(SourceKind.GGUF, tmp_path / "m.gguf", "m")
    checkpoint = ModelSource(SourceKind.SAFETENSORS, tmp_path / "m", "m")
    selected = select_runtime("auto", device_file=no_device_file)
    native = runtime_for("auto", selected, gguf, device_file=no_device_file)
    assert (native.kind, native.reason) == ("native", "TensorRT Edge-LLM reads no GGUF files")
    assert native.module.__name__ == "edgellm._native"
    assert runtime_for("auto", selected, checkpoint, device_file=no_device_file) is selected
    # What was asked for, or a board whose GPU is what it is for, is never left for the CPU silently.
    assert runtime_for("tensorrt", selected, gguf, device_file=no_device_file) is selected
    assert runtime_for("auto", selected, gguf, device_file=jetson) is selected


def test_tensorrt_on_demand_never_falls_back_to_the_cpu(install: Installer, no_device_file: Path) -> None:
    install(raising("NativeSelectionError"))
    with pytest.raises(RuntimeUnavailableError, match="runtime is set to tensorrt, and TensorRT Edge-LLM cannot run"):
        select_runtime("tensorrt", device_file=no_device_file)


def test_a_failure_ends_a_service_with_a_code_of_its_own(no_device_file: Path) -> None:
    with pytest.raises(RuntimeUnavailableError) as failure:
        select_runtime("tensorrt", device_file=no_device_file)
    assert failure.value.exit_code == 68
    others = [kind.exit_code for kind in error_classes() if not issubclass(kind, RuntimeUnavailableError)]
    assert 68 not in others


def test_a_source_build_needs_its_plugin(tmp_path: Path, no_device_file: Path) -> None:
    (tmp_path / "_edgellm_runtime.so").write_bytes(b"")
    with pytest.raises(RuntimeUnavailableError, match="set EDGELLM_PLUGIN_PATH"):
        select_runtime("tensorrt", device_file=no_device_file, environment={"EDGELLM_PYBIND_DIR": str(tmp_path)})


@pytest.mark.parametrize("preset", ["", "/plugins/own.so"])
def test_a_preset_plugin_path_is_honoured(
    preset: str, tmp_path: Path, no_device_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "_edgellm_runtime.so").write_bytes(b"")
    plugin = tmp_path / "libNvInfer_edgellm_plugin.so"
    plugin.write_bytes(b"")
    monkeypatch.setenv("EDGELLM_PLUGIN_PATH", preset)
    with pytest.raises(RuntimeUnavailableError, match=r"_edgellm_runtime\.so cannot be loaded"):
        select_runtime("tensorrt", device_file=no_device_file, environment={"EDGELLM_PYBIND_DIR": str(tmp_path)})
    assert os.environ["EDGELLM_PLUGIN_PATH"] == (preset or str(plugin))


def test_a_folder_without_an_extension_is_named(tmp_path: Path, no_device_file: Path) -> None:
    with pytest.raises(RuntimeUnavailableError, match=r"EDGELLM_PYBIND_DIR: .* holds no _edgellm_runtime"):
        select_runtime("tensorrt", device_file=no_device_file, environment={"EDGELLM_PYBIND_DIR": str(tmp_path)})
