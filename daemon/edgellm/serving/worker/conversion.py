"""Conversion between what serving works with and what frames carry: requests, deltas, errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any

from edgellm import errors
from edgellm.errors import AdmissionError, EdgeLLMError, GenerationError, RequestError
from edgellm.media.media_file import MediaFile
from edgellm.media.media_input import MediaInput
from edgellm.runtime.generation import (
    AudioPrompt,
    ChatPrompt,
    GenerationRequest,
    Prompt,
    SpeechPrompt,
    TextPrompt,
    TokenPrompt,
)
from edgellm.runtime.outputs import LogprobEntry, StreamDelta
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.worker.frames import FrameError
from edgellm.serving.worker.messages import Count, Delta, Failure, Medium, Submit

AUDIO_PLACE = "file"  # the field of the form that a sound comes in

_PARAM_DEFAULTS: Mapping[str, Any] = {field.name: field.default for field in fields(SamplingParams)}


def to_submit(stream: int, request: GenerationRequest) -> Submit:
    """A prompt that was tokenised travels as ids alone."""
    token_ids = None if request.prompt_token_ids is None else list(request.prompt_token_ids)
    prompt = _prompt_fields(request.prompt) if token_ids is None else None
    params, media = _param_fields(request.params), [_medium(each) for each in request.media]
    if isinstance(request.prompt, AudioPrompt):
        media = [Medium("audio", AUDIO_PLACE)]
    return Submit(stream, params, token_ids, prompt, request.cache_domain, request.embedding, media, request.spoken)


def files_of(request: GenerationRequest) -> Sequence[MediaFile]:
    """Those of its Submit, in their order."""
    if isinstance(request.prompt, AudioPrompt):
        return (request.prompt.audio,)
    return [file for each in request.media for file in each.files]


def to_count(number: int, request: GenerationRequest) -> Count:
    return Count(number, _param_fields(request.params), _prompt_fields(request.prompt))


def to_request(message: Submit | Count, files: Sequence[MediaFile] = ()) -> GenerationRequest:
    """Raises RequestError for values out of range: both sides check them. Raises FrameError for unknown ones."""
    try:
        params = SamplingParams(**message.params)
        if isinstance(message, Submit) and message.token_ids is not None:
            prompt: Prompt = TokenPrompt(message.token_ids)
            return GenerationRequest(prompt, params, message.token_ids, message.cache_domain, message.embedding)
        if message.prompt is None:
            raise FrameError("a request came without a prompt")
        if isinstance(message, Count):
            return GenerationRequest(_prompt(message.prompt), params)
        if "messages" not in message.prompt and files:
            return GenerationRequest(AudioPrompt(files[0], **message.prompt), params)
        media = _media(message.media, files)
        return GenerationRequest(
            *(_prompt(message.prompt), params, None, message.cache_domain),
            embedding=message.embedding,
            media=media,
            spoken=message.spoken,
        )
    except TypeError:
        raise FrameError("a request came with fields that this version does not know") from None


def to_delta_message(stream: int, delta: StreamDelta) -> Delta:
    logprobs: list[list[tuple[int, float, str, bytes]]] | None = None
    if delta.logprobs:
        logprobs = [[(each.token_id, each.logprob, each.token, each.bytes) for each in row] for row in delta.logprobs]
    return Delta(
        stream,
        delta.text,
        delta.token_ids,
        delta.finish_reason,
        delta.prompt_tokens,
        delta.cached_tokens,
        delta.matched_stop,
        logprobs,
        delta.embedding,
        delta.segments,
        delta.transcript,
        delta.audio_bytes,
        delta.audio_frames,
    )


def from_delta_message(message: Delta) -> StreamDelta:
    logprobs: list[list[LogprobEntry]] | None = None
    if message.logprobs:
        logprobs = [[LogprobEntry(*entry) for entry in row] for row in message.logprobs]
    return StreamDelta(
        text=message.text,
        token_ids=message.token_ids,
        prompt_tokens=message.prompt_tokens,
        finished=message.finish_reason is not None,
        finish_reason=message.finish_reason,
        logprobs=logprobs,
        cached_tokens=message.cached_tokens,
        matched_stop=message.matched_stop,
        embedding=message.embedding,
        segments=message.segments,
        transcript=message.transcript,
        audio_bytes=message.audio,
        audio_frames=message.audio_frames,
    )


def to_failure(error: EdgeLLMError) -> Failure:
    """Only errors that are made for clients keep their text."""
    for_clients = isinstance(error, (RequestError, AdmissionError, GenerationError))
    return Failure(
        type(error).__name__,
        str(error) if for_clients else "the request could not be finished",
        getattr(error, "param", None),
        getattr(error, "retry_after_seconds", 1.0),
        getattr(error, "reason", ""),
    )


def to_error(failure: Failure) -> EdgeLLMError:
    """An error of the same class; of a class that this side does not know, a GenerationError."""
    kind = getattr(errors, failure.error, None)
    if isinstance(kind, type) and issubclass(kind, RequestError):
        return kind(failure.message, param=failure.param)
    if isinstance(kind, type) and issubclass(kind, AdmissionError):
        return kind(failure.message, retry_after_seconds=failure.retry_after_seconds)
    if isinstance(kind, type) and issubclass(kind, GenerationError):
        return kind(failure.message, reason=failure.reason)
    return GenerationError(failure.message, reason=failure.reason)


def load_error(code: str, message: str) -> EdgeLLMError:
    """The error that a worker could not load its model with; its class decides the daemon's exit code."""
    for kind in vars(errors).values():
        if (
            isinstance(kind, type)
            and issubclass(kind, EdgeLLMError)
            and not issubclass(kind, (RequestError, AdmissionError, GenerationError))
            and kind.code == code
        ):
            return kind(message)
    return errors.WorkerFailedError(message)


def _param_fields(params: SamplingParams) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    for name, default in _PARAM_DEFAULTS.items():
        value = getattr(params, name)
        if value == default:
            continue
        if name == "guided_decoding":
            guide = params.guide
            if guide is not None:
                chosen[name] = {"type": guide.type, "guide": guide.guide}
        elif name == "logit_bias":
            chosen[name] = dict(params.bias_by_token_id)
        elif name == "stop":
            chosen[name] = list(params.stop_strings)
        else:
            chosen[name] = value
    return chosen


def _prompt_fields(prompt: Prompt) -> dict[str, Any]:
    match prompt:
        case TextPrompt(text):
            return {"text": text}
        case TokenPrompt(token_ids):
            return {"token_ids": list(token_ids)}
        case AudioPrompt():  # its file goes another way
            return {each.name: getattr(prompt, each.name) for each in fields(AudioPrompt) if each.name != "audio"}
        case SpeechPrompt():
            return {each.name: getattr(prompt, each.name) for each in fields(SpeechPrompt)}
        case ChatPrompt():
            return {field.name: _plain(getattr(prompt, field.name)) for field in fields(ChatPrompt)}


def _medium(media: MediaInput) -> Medium:
    return Medium(media.kind, media.place, len(media.files), media.resizes, media.fps)


def _media(media: Sequence[Medium], files: Sequence[MediaFile]) -> list[MediaInput]:
    if any(each.files < 1 for each in media) or sum(each.files for each in media) != len(files):
        raise FrameError("a request came with other files than it says")
    waiting = iter(files)
    return [
        MediaInput(each.kind, each.place, tuple(islice(waiting, each.files)), each.resizes, each.fps) for each in media
    ]


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _prompt(values: Mapping[str, Any]) -> Prompt:
    if "voice" in values:
        return SpeechPrompt(**values)
    if "text" in values:
        return TextPrompt(**values)
    if "token_ids" in values:
        return TokenPrompt(**values)
    return ChatPrompt(**values)
