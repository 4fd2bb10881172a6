#include "executor/vision/row_product.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "executor/kernels/matmul.hpp"

namespace edgellm {
namespace {

// Matrix rows that one task multiplies: they stay in the first caches while all rows of activations pass over them.
constexpr int64_t kOutputsPerTask = 32;

const MatmulKernel* kernel_of(const ggml_tensor* matrix) {
    const MatmulKernel* kernel = find_own_matmul_kernel(static_cast<TensorType>(static_cast<uint32_t>(matrix->type)));
    return kernel != nullptr && kernel->panel_rows() == 1 ? kernel : nullptr;
}

// userdata is the kernel, which lives as long as the program.
void prepare(ggml_tensor* prepared, int ith, int nth, void* userdata) {
    const ActivationFormat& format = static_cast<const MatmulKernel*>(userdata)->activation_format();
    const ggml_tensor* rows = prepared->src[0];
    const int64_t count = ggml_nrows(rows);
    const std::size_t prepared_bytes = format.row_bytes(rows->ne[0]);
    for (int64_t row = ith; row < count; row += nth) {
        const auto index = static_cast<std::size_t>(row);
        format.prepare(reinterpret_cast<const float*>(static_cast<const std::byte*>(rows->data) + index * rows->nb[1]),
                       rows->ne[0], static_cast<std::byte*>(prepared->data) + index * prepared_bytes);
    }
}

void multiply(ggml_tensor* out, int ith, int nth, void* userdata) {
    const auto& kernel = *static_cast<const MatmulKernel*>(userdata);
    const ggml_tensor* matrix = out->src[0];
    const ggml_tensor* prepared = out->src[1];
    const int64_t outputs = matrix->ne[1];
    const int64_t tasks_per_batch = (outputs + kOutputsPerTask - 1) / kOutputsPerTask;
    for (int64_t task = ith; task < tasks_per_batch * out->ne[2]; task += nth) {
        const auto batch = static_cast<std::size_t>(task / tasks_per_batch);
        const int64_t first = task % tasks_per_batch * kOutputsPerTask;
        MatmulTask one;
        one.weights = static_cast<const std::byte*>(matrix->data) + batch * matrix->nb[2] +
                      static_cast<std::size_t>(first) * matrix->nb[1];
        one.weight_row_bytes = matrix->nb[1];
        one.input_size = matrix->ne[0];
        one.row_count = std::min(kOutputsPerTask, outputs - first);
        one.activations = static_cast<const std::byte*>(prepared->data) + batch * prepared->nb[2];
        one.activation_row_bytes = prepared->nb[1];
        one.token_count = out->ne[1];
        one.out = reinterpret_cast<float*>(static_cast<std::byte*>(out->data) + batch * out->nb[2]) + first;
        one.out_stride = outputs;
        kernel.multiply(one);
    }
}

}  // namespace

ggml_tensor* row_product(ggml_context* context, ggml_tensor* matrix, ggml_tensor* rows) {
    const MatmulKernel* kernel = kernel_of(matrix);
    if (kernel == nullptr) {
        ggml_tensor* product = ggml_mul_mat(context, matrix, rows);
        ggml_mul_mat_set_prec(product, GGML_PREC_F32);
        return product;
    }
    // The library's interface is not const; nothing writes to the kernel.
    auto* userdata = const_cast<MatmulKernel*>(kernel);
    const auto prepared_values =
        static_cast<int64_t>(kernel->activation_format().row_bytes(rows->ne[0]) / sizeof(float));
    std::array<ggml_tensor*, 1> sources{rows};
    ggml_tensor* prepared = ggml_custom_4d(context, GGML_TYPE_F32, prepared_values, rows->ne[1], rows->ne[2], 1,
                                           sources.data(), 1, prepare, GGML_N_TASKS_MAX, userdata);
    std::array<ggml_tensor*, 2> factors{matrix, prepared};
    return ggml_custom_4d(context, GGML_TYPE_F32, matrix->ne[1], rows->ne[1], rows->ne[2], 1, factors.data(), 2,
                          multiply, GGML_N_TASKS_MAX, userdata);
}

}  // namespace edgellm
