#include "executor/cpu/cpu_weights.hpp"

#include <algorithm>

#include "contract/errors.hpp"
#include "executor/ggml/ggml_matmul_kernel.hpp"
#include "model/mapped_file.hpp"
#include "model/printable.hpp"
#include "model/tensor_types.hpp"

namespace edgellm {

CpuWeights::CpuWeights(std::shared_ptr<const GgufFile> file, const ModelSpec& spec, bool portable_kernels)
    : file_(std::move(file)), portable_kernels_(portable_kernels) {
    load_mapping(file_->mapping());
    const DecoderTensors tensors = find_decoder_tensors(*file_, spec);
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

CpuMatrix CpuWeights::matrix(const TensorView& view) {
    CpuMatrix matrix;
    matrix.rows = view.data.data();
    matrix.row_bytes = static_cast<std::size_t>(edgellm::row_bytes(view));
    matrix.inputs = view.shape[0];
    matrix.outputs = view.shape[1];
    if (!portable_kernels_) matrix.kernel = find_own_matmul_kernel(view.type);
    if (matrix.kernel == nullptr) matrix.kernel = find_ggml_matmul_kernel(view.type);
    if (matrix.kernel == nullptr) {
        throw ModelFileError("model file '" + file_->path().string() + "': tensor '" + printable(view.name) +
                             "' has type " + tensor_type_traits(view.type).name +
                             ", which this executor cannot multiply; quantise it to Q8_0");
    }
    const ActivationFormat* format = &matrix.kernel->activation_format();
    const auto found =
        std::find_if(formats_.begin(), formats_.end(), [&](const UsedFormat& one) { return one.format == format; });
    matrix.format = static_cast<std::size_t>(found - formats_.begin());
    if (found == formats_.end()) formats_.push_back({format, 0});
    UsedFormat& used = formats_[matrix.format];
    used.widest_input = std::max(used.widest_input, matrix.inputs);
    weight_bytes_ += static_cast<int64_t>(view.data.size());
    scratch_bytes_ = std::max(scratch_bytes_, matrix.kernel->scratch_bytes(matrix.inputs));
    return matrix;
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
