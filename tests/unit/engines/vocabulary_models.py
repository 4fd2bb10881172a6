"""GGUF files with a whole vocabulary and hardly any weights: small enough to compare tokenizers with llama.cpp."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np

HIDDEN_SIZE = 32
SENTENCES = (
    "Hello world",
    "  two  spaces",
    "\n\n\nlines\r\n\t tabs",
    "I'm you're I'LL don'T 'S",
    "12345 67,890.12 \uff13\uff14",
    "def f(x):\n    return x**2  # ok\n",
    "naïve café Привет мир 你好世界 こんにちは 한국어",
    "🙂👨‍👩‍👧 e\u0301 \u00a0x\u3000y",
    "<|im_end|> <|im_start|>user",
    "<repo_name>x",
    "a<b>c</s> [INST]",
    "   ",
    "",
    " ",
    "\u200b\u2028\u0085x",
    "ÀÉ ǅ ʰ ª \U0001d518 Ⅷ ²³",
    "$100 + 50% = £3 «q» …—“x”",
    "عربي हिन्दी ไทย",
)
CHARACTER_POOLS = (
    *("abc XYZ", "0123456789", "  \n\r\t", "'sSdDmMtTlLvVrReE", '!?.,;:-_/()[]{}<>|@#$%^&*+=~`"\\'),
    *("àéîõü çñß", "漢字かなカナ", "🙂👍🏽", "\u0301\u0300\u00a0\u3000\u2003", "Ж и", "²½Ⅷ٣"),
)


@dataclass
class VocabularyModel:
    """What a GGUF file says about its tokenizer. Ids of bos, eos and unknown are 1, 2, 0."""

    texts: Sequence[str]
    kinds: Sequence[int]
    model: str = "gpt2"
    pre: str | None = None
    merges: Sequence[str] | None = None
    scores: Sequence[float] | None = None
    flags: dict[str, bool] = field(default_factory=dict)

    def write(self, path: Path) -> Path:
        writer = gguf.GGUFWriter(path, "llama")
        writer.add_block_count(1)
        writer.add_context_length(4096)
        writer.add_embedding_length(HIDDEN_SIZE)
        writer.add_feed_forward_length(HIDDEN_SIZE)
        writer.add_head_count(1)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_dimension_count(HIDDEN_SIZE)
        writer.add_tokenizer_model(self.model)
        if self.pre is not None:
            writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(list(self.texts))
        writer.add_token_types(list(self.kinds))
        if self.merges is not None:
            writer.add_token_merges(list(self.merges))
        if self.scores is not None:
            writer.add_token_scores(list(self.scores))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        for name, value in self.flags.items():
            writer.add_bool(f"tokenizer.ggml.{name}", value)
        square = np.zeros((HIDDEN_SIZE, HIDDEN_SIZE), np.float32)
        writer.add_tensor("token_embd.weight", np.zeros((len(self.texts), HIDDEN_SIZE), np.float16))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            writer.add_tensor(f"blk.0.{name}.weight", square)
        for name in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
            writer.add_tensor(f"{name}.weight", square[0])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path


def sentencepiece_model(**flags: bool) -> VocabularyModel:
    """A small SentencePiece vocabulary with byte tokens, a control token and a user-defined one."""
    words = ("the", "and", "of", "to", "in", "is", "that", "for", "model", "request", "token", "word", "hello", "world")
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{value:02X}>" for value in range(256))]
    kinds = [2, 3, 3, *[6] * 256]
    scores = [0.0] * len(texts)
    letters = "▁abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,;:!?()é漢"
    pieces = [word[:end] for base in words for word in (base, f"▁{base}") for end in range(2, len(word) + 1)]
    pieces += ["▁▁", "▁▁▁▁", "er", "on", "an", "▁a", "▁(", "..", "éé"]
    for rank, piece in enumerate(dict.fromkeys(pieces)):
        texts.append(piece)
        kinds.append(1)
        scores.append(-float(rank))
    for letter in letters:
        texts.append(letter)
        kinds.append(1)
        scores.append(-1e6 - len(texts))
    for text, kind in (("<tool>", 4), ("[INST]", 3)):
        texts.append(text)
        kinds.append(kind)
        scores.append(0.0)
    return VocabularyModel(texts, kinds, model="llama", scores=scores, flags=flags)


def sample_texts(count: int, seed: int = 0) -> list[str]:
    """Sentences, texts of characters that pre-tokenizers treat differently, and texts from all over Unicode."""
    source = random.Random(seed)
    texts = list(SENTENCES)
    for _ in range(count):
        pools = (source.choice(CHARACTER_POOLS) for _ in range(source.randint(1, 24)))
        texts.append("".join(source.choice(pool) for pool in pools))
    ranges = ((0x20, 0x24F), (0x250, 0x2FFF), (0x3000, 0xD7FF), (0xE000, 0xFFFD), (0x10000, 0x1FFFF))
    for _ in range(count // 2):
        bounds = (source.choice(ranges) for _ in range(source.randint(1, 8)))
        texts.append("".join(chr(source.randint(*bound)) for bound in bounds))
    return texts
