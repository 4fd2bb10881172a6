// Matmul kernels for every encoding the tensor library can multiply, from its row-by-row dot products.
#pragma once

#include <cstddef>

#include "executor/kernels/matmul.hpp"
#include "model/gguf_file.hpp"

namespace edgellm {

// Lives as long as the program; nullptr for an encoding without a dot product.
const MatmulKernel* find_ggml_matmul_kernel(TensorType type);

// Turns one row of a weight matrix into floats.
void dequantise_row(TensorType type, const std::byte* row, int64_t size, float* out);

}  // namespace edgellm
