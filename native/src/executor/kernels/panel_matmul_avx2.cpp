// Panel kernels for AVX2, FMA and F16C.
#include "executor/kernels/matmul.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "executor/kernels/panel_vectors_avx2.hpp"

namespace edgellm {

const ActivationFormat& avx2_byte_format() noexcept {
    static const ByteFormat<Avx2Panel> format;
    return format;
}

const ActivationFormat& avx2_word_format() noexcept {
    static const WordFormat<Avx2Panel> format;
    return format;
}

const MatmulKernel* find_avx2_panel_kernel(TensorType type) noexcept {
    return panel_kernel<Avx2Panel>(type, avx2_byte_format(), avx2_word_format());
}

}  // namespace edgellm

#else

namespace edgellm {

const MatmulKernel* find_avx2_panel_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
