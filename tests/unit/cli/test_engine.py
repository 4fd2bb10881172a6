from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.models.tiny_checkpoints import VARIANTS, write_checkpoint
from tests.models.tiny_gguf import write_gguf

from edgellm.cli.main import main
from edgellm.errors import RuntimeUnavailableError
from edgellm.runtime import modules
from edgellm.runtime.modules import SelectedRuntime


@dataclass
class Command:
    cache: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str, code: int = 0) -> str:
        """Standard output; the exit code must be ``code``. Standard error where it is not 0."""
        self.capsys.readouterr()
        assert main(["engine", *words, "--cache-dir", str(self.cache)]) == code
        captured = self.capsys.readouterr()
        return captured.err if code else captured.out

    def json(self, *words: str, code: int = 0) -> Any:
        self.capsys.readouterr()
        assert main(["engine", *words, "--json", "--cache-dir", str(self.cache)]) == code
        return json.loads(self.capsys.readouterr().out)


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "little.gguf", VARIANTS["llama"], "Q8_0")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny", VARIANTS["llama"])


@pytest.fixture
def engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(tmp_path / "cache", capsys)


def test_a_key_is_named_by_four_digits_or_more(engine: Command, gguf: Path) -> None:
    (built,) = engine.json("build", str(gguf), "--runtime", "native")
    assert len(built["key"]) == 64
    for digits in (4, 16, 17, 64):
        assert built["name"] in engine("show", built["key"][:digits])
    assert "there is no engine" in engine("show", built["key"] + "0", code=64)
    for action in ("show", "pin"):
        said = engine(action, built["key"][:3], code=64)
        assert "give its name, or at least 4 digits of its key" in said
    assert "see edgellm engine list" in engine("show", "no-such-engine", code=64)


def test_what_is_there_and_cannot_be_read_is_explained(engine: Command, gguf: Path) -> None:
    words = (str(gguf), "--runtime", "native")
    (built,) = engine.json("build", *words)
    path = Path(built["folder"]) / "manifest.json"
    whole = path.read_text()
    for content, said in (
        (whole.replace('"schema_version": 1', '"schema_version": 99'), "written by a newer edgellm — upgrade, or"),
        ("{", "the next build replaces it"),
    ):
        path.write_text(content)
        (answer,) = engine.json("explain", *words)
        assert (answer["outcome"], answer["engine"]) == ("damaged", None)
        (problem,) = answer["problems"]
        assert str(path) in problem
        assert said in problem
        assert problem in engine("explain", *words)
    path.write_text(whole)
    (answer,) = engine.json("explain", *words)
    assert (answer["outcome"], answer["problems"]) == ("hit", [])


def test_where_auto_takes_tensorrt_a_gguf_file_is_still_built_for_the_native_runtime(
    engine: Command, gguf: Path, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selected = SelectedRuntime("tensorrt", ModuleType("payload"), "a test")
    monkeypatch.setattr(modules, "select_runtime", lambda _choice: selected)
    monkeypatch.setenv("EDGELLM_DEVICE_FILE", str(tmp_path / "absent.json"))
    (built,) = engine.json("build", str(gguf))
    assert built["runtime"] == "native"
    assert engine.json("explain", str(gguf))[0]["outcome"] == "hit"
    assert "tensorrt" in engine("build", str(checkpoint), code=RuntimeUnavailableError.exit_code)


def test_an_engine_is_built_listed_shown_verified_and_removed(engine: Command, gguf: Path) -> None:
    (built,) = engine.json("build", str(gguf), "--runtime", "native", "--pin")
    assert (built["model"], built["runtime"], built["pinned"]) == ("little", "native", True)
    (listed,) = engine.json("list")
    assert listed == {**built, "loaded": False}
    name = built["name"]
    assert name in engine("list")
    assert "pinned" in engine("list")
    shown = engine.json("show", name)
    assert shown["key"]["digest"] == built["key"]
    assert shown["files"]["llm.gguf"]["size_bytes"] == gguf.stat().st_size
    assert "profile.quantisation" in engine("show", built["key"][:6])
    assert engine.json("verify") == [{"name": name, "problems": [], "made_by_newer": False}]
    pruned = engine.json("prune", "--to-gb", "0")
    assert pruned == {"removed": [], "kept": {name: "pinned"}, "removed_checkpoints": {}, "freed_bytes": 0}
    engine("unpin", name)
    assert f"removed {name}" in engine("prune", "--to-gb", "0")
    assert engine.json("list") == []
    assert engine("list") == ""


def test_a_damaged_engine_has_an_exit_code_of_its_own(engine: Command, gguf: Path) -> None:
    (built,) = engine.json("build", str(gguf), "--runtime", "native")
    path = Path(built["folder"]) / "llm.gguf"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    ((entry),) = engine.json("verify", code=65)
    assert entry["problems"][0].startswith(f"{path}: its SHA-256 is not that of its manifest")
    assert engine.json("clear", built["name"])["removed"][0]["name"] == built["name"]


def test_an_engine_of_a_newer_edgellm_is_not_called_damaged(
    engine: Command, gguf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (built,) = engine.json("build", str(gguf), "--runtime", "native")
    path = Path(built["folder"]) / "manifest.json"
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 99'))
    (entry,) = engine.json("verify", code=65)
    assert entry["made_by_newer"] is True
    assert "schema_version is 99" in entry["problems"][0]
    assert main(["engine", "verify", "--cache-dir", str(engine.cache)]) == 65
    assert f"{built['name']}  made by a newer edgellm\n" in capsys.readouterr().out
    assert "schema_version is 99" in engine("show", built["name"], code=65)


def test_explain_tells_miss_and_hit_and_the_differing_inputs(engine: Command, checkpoint: Path) -> None:
    model = (str(checkpoint), "--runtime", "native")
    (answer,) = engine.json("explain", *model)
    assert (answer["outcome"], answer["nearest"], answer["engine"]) == ("miss", None, None)
    assert answer["inputs"]["profile.quantisation"] == "q8_0"
    assert "no engine is here that could be compared" in engine("explain", *model)
    (built,) = engine.json("build", *model)
    (answer,) = engine.json("explain", *model)
    assert (answer["outcome"], answer["engine"], answer["key"]) == ("hit", built["folder"], built["key"])
    assert answer["problems"] == []
    (answer,) = engine.json("explain", *model, "--quantisation", "f16")
    assert answer["outcome"] == "miss"
    assert answer["nearest"] == {
        "engine": built["folder"],
        "differences": [{"input": "profile.quantisation", "wanted": "f16", "there": "q8_0"}],
    }
    text = engine("explain", *model, "--quantisation", "f16")
    assert text.startswith("MISS")
    assert "f16   <- q8_0 in the nearest" in text
    (Path(built["folder"]) / "config.json").write_text("{}")
    (answer,) = engine.json("explain", *model)
    assert answer["outcome"] == "damaged"
    assert "config.json" in answer["problems"][0]


def test_explain_tells_what_an_upgrade_makes_stale(engine: Command, checkpoint: Path) -> None:
    model = (str(checkpoint), "--runtime", "native")
    (built,) = engine.json("build", *model)
    (answer,) = engine.json("explain", *model, "--as-of", "lowering_version=9")
    assert answer["outcome"] == "miss"
    stale = {"input": "platform.lowering_version", "wanted": 9, "there": 1}
    assert answer["nearest"]["differences"] == [stale]
    assert engine.json("explain", "--as-of", "lowering_version=9") == [
        {"engine": built["name"], "stale": True, "differences": [stale]}
    ]
    assert engine.json("explain", "--as-of", "lowering_version=1") == [
        {"engine": built["name"], "stale": False, "differences": []}
    ]
    assert engine("explain", "--as-of", "lowering_version=9").startswith(f"STALE   {built['name']}")
    assert "usable" in engine("explain", "--as-of", "lowering_version=1")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("show", "nothing"), 64, "there is no engine 'nothing' — see edgellm engine list"),
        (("explain", "--as-of", "lowering_version"), 64, "give NAME=VALUE"),
        (("prune", "--to-gb", "-1"), 64, "--to-gb must be a number of at least 0"),
        (("prune", "--to-gb", "nan"), 64, "--to-gb must be a number of at least 0"),
        (("build", "/nowhere/model"), 66, "/nowhere/model: no such file or directory"),
        (("list", "--engine-cache-max-size-gb", "0"), 78, "engines.cache_max_size_gb must be greater than 0"),
    ],
)
def test_wrong_words_are_told_in_one_line(engine: Command, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in engine(*words, code=code)


def test_platform_values_are_checked(engine: Command, checkpoint: Path) -> None:
    model = (str(checkpoint), "--runtime", "native")
    engine("build", *model)
    assert "'sm' is no platform value" in engine("explain", *model, "--as-of", "sm=87", code=78)
    assert "no engine here depends on such a value" in engine("explain", "--as-of", "sm=87", code=64)
    assert "must be a whole number" in engine("explain", "--as-of", "lowering_version=x", code=78)


def test_the_configured_models_are_meant_when_none_is_named(
    engine: Command, gguf: Path, checkpoint: Path, tmp_path: Path
) -> None:
    config = tmp_path / "edgellm.toml"
    config.write_text(
        f'[[models]]\nsource = "{gguf}"\nruntime = "native"\n'
        f'[[models]]\nsource = "{checkpoint}"\nruntime = "native"\nquantisation = "f16"\n'
    )
    built = engine.json("build", "--config", str(config))
    assert [entry["model"] for entry in built] == ["little", "tiny"]
    assert engine.json("show", built[1]["name"])["key"]["inputs"]["profile.quantisation"] == "f16"


def test_an_ambiguous_key_names_its_candidates(engine: Command, gguf: Path, checkpoint: Path) -> None:
    (one,) = engine.json("build", str(gguf), "--runtime", "native")
    other = Path(one["folder"]).with_name(f"other-{one['key'][:15]}{'0' if one['key'][15] != '0' else '1'}")
    other.mkdir()
    (other / "manifest.json").write_text("{}")
    assert f"may be {one['name']} or {other.name}" in engine("show", one["key"][:8], code=64)
    assert "unreadable" in engine("list")
    assert "schema_version" in engine("show", other.name, code=65)


def test_explain_tells_of_every_model_also_where_files_of_one_are_absent(
    engine: Command, gguf: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = tmp_path / "gone.gguf"
    config = tmp_path / "edgellm.toml"
    config.write_text(f'[[models]]\nname = "a"\nsource = "{gone}"\n[[models]]\nname = "b"\nsource = "{gguf}"\n')
    words = ("explain", "--config", str(config))
    absent, there = engine.json(*words, code=66)
    assert (absent["outcome"], absent["key"], absent["engine"]) == ("unknown", None, None)
    assert str(gone) in absent["problems"][0]
    assert (there["outcome"], len(there["key"])) == ("miss", 64)
    assert str(gone) in engine(*words, code=66)
    # What is wanted has a name before its files are there, and keeps it.
    assert len({absent["wanted"], there["wanted"]}) == 2
    write_gguf(gone, VARIANTS["llama"], "Q8_0")
    assert engine.json(*words)[0]["wanted"] == absent["wanted"]
