"""A byte-level BPE tokenizer of a few hundred tokens in Hugging Face form: every byte has a token."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
BEGIN_OF_TEXT = "<|begin_of_text|>"

# Each word adds the merges that build it left to right.
MERGED_WORDS = (
    *("the", "in", "er", "on", "re", "at", "en", "or", "es", "an", "is", "it", "st", "al", "ar", "th", "he", "and"),
    *("ing", "ion", "ed", "ou", "le", "nd", "to", "of", "user", "assistant", "system", "hello", "world", "you", "are"),
    *("model", "answer", "question", "one", "two", "three"),
)
MERGED_AFTER_SPACE = ("t", "a", "the", "is", "of", "and", "in", "to", "w", "b", "s", "m", "you", "model", "what")

CHATML_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{ '<|im_start|>' ~ message.role ~ '\\n' }}"
    "{%- if message.content is string -%}{{ message.content }}{%- endif -%}"
    "{{ '<|im_end|>\\n' }}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\\n' }}{%- endif -%}"
)

# Patterns that llama 3 and qwen 2 publish in their tokenizer.json files.
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")


def byte_characters() -> list[str]:
    """The printable character that stands for each byte in byte-level BPE, by byte value."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    characters: list[str] = []
    moved = 0
    for value in range(256):
        if value in printable:
            characters.append(chr(value))
        else:
            characters.append(chr(256 + moved))
            moved += 1
    return characters


@dataclass(frozen=True, slots=True)
class TinyTokenizer:
    """``pre_tokenizer`` is one of gpt2, smollm, llama3, qwen2. ``specials_first`` puts special ids at 0, else last."""

    pre_tokenizer: str = "gpt2"
    specials_first: bool = True
    adds_bos: bool = False
    plain_added_tokens: tuple[str, ...] = ()
    chat_template: str | None = CHATML_TEMPLATE

    @property
    def special_tokens(self) -> tuple[str, ...]:
        return (END_OF_TEXT, TURN_START, TURN_END, *((BEGIN_OF_TEXT,) if self.adds_bos else ()))

    def vocabulary(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """Token to id (added tokens too), and the merges in rank order."""
        characters = byte_characters()
        space = characters[0x20]
        merges: list[tuple[str, str]] = []
        tokens = sorted(characters)
        known = set(tokens)
        words = [*MERGED_WORDS, *(space + word for word in MERGED_AFTER_SPACE)]
        for word in words:
            for end in range(2, len(word) + 1):
                if word[:end] not in known:
                    known.add(word[:end])
                    tokens.append(word[:end])
                    merges.append((word[: end - 1], word[end - 1]))
        added = [*self.special_tokens, *self.plain_added_tokens]
        ordered = added + tokens if self.specials_first else tokens + added
        return {token: index for index, token in enumerate(ordered)}, merges

    def id_of(self, token: str) -> int:
        return self.vocabulary()[0][token]

    def _pre_tokenizer_json(self) -> Mapping[str, object]:
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        if self.pre_tokenizer == "gpt2":
            return byte_level
        if self.pre_tokenizer == "smollm":
            digits = {"type": "Digits", "individual_digits": True}
            return {"type": "Sequence", "pretokenizers": [digits, byte_level]}
        pattern = {"llama3": LLAMA3_PATTERN, "qwen2": QWEN2_PATTERN}[self.pre_tokenizer]
        split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        return {"type": "Sequence", "pretokenizers": [split, {**byte_level, "use_regex": False}]}

    def _post_processor_json(self) -> Mapping[str, object]:
        byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
        if not self.adds_bos:
            return byte_level
        bos = {"SpecialToken": {"id": BEGIN_OF_TEXT, "type_id": 0}}
        template = {
            "type": "TemplateProcessing",
            "single": [bos, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [bos, {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                BEGIN_OF_TEXT: {"id": BEGIN_OF_TEXT, "ids": [self.id_of(BEGIN_OF_TEXT)], "tokens": [BEGIN_OF_TEXT]}
            },
        }
        return {"type": "Sequence", "processors": [byte_level, template]}

    def _added_tokens(self) -> list[dict[str, object]]:
        ids, _ = self.vocabulary()
        added = [(token, True) for token in self.special_tokens] + [(token, False) for token in self.plain_added_tokens]
        return [
            {
                "id": ids[token],
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": special,
            }
            for token, special in added
        ]

    def write(self, folder: Path, context_length: int) -> None:
        """Write tokenizer.json and tokenizer_config.json."""
        ids, merges = self.vocabulary()
        plain = {token: index for token, index in ids.items() if token not in self.plain_added_tokens}
        tokenizer = {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": self._added_tokens(),
            "normalizer": {"type": "NFC"} if self.pre_tokenizer == "qwen2" else None,
            "pre_tokenizer": self._pre_tokenizer_json(),
            "post_processor": self._post_processor_json(),
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": self.pre_tokenizer == "llama3",
                "vocab": plain,
                "merges": [list(pair) for pair in merges],
            },
        }
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")
        config: dict[str, object] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BEGIN_OF_TEXT if self.adds_bos else None,
            "eos_token": TURN_END,
            "pad_token": END_OF_TEXT,
            "add_bos_token": self.adds_bos,
            "clean_up_tokenization_spaces": False,
            "model_max_length": context_length,
            "added_tokens_decoder": {
                str(token["id"]): {key: value for key, value in token.items() if key != "id"}
                for token in self._added_tokens()
            },
        }
        if self.chat_template is not None:
            prefix = "{{- bos_token -}}" if self.adds_bos else ""
            config["chat_template"] = prefix + self.chat_template
        (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False), encoding="utf-8")
