#include "model/model_spec.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>
#include <string_view>

#include "contract/errors.hpp"
#include "model/decoder_tensors.hpp"
#include "model/gguf_file.hpp"
#include "model/printable.hpp"
#include "model/vocab_reader.hpp"

namespace edgellm {
namespace {

// Bounds that no real decoder reaches; they keep every later product inside its integer type.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = int64_t{1} << 20;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadSize = 1024;
constexpr int64_t kMaxVocab = int64_t{1} << 24;
constexpr int64_t kMaxContext_tokens = int64_t{1} << 30;

struct Architecture {
    std::string_view name;
    Family family;
    RopeLayout rope_layout;
};

constexpr std::array kArchitectures = {
    Architecture{"llama", Family::kLlama, RopeLayout::kAdjacentPairs},
    Architecture{"qwen2", Family::kQwen2, RopeLayout::kHalfSplit},
    Architecture{"qwen3", Family::kQwen3, RopeLayout::kHalfSplit},
};

[[noreturn]] void refuse(const GgufFile& file, const std::string& what) {
    throw ModelFileError("model file '" + file.path().string() + "': " + what);
}

const Architecture& find_architecture(const GgufFile& file) {
    const std::string_view name = file.require_string("general.architecture");
    std::string supported;
    for (const Architecture& one : kArchitectures) {
        if (one.name == name) return one;
        supported += (supported.empty() ? "" : ", ") + std::string(one.name);
    }
    refuse(file, "architecture '" + printable(name) + "' is not supported; the supported ones are " + supported);
}

class SpecReader {
public:
    SpecReader(const GgufFile& file, const Architecture& architecture)
        : file_(file), architecture_(architecture), prefix_(std::string(architecture.name) + ".") {}

    ModelSpec read() {
        spec_.family = architecture_.family;
        spec_.architecture = architecture_.name;
        spec_.name = file_.optional_string("general.name").value_or("");
        refuse_experts();
        read_shapes();
        read_rope();
        const TensorView* embedding = file_.tensor("token_embd.weight");
        if (embedding == nullptr || embedding->shape.size() < 2 || embedding->shape[1] > kMaxVocab)
            refuse(file_, "tensor 'token_embd.weight' is missing or has no usable shape; convert the model again");
        spec_.vocab_size = static_cast<int32_t>(embedding->shape[1]);
        spec_.tied_embeddings = file_.tensor("output.weight") == nullptr;
        (void)find_decoder_tensors(file_, spec_);
        spec_.vocab = read_vocab(file_, spec_.vocab_size);
        return std::move(spec_);
    }

private:
    std::string key(const char* suffix) const { return prefix_ + suffix; }

    int32_t require(const char* suffix, int64_t highest) const {
        return static_cast<int32_t>(file_.require_int(key(suffix), 1, highest));
    }

    int32_t optional(const char* suffix, int64_t highest, int32_t otherwise) const {
        return static_cast<int32_t>(file_.optional_int(key(suffix), 1, highest).value_or(otherwise));
    }

    void refuse_experts() const {
        const auto experts = file_.optional_int(key("expert_count"), 0, kMaxWidth).value_or(0);
        if (experts > 0) {
            refuse(file_, "key '" + key("expert_count") + "' is " + std::to_string(experts) +
                              ": mixture-of-experts models are not supported");
        }
    }

    void read_shapes() {
        spec_.layer_count = require("block_count", kMaxLayers);
        spec_.hidden_size = require("embedding_length", kMaxWidth);
        spec_.intermediate_size = require("feed_forward_length", kMaxWidth);
        spec_.head_count = require("attention.head_count", kMaxHeads);
        spec_.kv_head_count = optional("attention.head_count_kv", kMaxHeads, spec_.head_count);
        if (spec_.head_count % spec_.kv_head_count != 0) {
            refuse(file_, "key '" + key("attention.head_count_kv") + "' is " + std::to_string(spec_.kv_head_count) +
                              ", which does not divide the " + std::to_string(spec_.head_count) + " attention heads");
        }
        read_head_size();
        read_context();
        const double epsilon = file_.require_float(key("attention.layer_norm_rms_epsilon"));
        if (!(epsilon > 0.0) || epsilon > 1.0)
            refuse(file_, "key '" + key("attention.layer_norm_rms_epsilon") + "' must be above 0 and at most 1");
        spec_.norm_epsilon = static_cast<float>(epsilon);
    }

    void read_head_size() {
        const auto key_length = file_.optional_int(key("attention.key_length"), 1, kMaxHeadSize);
        const auto value_length = file_.optional_int(key("attention.value_length"), 1, kMaxHeadSize);
        if (!key_length && spec_.hidden_size % spec_.head_count != 0) {
            refuse(file_, "key '" + key("attention.key_length") + "' is missing and " +
                              std::to_string(spec_.head_count) + " heads do not divide the hidden size " +
                              std::to_string(spec_.hidden_size));
        }
        const int64_t size = key_length.value_or(spec_.hidden_size / spec_.head_count);
        if (value_length.value_or(size) != size)
            refuse(file_, "keys '" + key("attention.key_length") + "' and '" + key("attention.value_length") +
                              "' must be equal");
        if (size > kMaxHeadSize || size % 2 != 0)
            refuse(file_,
                   "head size " + std::to_string(size) + " must be even and at most " + std::to_string(kMaxHeadSize));
        spec_.head_size = static_cast<int32_t>(size);
    }

    void read_context() {
        spec_.context_length = require("context_length", kMaxContext_tokens);
        // Beyond the window such a model needs masked attention; inside it nothing differs.
        const int32_t window = optional("attention.sliding_window", kMaxContext_tokens, spec_.context_length);
        spec_.context_length = std::min(spec_.context_length, window);
    }

    void read_rope() {
        RopeSpec& rope = spec_.rope;
        rope.layout = architecture_.rope_layout;
        rope.dimensions = optional("rope.dimension_count", spec_.head_size, spec_.head_size);
        if (rope.dimensions % 2 != 0)
            refuse(file_, "key '" + key("rope.dimension_count") + "' is " + std::to_string(rope.dimensions) +
                              "; it must be even");
        rope.freq_base = positive_float("rope.freq_base", 10000.0F);
        read_rope_scaling();
        read_rope_factors();
    }

    float positive_float(const char* suffix, float otherwise) const {
        const auto value = static_cast<float>(file_.optional_float(key(suffix)).value_or(otherwise));
        if (!std::isfinite(value) || value <= 0.0F) refuse(file_, "key '" + key(suffix) + "' must be above 0");
        return value;
    }

    void read_rope_scaling() {
        const std::string_view type = file_.optional_string(key("rope.scaling.type")).value_or("");
        if (!type.empty() && type != "none" && type != "linear") {
            refuse(file_, "key '" + key("rope.scaling.type") + "' is '" + printable(type) +
                              "'; supported are none, linear, and Llama 3 factors in tensor 'rope_freqs.weight'");
        }
        if (type == "none") return;
        // Older files write the factor of linear scaling without a type.
        const float legacy = positive_float("rope.scale_linear", 1.0F);
        spec_.rope.freq_scale = 1.0F / positive_float("rope.scaling.factor", legacy);
    }

    void read_rope_factors() {
        const TensorView* factors = file_.tensor("rope_freqs.weight");
        if (factors == nullptr) return;
        const auto pairs = static_cast<std::size_t>(spec_.rope.dimensions) / 2;
        if (factors->type != TensorType::kF32 || factors->data.size() != pairs * sizeof(float)) {
            refuse(file_, "tensor 'rope_freqs.weight' must hold " + std::to_string(pairs) +
                              " F32 values, one for each rotated pair");
        }
        spec_.rope.freq_factors.resize(pairs);
        std::memcpy(spec_.rope.freq_factors.data(), factors->data.data(), factors->data.size());
        for (const float factor : spec_.rope.freq_factors) {
            if (!std::isfinite(factor) || factor <= 0.0F)
                refuse(file_, "tensor 'rope_freqs.weight' holds a value that is not above 0");
        }
    }

    const GgufFile& file_;
    const Architecture& architecture_;
    std::string prefix_;
    ModelSpec spec_;
};

}  // namespace

ModelSpec read_model_spec(const GgufFile& file) { return SpecReader(file, find_architecture(file)).read(); }

}  // namespace edgellm
