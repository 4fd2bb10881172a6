"""JSON schemas with the real model: whatever ends is valid, whatever is cut off could have become so."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import jsonschema
import llguidance
import pytest
from tests.models.real_model import CATALOGUE_NAME
from tests.native.random_schemas import Schema, SchemaMaker

from edgellm.runtime.llm import LLM
from edgellm.runtime.outputs import CompletionOutput
from edgellm.runtime.sampling_params import SamplingParams

pytestmark = pytest.mark.model

ANSWER_TOKENS = 200
# As the runtime compiles: white space between tokens is bounded.
WHITE_SPACE = {"whitespace_pattern": r"[\x20\x0A\x0D\x09]{1,64}"}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM(CATALOGUE_NAME, max_kv_cache_capacity=2048, max_input_len=1500) as model:
        yield model


def _answers(llm: LLM, schemas: list[Schema]) -> list[CompletionOutput]:
    def answer(numbered: tuple[int, Schema]) -> CompletionOutput:
        seed, schema = numbered
        params = SamplingParams(
            temperature=0.8,
            seed=seed,
            max_tokens=ANSWER_TOKENS,
            guided_decoding={"json_schema": json.dumps(schema)},
            reuse_context=False,
            cache_generated_tokens=False,
        )
        question = f"Write one short JSON value that fits this schema: {json.dumps(schema)}"
        return llm.chat([{"role": "user", "content": question}], params)

    with ThreadPoolExecutor(2 * llm.max_batch_size) as pool:
        return list(pool.map(answer, enumerate(schemas)))


def _accepts_as_prefix(schema: Schema, text: str) -> bool:
    grammar = llguidance.LLMatcher.grammar_from_json_schema({**schema, "x-guidance": WHITE_SPACE})
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar)
    assert not matcher.get_error()
    return bool(matcher.consume_tokens(list(text.encode())))


def _check(schemas: list[Schema], outputs: list[CompletionOutput]) -> Counter[str]:
    ends: Counter[str] = Counter()
    for schema, output in zip(schemas, outputs, strict=True):
        ends[str(output.finish_reason)] += 1
        if output.finish_reason == "stop":
            # Digit by digit, as the grammar has it: 29.0000000000000001 is more than 29, and as a double it is not.
            value = json.loads(output.text, parse_float=Decimal)
            exact = json.loads(json.dumps(schema), parse_float=Decimal)
            # The draft's own checks of formats: the general ones hold times to an older draft.
            draft = jsonschema.Draft202012Validator
            jsonschema.validate(value, exact, cls=draft, format_checker=draft.FORMAT_CHECKER)
        else:
            assert output.finish_reason == "length"
            assert _accepts_as_prefix(schema, output.text), (schema, output.text)
    return ends


def _schemas(seed: int, count: int) -> list[Schema]:
    maker = SchemaMaker(seed)
    return [maker.schema() for _ in range(count)]


def test_the_matcher_of_this_test_tells_prefixes_apart() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 50}}, "required": ["a"]}
    assert _accepts_as_prefix(schema, '{"a": 4')
    assert not _accepts_as_prefix(schema, '{"a": 70')
    assert not _accepts_as_prefix(schema, "Sure!")


@pytest.mark.long
@pytest.mark.ci_slice
def test_some_random_schemas(llm: LLM) -> None:
    schemas = _schemas(1, 16)
    ends = _check(schemas, _answers(llm, schemas))
    assert ends["stop"] >= 10


@pytest.mark.long
def test_two_hundred_random_schemas(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    schemas = _schemas(0, 200)
    ends = _check(schemas, _answers(llm, schemas))
    with capsys.disabled():
        print(f"\n200 random schemas: {dict(ends)}")
    assert ends["stop"] >= 150
