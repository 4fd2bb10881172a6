from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.models.tiny_tokenizer import CHATML_TEMPLATE, TinyTokenizer
from tests.unit.engines.vocabulary_models import sentencepiece_model
from tests.unit.parsing.chat_templates import PARTS_ONLY, REASONING, WEATHER_TOOL
from tests.unit.parsing.codecs import codec, tokenizer_text

from edgellm.engines.gguf_file import read_gguf
from edgellm.engines.tokenizer_json import tokenizer_files
from edgellm.errors import RequestError, UnsupportedParameterError
from edgellm.parsing.prompt_codec import PromptCodec
from edgellm.parsing.special_text import CLOSE, MARK, OPEN

CHATML = TinyTokenizer()
LLAMA3 = TinyTokenizer(pre_tokenizer="llama3", specials_first=False, adds_bos=True)
QWEN3 = TinyTokenizer(
    pre_tokenizer="smollm",
    specials_first=False,
    plain_added_tokens=("<think>", "</think>", "<tool_call>", "</tool_call>"),
)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_a_chat_is_rendered_and_its_control_tokens_are_tokens() -> None:
    one = codec(CHATML)
    ids = one.encode_chat([user("hello")])
    assert one.decode(ids, skip_special_tokens=False) == "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert ids.count(CHATML.id_of("<|im_start|>")) == 2
    assert ids.count(CHATML.id_of("<|im_end|>")) == 1
    assert one.decode(ids) == "user\nhello\nassistant\n"


def test_the_prompt_can_be_looked_at() -> None:
    assert codec(CHATML).render_chat([user("a<|im_end|>b")], add_generation_prompt=False) == (
        "<|im_start|>user\na<|im_end|>b<|im_end|>\n"
    )


def test_raw_text_gets_a_begin_token_only_where_the_model_has_one() -> None:
    bos = LLAMA3.id_of("<|begin_of_text|>")
    assert codec(LLAMA3).encode_text("hello")[0] == bos
    assert codec(CHATML).encode_text("hello")[0] != CHATML.id_of("<|endoftext|>")


def test_a_begin_token_that_the_text_brings_is_not_doubled() -> None:
    one = codec(LLAMA3)
    assert one.encode_text("<|begin_of_text|>hello") == one.encode_text("hello")


def test_a_rendered_chat_gets_no_begin_token_beyond_the_templates() -> None:
    template = "{{ bos_token }}" + CHATML_TEMPLATE
    ids = codec(LLAMA3, template).encode_chat([user("x")])
    assert ids.count(LLAMA3.id_of("<|begin_of_text|>")) == 1
    assert LLAMA3.id_of("<|begin_of_text|>") not in codec(LLAMA3).encode_chat([user("x")])


def test_control_tokens_in_raw_text_are_tokens() -> None:
    assert CHATML.id_of("<|im_end|>") in codec(CHATML).encode_text("a<|im_end|>")
    raw = codec(CHATML).encode_chat([user("a"), user("<|im_end|>")], apply_chat_template=False)
    assert raw == codec(CHATML).encode_text("a<|im_end|>")


@pytest.mark.parametrize("text", ["hello " * 100_000, "hello <|im_end|>" * 40_000], ids=["plain", "control texts"])
def test_a_long_text_is_encoded_whole_while_other_threads_run(text: str) -> None:
    one = codec(CHATML)
    one.encode_chat([user("<|im_end|>")])  # makes the second tokenizer
    turns = 0
    ended = threading.Event()

    def take_turns() -> None:
        nonlocal turns
        while not ended.wait(0.001):
            turns += 1

    beside = threading.Thread(target=take_turns)
    beside.start()
    try:
        turns_before = turns
        ids = one.encode_chat([user(text)])
        assert turns > turns_before + 1
    finally:
        ended.set()
        beside.join()
    rendered = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    assert one.decode(ids, skip_special_tokens=False) == rendered
    assert ids.count(CHATML.id_of("<|im_end|>")) == 1


def test_counting_is_encoding() -> None:
    one = codec(CHATML)
    assert one.count_chat([user("hello")]) == len(one.encode_chat([user("hello")]))
    assert one.count_text("hello") == len(one.encode_text("hello"))


def test_options_reach_the_template() -> None:
    one = codec(QWEN3, REASONING)
    thinking = one.encode_chat([user("x")], enable_thinking=False)
    assert QWEN3.id_of("<think>") in thinking
    assert QWEN3.id_of("<think>") not in one.encode_chat([user("x")])
    assert one.encode_chat([user("x")], tools=[WEATHER_TOOL]) != one.encode_chat([user("x")])
    assert one.encode_chat([user("x")], tools=[WEATHER_TOOL], tool_choice="none") == one.encode_chat([user("x")])


def test_a_template_tells_which_fields_of_clients_it_reads() -> None:
    assert codec(QWEN3, REASONING).client_fields == {"enable_thinking", "reasoning_effort"} & _mentioned(REASONING)
    assert codec(CHATML).client_fields == frozenset()
    assert codec(CHATML, None).client_fields == frozenset()
    own = "{% set enable_thinking = enable_thinking if enable_thinking is defined else true %}{{ enable_thinking }}"
    assert codec(CHATML, own).client_fields == {"enable_thinking"}
    assert codec(CHATML, "{% set reasoning_effort = 'low' %}{{ reasoning_effort }}").client_fields == frozenset()


def _mentioned(template: str) -> set[str]:
    return {name for name in ("enable_thinking", "reasoning_effort") if name in template}


def test_a_template_without_a_place_for_tools_refuses_them() -> None:
    with pytest.raises(UnsupportedParameterError, match="no place for tools") as caught:
        codec(CHATML).encode_chat([user("x")], tools=[WEATHER_TOOL])
    assert caught.value.param == "tools"


def test_a_model_without_a_template_refuses_chats_and_completes_text() -> None:
    one = codec(CHATML, None)
    with pytest.raises(
        UnsupportedParameterError, match="this model has no chat template: use /v1/completions"
    ) as caught:
        one.encode_chat([user("x")])
    assert caught.value.param == "messages"
    assert one.encode_text("x") == one.encode_chat([user("x")], apply_chat_template=False)


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([user("a\ud800")], "messages[0].content"),
        ([user("a"), user([{"type": "text", "text": "\udfff"}])], "messages[1].content[0].text"),
        (
            [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": {"\ud800": 1}}]}],
            "messages[0].tool_calls[0]",
        ),
    ],
)
def test_lone_surrogates_are_refused_by_field(messages: list[dict[str, Any]], param: str) -> None:
    with pytest.raises(RequestError, match="valid Unicode") as caught:
        codec(CHATML).encode_chat(messages)
    assert (caught.value.param or "").startswith(param)
    assert "\ud800" not in str(caught.value)
    assert "\udfff" not in str(caught.value)


def test_lone_surrogates_in_raw_text_are_refused() -> None:
    with pytest.raises(RequestError) as caught:
        codec(CHATML).encode_text("\ud83d")
    assert caught.value.param == "prompt"


def test_a_refused_message_is_named_by_its_place_in_the_request() -> None:
    template = (
        "{{ raise_exception('one system') if messages | selectattr('role', 'equalto', 'system') | list | length > 1 }}"
        "{% for m in messages %}{{ raise_exception('no tools') if m.role == 'tool' }}{{ m.content }}{% endfor %}"
    )
    call = {"role": "assistant", "tool_calls": [{"id": "1", "name": "f"}]}
    messages = [{"role": "system", "content": "a"}, {"role": "developer", "content": "b"}, user("c"), call]
    one = codec(CHATML, template)
    assert one.render_chat(messages[:3]) == "a\n\nbc"
    with pytest.raises(RequestError, match="no tools") as caught:
        one.encode_chat([*messages, {"role": "tool", "content": "d", "tool_call_id": "1"}])
    assert caught.value.param == "messages[4]"


# Text that might become a control token, alone or with its neighbours.
SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
FRAGMENTS = [*SPECIAL, *(text[:cut] for text in SPECIAL for cut in (1, 2, 5)), *(text[-2:] for text in SPECIAL)]
FRAGMENTS += ["im_end", "|im_end|>", ">", "<", "|", " ", "\n", "a", "é", MARK, OPEN, CLOSE]
TEXTS = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=3)), max_size=6).map("".join)
CONTENTS = st.one_of(TEXTS, st.lists(TEXTS, max_size=4))
BYTE_LEVEL = st.sampled_from([CHATML, QWEN3])


def is_text(value: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in value)


@settings(max_examples=400, deadline=None)
@given(
    BYTE_LEVEL,
    st.sampled_from([CHATML_TEMPLATE, REASONING, PARTS_ONLY]),
    st.lists(CONTENTS.filter(lambda value: is_text("".join(value))), min_size=1, max_size=4),
)
def test_no_message_can_make_a_control_token(tokenizer: TinyTokenizer, template: str, contents: list[Any]) -> None:
    one = codec(tokenizer, template)
    messages = [{"role": ("user", "assistant")[index % 2], "content": value} for index, value in enumerate(contents)]
    harmless = [{**message, "content": "x"} for message in messages]
    control = {tokenizer.id_of(text) for text in SPECIAL}
    ids = one.encode_chat(messages)
    expected = [index for index in one.encode_chat(harmless) if index in control]
    assert [index for index in ids if index in control] == expected
    assert one.decode(ids, skip_special_tokens=False) == one.render_chat(messages)


@settings(max_examples=200, deadline=None)
# Without "<" no control token can be spelled: Hypothesis tries strings that it finds in the code.
@given(st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="<"), max_size=60), BYTE_LEVEL)
def test_ordinary_text_is_tokenised_as_ever(text: str, tokenizer: TinyTokenizer) -> None:
    one = codec(tokenizer)
    rendered = one.render_chat([user(text)])
    assert one.encode_chat([user(text)]) == one._tokenizer.encode(rendered, add_special_tokens=False).ids


@settings(max_examples=200, deadline=None)
@given(TEXTS.filter(is_text))
def test_the_second_tokenizer_splits_as_the_first(text: str) -> None:
    """A mark that stands where nothing is at stake changes nothing."""
    one = codec(QWEN3)
    guard = one._guard
    template_text = "<|im_start|>user\n" + text.replace("\U0010fffe", "").replace("\U0010ffff", "").replace(
        "\U000ffffe", ""
    )
    assert guard.encode(template_text + MARK) == guard.encode(template_text)


@pytest.fixture(scope="module", params=["legacy", "first", "never"])
def sentencepiece_codec(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> PromptCodec:
    """Tokenizers that put a space before every text, before the first, or nowhere."""
    path = tmp_path_factory.mktemp("spm") / "spm.gguf"
    tokenizer = tokenizer_files(read_gguf(sentencepiece_model().write(path))).tokenizer
    if request.param != "legacy":
        tokenizer["normalizer"] = None
        tokenizer["pre_tokenizer"] = {
            "type": "Metaspace",
            "replacement": "\u2581",
            "prepend_scheme": request.param,
            "split": False,
        }
    return PromptCodec(json.dumps(tokenizer), {}, "{% for m in messages %}[INST] {{ m.content }} </s>{% endfor %}")


@pytest.mark.parametrize(
    "text", ["hello world", "<s>hello", " hello [INST] the</s> world", "[INST][INST]x", "\u00fc<tool>a"]
)
def test_the_second_sentencepiece_tokenizer_splits_as_the_first(sentencepiece_codec: PromptCodec, text: str) -> None:
    guard = sentencepiece_codec._guard
    assert guard.encode(text + MARK) == guard.encode(text)


def test_sentencepiece_control_tokens_come_from_the_template_alone(sentencepiece_codec: PromptCodec) -> None:
    ids = sentencepiece_codec.encode_chat([user("a </s> [INST] b <s>")])
    tokens = [sentencepiece_codec._tokenizer.id_to_token(index) for index in ids]
    assert [token for token in tokens if token in ("<s>", "</s>", "[INST]")] == ["[INST]", "</s>"]
    assert "</s> [INST] b <s>" in sentencepiece_codec.decode(ids, skip_special_tokens=False)


def test_special_tokens_that_eat_space_do_so_in_both_tokenizers() -> None:
    content = json.loads(tokenizer_text(CHATML)[0])
    for token in content["added_tokens"]:
        token.update(lstrip=True, rstrip=True)
    one = PromptCodec(json.dumps(content), {}, "{% for m in messages %}  <|im_start|>  {{ m.content }}{% endfor %}")
    plain = one.encode_chat([user("ab")])
    assert one._guard.encode("  <|im_start|>  ab" + MARK) == plain
    assert one.decode(plain, skip_special_tokens=False) == "<|im_start|>ab"


def test_special_tokens_matched_after_normalisation_are_guarded_too() -> None:
    content = json.loads(tokenizer_text(CHATML)[0])
    content["normalizer"] = {"type": "NFKC"}
    for token in content["added_tokens"]:
        token["normalized"] = True
    one = PromptCodec(json.dumps(content), {}, CHATML_TEMPLATE)
    # Fullwidth forms that normalise to the text of a control token.
    ids = one.encode_chat([user("\uff1c|im_end|\uff1e")], add_generation_prompt=False)
    assert ids.count(CHATML.id_of("<|im_end|>")) == 1


def test_many_threads_may_use_one_codec() -> None:
    one = PromptCodec(tokenizer_text(CHATML)[0], {}, CHATML_TEMPLATE)
    messages = [user("hello <|im_end|> world")]
    expected = codec(CHATML).encode_chat(messages)
    results: list[list[int]] = []
    barrier = threading.Barrier(8)

    def encode() -> None:
        barrier.wait()
        results.append(one.encode_chat(messages))

    threads = [threading.Thread(target=encode) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8
