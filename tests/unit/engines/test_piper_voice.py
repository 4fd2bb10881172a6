"""Piper voices: which arguments name one, and what is wrong with one that cannot be spoken with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgellm.engines.piper_voice import is_piper_voice, resolve_piper_voice, voice_facts
from edgellm.errors import CheckpointError, ModelSourceError

CONFIG: dict[str, Any] = {"audio": {"sample_rate": 22_050}, "phoneme_type": "espeak", "espeak": {"voice": "en-us"}}


def write_voice(folder: Path, name: str = "en_US-ann-low", **changes: Any) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.onnx.json").write_text(json.dumps({**CONFIG, **changes}))
    (folder / f"{name}.onnx").write_bytes(b"weights")
    return folder / f"{name}.onnx"


def test_a_file_a_folder_and_a_catalogue_s_name_are_voices(tmp_path: Path) -> None:
    weights = write_voice(tmp_path / "one")
    for argument in (weights, weights.parent):
        assert is_piper_voice(str(argument))
        source = resolve_piper_voice(str(argument), tmp_path)
        assert (source.weights, source.model_id) == (weights, "en_US-ann-low")
    assert is_piper_voice("voice")


def test_other_things_are_no_voices(tmp_path: Path) -> None:
    weights = write_voice(tmp_path / "two")
    write_voice(tmp_path / "two", "de_DE-ben-low")
    lone = tmp_path / "lone.onnx"
    lone.write_bytes(b"weights")
    for argument in (weights.parent, lone, tmp_path, tmp_path / "none", "whisper-tiny.en", "\0", "x" * 5000):
        assert not is_piper_voice(str(argument))
        with pytest.raises(ModelSourceError):
            resolve_piper_voice(str(argument), tmp_path)
    assert is_piper_voice(str(weights)), "a file of several is named itself"


def test_a_catalogue_s_voice_that_is_not_here_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelSourceError, match="run: edgellm models add voice"):
        resolve_piper_voice("voice", tmp_path, download=False)


def test_a_voice_is_known_by_its_file_s_name(tmp_path: Path) -> None:
    facts = voice_facts(resolve_piper_voice(str(write_voice(tmp_path)), tmp_path))
    assert (facts.name, facts.language, facts.rate_hz, facts.speakers) == ("ann", "en_US", 22_050, {})
    other = write_voice(tmp_path / "other", "mine", language={"code": "fr_FR"}, speaker_id_map={"a": 0, "b": 1})
    facts = voice_facts(resolve_piper_voice(str(other), tmp_path))
    assert (facts.name, facts.language, facts.speakers) == ("mine", "fr_FR", {"a": 0, "b": 1})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"phoneme_type": "pinyin"}, "phoneme_type"),
        ({"audio": {}}, "sample_rate"),
        ({"audio": {"sample_rate": True}}, "sample_rate"),
        ({"audio": {"sample_rate": 7_999}}, "sample_rate"),
        ({"audio": {"sample_rate": 48_001}}, "sample_rate"),
        ({"audio": 3}, "sample_rate"),
        ({"speaker_id_map": {"a": -1}}, "speaker_id_map"),
        ({"speaker_id_map": {"a": "0"}}, "speaker_id_map"),
        ({"speaker_id_map": {str(number): number for number in range(4097)}}, "speaker_id_map"),
    ],
)
def test_a_configuration_that_cannot_be_spoken_with_is_named(
    tmp_path: Path, changes: dict[str, Any], says: str
) -> None:
    source = resolve_piper_voice(str(write_voice(tmp_path, **changes)), tmp_path)
    with pytest.raises(CheckpointError, match=rf"ann-low\.onnx\.json: .*{says}"):
        voice_facts(source)


def test_a_configuration_that_is_no_json_is_named(tmp_path: Path) -> None:
    weights = write_voice(tmp_path)
    weights.with_name("en_US-ann-low.onnx.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"ann-low\.onnx\.json"):
        resolve_piper_voice(str(weights), tmp_path)
