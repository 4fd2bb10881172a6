// DecoderGraph: one step of a decoder written with the tensor library's own operators, so that it runs on any device.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <vector>

#include "executor/ggml/device_weights.hpp"
#include "executor/step_layout.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

// What one sequence's attention reads: the slots of its positions, and which of them each query row may see.
struct AttentionInputs {
    ggml_tensor* slots = nullptr;     // i32 [kv length]
    std::vector<ggml_tensor*> masks;  // f32 [kv length, rows of the slice], one per slice of query rows
    int32_t kv_length = 0;
    int32_t rows_per_slice = 0;
};

class DecoderGraph {
public:
    // The context holds descriptions only and must outlive the graph; graph_nodes() of the layout must fit.
    DecoderGraph(ggml_context* context, const ModelSpec& spec, const DeviceWeights& weights,
                 const ExecutorOptions& options, const StepLayout& layout, OutputKind kind);

    static std::size_t graph_nodes(const ModelSpec& spec, const ExecutorOptions& options, std::size_t group_count);

    ggml_cgraph* graph() const noexcept { return graph_; }
    void set_inputs(const StepLayout& layout) const;  // after allocation
    ggml_tensor* result() const noexcept { return result_; }

private:
    ggml_tensor* normalise(ggml_tensor* rows, ggml_tensor* weight);
    ggml_tensor* project(ggml_tensor* weight, ggml_tensor* bias, ggml_tensor* rows);
    ggml_tensor* rotate(ggml_tensor* heads);
    ggml_tensor* attention_layer(const DeviceLayer& layer, ggml_tensor* rows);
    ggml_tensor* attend(const StepGroup& group, const AttentionInputs& inputs, ggml_tensor* queries, ggml_tensor* keys,
                        ggml_tensor* values);
    ggml_tensor* feed_forward(const DeviceLayer& layer, ggml_tensor* rows);
    ggml_tensor* input(ggml_type type, int64_t ne0, int64_t ne1);
    void make_attention_inputs(const StepLayout& layout);
    int64_t slot_of(const StepGroup& group, int32_t position) const;

    ggml_context* context_;
    const ModelSpec& spec_;
    const DeviceWeights& weights_;
    int32_t page_tokens_;
    const StepLayout& layout_;
    ggml_cgraph* graph_ = nullptr;
    ggml_tensor* tokens_ = nullptr;
    ggml_tensor* embedded_values_ = nullptr;  // null: every row is a token's
    ggml_tensor* embedded_rows_ = nullptr;
    ggml_tensor* positions_ = nullptr;
    ggml_tensor* written_slots_ = nullptr;
    ggml_tensor* wanted_rows_ = nullptr;
    std::vector<AttentionInputs> attention_;
    ggml_tensor* result_ = nullptr;
};

}  // namespace edgellm
