// CpuKernels for AVX2, FMA and F16C.
#include "executor/kernels/cpu_kernels_body.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

namespace edgellm {
namespace {

struct Avx2Vector {
    __m256 v;

    static Avx2Vector zero() { return {_mm256_setzero_ps()}; }
    static Avx2Vector set(float value) { return {_mm256_set1_ps(value)}; }
    static Avx2Vector load(const float* from) { return {_mm256_loadu_ps(from)}; }
    static Avx2Vector load_half(const uint16_t* from) {
        return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
    }
    void store(float* to) const { _mm256_storeu_ps(to, v); }
    void store_half(uint16_t* to) const {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
    }
    static Avx2Vector multiply_add(Avx2Vector a, Avx2Vector b, Avx2Vector c) {
        return {_mm256_fmadd_ps(a.v, b.v, c.v)};
    }
    static Avx2Vector max(Avx2Vector a, Avx2Vector b) { return {_mm256_max_ps(a.v, b.v)}; }
    static Avx2Vector divide(Avx2Vector a, Avx2Vector b) { return {_mm256_div_ps(a.v, b.v)}; }

    // e^x = 2^n e^r with |r| <= ln(2)/2 and a polynomial for e^r; error below 2 ulp. Results beyond float's range
    // are zero or infinity.
    static Avx2Vector exp(Avx2Vector a) {
        const __m256 high = _mm256_set1_ps(88.7228F);
        const __m256 low = _mm256_set1_ps(-87.3365F);
        const __m256 x = _mm256_min_ps(_mm256_max_ps(a.v, low), high);
        const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)),
                                         _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), x);  // ln(2) in two parts
        r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
        __m256 p = _mm256_set1_ps(1.0F / 5040.0F);
        for (const float coefficient : {1.0F / 720.0F, 1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F, 1.0F})
            p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(coefficient));
        // 2^n in two factors: n = 128 has no float of its own.
        const __m256i whole = _mm256_cvtps_epi32(n);
        const __m256i half = _mm256_srai_epi32(whole, 1);
        const auto power = [](__m256i k) {
            return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(k, _mm256_set1_epi32(127)), 23));
        };
        __m256 result = _mm256_mul_ps(_mm256_mul_ps(p, power(half)), power(_mm256_sub_epi32(whole, half)));
        result = _mm256_blendv_ps(result, _mm256_setzero_ps(), _mm256_cmp_ps(a.v, low, _CMP_LT_OQ));
        result = _mm256_blendv_ps(result, _mm256_set1_ps(__builtin_inff()), _mm256_cmp_ps(a.v, high, _CMP_GT_OQ));
        return {_mm256_blendv_ps(result, a.v, _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q))};  // not a number stays so
    }

    float sum() const {
        __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        s = _mm_add_ps(s, _mm_movehl_ps(s, s));
        return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
    }
    float largest() const {
        __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        s = _mm_max_ps(s, _mm_movehl_ps(s, s));
        return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
    }
};

Avx2Vector operator+(Avx2Vector a, Avx2Vector b) { return {_mm256_add_ps(a.v, b.v)}; }
Avx2Vector operator*(Avx2Vector a, Avx2Vector b) { return {_mm256_mul_ps(a.v, b.v)}; }

}  // namespace

const CpuKernels* avx2_cpu_kernels() noexcept {
    static constexpr CpuKernels kernels = kernel_body::make_cpu_kernels<Avx2Vector>("AVX2");
    return &kernels;
}

}  // namespace edgellm

#else

namespace edgellm {

const CpuKernels* avx2_cpu_kernels() noexcept { return nullptr; }

}  // namespace edgellm

#endif
