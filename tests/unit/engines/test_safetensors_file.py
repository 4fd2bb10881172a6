from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.models.safetensors_writer import FloatArray, to_bfloat16_bits, write_safetensors

from edgellm.engines.safetensors_file import SafetensorsFile
from edgellm.errors import CheckpointError

F32_ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
NARROW = {"width": 32, "allow_nan": False, "allow_infinity": False, "allow_subnormal": True}


def raw_file(path: Path, header: object, data: bytes = bytes(16), header_length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if header_length is None else header_length
    path.write_bytes(length.to_bytes(8, "little") + text + data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        SafetensorsFile(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def values_of(path: Path, name: str, rows_per_block: int = 3) -> FloatArray:
    file = SafetensorsFile(path)
    return np.concatenate(list(file.rows(file.tensors[name], rows_per_block)))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("rows_per_block", [1, 3, 100])
def test_values_come_out_as_they_were_rounded(tmp_path: Path, dtype: str, rows_per_block: int) -> None:
    values = np.random.default_rng(1).standard_normal((7, 5)).astype(np.float32)
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"other": values[0], "weight": values}, dtype)
    rounded = {
        "f32": values,
        "f16": values.astype(np.float16).astype(np.float32),
        "bf16": (to_bfloat16_bits(values).astype(np.uint32) << 16).view(np.float32),
    }[dtype]
    np.testing.assert_array_equal(values_of(path, "weight", rows_per_block), rounded)
    np.testing.assert_array_equal(values_of(path, "other"), rounded[:1])


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 9)), elements=st.floats(**NARROW)))
def test_any_finite_values_survive(tmp_path: Path, values: FloatArray) -> None:
    path = tmp_path / "any.safetensors"
    write_safetensors(path, {"weight": values}, "f32")
    np.testing.assert_array_equal(values_of(path, "weight"), values)


def test_every_bfloat16_is_the_float_it_stands_for(tmp_path: Path) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    expected = (bits.astype(np.uint32) << 16).view(np.float32)
    finite = np.isfinite(expected)
    count = int(finite.sum())
    entry = {"t": {"dtype": "BF16", "shape": [count], "data_offsets": [0, 2 * count]}}
    path = raw_file(tmp_path / "bf16.safetensors", entry, bits[finite].astype("<u2").tobytes())
    np.testing.assert_array_equal(values_of(path, "t")[0], expected[finite])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_values_that_are_not_finite_are_refused_by_tensor(tmp_path: Path, value: float, dtype: str) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, {"weight": np.array([[1.0, value]], np.float32)}, dtype)
    with pytest.raises(CheckpointError, match="tensor weight: it holds values that are not finite"):
        values_of(path, "weight")


@pytest.mark.parametrize("dtype", ["F64", "I8", "F8_E4M3", "I64", "BOOL"])
def test_a_type_that_cannot_be_read_is_refused_when_it_is_used(tmp_path: Path, dtype: str) -> None:
    width = {"F64": 8, "I64": 8}.get(dtype, 1)
    entry = {"t": {"dtype": dtype, "shape": [16 // width], "data_offsets": [0, 16]}}
    path = raw_file(tmp_path / "f.safetensors", entry)
    with pytest.raises(CheckpointError, match=f"{path}: tensor t: type {dtype} cannot be read"):
        values_of(path, "t")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "its header is not JSON"),
        (b"[]", "not a JSON object"),
        (b"{", "its header is not JSON"),
        (b"\xff", "its header is not JSON"),
        (b"[" * 50_000, "its header is not JSON"),
        (b'{"t": 1, "t": 2}', "a name occurs twice"),
        ({"t": 3}, "tensor t: its entry is not an object"),
        ({"t": {**F32_ENTRY, "dtype": "Q4"}}, "tensor t: its type 'Q4' is unknown"),
        ({"t": {**F32_ENTRY, "dtype": None}}, "tensor t: its type 'None' is unknown"),
        ({"t": {**F32_ENTRY, "shape": [2, -2]}}, "tensor t: its shape is not"),
        ({"t": {**F32_ENTRY, "shape": [2, True]}}, "tensor t: its shape is not"),
        ({"t": {**F32_ENTRY, "shape": [1] * 9}}, "tensor t: its shape is not"),
        ({"t": {**F32_ENTRY, "shape": [2, 2.0]}}, "tensor t: its shape is not"),
        ({"t": {**F32_ENTRY, "shape": [2, 3]}}, "tensor t: 16 bytes of data do not fit its shape"),
        ({"t": {**F32_ENTRY, "shape": [1 << 61, 1 << 61]}}, "tensor t: 16 bytes of data do not fit"),
        ({"t": {**F32_ENTRY, "data_offsets": [0]}}, "tensor t: its data_offsets are not two numbers"),
        ({"t": {**F32_ENTRY, "data_offsets": [0, 17]}}, "tensor t: its data ends at byte"),
        ({"t": {**F32_ENTRY, "data_offsets": [0, 1 << 61]}}, "tensor t: its data ends at byte"),
        ({"t": {**F32_ENTRY, "data_offsets": [16, 0]}}, "tensor t: -16 bytes of data"),
        ({"t": F32_ENTRY, "u": F32_ENTRY}, "its data overlaps another tensor's"),
        ({"t": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}}, "tensor t: there is a gap before its data"),
        ({"t": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, "its tensors end at byte"),
        ({}, "its tensors end at byte"),
    ],
)
def test_each_inconsistency_is_refused_by_file_and_tensor(tmp_path: Path, header: Any, reason: str) -> None:
    assert reason in refusal(raw_file(tmp_path / "wrong.safetensors", header))


def test_a_header_that_claims_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wrong.safetensors"
    assert "over the format's" in refusal(raw_file(path, {}, header_length=1 << 62))
    assert "inside its header" in refusal(raw_file(path, {}, header_length=1000))
    path.write_bytes(b"\1")
    assert "too few" in refusal(path)


def test_a_pointer_of_git_lfs_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    assert "git lfs pull" in refusal(path)


def test_metadata_is_no_tensor(tmp_path: Path) -> None:
    path = raw_file(tmp_path / "f.safetensors", {"__metadata__": {"format": "pt"}, "t": F32_ENTRY})
    assert list(SafetensorsFile(path).tensors) == ["t"]


def test_a_file_cut_anywhere_is_refused(pristine_checkpoint: Path, tmp_path: Path) -> None:
    content = next(pristine_checkpoint.glob("*.safetensors")).read_bytes()
    path = tmp_path / "cut.safetensors"
    for cut in [*range(64), *range(64, len(content), 3001), len(content) - 1]:
        path.write_bytes(content[:cut])
        refusal(path)


def test_a_header_with_flipped_bytes_is_read_or_refused(pristine_checkpoint: Path, tmp_path: Path) -> None:
    source = next(pristine_checkpoint.glob("*.safetensors"))
    header_bytes = SafetensorsFile(source).header_bytes
    content = bytearray(source.read_bytes())
    random_source = random.Random(2)
    path = tmp_path / "flipped.safetensors"
    refused = 0
    for _ in range(600):
        position = random_source.randrange(header_bytes)
        before = content[position]
        content[position] = random_source.randrange(256)
        path.write_bytes(content)
        content[position] = before
        try:
            SafetensorsFile(path)
        except CheckpointError as error:
            refused += str(path) in str(error)
    assert refused > 300
