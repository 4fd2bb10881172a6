"""Native failures become errors of our own tree. NVIDIA's text never travels; it stays in ``__cause__``.

Our module marks what a request did wrong, and its texts after a marker are made for clients; NVIDIA's module has
one such marker of its own. Everything unmarked is told apart by what the text says about the runtime's state.
"""

from __future__ import annotations

import re

from edgellm.errors import (
    CheckpointError,
    ConfigError,
    ContextLengthError,
    EdgeLLMError,
    GenerationError,
    GuideLimitError,
    InvalidSchemaError,
    RequestCancelledError,
    RequestError,
    RuntimeUnavailableError,
    ServerBusyError,
    ShuttingDownError,
    UnsupportedModelError,
    UnusableOutputError,
    WorkerFailedError,
)
from edgellm.runtime.contract import RuntimeModule

INPUT_TOO_LONG = "EDGELLM_INPUT_TOO_LONG"
BAD_GUIDE = "EDGELLM_BAD_GUIDE"
GUIDE_LIMIT = "EDGELLM_GUIDE_LIMIT"
BAD_VALUE = "EDGELLM_BAD_VALUE"
BAD_MEDIA_COUNT = "EDGELLM_BAD_MEDIA_COUNT"
FAILED_WORKER = "failed worker"
# How our own module begins when logits or hidden states are no finite numbers.
UNUSABLE_OUTPUTS = ("the model gave a logit that is not a number", "the model gave no usable hidden state")

_BUSY_TEXTS = ("queue is full", "too many requests in flight")
_SHUTDOWN_TEXT = "shutting down"
# The field a BAD_VALUE text begins with, by the name that clients use.
_PARAM_BY_NATIVE_FIELD = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "repetition_penalty": "repetition_penalty",
    "num_logprobs": "num_logprobs",
    "logit_bias": "logit_bias",
    "stop_strings": "stop",
    "max_generate_length": "max_tokens",
    "token_ids": "prompt",
}
_GUIDE_PATH = re.compile(r"guided_decoding(?:\.[\w$-]+|\[\d+\])*")
_FIRST_NAME = re.compile(r"[a-z_]+")
_MARKER_PREFIX = re.compile(r"^\s*EDGELLM_[A-Z_]+\s*:?\s*")


def map_request_error(module: RuntimeModule, error: BaseException, *, cancelled: bool = False) -> EdgeLLMError:
    """Give what a failed submit, get or handle_request means for the one request and for the runtime."""
    if isinstance(error, EdgeLLMError):
        return error
    text = str(error)
    own_text = _text_for_clients(module, error, text)
    if INPUT_TOO_LONG in text:
        return ContextLengthError(own_text or "the prompt is longer than this model's input limit", param="messages")
    if BAD_GUIDE in text:
        return refused_guide(own_text)
    if GUIDE_LIMIT in text:
        return guide_limit(own_text)
    if BAD_VALUE in text:
        return RequestError(own_text or "the runtime refused a value of this request", param=_param_of(own_text))
    if BAD_MEDIA_COUNT in text:
        return RequestError("the prompt's media parts do not match the media that came with it", param="messages")
    if FAILED_WORKER in text or _is(module, error, "ExecutorError"):
        return WorkerFailedError("the runtime failed and has to be replaced", reason=_reason(module, error))
    if cancelled:
        return RequestCancelledError("the request was cancelled")
    if any(busy in text for busy in _BUSY_TEXTS):
        return ServerBusyError("the runtime's queue is full; retry later")
    if _SHUTDOWN_TEXT in text:
        return ShuttingDownError("the runtime is shutting down")
    if text.startswith(UNUSABLE_OUTPUTS) and writes_for_clients(module):
        return UnusableOutputError("the model's output is not made of finite numbers", reason=_reason(module, error))
    if _is(module, error, "InvalidRequest") or isinstance(error, (TypeError, OverflowError, ValueError)):
        return RequestError("the runtime refused a value of this request")
    if "cancel" in text.lower():
        return RequestCancelledError("the request was cancelled by the runtime")
    return GenerationError("the runtime could not finish this request", reason=_reason(module, error))


def refused_guide(own_text: str, *, guide_path: str = "guided_decoding") -> InvalidSchemaError:
    """Give the error of a guide that cannot be enforced; our module's text begins with the path of the culprit."""
    path = _GUIDE_PATH.match(own_text)
    text = own_text or f"{guide_path} holds something that this runtime cannot enforce"
    return InvalidSchemaError(text, param=path[0] if path else guide_path)


def guide_limit(own_text: str) -> GuideLimitError:
    """Give the error of a guide that was taken and could not be followed to the end of the answer."""
    path = _GUIDE_PATH.match(own_text)
    text = own_text or "guided_decoding met a limit of the grammar engine; simplify it"
    return GuideLimitError(text, param=path[0] if path else "guided_decoding")


def map_load_error(module: RuntimeModule, error: BaseException, *, in_flight_batching: bool) -> EdgeLLMError:
    """Give the start-up error, with the engine's own reason: it is for the operator, not for clients."""
    if isinstance(error, EdgeLLMError):
        return error
    reason = str(error) or type(error).__name__
    if _is(module, error, "ModelFileError"):
        return UnsupportedModelError(reason) if "unsupported" in reason.lower() else CheckpointError(reason)
    own_text = _text_for_clients(module, error, reason)
    if own_text:
        return ConfigError(own_text)
    if in_flight_batching:
        return RuntimeUnavailableError(f"the in-flight batching engine did not start: {reason}")
    return RuntimeUnavailableError(f"the runtime did not start: {reason}")


def writes_for_clients(module: RuntimeModule) -> bool:
    """Our own module's refusals are made to be shown; another's texts stay behind."""
    return hasattr(module, "InvalidRequest")


def _text_for_clients(module: RuntimeModule, error: BaseException, text: str) -> str:
    if not _is(module, error, "InvalidRequest"):
        return ""
    return _MARKER_PREFIX.sub("", text)


def _reason(module: RuntimeModule, error: BaseException) -> str:
    """For the log. Texts of our own module hold no prompt; another's may."""
    name = type(error).__name__
    return f"{name}: {error}" if writes_for_clients(module) else name


def _param_of(text: str) -> str | None:
    name = _FIRST_NAME.match(text)
    return _PARAM_BY_NATIVE_FIELD.get(name[0]) if name else None


def _is(module: RuntimeModule, error: BaseException, class_name: str) -> bool:
    error_class = getattr(module, class_name, None)
    return isinstance(error_class, type) and isinstance(error, error_class)
