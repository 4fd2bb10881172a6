// Nodes of a ggml graph that multiply rows by a matrix with this project's kernels, which take rows of a prompt's
// length several times as fast as the library's own products do; where there is no kernel, the library's product.
#pragma once

#include <ggml.h>

#include <cstddef>

namespace edgellm {

// [inputs, outputs, batch] times [inputs, rows, batch] = [outputs, rows, batch]; both contiguous, the matrix F32 or
// F16. Runs on the CPU.
ggml_tensor* row_product(ggml_context* context, ggml_tensor* matrix, ggml_tensor* rows);

// The most nodes that row_product adds to a graph.
inline constexpr std::size_t kRowProductNodes = 2;

}  // namespace edgellm
