// What the AVX2 matmul kernels share. Internal linkage throughout: nothing compiled for AVX2 may serve another file.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace edgellm {
namespace {

constexpr int64_t kLanes = 8;  // floats in a vector

// Weight rows and tokens of a tile. Results do not depend on them; speed does, by what fits the 16 registers.
constexpr int kDecodeRows = 4;  // when one token is multiplied
constexpr int kPromptRows = 2;
constexpr int kPromptTokens = 4;

constexpr int64_t kPrefetch_bytes = 8192;  // how far ahead weights are asked for when they are first passed over
constexpr int64_t kCacheLine_bytes = 64;

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Sum of eight lanes in a fixed order.
inline float sum_lanes(__m256 v) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    sum = _mm_add_ss(sum, _mm_movehdup_ps(sum));
    return _mm_cvtss_f32(sum);
}

inline __m128i load_16(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }

// Asks for the lines of [from, from + size) at the prefetch distance; the address need not exist.
inline void prefetch_ahead(const std::byte* from, int64_t size) {
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(from) + kPrefetch_bytes;
    for (int64_t line = 0; line < size; line += kCacheLine_bytes)
        __builtin_prefetch(reinterpret_cast<const void*>(start + static_cast<std::uintptr_t>(line)));
}

}  // namespace
}  // namespace edgellm
