// Float matmul kernels for AVX2, FMA and F16C.
#include "executor/kernels/matmul.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include "executor/kernels/matmul_float_body.hpp"

namespace edgellm {
namespace {

struct Avx2Vectors {
    using Floats = __m256;
    static Floats zero() { return _mm256_setzero_ps(); }
    static Floats load_float(const std::byte* from) { return _mm256_loadu_ps(reinterpret_cast<const float*>(from)); }
    static Floats load_half(const std::byte* from) { return _mm256_cvtph_ps(load_16_bytes(from)); }
    static Floats load_bfloat(const std::byte* from) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16_bytes(from)), 16));
    }
    static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
    static float sum(Floats v) {
        __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
        sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
        sum = _mm_add_ss(sum, _mm_movehdup_ps(sum));
        return _mm_cvtss_f32(sum);
    }

private:
    static __m128i load_16_bytes(const std::byte* from) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    }
};

}  // namespace

const MatmulKernel* find_avx2_float_kernel(TensorType type) noexcept { return float_kernel<Avx2Vectors>(type); }

}  // namespace edgellm

#else

namespace edgellm {

const MatmulKernel* find_avx2_float_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
