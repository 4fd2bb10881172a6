#include "executor/ggml/decoder_graph.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace edgellm {
namespace {

constexpr int64_t kScoreBytesPerSlice = int64_t{32} << 20;  // bounds the attention scores held at once
constexpr std::size_t kNodesPerLayer = 48;
constexpr std::size_t kNodesPerSlice = 12;
constexpr std::size_t kNodesOutsideLayers = 32;

int64_t score_row_bytes(const ModelSpec& spec, int64_t kv_length) {
    return kv_length * spec.head_count * static_cast<int64_t>(sizeof(float));
}

int32_t rows_per_slice(const ModelSpec& spec, int64_t kv_length) {
    return static_cast<int32_t>(std::max<int64_t>(1, kScoreBytesPerSlice / score_row_bytes(spec, kv_length)));
}

}  // namespace

std::size_t DecoderGraph::graph_nodes(const ModelSpec& spec, const ExecutorOptions& options, std::size_t group_count) {
    const int64_t longest = int64_t{options.kv_page_count} * options.kv_page_tokens;
    const auto slices = static_cast<std::size_t>(options.max_rows / rows_per_slice(spec, longest)) + group_count + 1;
    const std::size_t per_layer = kNodesPerLayer + kNodesPerSlice * slices;
    return per_layer * static_cast<std::size_t>(spec.layer_count) + kNodesOutsideLayers + 4 * slices;
}

DecoderGraph::DecoderGraph(ggml_context* context, const ModelSpec& spec, const DeviceWeights& weights,
                           const ExecutorOptions& options, const StepLayout& layout, OutputKind kind)
    : context_(context), spec_(spec), weights_(weights), page_tokens_(options.kv_page_tokens), layout_(layout) {
    graph_ = ggml_new_graph_custom(context_, graph_nodes(spec, options, layout.groups.size()), false);
    const int64_t row_count = layout.row_count();
    tokens_ = input(GGML_TYPE_I32, row_count, 1);
    positions_ = input(GGML_TYPE_I32, row_count, 1);
    written_slots_ = input(GGML_TYPE_I64, row_count, 1);
    make_attention_inputs(layout);

    ggml_tensor* rows = ggml_get_rows(context_, weights_.token_embedding(), tokens_);
    const auto embedded_count = std::count_if(layout.embedded.begin(), layout.embedded.end(),
                                              [](const float* values) { return values != nullptr; });
    if (embedded_count > 0) {
        embedded_values_ = input(GGML_TYPE_F32, spec.hidden_size, embedded_count);
        embedded_rows_ = input(GGML_TYPE_I64, embedded_count, 1);
        rows = ggml_set_rows(context_, rows, embedded_values_, embedded_rows_);
    }
    for (const DeviceLayer& layer : weights_.layers()) {
        rows = ggml_add(context_, rows, attention_layer(layer, normalise(rows, layer.attention_norm)));
        rows = ggml_add(context_, rows, feed_forward(layer, normalise(rows, layer.feed_forward_norm)));
    }
    if (layout.wanted_count() == 0) {
        // Only the KV writes matter; they hang on the last layer's rows through the graph's order.
        ggml_build_forward_expand(graph_, rows);
        return;
    }
    wanted_rows_ = input(GGML_TYPE_I32, layout.wanted_count(), 1);
    rows = normalise(ggml_get_rows(context_, rows, wanted_rows_), weights_.output_norm());
    result_ = kind == OutputKind::kLogits ? ggml_mul_mat(context_, weights_.output(), rows) : rows;
    ggml_set_output(result_);
    ggml_build_forward_expand(graph_, result_);
}

ggml_tensor* DecoderGraph::input(ggml_type type, int64_t ne0, int64_t ne1) {
    ggml_tensor* tensor = ggml_new_tensor_2d(context_, type, ne0, ne1);
    ggml_set_input(tensor);
    return tensor;
}

void DecoderGraph::make_attention_inputs(const StepLayout& layout) {
    for (const StepGroup& group : layout.groups) {
        AttentionInputs inputs;
        // Whole pages keep the number of different shapes small; the tail repeats a written slot and is masked.
        inputs.kv_length = (group.end_position() + page_tokens_ - 1) / page_tokens_ * page_tokens_;
        inputs.rows_per_slice = std::min(group.row_count, rows_per_slice(spec_, inputs.kv_length));
        inputs.slots = input(GGML_TYPE_I32, inputs.kv_length, 1);
        for (int32_t row = 0; row < group.row_count; row += inputs.rows_per_slice)
            inputs.masks.push_back(
                input(GGML_TYPE_F32, inputs.kv_length, std::min(inputs.rows_per_slice, group.row_count - row)));
        attention_.push_back(std::move(inputs));
    }
}

ggml_tensor* DecoderGraph::normalise(ggml_tensor* rows, ggml_tensor* weight) {
    return ggml_mul(context_, ggml_rms_norm(context_, rows, spec_.norm_epsilon), weight);
}

ggml_tensor* DecoderGraph::project(ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* rows) {
    ggml_tensor* projected = ggml_mul_mat(context_, weight, rows);
    return bias == nullptr ? projected : ggml_add(context_, projected, bias);
}

ggml_tensor* DecoderGraph::rotate(ggml_tensor* heads) {
    const int mode = spec_.rope.layout == RopeLayout::kAdjacentPairs ? GGML_ROPE_TYPE_NORMAL : GGML_ROPE_TYPE_NEOX;
    return ggml_rope_ext(context_, heads, positions_, weights_.rope_factors(), spec_.rope.dimensions, mode, 0,
                         spec_.rope.freq_base, spec_.rope.freq_scale, 0.0F, 1.0F, 0.0F, 0.0F);
}

ggml_tensor* DecoderGraph::attention_layer(const DeviceLayer& layer, ggml_tensor* rows) {
    const int64_t row_count = rows->ne[1];
    const int64_t head_size = spec_.head_size;
    const int64_t kv_width = head_size * spec_.kv_head_count;
    ggml_tensor* queries = project(layer.query, layer.query_bias, rows);
    ggml_tensor* keys = project(layer.key, layer.key_bias, rows);
    ggml_tensor* values = project(layer.value, layer.value_bias, rows);
    queries = ggml_reshape_3d(context_, queries, head_size, spec_.head_count, row_count);
    keys = ggml_reshape_3d(context_, keys, head_size, spec_.kv_head_count, row_count);
    if (layer.query_norm != nullptr) queries = normalise(queries, layer.query_norm);
    if (layer.key_norm != nullptr) keys = normalise(keys, layer.key_norm);
    queries = rotate(queries);
    keys = ggml_reshape_2d(context_, rotate(keys), kv_width, row_count);

    // Reads go through the results of the writes, which puts them after all of this step's rows.
    ggml_tensor* kv_keys = ggml_set_rows(context_, layer.kv_keys, keys, written_slots_);
    ggml_tensor* kv_values = ggml_set_rows(context_, layer.kv_values, values, written_slots_);
    ggml_build_forward_expand(graph_, kv_keys);
    ggml_build_forward_expand(graph_, kv_values);

    ggml_tensor* attended = nullptr;
    for (std::size_t g = 0; g < attention_.size(); ++g) {
        ggml_tensor* part = attend(layout_.groups[g], attention_[g], queries, kv_keys, kv_values);
        attended = attended == nullptr ? part : ggml_concat(context_, attended, part, 1);
    }
    return ggml_mul_mat(context_, layer.attention_output, attended);
}

ggml_tensor* DecoderGraph::attend(const StepGroup& group, const AttentionInputs& inputs, ggml_tensor* queries,
                                  ggml_tensor* kv_keys, ggml_tensor* kv_values) {
    const int64_t head_size = spec_.head_size;
    const int64_t length = inputs.kv_length;
    ggml_tensor* keys = ggml_reshape_3d(context_, ggml_get_rows(context_, kv_keys, inputs.slots), head_size,
                                        spec_.kv_head_count, length);
    ggml_tensor* values = ggml_reshape_3d(context_, ggml_get_rows(context_, kv_values, inputs.slots), head_size,
                                          spec_.kv_head_count, length);
    keys = ggml_cont(context_, ggml_permute(context_, keys, 0, 2, 1, 3));      // [head, position, kv head]
    values = ggml_cont(context_, ggml_permute(context_, values, 1, 2, 0, 3));  // [position, head, kv head]

    const float scale = 1.0F / std::sqrt(static_cast<float>(head_size));
    ggml_tensor* attended = nullptr;
    int64_t row = 0;
    for (ggml_tensor* mask : inputs.masks) {
        const int64_t count = mask->ne[1];
        ggml_tensor* slice =
            ggml_view_3d(context_, queries, head_size, spec_.head_count, count, queries->nb[1], queries->nb[2],
                         static_cast<std::size_t>(group.first_row + row) * queries->nb[2]);
        slice = ggml_cont(context_, ggml_permute(context_, slice, 0, 2, 1, 3));  // [head, row, query head]
        ggml_tensor* scores = ggml_mul_mat(context_, keys, slice);               // [position, row, query head]
        ggml_mul_mat_set_prec(scores, GGML_PREC_F32);
        ggml_tensor* mixed = ggml_mul_mat(context_, values, ggml_soft_max_ext(context_, scores, mask, scale, 0.0F));
        mixed = ggml_cont_2d(context_, ggml_permute(context_, mixed, 0, 2, 1, 3), head_size * spec_.head_count, count);
        attended = attended == nullptr ? mixed : ggml_concat(context_, attended, mixed, 1);
        row += count;
    }
    return attended;
}

ggml_tensor* DecoderGraph::feed_forward(const DeviceLayer& layer, ggml_tensor* rows) {
    ggml_tensor* gate = ggml_mul_mat(context_, layer.gate, rows);
    ggml_tensor* up = ggml_mul_mat(context_, layer.up, rows);
    return ggml_mul_mat(context_, layer.down, ggml_swiglu_split(context_, gate, up));
}

int64_t DecoderGraph::slot_of(const StepGroup& group, int32_t position) const {
    const auto page = group.pages[static_cast<std::size_t>(position / page_tokens_)];
    return int64_t{page} * page_tokens_ + position % page_tokens_;
}

void DecoderGraph::set_inputs(const StepLayout& layout) const {
    const auto put = [](ggml_tensor* tensor, const auto& values) {
        if (tensor != nullptr && tensor->buffer != nullptr)
            ggml_backend_tensor_set(tensor, values.data(), 0, values.size() * sizeof(values[0]));
    };
    std::vector<int32_t> tokens = layout.tokens;
    std::vector<float> embedded_values;
    std::vector<int64_t> embedded_rows;
    for (std::size_t row = 0; row < tokens.size(); ++row) {
        const float* const values = layout.embedded[row];
        if (values == nullptr) continue;
        tokens[row] = 0;  // looked up, and then replaced
        embedded_rows.push_back(static_cast<int64_t>(row));
        embedded_values.insert(embedded_values.end(), values, values + spec_.hidden_size);
    }
    put(tokens_, tokens);
    put(embedded_values_, embedded_values);
    put(embedded_rows_, embedded_rows);
    put(positions_, layout.positions);
    put(wanted_rows_, layout.wanted_rows);
    std::vector<int64_t> written;
    for (const StepGroup& group : layout.groups) {
        for (int32_t p = group.first_position; p < group.end_position(); ++p) written.push_back(slot_of(group, p));
    }
    put(written_slots_, written);

    std::vector<int32_t> slots;
    std::vector<float> visible;
    for (std::size_t g = 0; g < attention_.size(); ++g) {
        const StepGroup& group = layout.groups[g];
        const AttentionInputs& inputs = attention_[g];
        slots.clear();
        for (int32_t p = 0; p < inputs.kv_length; ++p)
            slots.push_back(static_cast<int32_t>(slot_of(group, std::min(p, group.end_position() - 1))));
        put(inputs.slots, slots);
        int32_t position = group.first_position;
        for (ggml_tensor* mask : inputs.masks) {
            visible.assign(static_cast<std::size_t>(ggml_nelements(mask)), -std::numeric_limits<float>::infinity());
            for (int64_t row = 0; row < mask->ne[1]; ++row, ++position)
                std::fill_n(visible.begin() + row * inputs.kv_length, position + 1, 0.0F);
            put(mask, visible);
        }
    }
}

}  // namespace edgellm
