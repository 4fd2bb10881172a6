"""Builds the contract's LLMGenerationRequest for one sequence: every field is set, since its defaults are zero."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edgellm.errors import UnsupportedParameterError
from edgellm.media.media_input import DecodedMedia
from edgellm.parsing.messages import ChatMessage, ContentPart, ToolCall, normalise_messages
from edgellm.runtime.contract import RuntimeModule, StreamChannel
from edgellm.runtime.generation import ChatPrompt, GenerationRequest, TextPrompt
from edgellm.runtime.guided_decoding import GuidedDecoding, guide_for_engine, guided_schemas
from edgellm.runtime.native_errors import refused_guide, writes_for_clients
from edgellm.runtime.sampling_params import SamplingParams
from edgellm.runtime.schema_keywords import refuse_unenforced
from edgellm.runtime.tools import Tool, ToolChoice, normalise_tools

# What only our module can express, with the value that asks for nothing.
EXTENSION_PARAMETERS: dict[str, float | bool] = {
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "ignore_eos": False,
}

_REPLAY_TAIL_DERIVED = -1
_REPLAY_TAIL_NONE = 0


class NativeRequestBuilder:
    """Turns GenerationRequests into requests of one runtime module; what the module lacks is refused by name."""

    def __init__(self, module: RuntimeModule, *, context_cache: bool, has_draft_model: bool) -> None:
        self._module = module
        self._context_cache = context_cache
        self._has_draft_model = has_draft_model
        self.has_extensions = hasattr(module.Request(), "extensions")

    def build(self, request: GenerationRequest, media: Sequence[DecodedMedia] = ()) -> tuple[Any, StreamChannel]:
        """Give the native request and its channel, which every request has: it is the cancel handle.

        ``media`` is what came of the request's.
        """
        module, params = self._module, request.params
        channel: StreamChannel = module.StreamChannel.create()
        channel.set_skip_special_tokens(params.skip_special_tokens)
        native = module.LLMGenerationRequest()
        self._set_sampling(native, params)
        self._set_policies(native, request)
        item = module.Request()
        if request.prompt_token_ids is None:
            self._set_prompt(native, item, request)
        self._set_item(item, request)
        if media:
            from edgellm.runtime.native_buffers import native_buffers  # text alone needs no arrays

            item.image_buffers, item.audio_buffers = native_buffers(module, media)
        native.requests = [item]
        native.stream_channels = [channel]
        return native, channel

    def _set_sampling(self, native: Any, params: SamplingParams) -> None:
        native.temperature = params.temperature
        # A runtime that samples at temperature 0 still finds the greedy token through top_k 1.
        native.top_k = 1 if params.temperature == 0 else params.top_k
        native.top_p = 1.0 if params.temperature == 0 else params.top_p
        native.max_generate_length = params.max_tokens
        native.num_logprobs = params.num_logprobs
        native.skip_special_tokens = params.skip_special_tokens
        native.disable_spec_decode = params.disable_spec_decode
        native.enable_thinking = params.enable_thinking
        native.reasoning_effort = params.reasoning_effort

    def _set_policies(self, native: Any, request: GenerationRequest) -> None:
        params, prompt = request.params, request.prompt
        lookup, commit = self._module.ContextCacheLookupPolicy, self._module.ContextCacheCommitPolicy
        native.context_cache_lookup_policy = lookup.USE_CACHE if params.reuse_context else lookup.BYPASS
        native.context_cache_commit_policy = (
            commit.INCLUDING_GENERATED_TOKENS if params.cache_generated_tokens else commit.PREFILL_STATE_ONLY
        )
        derive_tail = (
            self._context_cache
            and not params.cache_generated_tokens
            and self._has_draft_model
            and isinstance(prompt, ChatPrompt)
            and prompt.apply_chat_template
            and prompt.add_generation_prompt
        )
        native.context_cache_replay_tail_length = _REPLAY_TAIL_DERIVED if derive_tail else _REPLAY_TAIL_NONE

    def _set_prompt(self, native: Any, item: Any, request: GenerationRequest) -> None:
        prompt = request.prompt
        if isinstance(prompt, ChatPrompt):
            tools, choice = normalise_tools(prompt.tools, prompt.tool_choice)
            native.apply_chat_template = prompt.apply_chat_template
            native.add_generation_prompt = prompt.add_generation_prompt
            native.parallel_tool_calls = prompt.parallel_tool_calls
            native.tools = [self._tool(tool) for tool in tools]
            native.tool_choice = self._tool_choice(choice)
            item.messages = self.messages(
                normalise_messages(prompt.messages, modalities=("text", *(each.kind for each in request.media)))
            )
        elif isinstance(prompt, TextPrompt):
            native.apply_chat_template = False
            native.add_generation_prompt = False
            item.messages = self.messages([ChatMessage("user", [ContentPart("text", prompt.text)])])
        else:
            raise UnsupportedParameterError("this runtime takes no prompts of token ids", param="prompt")

    def _set_item(self, item: Any, request: GenerationRequest) -> None:
        params = request.params
        item.stop_strings = list(params.stop_strings)
        item.logit_bias = params.bias_by_token_id
        if params.seed is not None:
            item.sampling_seed = params.seed
        if params.guide is not None:
            item.guided_decoding = self._guide(params.guide)
        if not self.has_extensions:
            self._refuse_extensions(request)
            return
        extensions = item.extensions
        if request.prompt_token_ids is not None:
            extensions.token_ids = request.prompt_token_ids
        for name in EXTENSION_PARAMETERS:
            setattr(extensions, name, getattr(params, name))
        extensions.cache_domain = request.cache_domain
        extensions.embeddings = request.embedding

    def _refuse_extensions(self, request: GenerationRequest) -> None:
        if request.prompt_token_ids is not None:
            raise UnsupportedParameterError("this runtime takes no prompts of token ids", param="prompt")
        if request.embedding:
            raise UnsupportedParameterError("this runtime makes no embeddings", param="model")
        for name, neutral in EXTENSION_PARAMETERS.items():
            if getattr(request.params, name) != neutral:
                raise UnsupportedParameterError(f"this runtime has no {name}", param=name)

    def _guide(self, guide: GuidedDecoding) -> Any:
        module = self._module
        on_tensorrt = not writes_for_clients(module)
        for schema, path in guided_schemas(guide):
            refuse_unenforced(schema, path, on_tensorrt=on_tensorrt)
        guide = guide_for_engine(guide, on_tensorrt=on_tensorrt)
        native_guide = module.GuidedDecodingParams(getattr(module.GuideType, guide.type.upper()), guide.guide)
        validate = getattr(module, "validate_guided_decoding_params", None)
        if validate is not None:
            enforceable, reason = validate(native_guide)
            if not enforceable:
                own_text = reason if writes_for_clients(module) else ""
                raise refused_guide(own_text, guide_path=f"guided_decoding.{guide.type}")
        return native_guide

    def messages(self, messages: Sequence[ChatMessage]) -> list[Any]:
        """Give the contract's Message objects."""
        return [self._message(message) for message in messages]

    def _message(self, message: ChatMessage) -> Any:
        module = self._module
        native = module.Message()
        native.role = message.role
        native.contents = [module.MessageContent(part.type, part.content) for part in message.contents]
        native.reasoning_content = message.reasoning_content
        native.has_reasoning_content = message.has_reasoning_content
        native.tool_calls = [self._tool_call(call) for call in message.tool_calls]
        native.has_tool_calls = message.has_tool_calls
        native.tool_call_id = message.tool_call_id
        native.name = message.name
        native.has_content = message.has_content
        native.content_is_array = message.content_is_array
        native.content_is_null = message.content_is_null
        return native

    def _tool_call(self, call: ToolCall) -> Any:
        native = self._module.MessageToolCall()
        native.id = call.id
        native.type = call.type
        native.name = call.name
        native.arguments = call.arguments
        native.arguments_is_string = call.arguments_is_string
        return native

    def _tool(self, tool: Tool) -> Any:
        native = self._module.ToolDefinition()
        native.name = tool.name
        native.description = tool.description
        native.parameters = tool.parameters
        native.strict = tool.strict
        native.has_description = tool.has_description
        native.has_parameters = tool.has_parameters
        native.has_strict = tool.has_strict
        return native

    def _tool_choice(self, choice: ToolChoice) -> Any:
        native = self._module.ToolChoice()
        native.mode = getattr(self._module.ToolChoiceMode, choice.mode.upper())
        native.function_name = choice.function_name
        return native
