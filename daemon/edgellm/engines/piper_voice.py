"""Piper voices: the two files that are one, and where a model argument finds them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from edgellm.engines.catalogue import CATALOGUE, file_path, install, locate
from edgellm.engines.json_file import read_object
from edgellm.engines.progress import ProgressCallback, ignore_progress
from edgellm.engines.source import not_here
from edgellm.errors import CheckpointError, ModelSourceError

WEIGHTS_SUFFIX: Final = ".onnx"
CONFIG_SUFFIX: Final = ".onnx.json"
CONFIG_BYTES_MAX: Final = 4 << 20
SPEAKERS_MAX: Final = 4096
RATE_HZ_MIN: Final = 8_000
RATE_HZ_MAX: Final = 48_000
# Others need files that Piper downloads when they are first asked for something.
_PHONEME_TYPES: Final = ("espeak", "text")


@dataclass(frozen=True, slots=True)
class PiperSource:
    """``config`` is what lies beside the weights, as it is."""

    weights: Path
    model_id: str
    config: dict[str, Any]


@dataclass(frozen=True, slots=True)
class VoiceFacts:
    """``speakers`` are numbers in the model by their names; empty for a voice of one speaker."""

    name: str
    language: str
    rate_hz: int
    speakers: dict[str, int]


def is_piper_voice(model: str) -> bool:
    """Whether the argument names a catalogue's voice, a voice's file, or a folder that holds just one."""
    entry = CATALOGUE.get(model)
    if entry is not None:
        return entry.kind == "tts"
    try:
        return _weights_at(Path(model).expanduser()) is not None
    except (OSError, ValueError):
        return False


def resolve_piper_voice(
    model: str, models_dir: Path, *, download: bool = True, on_progress: ProgressCallback = ignore_progress
) -> PiperSource:
    """The voice that ``model`` names; a catalogue's is fetched where ``download`` allows it.

    Raises ModelSourceError, or CheckpointError for a configuration that cannot be read.
    """
    entry = CATALOGUE.get(model)
    if entry is not None and entry.kind != "tts":
        raise ModelSourceError(f'{model} is no voice — leave kind = "tts" out')
    if entry is not None:
        if locate(model, models_dir) is None:
            if not download:
                raise ModelSourceError(not_here(model, models_dir))
            install(entry, models_dir, on_progress)
        weights = file_path(entry, models_dir)
        return PiperSource(weights, model, _config_beside(weights))
    try:
        found = _weights_at(Path(model).expanduser())
    except (OSError, ValueError):
        found = None
    if found is None:
        known = ", ".join(entry.name for entry in CATALOGUE.values() if entry.kind == "tts")
        raise ModelSourceError(
            f"{model}: no voice of the catalogue (known: {known}), nor a Piper voice — give its {WEIGHTS_SUFFIX} file "
            f"with the {CONFIG_SUFFIX} file beside it, or a folder that holds one voice"
        )
    weights = found.resolve()
    return PiperSource(weights, weights.stem, _config_beside(weights))


def voice_facts(source: PiperSource) -> VoiceFacts:
    """Raises CheckpointError for a voice that cannot be spoken with."""
    config, path = source.config, _config_path(source.weights)
    if config.get("phoneme_type", "espeak") not in _PHONEME_TYPES:
        raise CheckpointError(f"{path}: phoneme_type must be {' or '.join(_PHONEME_TYPES)}: others need further models")
    rate_hz = _object(config, "audio").get("sample_rate")
    if type(rate_hz) is not int or not RATE_HZ_MIN <= rate_hz <= RATE_HZ_MAX:
        raise CheckpointError(f"{path}: audio.sample_rate must be {RATE_HZ_MIN} to {RATE_HZ_MAX} Hz")
    speakers = _object(config, "speaker_id_map")
    if len(speakers) > SPEAKERS_MAX or not all(type(number) is int and number >= 0 for number in speakers.values()):
        raise CheckpointError(f"{path}: speaker_id_map must have at most {SPEAKERS_MAX} names, with a number each")
    # en_US-joe-medium: language, speaker, quality.
    language, _, rest = source.weights.stem.partition("-")
    code = _object(config, "language").get("code")
    return VoiceFacts(
        name=rest.rpartition("-")[0] or source.weights.stem,
        language=code if isinstance(code, str) else language if rest else "",
        rate_hz=rate_hz,
        speakers=speakers if len(speakers) > 1 else {},
    )


def _weights_at(path: Path) -> Path | None:
    """None where there is no voice, or several."""
    candidates = [path] if path.is_file() else sorted(path.glob(f"*{WEIGHTS_SUFFIX}")) if path.is_dir() else []
    whole = [each for each in candidates if each.suffix == WEIGHTS_SUFFIX and _config_path(each).is_file()]
    return whole[0] if len(whole) == 1 else None


def _config_path(weights: Path) -> Path:
    return weights.with_name(f"{weights.stem}{CONFIG_SUFFIX}")


def _config_beside(weights: Path) -> dict[str, Any]:
    return read_object(_config_path(weights), CONFIG_BYTES_MAX)


def _object(config: dict[str, Any], name: str) -> dict[str, Any]:
    value = config.get(name)
    return value if isinstance(value, dict) else {}
