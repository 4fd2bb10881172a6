#include "model/decoder_tensors.hpp"

#include <string>
#include <string_view>
#include <unordered_set>

#include "contract/errors.hpp"
#include "model/printable.hpp"
#include "model/tensor_types.hpp"

namespace edgellm {
namespace {

using Shape = std::vector<int64_t>;

std::string shape_text(const Shape& shape) {
    std::string text = "[";
    for (std::size_t i = 0; i < shape.size(); ++i) text += (i == 0 ? "" : ", ") + std::to_string(shape[i]);
    return text + "]";
}

class TensorFinder {
public:
    TensorFinder(const GgufFile& file, const ModelSpec& spec) : file_(file), spec_(spec) {}

    const TensorView* matrix(const std::string& name, int64_t inputs, int64_t outputs) {
        const TensorView* view = require(name, {inputs, outputs});
        // Q8_K is an activation encoding: no kernel reads it as a weight.
        if (view->type == TensorType::kQ8_K)
            refuse(name, "has type Q8_K, which is not a weight type; quantise it to Q8_0");
        return view;
    }

    const TensorView* vector(const std::string& name, int64_t size) {
        const TensorView* view = require(name, {size});
        if (view->type != TensorType::kF32)
            refuse(name, std::string("has type ") + tensor_type_traits(view->type).name + "; it must be F32");
        return view;
    }

    const TensorView* optional_vector(const std::string& name, int64_t size) {
        return file_.tensor(name) == nullptr ? nullptr : vector(name, size);
    }

    void allow(std::string_view literal) { used_.insert(literal); }

    // A tensor that nobody reads would silently change what the model computes.
    void refuse_unused() const {
        for (const TensorView& view : file_.tensors()) {
            if (!used_.contains(view.name))
                refuse(view.name, "is not part of architecture '" + spec_.architecture + "' as this runtime knows it");
        }
    }

    [[noreturn]] void refuse(const std::string& name, const std::string& what) const {
        throw ModelFileError("model file '" + file_.path().string() + "': tensor '" + printable(name) + "' " + what);
    }

private:
    const TensorView* require(const std::string& name, const Shape& shape) {
        const TensorView* view = file_.tensor(name);
        if (view == nullptr)
            refuse(name, "is missing; architecture '" + spec_.architecture + "' needs it: convert the model again");
        Shape found = view->shape;
        while (found.size() > shape.size() && found.back() == 1) found.pop_back();
        if (found != shape)
            refuse(name, "has shape " + shape_text(view->shape) + "; the metadata asks for " + shape_text(shape));
        used_.insert(view->name);
        return view;
    }

    const GgufFile& file_;
    const ModelSpec& spec_;
    std::unordered_set<std::string_view> used_;
};

LayerTensors find_layer(TensorFinder& finder, const ModelSpec& spec, int32_t layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    const int64_t hidden = spec.hidden_size;
    const int64_t query_size = int64_t{spec.head_count} * spec.head_size;
    const int64_t kv_size = int64_t{spec.kv_head_count} * spec.head_size;
    const bool needs_bias = spec.family == Family::kQwen2;
    const auto bias = [&](const std::string& name, int64_t size) {
        return needs_bias ? finder.vector(name, size) : finder.optional_vector(name, size);
    };

    LayerTensors tensors;
    tensors.attention_norm = finder.vector(prefix + "attn_norm.weight", hidden);
    tensors.query = finder.matrix(prefix + "attn_q.weight", hidden, query_size);
    tensors.key = finder.matrix(prefix + "attn_k.weight", hidden, kv_size);
    tensors.value = finder.matrix(prefix + "attn_v.weight", hidden, kv_size);
    tensors.query_bias = bias(prefix + "attn_q.bias", query_size);
    tensors.key_bias = bias(prefix + "attn_k.bias", kv_size);
    tensors.value_bias = bias(prefix + "attn_v.bias", kv_size);
    if (spec.family == Family::kQwen3) {
        tensors.query_norm = finder.vector(prefix + "attn_q_norm.weight", spec.head_size);
        tensors.key_norm = finder.vector(prefix + "attn_k_norm.weight", spec.head_size);
    }
    tensors.attention_output = finder.matrix(prefix + "attn_output.weight", query_size, hidden);
    tensors.feed_forward_norm = finder.vector(prefix + "ffn_norm.weight", hidden);
    tensors.gate = finder.matrix(prefix + "ffn_gate.weight", hidden, spec.intermediate_size);
    tensors.up = finder.matrix(prefix + "ffn_up.weight", hidden, spec.intermediate_size);
    tensors.down = finder.matrix(prefix + "ffn_down.weight", spec.intermediate_size, hidden);
    return tensors;
}

}  // namespace

DecoderTensors find_decoder_tensors(const GgufFile& file, const ModelSpec& spec) {
    TensorFinder finder(file, spec);
    DecoderTensors tensors;
    tensors.token_embedding = finder.matrix("token_embd.weight", spec.hidden_size, spec.vocab_size);
    tensors.output_norm = finder.vector("output_norm.weight", spec.hidden_size);
    tensors.output = spec.tied_embeddings ? tensors.token_embedding
                                          : finder.matrix("output.weight", spec.hidden_size, spec.vocab_size);
    for (int32_t layer = 0; layer < spec.layer_count; ++layer)
        tensors.layers.push_back(find_layer(finder, spec, layer));
    finder.allow("rope_freqs.weight");  // read with the rope parameters
    finder.refuse_unused();
    return tensors;
}

}  // namespace edgellm
