from __future__ import annotations

import random
import struct
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.models.tiny_checkpoints import VARIANTS
from tests.models.tiny_gguf import write_gguf
from tests.unit.engines.gguf_bytes import ARRAY, BOOL, F32, STRING, U32, GgufBytes, array, entry, number, string, tensor

from edgellm.engines.gguf_file import TensorType, read_gguf
from edgellm.errors import CheckpointError


def write(path: Path, content: bytes | GgufBytes) -> Path:
    path.write_bytes(content.build() if isinstance(content, GgufBytes) else content)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        read_gguf(path)
    return str(caught.value)


def test_metadata_and_tensors_equal_what_the_reference_reader_finds(pristine_gguf: Path) -> None:
    file, expected = read_gguf(pristine_gguf), gguf.GGUFReader(pristine_gguf)
    names = {tensor.name for tensor in expected.tensors}
    assert set(file.tensors) == names
    for one in expected.tensors:
        found = file.tensors[one.name]
        assert (found.offset_bytes, found.size_bytes) == (one.data_offset, one.n_bytes)
        assert list(found.shape) == one.shape.tolist()
        assert found.type == TensorType(one.tensor_type.value)
    for key, value in file.metadata.items():
        assert value == expected.fields[key].contents()
    assert file.header_bytes == expected.data_offset
    assert file.size_bytes == pristine_gguf.stat().st_size


def test_block_sizes_are_those_of_the_format() -> None:
    for kind in TensorType:
        assert (kind.block_elements, kind.block_bytes) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind.value)]


def test_every_scalar_kind_is_read(tmp_path: Path) -> None:
    kinds = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 10: "Q", 11: "q", 12: "d"}
    entries = [entry(f"k{kind}", kind, struct.pack(f"<{code}", 7)) for kind, code in kinds.items()]
    file = read_gguf(write(tmp_path / "f.gguf", GgufBytes([*entries, entry("flag", BOOL, b"\1")])))
    assert file.metadata == {**{f"k{kind}": 7 for kind in kinds}, "flag": True}


def test_typed_access_names_file_key_and_expectation(tmp_path: Path) -> None:
    entries = [
        number("count", 5),
        string("name", "x"),
        array("texts", STRING, 1, struct.pack("<Q", 1) + b"t"),
        array("numbers", U32, 2, struct.pack("<II", 1, 2)),
        entry("flag", BOOL, b"\0"),
    ]
    path = write(tmp_path / "f.gguf", GgufBytes(entries))
    file = read_gguf(path)
    assert (file.integer("count"), file.string("name"), file.boolean("flag")) == (5, "x", False)
    assert (file.strings("texts"), file.integers("numbers")) == (["t"], [1, 2])
    assert file.integer("absent") is file.string("absent") is file.strings("absent") is None
    with pytest.raises(CheckpointError, match=rf"{path}: name is not an integer"):
        file.integer("name")
    with pytest.raises(CheckpointError, match="flag is not an integer"):
        file.integer("flag")
    with pytest.raises(CheckpointError, match="count is 5, outside 6 to 9"):
        file.integer("count", 6, 9)
    with pytest.raises(CheckpointError, match="count is not a string"):
        file.string("count")
    with pytest.raises(CheckpointError, match="absent is missing"):
        file.require_string("absent")
    with pytest.raises(CheckpointError, match="texts is not an array of integers"):
        file.integers("texts")
    with pytest.raises(CheckpointError, match="count is not an array of strings"):
        file.strings("count")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "0 bytes are too few"),
        (b"GGUF" + bytes(10), "14 bytes are too few"),
        (GgufBytes(magic=b"GGML"), "not a GGUF file"),
        (GgufBytes(version=1), "version 1 is not supported"),
        (GgufBytes(version=4), "version 4 is not supported"),
        (GgufBytes(version=3 << 24), "big-endian"),
        (GgufBytes(entry_count=1 << 60), "metadata entries are more than"),
        (GgufBytes(tensor_count=1 << 60), "tensors are more than"),
        (GgufBytes(entry_count=5, alignment=1), "truncated"),
        (GgufBytes([string("a", "x"), string("a", "y")]), "a: the key occurs twice"),
        (GgufBytes([string("", "x")]), "a name of 0 bytes"),
        (GgufBytes([string(b"\xff", "x")]), "not UTF-8"),
        (GgufBytes([string("k", b"\xff\xfe")]), "k: text that is not UTF-8"),
        (GgufBytes([entry("k", STRING, struct.pack("<Q", 1 << 63))]), "k: the file ends here"),
        (GgufBytes([entry("k", 99, b"")]), "k: value kind 99 is unknown"),
        (GgufBytes([entry("k", BOOL, b"")], alignment=1), "k: the file ends here"),
        (GgufBytes([array("k", ARRAY, 1, b"")]), "k: arrays of arrays"),
        (GgufBytes([array("k", U32, 1 << 40, b"")]), "k: 1099511627776 array elements are more than"),
        (GgufBytes([array("k", U32, 1000, b"")]), "k: the file ends here"),
        (GgufBytes([array("k", STRING, 1000, b"")]), "k: the file ends in element"),
        (GgufBytes([array("k", STRING, 1, struct.pack("<Q", 2) + b"\xff\xff")]), "k: element 0 holds text that is not"),
        (GgufBytes([number("general.alignment", 0)]), "general.alignment is not a power of two"),
        (GgufBytes([number("general.alignment", 48)]), "general.alignment is not a power of two"),
        (GgufBytes([entry("general.alignment", F32, struct.pack("<f", 32))]), "general.alignment is not a power"),
        (GgufBytes(tensors=[tensor("t", [], 0, 0)]), "tensor t: 0 dimensions"),
        (GgufBytes(tensors=[tensor("t", [1] * 5, 0, 0)]), "tensor t: 5 dimensions"),
        (GgufBytes(tensors=[tensor("t", [0], 0, 0)]), "tensor t: impossible shape"),
        (GgufBytes(tensors=[tensor("t", [1 << 40, 1 << 40], 0, 0)]), "tensor t: impossible shape"),
        (GgufBytes(tensors=[tensor("t", [32], 77, 0)], data_bytes=128), "tensor t: tensor type 77"),
        (GgufBytes(tensors=[tensor("t", [33], 8, 0)], data_bytes=128), "not a whole number of Q8_0 blocks"),
        (GgufBytes(tensors=[tensor("t", [4], 0, 3)], data_bytes=128), "tensor t: offset 3 is not a multiple"),
        (GgufBytes(tensors=[tensor("t", [64], 0, 0)], data_bytes=255), "tensor t: its data ends at byte"),
        (GgufBytes(tensors=[tensor("t", [4], 0, 1 << 63)], data_bytes=64), "tensor t: its data ends at byte"),
        (GgufBytes(tensors=[tensor("t", [4], 0, 0)] * 2, data_bytes=64), "tensor t: the name occurs twice"),
        (
            GgufBytes(tensors=[tensor("t", [16], 0, 0), tensor("u", [16], 0, 32)], data_bytes=256),
            "tensor u: its data overlaps",
        ),
    ],
)
def test_each_inconsistency_is_refused_by_file_and_key(tmp_path: Path, content: bytes | GgufBytes, reason: str) -> None:
    path = write(tmp_path / "wrong.gguf", content)
    message = refusal(path)
    assert str(path) in message
    assert reason in message


def test_an_alignment_of_the_files_own_is_honoured(tmp_path: Path) -> None:
    content = GgufBytes([number("general.alignment", 128)], [tensor("t", [4], 0, 128)], data_bytes=144, alignment=128)
    assert read_gguf(write(tmp_path / "f.gguf", content)).tensors["t"].offset_bytes % 128 == 0


def test_a_file_cut_anywhere_is_refused(pristine_gguf: Path, tmp_path: Path) -> None:
    content = pristine_gguf.read_bytes()
    header_bytes = read_gguf(pristine_gguf).header_bytes
    cuts = [*range(200), *range(200, header_bytes, 97), *range(header_bytes, len(content), 4099), len(content) - 1]
    path = tmp_path / "cut.gguf"
    for cut in cuts:
        path.write_bytes(content[:cut])
        refusal(path)


def test_a_header_with_flipped_bytes_is_read_or_refused(pristine_gguf: Path, tmp_path: Path) -> None:
    content = bytearray(pristine_gguf.read_bytes())
    header_bytes = read_gguf(pristine_gguf).header_bytes
    random_source = random.Random(1)
    path = tmp_path / "flipped.gguf"
    refused = 0
    for _ in range(600):
        position = random_source.randrange(header_bytes)
        before = content[position]
        content[position] = random_source.randrange(256)
        path.write_bytes(content)
        content[position] = before
        try:
            read_gguf(path)
        except CheckpointError as error:
            refused += str(path) in str(error)
    assert refused > 0


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_arbitrary_bytes_after_the_magic_are_refused_without_a_crash(tmp_path: Path, content: bytes) -> None:
    path = write(tmp_path / "noise.gguf", b"GGUF\3\0\0\0" + content)
    try:
        file = read_gguf(path)
    except CheckpointError:
        return
    assert file.size_bytes == len(content) + 8


def test_all_tiny_variants_are_read(tmp_path: Path) -> None:
    for name in ("llama-llama3-rope", "mistral", "qwen2"):
        assert "token_embd.weight" in read_gguf(write_gguf(tmp_path / f"{name}.gguf", VARIANTS[name])).tensors
