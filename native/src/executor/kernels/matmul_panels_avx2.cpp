// Matmul kernels over weight panels of four bits, for AVX2, FMA and F16C. Q8_0 has none here: products of bytes pass
// 16 bits, so that panels would gain nothing over the rows of matmul_quant_avx2.
#include "executor/kernels/matmul.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "executor/kernels/matmul_panels.hpp"

namespace edgellm {
namespace {

// Sums have 16 bits: the products of a four-bit block that meet in one lane stay within, 16 × 15 × 127 = 30480.
struct Avx2Set {
    static __m256i add(__m256i sums, __m256i weights, __m256i activations) {
        return _mm256_add_epi16(sums, _mm256_maddubs_epi16(weights, activations));
    }
    static __m256i total(__m256i sums) { return _mm256_madd_epi16(sums, _mm256_set1_epi16(1)); }
};

}  // namespace

const MatmulKernel* find_avx2_panel_kernel(TensorType type) noexcept {
    static const PanelKernel<Avx2Set, TensorType::kQ4_0> q4_0;
    static const PanelKernel<Avx2Set, TensorType::kQ4_1> q4_1;
    switch (type) {
        case TensorType::kQ4_0: return &q4_0;
        case TensorType::kQ4_1: return &q4_1;
        default: return nullptr;
    }
}

}  // namespace edgellm

#else

namespace edgellm {

const MatmulKernel* find_avx2_panel_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
