"""Where NVIDIA's published module comes from, and what is said where it cannot come from anywhere."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
from tests.contract.nvidia_binary import NotFetchedError, cache_folder, fetch, unsupported_reason


@pytest.mark.parametrize("version", [(3, 9, 1), (3, 13, 0), (3, 14, 0)])
def test_a_python_without_a_wheel_is_named(version: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    assert unsupported_reason().startswith("tensorrt-edgellm has no wheel for cpython")


@pytest.mark.parametrize("version", [(3, 10, 1), (3, 11, 0), (3, 12, 9)])
def test_another_system_is_named(version: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert unsupported_reason().endswith("no CPU-loadable payload for linux aarch64")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.31"))
    assert unsupported_reason() == "tensorrt-edgellm needs glibc 2.35, not glibc 2.31"
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    assert "not another C library" in unsupported_reason()
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.39"))
    assert unsupported_reason() == ""


def test_the_cache_can_be_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGELLM_TEST_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("EDGELLM_TEST_CACHE")
    assert cache_folder().is_relative_to(Path.home())


@pytest.mark.skipif(bool(unsupported_reason()), reason="nothing is fetched here")
def test_a_failed_download_is_told_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_INPUT": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    with pytest.raises(NotFetchedError, match="pip could not fetch tensorrt-edgellm"):
        fetch(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
