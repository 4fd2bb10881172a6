#include "executor/vision/vision_tower.hpp"

#include <ggml-alloc.h>
#include <ggml-cpp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "contract/errors.hpp"
#include "executor/cpu_features.hpp"
#include "executor/ggml/device_weights.hpp"
#include "executor/thread_count.hpp"
#include "executor/vision/row_product.hpp"
#include "model/mapped_file.hpp"

namespace edgellm {
namespace {

constexpr std::size_t kNodesPerLayer = 32 + 8 * kRowProductNodes;
constexpr std::size_t kNodesOutsideLayers = 32;
constexpr std::size_t kTensorsPerLayer = 16;
constexpr std::size_t kTensorsOutsideLayers = 8;
constexpr std::size_t kPixelValues = 256;

struct Linear {
    ggml_tensor* weight = nullptr;
    ggml_tensor* bias = nullptr;
};

struct Layer {
    Linear attention_norm;
    Linear query;
    Linear key;
    Linear value;
    Linear attention_output;
    Linear feed_forward_norm;
    Linear up;
    Linear down;
};

// The weights as tensors of the library, in the file's mapping.
class TowerWeights {
public:
    TowerWeights(std::shared_ptr<const GgufFile> file, const VisionSpec& spec) : file_(std::move(file)) {
        const VisionTensors tensors = find_vision_tensors(*file_, spec);
        load_pages(file_->mapping());
        const std::size_t capacity = tensors.layers.size() * kTensorsPerLayer + kTensorsOutsideLayers;
        context_.reset(ggml_init({ggml_tensor_overhead() * capacity, nullptr, true}));
        // The library takes a mutable pointer; nothing writes weights, and the pages are mapped read-only.
        auto* base = const_cast<std::byte*>(file_->mapping().data());
        buffer_.reset(ggml_backend_cpu_buffer_from_ptr(base, file_->mapping().size()));
        if (context_ == nullptr || buffer_ == nullptr) throw ExecutorError("no memory for the vision weights");
        ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);

        patch_embedding = linear(tensors.patch_embedding, spec.patch_values());
        position_embedding = tensor(tensors.position_embedding, spec.hidden_size);
        for (const VisionLayerTensors& from : tensors.layers) {
            Layer layer;
            layer.attention_norm = linear(from.attention_norm, spec.hidden_size);
            layer.query = linear(from.query, spec.hidden_size);
            layer.key = linear(from.key, spec.hidden_size);
            layer.value = linear(from.value, spec.hidden_size);
            layer.attention_output = linear(from.attention_output, spec.hidden_size);
            layer.feed_forward_norm = linear(from.feed_forward_norm, spec.hidden_size);
            layer.up = linear(from.up, spec.hidden_size);
            layer.down = linear(from.down, spec.intermediate_size);
            layers.push_back(layer);
        }
        output_norm = linear(tensors.output_norm, spec.hidden_size);
        connector = tensor(tensors.connector, spec.shuffled_size());
    }

    Linear patch_embedding;
    ggml_tensor* position_embedding = nullptr;
    std::vector<Layer> layers;
    Linear output_norm;
    ggml_tensor* connector = nullptr;

private:
    // Whatever dimensions the file has: rows of so many values.
    ggml_tensor* tensor(const TensorView* view, int64_t inputs) {
        const auto type = static_cast<ggml_type>(static_cast<uint32_t>(view->type));
        const auto value_bytes = static_cast<int64_t>(ggml_type_size(type));
        const int64_t outputs = static_cast<int64_t>(view->data.size()) / value_bytes / inputs;
        ggml_tensor* made = ggml_new_tensor_2d(context_.get(), type, inputs, outputs);
        if (ggml_nbytes(made) != view->data.size())
            throw ExecutorError("tensor sizes of the tensor library differ from GGUF's");
        auto* data = const_cast<std::byte*>(view->data.data());
        if (ggml_backend_tensor_alloc(buffer_.get(), made, data) != GGML_STATUS_SUCCESS)
            throw ExecutorError("a vision weight cannot be used from the mapping");
        return made;
    }

    Linear linear(const LinearTensors& from, int64_t inputs) {
        const int64_t outputs = from.bias->shape.front();
        return {tensor(from.weight, inputs), tensor(from.bias, outputs)};
    }

    std::shared_ptr<const GgufFile> file_;
    ggml_context_ptr context_;
    ggml_backend_buffer_ptr buffer_;
};

// The tanh form of GELU, written as a logistic function: exact, where the library looks up 16-bit values.
void gelu_tanh(ggml_tensor* out, const ggml_tensor* in, int ith, int nth, void*) {
    constexpr float kSlope = 1.5957691216057308F;  // 2 * sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    const int64_t count = ggml_nelements(in);
    const int64_t share = (count + nth - 1) / nth;
    const auto* from = static_cast<const float*>(in->data);
    auto* to = static_cast<float*>(out->data);
    for (int64_t i = ith * share; i < std::min(count, (ith + 1) * share); ++i) {
        const float x = from[i];
        to[i] = x / (1.0F + std::exp(-kSlope * (x + kCubic * x * x * x)));
    }
}

// One tile through all layers.
class TowerGraph {
public:
    TowerGraph(ggml_context* context, const VisionSpec& spec, const TowerWeights& weights)
        : context_(context), spec_(spec) {
        graph_ = ggml_new_graph_custom(context, nodes(spec), false);
        patches_ = ggml_new_tensor_2d(context, GGML_TYPE_F32, spec.patch_values(), spec.patch_count());
        ggml_set_input(patches_);
        ggml_tensor* rows = ggml_add(context, project(weights.patch_embedding, patches_), weights.position_embedding);
        for (const Layer& layer : weights.layers) {
            rows = ggml_add(context, rows, attention(layer, normalise(rows, layer.attention_norm)));
            rows = ggml_add(context, rows, feed_forward(layer, normalise(rows, layer.feed_forward_norm)));
        }
        rows = shuffled(normalise(rows, weights.output_norm));
        result_ = row_product(context, weights.connector, rows);
        ggml_set_output(result_);
        ggml_build_forward_expand(graph_, result_);
    }

    static std::size_t nodes(const VisionSpec& spec) {
        return kNodesPerLayer * static_cast<std::size_t>(spec.layer_count) + kNodesOutsideLayers;
    }

    ggml_cgraph* graph() const { return graph_; }
    ggml_tensor* patches() const { return patches_; }
    ggml_tensor* result() const { return result_; }

private:
    ggml_tensor* project(const Linear& layer, ggml_tensor* rows) {
        return ggml_add(context_, row_product(context_, layer.weight, rows), layer.bias);
    }

    ggml_tensor* normalise(ggml_tensor* rows, const Linear& norm) {
        ggml_tensor* scaled = ggml_mul(context_, ggml_norm(context_, rows, spec_.norm_epsilon), norm.weight);
        return ggml_add(context_, scaled, norm.bias);
    }

    // [hidden, patch] to [head size, patch, head].
    ggml_tensor* by_head(ggml_tensor* rows) {
        rows = ggml_reshape_3d(context_, rows, spec_.head_size(), spec_.head_count, spec_.patch_count());
        return ggml_cont(context_, ggml_permute(context_, rows, 0, 2, 1, 3));
    }

    ggml_tensor* attention(const Layer& layer, ggml_tensor* rows) {
        ggml_tensor* queries = by_head(project(layer.query, rows));
        ggml_tensor* keys = by_head(project(layer.key, rows));
        ggml_tensor* values = project(layer.value, rows);
        values = ggml_reshape_3d(context_, values, spec_.head_size(), spec_.head_count, spec_.patch_count());
        values = ggml_cont(context_, ggml_permute(context_, values, 1, 2, 0, 3));  // [patch, head size, head]
        const float scale = 1.0F / std::sqrt(static_cast<float>(spec_.head_size()));
        ggml_tensor* scores = row_product(context_, keys, queries);
        ggml_tensor* mixed = row_product(context_, values, ggml_soft_max_ext(context_, scores, nullptr, scale, 0.0F));
        mixed = ggml_cont_2d(context_, ggml_permute(context_, mixed, 0, 2, 1, 3), spec_.hidden_size,
                             spec_.patch_count());
        return project(layer.attention_output, mixed);
    }

    ggml_tensor* feed_forward(const Layer& layer, ggml_tensor* rows) {
        ggml_tensor* inner = ggml_map_custom1(context_, project(layer.up, rows), gelu_tanh, GGML_N_TASKS_MAX, nullptr);
        return project(layer.down, inner);
    }

    // Squares of scale x scale patches become one row each, their values side by side.
    ggml_tensor* shuffled(ggml_tensor* rows) {
        const int64_t scale = spec_.scale_factor;
        const int64_t side = spec_.patches_on_side() / scale;
        rows = ggml_reshape_4d(context_, rows, spec_.hidden_size * scale, side, scale, side);
        rows = ggml_cont(context_, ggml_permute(context_, rows, 0, 2, 1, 3));
        return ggml_reshape_2d(context_, rows, spec_.shuffled_size(), spec_.row_count());
    }

    ggml_context* context_;
    const VisionSpec& spec_;
    ggml_cgraph* graph_ = nullptr;
    ggml_tensor* patches_ = nullptr;
    ggml_tensor* result_ = nullptr;
};

class GraphTower final : public VisionTower {
public:
    GraphTower(std::shared_ptr<const GgufFile> file, int32_t threads)
        : spec_(read_vision_spec(*file)),
          devices_(resolve_thread_count(threads), true),
          weights_(std::move(file), spec_),
          allocator_(ggml_gallocr_new(ggml_backend_get_default_buffer_type(devices_.cpu()))) {
        const std::size_t nodes = TowerGraph::nodes(spec_);
        meta_.resize(ggml_tensor_overhead() * nodes + ggml_graph_overhead_custom(nodes, false));
        for (std::size_t colour = 0; colour < kColours; ++colour) {
            for (std::size_t value = 0; value < kPixelValues; ++value) {
                const float rescaled = static_cast<float>(value) * spec_.rescale_factor;
                normalised_[colour][value] = (rescaled - spec_.mean[colour]) / spec_.deviation[colour];
            }
        }
    }

    const VisionSpec& spec() const noexcept override { return spec_; }

    void encode(std::span<const uint8_t> pixels, std::span<float> rows) override {
        const auto wanted_values = int64_t{spec_.row_count()} * spec_.projection_size;
        if (std::ssize(pixels) != spec_.tile_bytes() || std::ssize(rows) != wanted_values)
            throw ExecutorError("a tile or its rows have the wrong size");
        const ggml_init_params params{meta_.size(), meta_.data(), true};
        const ggml_context_ptr context(ggml_init(params));
        if (context == nullptr) throw ExecutorError("a graph context cannot be made");
        const TowerGraph graph(context.get(), spec_, weights_);
        if (allocator_ == nullptr || !ggml_gallocr_alloc_graph(allocator_.get(), graph.graph()))
            throw ExecutorError("no memory for the activations of an image");
        const std::vector<float> patches = patches_of(pixels);
        ggml_backend_tensor_set(graph.patches(), patches.data(), 0, patches.size() * sizeof(float));
        const ggml_status status = ggml_backend_graph_compute(devices_.cpu(), graph.graph());
        if (status != GGML_STATUS_SUCCESS)
            throw ExecutorError(std::string("encoding an image failed: ") + ggml_status_to_string(status));
        ggml_backend_tensor_get(graph.result(), rows.data(), 0, rows.size_bytes());
        if (!std::all_of(rows.begin(), rows.end(), [](float value) { return std::isfinite(value); }))
            throw ExecutorError("the vision tower computed no numbers: its weights seem damaged");
    }

private:
    // Patches in rows from the upper left; the values of a patch by colour, then line, then column.
    std::vector<float> patches_of(std::span<const uint8_t> pixels) const {
        std::vector<float> patches(static_cast<std::size_t>(spec_.patch_count()) *
                                   static_cast<std::size_t>(spec_.patch_values()));
        const int32_t side = spec_.patches_on_side();
        const int32_t size = spec_.patch_size;
        auto value = patches.begin();
        for (int32_t patch = 0; patch < spec_.patch_count(); ++patch) {
            const int32_t top = patch / side * size;
            const int32_t left = patch % side * size;
            for (std::size_t colour = 0; colour < kColours; ++colour) {
                for (int32_t y = top; y < top + size; ++y) {
                    auto at = (static_cast<std::size_t>(y) * static_cast<std::size_t>(spec_.image_size) +
                               static_cast<std::size_t>(left)) *
                                  kColours +
                              colour;
                    for (int32_t x = 0; x < size; ++x, at += kColours) *value++ = normalised_[colour][pixels[at]];
                }
            }
        }
        return patches;
    }

    VisionSpec spec_;
    DeviceSet devices_;
    TowerWeights weights_;
    ggml_gallocr_ptr allocator_;
    std::vector<std::byte> meta_;  // memory of the graph's descriptions, reused
    std::array<std::array<float, kPixelValues>, kColours> normalised_{};
};

}  // namespace

std::unique_ptr<VisionTower> make_vision_tower(std::shared_ptr<const GgufFile> file, int32_t threads) {
    require_supported_cpu();
    return std::make_unique<GraphTower>(std::move(file), threads);
}

}  // namespace edgellm
