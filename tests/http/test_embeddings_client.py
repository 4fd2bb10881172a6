"""Embeddings through the openai client, from a daemon with a tiny checkpoint made for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import openai
import pytest
from tests.http.daemon_process import MODEL, Daemon
from tests.models.pooling import write_pooling
from tests.models.tiny_checkpoints import VARIANTS, config_json, make_weights, write_checkpoint
from tests.reference.decoder import ReferenceDecoder
from tokenizers import Tokenizer

VARIANT = VARIANTS["qwen3"]
TEXTS = ["the quick brown fox", "jumps over the lazy dog", "x"]
# A float16 KV cache, in vectors whose numbers are about 0.1: a wrong row or position is off by as much as that.
TOLERANCE = 5e-3


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_checkpoint(tmp_path_factory.mktemp("embeddings") / "model", VARIANT)
    return write_pooling(folder, VARIANT.hidden_size)


@pytest.fixture(scope="module")
def daemon(checkpoint: Path) -> Iterator[Daemon]:
    cache = checkpoint.parent / "cache"
    started = Daemon(checkpoint, "--cache-dir", str(cache), "--quantisation", "f32")
    try:
        yield started.wait_until_ready()
        started.still_serves()
    finally:
        started.stop()


@pytest.fixture
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def test_vectors_are_those_of_the_reference(client: openai.OpenAI, checkpoint: Path) -> None:
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    decoder = ReferenceDecoder(config_json(VARIANT), make_weights(VARIANT), np.float64)
    ids = [tokenizer.encode(text).ids for text in TEXTS]
    answer = client.embeddings.create(model=MODEL, input=TEXTS)  # base64, which the client asks for by itself
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == sum(len(each) for each in ids)
    for item, token_ids in zip(answer.data, ids, strict=True):
        expected = decoder.hidden(token_ids)[-1]
        np.testing.assert_allclose(item.embedding, expected / np.linalg.norm(expected), atol=TOLERANCE)
    again = client.embeddings.create(model=MODEL, input=ids, encoding_format="float")
    for item, other in zip(answer.data, again.data, strict=True):
        np.testing.assert_allclose(item.embedding, other.embedding, atol=TOLERANCE)


def test_a_long_list_of_inputs_keeps_its_order(client: openai.OpenAI, daemon: Daemon) -> None:
    alone = {text: client.embeddings.create(model=MODEL, input=text).data[0].embedding for text in TEXTS}
    inputs = TEXTS * 100
    answer = client.embeddings.create(model=MODEL, input=inputs)
    for item, text in zip(answer.data, inputs, strict=True):
        np.testing.assert_allclose(item.embedding, alone[text], atol=TOLERANCE)
    daemon.wait_for(daemon.is_idle)


def test_the_model_list_shows_the_size(daemon: Daemon) -> None:
    shown = httpx.get(f"{daemon.url}/v1/models/{MODEL}").json()["edgellm"]
    assert shown["embeddings"] == {"size": VARIANT.hidden_size, "shorter_sizes": []}


def test_what_cannot_be_is_refused_in_the_clients_words(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as cut:
        client.embeddings.create(model=MODEL, input="x", dimensions=8)
    assert cut.value.param == "dimensions"
    with pytest.raises(openai.BadRequestError) as long:
        client.embeddings.create(model=MODEL, input="x " * 4000)
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "input")
    with pytest.raises(openai.BadRequestError) as unknown:
        client.embeddings.create(model=MODEL, input=[VARIANT.vocab_size])
    assert unknown.value.param == "input"
