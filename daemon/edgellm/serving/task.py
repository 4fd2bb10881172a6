"""Task: what a request asks of a model, and which kinds of model take it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from edgellm.config.model_kind import ModelKind
from edgellm.errors import UnsupportedParameterError


class Task(Enum):
    TEXT = "text"
    EMBEDDINGS = "embeddings"
    TRANSCRIPTION = "transcription"
    SPEECH = "speech"


_TASKS: Mapping[ModelKind, frozenset[Task]] = {
    "auto": frozenset({Task.TEXT, Task.EMBEDDINGS, Task.SPEECH}),  # what it can is known once it is loaded
    "chat": frozenset({Task.TEXT}),
    "embeddings": frozenset({Task.EMBEDDINGS}),
    "asr": frozenset({Task.TRANSCRIPTION}),
    "tts": frozenset({Task.SPEECH}),
}
_IS_FOR: Mapping[ModelKind, str] = {
    "auto": "makes text (POST /v1/chat/completions)",
    "chat": "makes text (POST /v1/chat/completions)",
    "embeddings": "makes embeddings (POST /v1/embeddings)",
    "asr": "transcribes speech (POST /v1/audio/transcriptions)",
    "tts": "speaks (POST /v1/audio/speech)",
}
_LACKS: Mapping[Task, str] = {
    Task.TEXT: "makes no text",
    Task.EMBEDDINGS: "makes no embeddings",
    Task.TRANSCRIPTION: "transcribes no speech",
    Task.SPEECH: "does not speak",
}


def check_task(task: Task, kind: ModelKind) -> None:
    """Raise UnsupportedParameterError, about the field ``model``, for what a model of that kind is not for."""
    if task not in _TASKS[kind]:
        raise UnsupportedParameterError(f"model: this model {_IS_FOR[kind]} and {_LACKS[task]}.", param="model")
