// Matmul kernels over weight panels, for AVX-VNNI beside AVX2, FMA and F16C.
#include "executor/kernels/matmul.hpp"

#if defined(__AVXVNNI__) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "executor/kernels/matmul_panels.hpp"

namespace edgellm {
namespace {

struct AvxVnniSet {
    static __m256i add(__m256i sums, __m256i weights, __m256i activations) {
        return _mm256_dpbusd_avx_epi32(sums, weights, activations);
    }
    static __m256i total(__m256i sums) { return sums; }
};

}  // namespace

const MatmulKernel* find_avxvnni_panel_kernel(TensorType type) noexcept {
    static const PanelKernel<AvxVnniSet, TensorType::kQ8_0> q8_0;
    static const PanelKernel<AvxVnniSet, TensorType::kQ4_0> q4_0;
    static const PanelKernel<AvxVnniSet, TensorType::kQ4_1> q4_1;
    switch (type) {
        case TensorType::kQ8_0: return &q8_0;
        case TensorType::kQ4_0: return &q4_0;
        case TensorType::kQ4_1: return &q4_1;
        default: return nullptr;
    }
}

}  // namespace edgellm

#else

namespace edgellm {

const MatmulKernel* find_avxvnni_panel_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
