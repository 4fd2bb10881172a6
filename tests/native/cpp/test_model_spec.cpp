// ModelSpec reads what a decoder is, and refuses files whose parts do not fit, naming key or tensor.
#include <cmath>

#include "check.hpp"
#include "contract/errors.hpp"
#include "gguf_writer.hpp"
#include "model/decoder_tensors.hpp"
#include "model/gguf_file.hpp"
#include "model/model_spec.hpp"
#include "tiny_decoder.hpp"

using edgellm::Family;
using edgellm::GgufFile;
using edgellm::ModelFileError;
using edgellm::ModelSpec;
using edgellm::RopeLayout;
using edgellm::TensorType;
using gguf_test::GgufWriter;
using gguf_test::TemporaryFile;

namespace {

ModelSpec read(const GgufWriter& writer) {
    const TemporaryFile file(writer.bytes());
    return edgellm::read_model_spec(*GgufFile::open(file.path()));
}

tiny::Shape shape_of(const std::string& architecture) {
    tiny::Shape shape;
    shape.architecture = architecture;
    return shape;
}

template <typename Change>
void check_refused(const tiny::Shape& shape, Change change, const char* text) {
    tiny::Decoder decoder(shape);
    change(decoder.writer);
    CHECK_THROWS(read(decoder.writer), ModelFileError, text);
    CHECK_THROWS(read(decoder.writer), ModelFileError, "edgellm-test-");
}

// A decoder whose 11 tokens are given, with their types.
GgufWriter with_vocab(const std::string& model, const std::vector<std::string>& tokens,
                      const std::vector<int32_t>& types) {
    tiny::Shape shape;
    shape.vocab = static_cast<uint32_t>(tokens.size());
    GgufWriter writer = tiny::Decoder(shape).writer;
    writer.remove("tokenizer.ggml.model").remove("tokenizer.ggml.tokens").remove("tokenizer.ggml.eos_token_id");
    writer.string("tokenizer.ggml.model", model).strings("tokenizer.ggml.tokens", tokens);
    if (!types.empty()) writer.integers("tokenizer.ggml.token_type", types);
    return writer;
}

}  // namespace

TEST(reads_the_shapes_of_every_family) {
    const ModelSpec llama = read(tiny::Decoder(shape_of("llama")).writer);
    CHECK(llama.family == Family::kLlama && llama.architecture == "llama" && llama.name == "tiny");
    CHECK(llama.layer_count == 2 && llama.hidden_size == 64 && llama.intermediate_size == 96 &&
          llama.vocab_size == 101);
    CHECK(llama.head_count == 4 && llama.kv_head_count == 2 && llama.head_size == 16 && llama.context_length == 4096);
    CHECK(llama.tied_embeddings && llama.rope.layout == RopeLayout::kAdjacentPairs && llama.rope.dimensions == 16);
    CHECK(llama.rope.freq_scale == 1.0F && llama.rope.freq_factors.empty());
    const ModelSpec qwen2 = read(tiny::Decoder(shape_of("qwen2")).writer);
    CHECK(qwen2.family == Family::kQwen2 && qwen2.rope.layout == RopeLayout::kHalfSplit);
    const ModelSpec qwen3 = read(tiny::Decoder(shape_of("qwen3")).writer);
    CHECK(qwen3.family == Family::kQwen3 && qwen3.rope.layout == RopeLayout::kHalfSplit);
}

TEST(head_size_comes_from_the_key_length_or_the_hidden_size) {
    tiny::Shape shape = shape_of("qwen3");
    shape.head_size = 32;  // 4 heads of 32 over a hidden size of 64
    CHECK(read(tiny::Decoder(shape).writer).head_size == 32);
    tiny::Decoder plain(shape_of("llama"));
    plain.writer.remove("llama.attention.key_length").remove("llama.attention.value_length");
    CHECK(read(plain.writer).head_size == 16);
}

TEST(untied_heads_and_absent_kv_heads_are_seen) {
    tiny::Shape shape;
    shape.tied = false;
    shape.kv_heads = 4;
    tiny::Decoder decoder(shape);
    decoder.writer.remove("llama.attention.head_count_kv");
    const ModelSpec spec = read(decoder.writer);
    CHECK(!spec.tied_embeddings && spec.kv_head_count == 4);
}

TEST(reads_rope_scaling) {
    tiny::Shape shape;
    shape.rope_factor = 4.0F;
    shape.rope_freq_factors = {1, 1, 1, 2, 2, 4, 8, 8};
    const ModelSpec spec = read(tiny::Decoder(shape).writer);
    CHECK(spec.rope.freq_scale == 0.25F);
    CHECK(spec.rope.freq_factors == shape.rope_freq_factors);
    check_refused(
        tiny::Shape{}, [](GgufWriter& w) { w.string("llama.rope.scaling.type", "yarn"); },
        "'yarn'; supported are none, linear");
    check_refused(
        tiny::Shape{}, [](GgufWriter& w) { w.floats("rope_freqs.weight", {4}, {1, 1, 1, 1}); }, "rope_freqs.weight");
    check_refused(
        tiny::Shape{}, [](GgufWriter& w) { w.floats("rope_freqs.weight", {8}, {1, 1, 1, 1, 0, 1, 1, 1}); },
        "not above 0");
    check_refused(
        tiny::Shape{}, [](GgufWriter& w) { w.f32("llama.rope.scaling.factor", 0.0F); }, "rope.scaling.factor");
    check_refused(tiny::Shape{}, [](GgufWriter& w) { w.u32("llama.rope.dimension_count", 7); }, "must be even");
}

TEST(a_sliding_window_bounds_the_context) {
    tiny::Decoder decoder{tiny::Shape{}};
    decoder.writer.u32("llama.attention.sliding_window", 512);
    CHECK(read(decoder.writer).context_length == 512);
}

TEST(an_unknown_architecture_lists_the_supported_ones) {
    tiny::Decoder decoder{tiny::Shape{}};
    decoder.writer.remove("general.architecture").string("general.architecture", "mamba");
    CHECK_THROWS(read(decoder.writer), ModelFileError,
                 "architecture 'mamba' is not supported; the supported ones are llama, qwen2, qwen3");
}

TEST(refuses_metadata_that_does_not_fit) {
    const tiny::Shape llama;
    check_refused(llama, [](GgufWriter& w) { w.remove("llama.block_count"); }, "key 'llama.block_count' is missing");
    const auto set = [&](const char* key, uint32_t value, const char* text) {
        check_refused(llama, [&](GgufWriter& w) { w.remove(key).u32(key, value); }, text);
    };
    set("llama.block_count", 0, "llama.block_count");
    set("llama.block_count", 3, "tensor 'blk.2.attn_norm.weight' is missing");
    set("llama.block_count", 1, "tensor 'blk.1.attn_norm.weight' is not part");
    set("llama.embedding_length", 32, "token_embd.weight");
    set("llama.attention.head_count_kv", 3, "does not divide");
    set("llama.attention.key_length", 15, "value_length' must be equal");
    set("llama.attention.head_count", 0xFFFFFFFF, "llama.attention.head_count");
    check_refused(llama, [](GgufWriter& w) { w.u32("llama.expert_count", 8); }, "mixture-of-experts");
    check_refused(
        llama,
        [](GgufWriter& w) {
            w.remove("llama.attention.layer_norm_rms_epsilon").f32("llama.attention.layer_norm_rms_epsilon", 0.0F);
        },
        "layer_norm_rms_epsilon");
    check_refused(
        llama, [](GgufWriter& w) { w.remove("llama.rope.freq_base").f32("llama.rope.freq_base", INFINITY); },
        "freq_base");
}

TEST(refuses_tensors_that_do_not_fit) {
    const tiny::Shape llama;
    const auto replaced = [&](const char* name, std::vector<uint64_t> shape, const char* text) {
        std::size_t count = 1;
        for (const auto extent : shape) count *= extent;
        check_refused(
            llama, [&](GgufWriter& w) { w.remove_tensor(name).floats(name, shape, std::vector<float>(count)); }, text);
    };
    check_refused(llama, [](GgufWriter& w) { w.remove_tensor("token_embd.weight"); }, "token_embd.weight");
    check_refused(
        llama, [](GgufWriter& w) { w.remove_tensor("blk.1.ffn_up.weight"); }, "'blk.1.ffn_up.weight' is missing");
    replaced("blk.0.attn_q.weight", {64, 32},
             "'blk.0.attn_q.weight' has shape [64, 32]; the metadata asks for [64, 64]");
    replaced("blk.0.attn_norm.weight", {32}, "blk.0.attn_norm.weight");
    replaced("token_embd.weight", {64}, "token_embd.weight");
    check_refused(
        llama,
        [](GgufWriter& w) {
            w.remove_tensor("output_norm.weight")
                .tensor("output_norm.weight", TensorType::kF16, {64}, std::string(128, '\0'));
        },
        "'output_norm.weight' has type F16; it must be F32");
    check_refused(
        llama, [](GgufWriter& w) { w.floats("blk.0.attn_sub_norm.weight", {64}, std::vector<float>(64)); },
        "'blk.0.attn_sub_norm.weight' is not part of architecture 'llama'");
    check_refused(
        shape_of("qwen2"), [](GgufWriter& w) { w.remove_tensor("blk.0.attn_k.bias"); },
        "'blk.0.attn_k.bias' is missing");
    check_refused(
        shape_of("qwen3"), [](GgufWriter& w) { w.remove_tensor("blk.1.attn_q_norm.weight"); },
        "attn_q_norm.weight' is missing");
}

TEST(byte_level_tokens_become_bytes) {
    const ModelSpec spec = read(with_vocab(
        "gpt2", {"\xC4\xA0hello", "\xC4\x8A", "<|im_end|>", "caf\xC3\x83\xC2\xA9", "<tool>", "\xE2\x82\xAC", "!"},
        {1, 1, 3, 1, 4, 1, 1}));
    const auto& vocab = spec.vocab;
    CHECK(vocab.token_bytes[0] == " hello");
    CHECK(vocab.token_bytes[1] == "\n");
    CHECK(vocab.token_bytes[2].empty() && vocab.special_text[2] == "<|im_end|>" && vocab.is_special[2]);
    CHECK(vocab.token_bytes[3] == "caf\xC3\xA9");
    CHECK(vocab.token_bytes[4] == "<tool>" && !vocab.is_special[4] && vocab.special_text[4].empty());
    CHECK(vocab.token_bytes[5] == "\xE2\x82\xAC");  // outside the alphabet: kept
    CHECK(vocab.token_bytes[6] == "!" && !vocab.is_special[6]);
    CHECK(!vocab.strip_leading_space);
    CHECK((vocab.end_token_ids == std::vector<int32_t>{2}));
}

TEST(every_byte_has_a_byte_level_token) {
    std::vector<std::string> tokens;
    for (int code = 0x21; code < 0x100 + 68; ++code) {
        if (code == 0x7F || (code > 0x7E && code < 0xA1) || code == 0xAD) continue;
        tokens.push_back(
            code < 0x80 ? std::string(1, static_cast<char>(code))
                        : std::string{static_cast<char>(0xC0 | code >> 6), static_cast<char>(0x80 | (code & 0x3F))});
    }
    std::vector<bool> seen(256);
    for (const auto& bytes : read(with_vocab("gpt2", tokens, {})).vocab.token_bytes) {
        CHECK(bytes.size() == 1);
        seen[static_cast<uint8_t>(bytes[0])] = true;
    }
    CHECK(tokens.size() == 256 && seen == std::vector<bool>(256, true));
}

TEST(sentencepiece_tokens_become_bytes) {
    const std::string mark = "\xE2\x96\x81";
    GgufWriter writer = with_vocab("llama", {"<unk>", "<s>", "</s>", "<0x0A>", "<0xfF>", mark + "the", mark, "[INST]"},
                                   {2, 3, 3, 6, 6, 1, 1, 4});
    writer.u32("tokenizer.ggml.eos_token_id", 2);
    const ModelSpec spec = read(writer);
    CHECK(spec.vocab.is_special[0] && spec.vocab.special_text[0] == "<unk>");
    CHECK(spec.vocab.token_bytes[3] == "\n" && spec.vocab.token_bytes[4] == "\xFF");
    CHECK(spec.vocab.token_bytes[5] == " the" && spec.vocab.token_bytes[6] == " ");
    CHECK(spec.vocab.token_bytes[7] == "[INST]");
    CHECK(spec.vocab.strip_leading_space);
    CHECK((spec.vocab.end_token_ids == std::vector<int32_t>{2}));
    writer.boolean("tokenizer.ggml.add_space_prefix", false);
    CHECK(!read(writer).vocab.strip_leading_space);
}

TEST(end_tokens_are_named_ones_and_well_known_control_tokens) {
    GgufWriter writer =
        with_vocab("gpt2", {"a", "<|endoftext|>", "<|eot_id|>", "<|im_end|>", "b", "<|im_end|>x"}, {1, 3, 3, 1, 1, 3});
    writer.u32("tokenizer.ggml.eos_token_id", 4).u32("tokenizer.ggml.eot_token_id", 2);
    CHECK((read(writer).vocab.end_token_ids == std::vector<int32_t>{4, 2, 1}));  // 3 is text, not control
}

TEST(refuses_vocabularies_that_do_not_fit) {
    const tiny::Shape llama;
    check_refused(
        llama, [](GgufWriter& w) { w.remove("tokenizer.ggml.model"); }, "key 'tokenizer.ggml.model' is missing");
    check_refused(
        llama, [](GgufWriter& w) { w.remove("tokenizer.ggml.model").string("tokenizer.ggml.model", "bert"); },
        "'bert'");
    check_refused(
        llama, [](GgufWriter& w) { w.remove("tokenizer.ggml.tokens"); }, "key 'tokenizer.ggml.tokens' is missing");
    check_refused(
        llama, [](GgufWriter& w) { w.remove("tokenizer.ggml.tokens").strings("tokenizer.ggml.tokens", {"a"}); },
        "has 1 tokens, but tensor 'token_embd.weight' has 101 rows");
    check_refused(
        llama, [](GgufWriter& w) { w.integers("tokenizer.ggml.token_type", {1}); }, "1 values for 101 tokens");
    check_refused(
        llama, [](GgufWriter& w) { w.integers("tokenizer.ggml.token_type", std::vector<int32_t>(101, 9)); },
        "unknown value 9");
    check_refused(
        llama, [](GgufWriter& w) { w.remove("tokenizer.ggml.eos_token_id").u32("tokenizer.ggml.eos_token_id", 101); },
        "tokenizer.ggml.eos_token_id");
    CHECK_THROWS(read(with_vocab("llama", {"<0xZZ>"}, {6})), ModelFileError, "not '<0xNN>'");
}

TEST(survives_random_damage_to_a_whole_model) {
    tiny::Shape shape;
    shape.layers = 1;
    shape.vocab = 11;
    const std::string sound = tiny::Decoder(shape).writer.bytes();
    const std::size_t metadata = sound.find("blk.0.ffn_down.weight") + 64;
    const TemporaryFile file(sound);
    std::mt19937 random(11);
    int sound_files = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string bytes = sound;
        for (uint32_t i = 0; i <= random() % 2; ++i) bytes[random() % metadata] = static_cast<char>(random());
        file.rewrite(bytes);
        try {
            const ModelSpec spec = edgellm::read_model_spec(*GgufFile::open(file.path()));
            CHECK(spec.vocab.token_bytes.size() == 11 && spec.head_count % spec.kv_head_count == 0);
            ++sound_files;
        } catch (const ModelFileError&) {
            continue;
        }
    }
    CHECK(sound_files < 3000);
}

CHECK_MAIN()
