"""WhisperTranscriber: speech becomes text by a Whisper model, on the CPU through CTranslate2."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edgellm.engines.cache_directory import default_cache_dir, models_dir
from edgellm.engines.progress import Progress, ProgressCallback, ignore_progress
from edgellm.engines.whisper_folder import resolve_whisper
from edgellm.errors import CheckpointError
from edgellm.media.audio import SAMPLE_RATE_HZ, Samples, audio_samples
from edgellm.runtime.audio_front_end import check_audio_prompt, no_audio_extra
from edgellm.runtime.capabilities import Transcription, capabilities_of_sound
from edgellm.runtime.generation import AudioPrompt
from edgellm.runtime.outputs import TranscriptFacts, TranscriptSegment, TranscriptWord

# Heard at a time: what a long recording takes of memory is bounded by it.
STRETCH_SECONDS = 60
# Whisper reads 30 s at once and writes at most so many tokens of them.
WINDOW_TOKENS = 448
CONTEXT_CHARACTERS = 200  # of what was said before, for a stretch that follows another
# Tried one after another where the text repeats itself or is unlikely, when a request asks for temperature 0.
TEMPERATURES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


class WhisperTranscriber:
    def __init__(
        self,
        model: str,
        *,
        cache_dir: str | None = None,
        threads: int | None = None,
        build_on_start: bool = True,
        on_progress: ProgressCallback = ignore_progress,
    ) -> None:
        """Raises ModelSourceError, CheckpointError, or RuntimeUnavailableError without the ``audio`` extra."""
        try:
            import av  # noqa: F401
            from faster_whisper import WhisperModel
        except ImportError as error:
            raise no_audio_extra(error) from None
        logging.getLogger("faster_whisper").setLevel(logging.WARNING)
        folder = Path(cache_dir).expanduser() if cache_dir else default_cache_dir(os.environ)
        source = resolve_whisper(model, models_dir(folder), download=build_on_start, on_progress=on_progress)
        on_progress(Progress("load", "reading weights"))
        try:
            self._model: Any = WhisperModel(
                str(source.path), device="cpu", compute_type="int8", cpu_threads=threads or 0, local_files_only=True
            )
        except (RuntimeError, ValueError, KeyError, OSError) as error:
            raise CheckpointError(
                f"{source.path}: CTranslate2 cannot load this model ({type(error).__name__})"
            ) from error
        multilingual = bool(self._model.model.is_multilingual)
        self._used_samples = 0  # of the stretch that is heard
        self.model_id = source.model_id
        self.bundle_dir = str(source.path)
        self.capabilities = capabilities_of_sound(
            "ctranslate2",
            max_length=WINDOW_TOKENS,
            vocab_size=int(self._model.hf_tokenizer.get_vocab_size()),
            input_modalities=("audio",),
            executor_device="CPU",
            transcription=Transcription(
                languages=tuple(self._model.supported_languages) if multilingual else ("en",),
                translates=multilingual,
            ),
        )

    def transcribe(
        self, prompt: AudioPrompt, temperature: float, is_cancelled: Callable[[], bool]
    ) -> Iterator[TranscriptSegment | TranscriptFacts]:
        """Segments as they are understood, and at the end what was heard. Cancelled, it ends with the window it is in.

        Raises RequestError for a file that cannot be decoded, or a language that the model does not know.
        """
        check_audio_prompt(prompt, self.capabilities.transcription)
        language, context, heard_samples = prompt.language, prompt.context, 0
        for begin, stretch, is_last in self._stretches(prompt, is_cancelled):
            segments, info = self._model.transcribe(
                stretch,
                language=language,
                task="translate" if prompt.translate else "transcribe",
                initial_prompt=context or None,
                temperature=list(TEMPERATURES) if temperature == 0 else [temperature],
                word_timestamps=prompt.with_words,
            )
            language = info.language
            held: TranscriptSegment | None = None
            end_samples = len(stretch)
            for raw in segments:
                if is_cancelled():
                    return
                segment = _segment(raw, begin / SAMPLE_RATE_HZ)
                said, held = (segment, None) if is_last else (held, segment)
                if said is not None:
                    context = (context + said.text)[-CONTEXT_CHARACTERS:]
                    yield said
            # A word may be cut where a stretch ends: its last segment is heard again, with what follows.
            if held is not None:
                start_samples = round(held.start_seconds * SAMPLE_RATE_HZ) - begin
                if start_samples > 0:
                    end_samples = start_samples
                else:
                    context = (context + held.text)[-CONTEXT_CHARACTERS:]
                    yield held
            self._used_samples = end_samples
            heard_samples = begin + end_samples
        yield TranscriptFacts(language or "en", round(heard_samples / SAMPLE_RATE_HZ, 3))

    def _stretches(self, prompt: AudioPrompt, is_cancelled: Callable[[], bool]) -> Iterator[tuple[int, Samples, bool]]:
        """Where each begins, in samples; each begins where the one before was used up to."""
        pieces = audio_samples(prompt.audio, is_cancelled)
        waiting: list[Samples] = []
        waiting_samples = begin = 0
        is_last = False
        while not is_last:
            while waiting_samples < STRETCH_SECONDS * SAMPLE_RATE_HZ:
                piece = next(pieces, None)
                if piece is None:
                    is_last = True
                    break
                waiting.append(piece)
                waiting_samples += len(piece)
            if waiting_samples == 0:
                return
            stretch = np.concatenate(waiting)
            self._used_samples = len(stretch)
            yield begin, stretch, is_last
            begin += self._used_samples
            waiting = [stretch[self._used_samples :]]
            waiting_samples = len(waiting[0])

    def close(self) -> None:
        self._model = None


def _segment(raw: Any, begin_seconds: float) -> TranscriptSegment:
    return TranscriptSegment(
        text=raw.text,
        start_seconds=_rounded(raw.start + begin_seconds),
        end_seconds=_rounded(raw.end + begin_seconds),
        token_ids=[int(token) for token in raw.tokens],
        temperature=float(raw.temperature or 0.0),
        avg_logprob=float(raw.avg_logprob),
        compression_ratio=float(raw.compression_ratio),
        no_speech_prob=float(raw.no_speech_prob),
        words=[
            TranscriptWord(word.word, _rounded(word.start + begin_seconds), _rounded(word.end + begin_seconds))
            for word in raw.words or ()
        ],
    )


def _rounded(moment_seconds: Any) -> float:
    return round(float(moment_seconds), 3)
