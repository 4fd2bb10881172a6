"""PromptCodec: messages and text to token ids and back, for one bundle. Thread-safe.

Chat prompts go through the model's template, and no text of a message can become a control token there. Raw prompts
(completions, or chat without a template) are the caller's own prompt format: control tokens in them are tokens.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer

from edgellm.errors import CheckpointError, UnsupportedModelError, UnsupportedParameterError
from edgellm.parsing.chat_template import ChatTemplate
from edgellm.parsing.messages import normalise_messages, unicode_text
from edgellm.parsing.output_style import OutputStyle, output_style
from edgellm.parsing.special_text import SpecialTextGuard, token_ids
from edgellm.parsing.template_messages import messages_for_template, tools_for_template
from edgellm.parsing.template_traits import TemplateTraits, template_traits
from edgellm.parsing.token_length import token_length

TOKENIZER_FILE = "tokenizer.json"
SPECIAL_TOKEN_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")
PROBE_TEXT = "Hello, w\u00f6rld 42!"
LengthCheck = Callable[[int], None]
"""Called before text is tokenised with a number of tokens that it has at least; may raise to refuse it."""


class PromptCodec:
    """``template`` is None for a model without a chat template."""

    def __init__(
        self,
        tokenizer_json: str,
        config: Mapping[str, Any],
        template_source: str | None,
        *,
        modalities: Sequence[str] = ("text",),
        placeholders: Sequence[str] = (),
    ) -> None:
        """``modalities`` are those that parts of messages may have. ``placeholders`` are the tokens that a template
        writes for them: in every other text they are text, also in raw prompts.

        Raises CheckpointError when the tokenizer or the template is not valid.
        """
        self._tokenizer = _tokenizer(tokenizer_json)
        self._modalities = tuple(modalities)
        kind = type(self._tokenizer.model).__name__
        if kind != "BPE":
            raise UnsupportedModelError(f"{TOKENIZER_FILE}: tokenizers of kind {kind} are not supported (BPE is)")
        self._token_length = token_length(json.loads(tokenizer_json))
        self._guard = SpecialTextGuard(
            tokenizer_json, self._tokenizer, lambda token: bool(token.special) or token.content in placeholders
        )
        self._raw_guard = (
            SpecialTextGuard(tokenizer_json, self._tokenizer, lambda token: token.content in placeholders)
            if placeholders
            else None
        )
        self.special_tokens = named_tokens(config)
        self.template: ChatTemplate | None = None
        self.traits: TemplateTraits | None = None
        if template_source is not None:
            self.template = ChatTemplate(template_source, self.special_tokens)
            self.traits = template_traits(self.template)
        self._bos_token_id = self._tokenizer.token_to_id(self.special_tokens.get("bos_token", ""))

    @property
    def client_fields(self) -> frozenset[str]:
        """Fields beside the messages that a client may set with effect, out of CLIENT_FIELDS."""
        return frozenset() if self.template is None else self.template.client_fields

    @property
    def vocab_size(self) -> int:
        size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        return size

    def output_style(self, model_name: str) -> OutputStyle:
        """How the model writes reasoning and calls."""
        special = {token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special}
        return output_style(self.template, self.traits, special, self._tokenizer.token_to_id, model_name)

    def render_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        reasoning_effort: str = "",
    ) -> str:
        """The prompt as text, control tokens and all: for people to look at, not for encoding again."""
        return self._guard.unmark(
            self._rendered(messages, tools, add_generation_prompt, enable_thinking, reasoning_effort)
        )

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        tool_choice: str | Mapping[str, Any] = "auto",
        apply_chat_template: bool = True,
        add_generation_prompt: bool = True,
        enable_thinking: bool | None = None,
        reasoning_effort: str = "",
        check_length: LengthCheck | None = None,
    ) -> list[int]:
        """Token ids of a chat prompt. ``tool_choice`` "none" shows the model no tools.

        Messages are in OpenAI form. Raises RequestError naming the field; UnsupportedParameterError when the model has
        no chat template.
        """
        if not apply_chat_template:
            normalised = normalise_messages(messages, modalities=self._modalities)
            texts = [part.content for message in normalised for part in message.contents]
            return self.encode_text("".join(texts), check_length=check_length)
        shown_tools = () if tool_choice == "none" else tools
        rendered = self._rendered(messages, shown_tools, add_generation_prompt, enable_thinking, reasoning_effort)
        if check_length is not None:
            check_length(self.fewest_tokens(self._guard.unmark(rendered)))
        return self._guard.encode(rendered)

    def fewest_tokens(self, text: str) -> int:
        """A number of tokens that ``text`` has at least, found without tokenising it; 0 where nothing can be said."""
        return 0 if self._token_length is None else self._token_length.fewest_tokens(text)

    def encode_text(self, text: str, *, param: str = "prompt", check_length: LengthCheck | None = None) -> list[int]:
        """Token ids of raw text, with a begin token when the model wants one and the text does not bring it."""
        unicode_text(text, param)
        if check_length is not None:
            check_length(self.fewest_tokens(text))
        ids = (
            token_ids(self._tokenizer, text, add_special_tokens=True)
            if self._raw_guard is None
            else self._raw_guard.encode(self._raw_guard.mark(text), add_special_tokens=True)
        )
        bos = self._bos_token_id
        return ids[1:] if bos is not None and ids[:2] == [bos, bos] else ids

    def template_ids(self, text: str) -> list[int]:
        """Token ids of text as a template writes it: control tokens are tokens, and nothing is added around it."""
        return token_ids(self._tokenizer, text, add_special_tokens=False)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens)
        return text

    def count_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> int:
        """How many tokens ``encode_chat`` gives."""
        return len(self.encode_chat(messages, **options))

    def count_text(self, text: str) -> int:
        return len(self.encode_text(text))

    def _rendered(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        enable_thinking: bool | None,
        reasoning_effort: str,
    ) -> str:
        if self.template is None or self.traits is None:
            raise UnsupportedParameterError(
                "this model has no chat template: use /v1/completions, or apply_chat_template false", param="messages"
            )

        if tools and not self.traits.shows_tools:
            raise UnsupportedParameterError("this model's chat template has no place for tools", param="tools")

        guard = self._guard.mark
        rendered, origins = messages_for_template(
            normalise_messages(messages, modalities=self._modalities), self.traits, guard
        )
        return self.template.render(
            rendered,
            tools_for_template(tools, guard) or None,
            add_generation_prompt=add_generation_prompt,
            enable_thinking=enable_thinking,
            reasoning_effort=reasoning_effort or None,
            origins=origins,
        )


def _tokenizer(tokenizer_json: str) -> Tokenizer:
    """Tried once, so that what is wrong with the file shows here and not in a request."""
    try:
        tokenizer = Tokenizer.from_str(tokenizer_json)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.decode(tokenizer.encode(PROBE_TEXT, add_special_tokens=True).ids)
    except BaseException as error:
        # The library raises a bare Exception for what it checks, and a panic, which is none, for what it does not.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise CheckpointError(f"{TOKENIZER_FILE} is not a valid tokenizer: {error}") from None
    return tokenizer


def named_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """The texts of named tokens; a token is a text or an object with its text as content."""
    tokens: dict[str, str] = {}
    for name in SPECIAL_TOKEN_NAMES:
        value = config.get(name)
        text = value.get("content") if isinstance(value, Mapping) else value
        if isinstance(text, str):
            tokens[name] = text
    return tokens
