#include "executor/kernels/matmul.hpp"

#include "executor/cpu_features.hpp"

namespace edgellm {

const MatmulKernel* find_own_matmul_kernel(TensorType type) noexcept {
    if (!supported_cpu()) return nullptr;
    if (has_dot_products()) {
        if (const MatmulKernel* neon = find_neon_quant_kernel(type)) return neon;
    }
    const MatmulKernel* quant = find_avx2_quant_kernel(type);
    return quant == nullptr ? find_avx2_float_kernel(type) : quant;
}

}  // namespace edgellm
