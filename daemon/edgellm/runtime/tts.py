"""TTS: text becomes speech by a Piper voice, on the CPU through ONNX Runtime.

Piper is under the GPL, so nothing here imports it before a voice is loaded: under ``edgellm serve`` that is in a
worker process of the voice's own.
"""

from __future__ import annotations

import logging
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.piper_voice import is_piper_voice, resolve_piper_voice, voice_facts
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.errors import (
    CheckpointError,
    ClosedError,
    ConfigError,
    RequestError,
    RuntimeUnavailableError,
    UnsupportedModelError,
)
from edgellm.media.speech_encoder import Resampler, Samples, speech_encoder
from edgellm.runtime.audio_params import AudioParams
from edgellm.runtime.capabilities import Capabilities, Speech, Voice
from edgellm.runtime.generation import SpeechPrompt
from edgellm.runtime.http_serving import OpenModel
from edgellm.runtime.llm_options import DEFAULT_PORT, DEFAULT_QUEUE_TIMEOUT_SECONDS, DEFAULT_QUEUED_REQUESTS
from edgellm.runtime.outputs import StreamDelta
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

_NOT_FOR_SPEECH: Final = {
    "draft_top_k": "speculative decoding",
    "draft_step": "speculative decoding",
    "verify_tree_size": "speculative decoding",
    "max_verify_tree_size": "speculative decoding",
    "max_draft_tree_size": "speculative decoding",
    "speculative_config": "speculative decoding",
    "enable_in_flight_batching": "in-flight batching",
    "enable_context_reuse": "context cache",
    "context_cache_config": "context cache",
}


@dataclass(frozen=True, slots=True)
class SpokenText:
    """What a voice will say, in parts that are spoken one after another: numbers of its sounds."""

    parts: Sequence[Sequence[int]]
    speaker: int | None
    speed: float

    @property
    def phonemes(self) -> int:
        return sum(len(part) for part in self.parts)


class TTS(OpenModel):
    """Standalone text to speech: one voice, or several speakers of one model. One speech at a time; thread-safe.

    ``TTS("voice")`` takes the catalogue's voice, a Piper ``.onnx`` file, or a folder with one.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        cache_dir: str | os.PathLike[str] | None = None,
        threads: int | None = None,
        build_on_start: bool = True,
        on_progress: ProgressCallback = ignore_progress,
        **options: Any,
    ) -> None:
        """Raises ConfigError, ModelSourceError, CheckpointError, UnsupportedModelError for a model that speaks in
        another way, or RuntimeUnavailableError without the ``speech`` extra.
        """
        for name, feature in _NOT_FOR_SPEECH.items():
            if options.get(name):
                raise ConfigError(f"{name}: standalone speech models have no {feature}")
        if unknown := [name for name in options if name not in _NOT_FOR_SPEECH]:
            raise ConfigError(f"{unknown[0]}: speech models have no such option")
        model = os.fspath(model)
        if Path(model).is_dir() and not is_piper_voice(model):
            raise UnsupportedModelError(f"{model}: speech models of this kind are not supported yet; Piper voices are")
        folder = Path(cache_dir).expanduser() if cache_dir else default_cache_dir(os.environ)
        source = resolve_piper_voice(model, models_dir(folder), download=build_on_start, on_progress=on_progress)
        self._facts = voice_facts(source)
        on_progress(Progress("load", "reading weights"))
        self._voice = _load(source.weights, source.config, threads)
        self._lock = Lock()
        self._is_closed = False
        self._model_id = source.model_id
        self.bundle_dir = str(source.weights.parent)
        names = list(self._facts.speakers) or [self._facts.name]
        self.capabilities = Capabilities(
            runtime="onnxruntime",
            executor="",
            max_batch_size=SPEECHES_AT_ONCE,
            max_input_len=SPEECH_INPUT_CHARACTERS_MAX,
            max_kv_cache_capacity=SPEECH_INPUT_CHARACTERS_MAX,
            vocab_size=len(self._voice.config.phoneme_id_map),
            in_flight_batching=False,
            context_cache=False,
            output_modalities=("audio",),
            executor_device="CPU",
            speech=Speech(tuple(Voice(name, self._facts.language) for name in names)),
        )

    @property
    def runtime_kind(self) -> str:
        return "tts"

    @property
    def speech_available(self) -> bool:
        return True

    def list_voices(self) -> list[str]:
        """Names that ``AudioParams.voice`` takes, sorted. Raises RuntimeError once it is closed."""
        self._ensure_open()
        return sorted(voice.name for voice in self.capabilities.speech.voices)

    def generate_speech_stream(self, text: str, audio_params: AudioParams | None = None) -> Iterator[StreamDelta]:
        """Speak ``text``: each delta has ``audio_bytes``, samples of 16 bits, mono, at 24 kHz, made a sentence at a
        time. The last one is ``finished``.

        What is wrong with the request is raised here, at the call; a stream that is closed early stops with the
        sentence it is in. Raises RequestError, and RuntimeError once it is closed.
        """
        params = audio_params or AudioParams()
        params.check_no_talker()
        self._ensure_open()
        voice = self.capabilities.speech.default_voice if params.voice is None else params.voice
        spoken = self.prepare(SpeechPrompt(text, voice, params.speed))
        return self._locked(spoken)

    def prepare(self, prompt: SpeechPrompt) -> SpokenText:
        """What is to be said, found out before any of it is. Raises RequestError for what cannot be."""
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
        return SpokenText(numbers, self._facts.speakers.get(prompt.voice), prompt.speed)

    @property
    def model_id(self) -> str:
        """The name of the voice."""
        return self._model_id

    def speak(
        self, spoken: SpokenText, prompt: SpeechPrompt, is_cancelled: Callable[[], bool]
    ) -> Iterator[StreamDelta]:
        """Sound in the prompt's format as it is made. Cancelled, it ends with the part it is in."""
        encoder = speech_encoder(prompt.format_name)
        for pcm, frames in self._pcm(spoken, is_cancelled):
            yield StreamDelta(audio_bytes=encoder.encode(pcm), audio_frames=frames)
        if not is_cancelled():
            yield StreamDelta(
                audio_bytes=encoder.finish() or None,
                finished=True,
                finish_reason="stop",
                prompt_tokens=spoken.phonemes,
            )

    def serve(
        self,
        host: str | None = None,
        port: int = DEFAULT_PORT,
        *,
        served_model_name: str = "",
        api_key: str = "",
        max_queued_requests: int = DEFAULT_QUEUED_REQUESTS,
        queue_timeout: float = DEFAULT_QUEUE_TIMEOUT_SECONDS,
    ) -> None:
        """Serve speech over HTTP until interrupted, then close; routes for text refuse it. Binds 127.0.0.1 unless there
        is a key.
        """
        self._ensure_open()
        self._serve(
            served_model_name=served_model_name,
            host=host,
            port=port,
            api_key=api_key,
            max_queued_requests=max_queued_requests,
            queue_timeout_seconds=queue_timeout,
        )

    def close(self) -> None:
        """Let the speech that runs end, then release the voice. Idempotent."""
        self._is_closed = True
        with self._lock:
            self._voice = None

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this voice was closed")

    def _locked(self, spoken: SpokenText) -> Iterator[StreamDelta]:
        with self._lock:
            self._ensure_open()
            for pcm, frames in self._pcm(spoken, lambda: False):
                if pcm:
                    yield StreamDelta(audio_bytes=pcm, audio_frames=frames)
            yield StreamDelta(finished=True, finish_reason="stop", prompt_tokens=spoken.phonemes)

    def _pcm(self, spoken: SpokenText, is_cancelled: Callable[[], bool]) -> Iterator[tuple[bytes, int]]:
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
