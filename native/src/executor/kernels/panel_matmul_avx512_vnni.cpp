// Panel kernels for AVX-512 with VNNI: a whole panel's rows in a vector of 512 bits.
#include "executor/kernels/matmul.hpp"

#if defined(__AVX512VNNI__) && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__FMA__) && defined(__F16C__)

#include "executor/kernels/panel_vectors_avx2.hpp"

namespace edgellm {
namespace {

struct Avx512VnniPanel {
    static constexpr int kRows = 16;
    static constexpr int kTokens = 8;

    using Floats = __m512;
    struct Nibbles {
        __m512i word[8];
    };
    struct Bytes {
        __m512i pair[8];  // as Avx2Panel has them
    };
    using ByteSums = __m512i;

    static Floats zero_floats() { return _mm512_setzero_ps(); }
    static Floats set(float value) { return _mm512_set1_ps(value); }
    static Floats load_half(const std::byte* from) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    }
    static void store(float* to, Floats v) { _mm512_storeu_ps(to, v); }
    static Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

    static __m512i load_word(const std::byte* words, int index) {
        return _mm512_loadu_si512(words + index * kWords_bytes);
    }
    static Nibbles load_nibbles(const std::byte* words) {
        const __m512i low = _mm512_set1_epi8(15);
        Nibbles w;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512i both = load_word(words, i);
            w.word[i] = _mm512_and_si512(both, low);
            w.word[4 + i] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
        }
        return w;
    }
    static Floats dot_nibbles(const Nibbles& w, const int8_t* x, int32_t start) {
        __m512i sums = _mm512_set1_epi32(start);
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i)
            sums = _mm512_dpbusd_epi32(sums, w.word[i], _mm512_set1_epi32(load_dword(x + 4 * i)));
        return _mm512_cvtepi32_ps(sums);
    }

    static Bytes load_bytes(const std::byte* words) {
        Bytes w;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m512i all = load_word(words, i);
            w.pair[2 * i] = _mm512_srai_epi16(_mm512_slli_epi16(all, 8), 8);
            w.pair[2 * i + 1] = _mm512_srai_epi16(all, 8);
        }
        return w;
    }
    static ByteSums zero_sums() { return _mm512_setzero_si512(); }
    static ByteSums add_bytes(ByteSums sums, const Bytes& w, const std::byte* x) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i)
            sums = _mm512_dpwssd_epi32(sums, w.pair[i], _mm512_set1_epi32(load_dword(x + 4 * i)));
        return sums;
    }
    static Floats total(ByteSums sums) { return _mm512_cvtepi32_ps(sums); }
};

}  // namespace

const MatmulKernel* find_avx512_vnni_panel_kernel(TensorType type) noexcept {
    return panel_kernel<Avx512VnniPanel>(type, avx2_byte_format(), avx2_word_format());
}

}  // namespace edgellm

#else

namespace edgellm {

const MatmulKernel* find_avx512_vnni_panel_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
