"""Tiny models as engine directories, each written once a session."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from tests.models.bundles import lowered_bundle_of
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_gguf import write_gguf
from tests.native.runtime_driver import BundleMaker


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> BundleMaker:
    """``tiny_bundle(variant, matrix_type)``: a directory with llm.gguf, written without the product's lowering."""

    @cache
    def make(variant: str, matrix_type: str = "F32") -> Path:
        directory = tmp_path_factory.mktemp(f"{variant}-{matrix_type}")
        write_gguf(directory / "llm.gguf", VARIANTS[variant], matrix_type)
        return directory

    return make


@pytest.fixture(scope="session")
def lowered_bundle(tmp_path_factory: pytest.TempPathFactory) -> BundleMaker:
    """``lowered_bundle(variant, quantisation)``: the variant's checkpoint through the product's lowering."""

    @cache
    def make(variant: str, quantisation: str) -> Path:
        folder = tmp_path_factory.mktemp(f"{variant}-{quantisation}")
        checkpoint = write_checkpoint(folder / variant, VARIANTS[variant])
        return lowered_bundle_of(checkpoint, folder / "bundle", quantisation).directory

    return make
