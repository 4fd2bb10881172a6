"""PiperSpeaker: a Piper voice, on the CPU through ONNX Runtime.

Piper is under the GPL, so nothing here imports it before a voice is loaded: under ``edgellm serve`` that is in a
worker process of the voice's own.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from edgellm.engines.piper_voice import PiperSource, voice_facts
from edgellm.errors import CheckpointError, RequestError, RuntimeUnavailableError
from edgellm.media.speech_encoder import Resampler, Samples
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.capabilities import Speech, Voice, capabilities_of_sound
from edgellm.runtime.generation import SpeechPrompt
from edgellm.runtime.speech_front_end import SPEECH_INPUT_CHARACTERS_MAX, check_speech_prompt

# A sentence is spoken at once, and a longer one in parts: memory grows with the sound of a part. Of this many phonemes
# it is five seconds, more where it is slow, for which parts are shorter.
PHONEMES_AT_ONCE_MAX: Final = 120
# The first sound is waited for: a long first sentence begins with its first clause.
FIRST_PHONEMES_MAX: Final = 60
# They take turns, a part each: a voice speaks several times faster than one listens.
SPEECHES_AT_ONCE: Final = 4
# Of one request, at the slowest that voices speak: numbers and signs are read out in many more sounds than they have.
SPEECH_SECONDS_MAX: Final = 1800
PHONEMES_A_SECOND: Final = 20
# espeak-ng leaves out what a clause has beyond a thousand phonemes or three hundred words.
CLAUSE_SOUNDS_MAX: Final = 1000
_CLAUSE: Final = re.compile(r"[^.,;:!?\n。，、；：！？…]+")  # noqa: RUF001  # of any script
_CLAUSE_ENDS: Final = frozenset(",;:.!?")
_CONTROLS: Final = frozenset({"Cc", "Cs"})
_SPACE: Final = frozenset(" ")
PEAK: Final = 0.9  # of full scale: resampling and encoding overshoot a little
_SILENT_PEAK: Final = 1e-8


@dataclass(frozen=True, slots=True)
class PiperUtterance:
    """``parts`` are spoken one after another: numbers of their sounds. ``speaker`` is a number in the model."""

    voice: PiperSpeaker
    parts: Sequence[Sequence[int]]
    speaker: int | None
    speed: float

    @property
    def units(self) -> int:
        """Phonemes."""
        return sum(len(part) for part in self.parts)

    def pcm(self, is_cancelled: Callable[[], bool]) -> Iterator[tuple[bytes, int]]:
        return self.voice.pcm(self, is_cancelled)


class PiperSpeaker:
    """One voice, or several speakers of one model. Its parts may be asked for by several threads, in turn."""

    def __init__(self, source: PiperSource, threads: int | None) -> None:
        """Raises CheckpointError, or RuntimeUnavailableError without the ``speech`` extra."""
        self._facts = voice_facts(source)
        self._voice = _load(source.weights, source.config, threads)
        self.model_id = source.model_id
        self.bundle_dir = str(source.weights.parent)
        names = list(self._facts.speakers) or [self._facts.name]
        self.capabilities = capabilities_of_sound(
            "onnxruntime",
            max_length=SPEECH_INPUT_CHARACTERS_MAX,
            max_batch_size=SPEECHES_AT_ONCE,
            vocab_size=len(self._voice.config.phoneme_id_map),
            output_modalities=("audio",),
            executor_device="CPU",
            speech=Speech(tuple(Voice(name, self._facts.language) for name in names)),
        )

    def prepare(self, prompt: SpeechPrompt, params: AudioParams) -> PiperUtterance:
        """What is to be said, found out before any of it is. Raises RequestError for what cannot be."""
        params.check_no_talker()
        check_speech_prompt(prompt, self.capabilities.speech)
        parts = list(_parts(self._sentences(prompt.text), round(PHONEMES_AT_ONCE_MAX * min(1.0, prompt.speed))))
        if not parts:
            raise RequestError("input holds nothing that this voice can say.", param="input")
        duration_seconds = sum(len(part) for part in parts) / PHONEMES_A_SECOND / prompt.speed
        if duration_seconds > SPEECH_SECONDS_MAX:
            raise RequestError(
                f"input would take more than {SPEECH_SECONDS_MAX // 60} minutes to say: send it in parts.",
                param="input",
            )
        numbers = [self._voice.phonemes_to_ids(part) for part in parts]
        return PiperUtterance(self, numbers, self._facts.speakers.get(prompt.voice), prompt.speed)

    def close(self) -> None:
        self._voice = None

    def pcm(self, spoken: PiperUtterance, is_cancelled: Callable[[], bool]) -> Iterator[tuple[bytes, int]]:
        """Sound of each part with how many frames the model made for it."""
        from piper.config import SynthesisConfig

        resampler = Resampler(self._facts.rate_hz)
        config = SynthesisConfig(
            speaker_id=spoken.speaker, length_scale=float(self._voice.config.length_scale) / spoken.speed
        )
        peak = 0.0
        for numbers in spoken.parts:
            if is_cancelled():
                return
            made = self._voice.phoneme_ids_to_audio(list(numbers), config)
            samples: Samples = np.asarray(made, dtype=np.float32).reshape(-1)
            # What the model makes is far from full scale. One scale for all parts: no part is louder than it is meant.
            peak = max(peak, float(np.max(np.abs(samples), initial=_SILENT_PEAK)))
            yield resampler.pcm(samples * (PEAK / peak)), max(1, len(samples) // int(self._voice.config.hop_length))
        yield resampler.finish(), 0

    def _sentences(self, text: str) -> list[list[str]]:
        """Phonemes by sentence. The text is said as it stands: Piper's brackets for phonemes mean nothing here."""
        said = "".join(" " if unicodedata.category(char) in _CONTROLS and char != "\n" else char for char in text)
        said = _CLAUSE.sub(_with_breaths, said).replace("[[", "[ [").replace("]]", "] ]")
        sentences: list[list[str]] = self._voice.phonemize(said)
        return sentences


def _with_breaths(clause: re.Match[str]) -> str:
    """Cut where it is too long to be read at once, between words if there are any, by what is read as a short pause."""
    text = clause[0]
    pieces: list[str] = []
    begin = space = sounds = 0
    for at, char in enumerate(text):
        if char == " ":
            space = at
        sounds += _sounds_of(char)
        if sounds > CLAUSE_SOUNDS_MAX:
            end = space if space > begin else at
            pieces.append(text[begin:end])
            begin = end
            sounds = sum(_sounds_of(each) for each in text[begin : at + 1])
    return ", ".join([*pieces, text[begin:]])


def _sounds_of(char: str) -> int:
    """About how many it has where a voice does not know its script: then its name is read out."""
    if char.isalpha():
        return 20 if unicodedata.east_asian_width(char) in "WF" else 5
    if char.isdecimal():
        return 35
    return 5 if char.isspace() or unicodedata.category(char).startswith(("M", "P")) else 50


def _parts(sentences: Sequence[Sequence[str]], phonemes_max: int) -> Iterator[list[str]]:
    """Whole sentences where they are short enough. A longer one is cut where a clause ends, else between words, else
    where there is no more room; so is the first one, before its end, where it has a clause.
    """
    is_first = True
    for sentence in sentences:
        left = list(sentence)
        while left:
            end = _behind_last(left, _CLAUSE_ENDS, min(FIRST_PHONEMES_MAX, phonemes_max)) if is_first else 0
            if not end and len(left) > phonemes_max:
                end = _behind_last(left, _CLAUSE_ENDS, phonemes_max) or _behind_last(left, _SPACE, phonemes_max)
                end = end or phonemes_max
            end = end or len(left)
            part, left = left[:end], left[end:]
            if any(char.isalnum() for char in part):
                yield part
                is_first = False


def _behind_last(phonemes: Sequence[str], marks: frozenset[str], limit: int) -> int:
    """0 where none of the marks is within the limit."""
    return next((at for at in range(min(limit, len(phonemes)), 0, -1) if phonemes[at - 1] in marks), 0)


def _load(weights: Path, config: dict[str, Any], threads: int | None) -> Any:
    try:
        import av  # noqa: F401
        import onnxruntime
        from piper.config import PiperConfig
        from piper.voice import PiperVoice
    except ImportError as error:
        raise RuntimeUnavailableError(
            f"speech needs the speech extra ({error.name} is not installed): pip install 'edgellm[speech]', or make "
            "speech in a checkout"
        ) from None
    logging.getLogger("piper").setLevel(logging.CRITICAL)  # what it logs quotes the text
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads or 0
    options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Threads that wait in a loop take the processor from the models beside them.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(str(weights), sess_options=options, providers=["CPUExecutionProvider"])
        return PiperVoice(session=session, config=PiperConfig.from_dict(config))
    except Exception as error:  # of many classes, none of which is documented
        raise CheckpointError(f"{weights}: this voice cannot be loaded ({type(error).__name__})") from error
