#include "executor/kernels/matmul.hpp"

namespace edgellm {

const MatmulKernel* find_avx2_matmul_kernel(TensorType type) noexcept {
    const MatmulKernel* quant = find_avx2_quant_kernel(type);
    return quant == nullptr ? find_avx2_float_kernel(type) : quant;
}

}  // namespace edgellm
