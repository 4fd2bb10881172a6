#include "executor/cpu/cpu_weights.hpp"

#include <algorithm>

#include "contract/errors.hpp"
#include "executor/ggml/ggml_matmul_kernel.hpp"
#include "model/mapped_file.hpp"
#include "model/printable.hpp"
#include "model/tensor_types.hpp"

namespace edgellm {
namespace {

constexpr const char* kPanelsFolder = "weight_panels";

std::vector<const TensorView*> matrices(const DecoderTensors& tensors) {
    std::vector<const TensorView*> all;
    for (const LayerTensors& layer : tensors.layers) {
        for (const TensorView* view :
             {layer.query, layer.key, layer.value, layer.attention_output, layer.gate, layer.up, layer.down})
            all.push_back(view);
    }
    all.push_back(tensors.output);
    return all;
}

}  // namespace

CpuWeights::CpuWeights(std::shared_ptr<const GgufFile> file, const ModelSpec& spec, bool portable_kernels,
                       const std::filesystem::path& derived_folder)
    : file_(std::move(file)), portable_kernels_(portable_kernels) {
    const DecoderTensors tensors = find_decoder_tensors(*file_, spec);
    std::vector<const TensorView*> panelled;
    for (const TensorView* view : matrices(tensors)) {
        if (kernel_for(*view).panel_rows() > 1) panelled.push_back(view);
    }
    panels_ = std::make_unique<PanelWeights>(
        *file_, panelled, derived_folder.empty() ? derived_folder : derived_folder / kPanelsFolder);
    token_embedding_ = tensors.token_embedding;
    if (tensors.output != tensors.token_embedding) weight_bytes_ += static_cast<int64_t>(token_embedding_->data.size());
    for (const LayerTensors& from : tensors.layers) {
        CpuLayer layer;
        layer.attention_norm = vector(from.attention_norm);
        layer.query = matrix(*from.query);
        layer.key = matrix(*from.key);
        layer.value = matrix(*from.value);
        layer.query_bias = vector(from.query_bias);
        layer.key_bias = vector(from.key_bias);
        layer.value_bias = vector(from.value_bias);
        layer.query_norm = vector(from.query_norm);
        layer.key_norm = vector(from.key_norm);
        layer.attention_output = matrix(*from.attention_output);
        layer.feed_forward_norm = vector(from.feed_forward_norm);
        layer.gate = matrix(*from.gate);
        layer.up = matrix(*from.up);
        layer.down = matrix(*from.down);
        layers_.push_back(layer);
    }
    output_norm_ = vector(tensors.output_norm);
    output_ = matrix(*tensors.output);
}

const MatmulKernel& CpuWeights::kernel_for(const TensorView& view) const {
    const MatmulKernel* kernel = portable_kernels_ ? nullptr : find_own_matmul_kernel(view.type);
    if (kernel == nullptr) kernel = find_ggml_matmul_kernel(view.type);
    if (kernel == nullptr) {
        throw ModelFileError("model file '" + file_->path().string() + "': tensor '" + printable(view.name) +
                             "' has type " + tensor_type_traits(view.type).name +
                             ", which this executor cannot multiply; quantise it to Q8_0");
    }
    return *kernel;
}

CpuMatrix CpuWeights::matrix(const TensorView& view) {
    CpuMatrix matrix;
    if (panels_->find(view) == nullptr) load_pages(view.data);
    matrix.kernel = &kernel_for(view);
    const std::byte* panels = panels_->find(view);
    matrix.rows = panels == nullptr ? view.data.data() : panels;
    matrix.row_bytes = static_cast<std::size_t>(edgellm::row_bytes(view));
    matrix.inputs = view.shape[0];
    matrix.outputs = view.shape[1];
    const ActivationFormat* format = &matrix.kernel->activation_format();
    const auto found =
        std::find_if(formats_.begin(), formats_.end(), [&](const UsedFormat& one) { return one.format == format; });
    matrix.format = static_cast<std::size_t>(found - formats_.begin());
    if (found == formats_.end()) formats_.push_back({format, 0});
    UsedFormat& used = formats_[matrix.format];
    used.widest_input = std::max(used.widest_input, matrix.inputs);
    weight_bytes_ += static_cast<int64_t>(view.data.size());
    return matrix;
}

const char* CpuWeights::panel_kernels() const noexcept {
    return panels_->empty() ? nullptr : panel_kernel_sets().front().name;
}

const float* CpuWeights::vector(const TensorView* view) {
    if (view == nullptr) return nullptr;
    weight_bytes_ += static_cast<int64_t>(view->data.size());
    return reinterpret_cast<const float*>(view->data.data());
}

void CpuWeights::embed(int32_t token, float* out) const {
    const auto row = static_cast<std::size_t>(token) * static_cast<std::size_t>(edgellm::row_bytes(*token_embedding_));
    dequantise_row(token_embedding_->type, token_embedding_->data.data() + row, token_embedding_->shape[0], out);
}

}  // namespace edgellm
