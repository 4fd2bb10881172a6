// Panel kernels for AVX2 with AVX-VNNI: dot products of bytes and of pairs of 16 bits, in vectors of 256 bits.
#include "executor/kernels/matmul.hpp"

#if defined(__AVXVNNI__) && defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "executor/kernels/panel_vectors_avx2.hpp"

namespace edgellm {
namespace {

struct AvxVnniPanel : Avx2Panel {
    static Floats dot_nibbles(const Nibbles& w, const int8_t* x, int32_t start) {
        __m256i sums = _mm256_set1_epi32(start);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i)
            sums = _mm256_dpbusd_avx_epi32(sums, w.word[i], _mm256_set1_epi32(load_dword(x + 4 * i)));
        return _mm256_cvtepi32_ps(sums);
    }
    static ByteSums add_bytes(ByteSums sums, const Bytes& w, const std::byte* x) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i)
            sums = _mm256_dpwssd_avx_epi32(sums, w.pair[i], _mm256_set1_epi32(load_dword(x + 4 * i)));
        return sums;
    }
};

}  // namespace

const MatmulKernel* find_avx_vnni_panel_kernel(TensorType type) noexcept {
    return panel_kernel<AvxVnniPanel>(type, avx2_byte_format(), avx2_word_format());
}

}  // namespace edgellm

#else

namespace edgellm {

const MatmulKernel* find_avx_vnni_panel_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
