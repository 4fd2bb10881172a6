"""From a request's sampling fields to SamplingParams, over what holds for fields that were left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgellm.api.wire.chat import ChatRequest
from edgellm.api.wire.completion import CompletionRequest
from edgellm.api.wire.sampling import ResponseFormat, SamplingFields
from edgellm.errors import InvalidSchemaError, RequestError, UnsupportedParameterError
from edgellm.parsing.answer_parser import NONE
from edgellm.parsing.chat_template import CLIENT_FIELDS
from edgellm.runtime.answer_guide import GuidePaths
from edgellm.runtime.capabilities import Capabilities
from edgellm.runtime.guided_decoding import GuidedDecoding, parse_guided_decoding
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.serving.sampling_defaults import SamplingDefaults

_GUIDE_SCHEMA = "guided_decoding.json_schema"
_FORMAT_SCHEMA = "response_format.json_schema.schema"
_THINKING_EFFORTS = frozenset({"low", "medium", "high", "xhigh"})
OPTIONAL_PARAMETERS = {"min_p": 0.0, "frequency_penalty": 0.0, "presence_penalty": 0.0, "repetition_penalty": 1.0}
"""Fields that not every runtime has, with the value that asks for nothing."""


def chat_sampling(request: ChatRequest, defaults: SamplingDefaults, capabilities: Capabilities) -> SamplingParams:
    if request.top_logprobs is not None and not request.logprobs:
        raise RequestError("top_logprobs needs logprobs: true.", param="top_logprobs")
    lengths = {request.max_tokens, request.max_completion_tokens} - {None}
    if len(lengths) > 1:
        raise RequestError(
            "max_tokens and max_completion_tokens must agree when both are sent.", param="max_completion_tokens"
        )
    return _params(
        request,
        defaults,
        capabilities,
        max_tokens=next(iter(lengths), None),
        num_logprobs=max(1, request.top_logprobs or 0) if request.logprobs else 0,
        enable_thinking=_thinks(request),
        reasoning_effort=_template_value(request, "reasoning_effort") or "",
    )


def completion_sampling(
    request: CompletionRequest, defaults: SamplingDefaults, capabilities: Capabilities
) -> SamplingParams:
    return _params(
        request,
        defaults,
        capabilities,
        max_tokens=request.max_tokens,
        # Which answers are best is told by their logprobs.
        num_logprobs=max(1, request.logprobs or 0)
        if request.logprobs is not None or request.sequences > request.n
        else 0,
    )


def _params(
    request: SamplingFields,
    defaults: SamplingDefaults,
    capabilities: Capabilities,
    max_tokens: int | None,
    **further: Any,
) -> SamplingParams:
    if request.stream_options is not None and not request.stream:
        raise RequestError("stream_options needs stream: true.", param="stream_options")
    biases = request.logit_bias or {}
    last_id = capabilities.vocab_size - 1
    if any(int(token_id) > last_id for token_id in biases):
        raise RequestError(f"logit_bias: token ids of this model end at {last_id}.", param="logit_bias")
    return SamplingParams(
        temperature=_given(request.temperature, defaults.temperature),
        top_p=_given(request.top_p, defaults.top_p),
        top_k=_given(request.top_k, defaults.top_k),
        seed=request.seed,
        max_tokens=defaults.max_tokens if max_tokens is None else max_tokens,
        stop=request.stop,
        logit_bias=biases,
        guided_decoding=_guide(request, capabilities),
        reuse_context=request.reuse_context,
        cache_generated_tokens=request.cache_generated_tokens,
        skip_special_tokens=request.skip_special_tokens,
        disable_spec_decode=request.disable_spec_decode,
        min_p=_optional("min_p", request, defaults, capabilities),
        frequency_penalty=_optional("frequency_penalty", request, defaults, capabilities),
        presence_penalty=_optional("presence_penalty", request, defaults, capabilities),
        repetition_penalty=_optional("repetition_penalty", request, defaults, capabilities),
        **further,
    )


def _given(value: Any, default: Any) -> Any:
    return default if value is None else value


def _optional(name: str, request: SamplingFields, defaults: SamplingDefaults, capabilities: Capabilities) -> float:
    asked: float | None = getattr(request, name)
    neutral = OPTIONAL_PARAMETERS[name]
    if name in capabilities.parameters:
        default: float = getattr(defaults, name)
        return default if asked is None else asked
    if asked is not None and asked != neutral:
        raise UnsupportedParameterError(f"{name} is not supported by this model's runtime.", param=name)
    return neutral


def refuse_without_effect(request: ChatRequest, capabilities: Capabilities) -> None:
    """Raises UnsupportedParameterError for what this model's template does not read, unless it asks for nothing."""
    reads, reasons = capabilities.template_fields, capabilities.output_style.reasoning_parser != NONE
    asked = _template_value(request, "enable_thinking")
    # A model that reasons without being told so does what true asks for, and cannot do what false asks for.
    if asked is not None and asked is not reasons and "enable_thinking" not in reads:
        raise _without_effect(request, "enable_thinking")
    effort = _template_value(request, "reasoning_effort")
    if effort in _THINKING_EFFORTS and not reads and not reasons:
        raise _without_effect(request, "reasoning_effort")


def _without_effect(request: ChatRequest, name: str) -> UnsupportedParameterError:
    inner = getattr(request.chat_template_kwargs, name, None) is not None
    param = f"chat_template_kwargs.{name}" if inner else name
    return UnsupportedParameterError(f"{param} has no effect on this model; leave it out.", param=param)


def _thinks(request: ChatRequest) -> bool:
    """As asked; else a reasoning effort that is worth the name asks for it."""
    asked: bool | None = _template_value(request, "enable_thinking")
    return _template_value(request, "reasoning_effort") in _THINKING_EFFORTS if asked is None else asked


def _template_value(request: ChatRequest, name: str) -> Any:
    asked = getattr(request, name)
    inner = getattr(request.chat_template_kwargs, name, None)
    if asked is not None and inner is not None and asked != inner:
        raise RequestError(f"{name} and chat_template_kwargs.{name} must agree.", param=f"chat_template_kwargs.{name}")
    return inner if asked is None else asked


def _guide(request: SamplingFields, capabilities: Capabilities) -> GuidedDecoding | None:
    asked = request.guided_decoding.model_dump(exclude_unset=True) if request.guided_decoding else None
    guide, param = parse_guided_decoding(asked), "guided_decoding"
    if request.response_format is not None and request.response_format.type != "text":
        if guide is not None:
            raise RequestError("guided_decoding and response_format exclude each other.", param="guided_decoding")
        guide, param = _format_guide(request.response_format), "response_format"
    if guide is not None and guide.type not in capabilities.guided_decoding:
        raise UnsupportedParameterError(f"{param}: {guide.type} is not supported by this model's runtime.", param=param)
    return guide


def _format_guide(response_format: ResponseFormat) -> GuidedDecoding:
    if response_format.type == "json_object":
        return GuidedDecoding("json_object")
    schema = response_format.json_schema.schema_ if response_format.json_schema else None
    if schema is None:
        raise RequestError(f"{_FORMAT_SCHEMA} is required.", param=_FORMAT_SCHEMA)
    try:
        guide = parse_guided_decoding({"json_schema": schema})
    except InvalidSchemaError as error:
        raise GuidePaths([(_GUIDE_SCHEMA, _FORMAT_SCHEMA)]).as_asked(error) from None
    if guide is None:  # an empty schema still asks for JSON
        return GuidedDecoding("json_schema", "{}")
    return guide


def guide_field(request: SamplingFields) -> str:
    """The field of response_format that asks for a guide, as errors name it; empty where none does."""
    response_format = request.response_format
    if response_format is None or response_format.type == "text":
        return ""
    return _FORMAT_SCHEMA if response_format.type == "json_schema" else "response_format"


def guide_paths(request: SamplingFields) -> GuidePaths:
    """What errors about a guide are renamed by: below, every guide is a guided_decoding."""
    return GuidePaths([(_GUIDE_SCHEMA, _FORMAT_SCHEMA)] if request.response_format is not None else [])


def unsupported_fields(capabilities: Capabilities) -> Sequence[str]:
    """What /v1/models lists as refused for this model, beside what no model of this server takes."""
    refused = [name for name in OPTIONAL_PARAMETERS if name not in capabilities.parameters]
    if capabilities.output_style.reasoning_parser == NONE:
        refused += CLIENT_FIELDS - capabilities.template_fields
    if not capabilities.guided_decoding:
        refused += ["guided_decoding", "response_format"]
    return sorted(refused)
