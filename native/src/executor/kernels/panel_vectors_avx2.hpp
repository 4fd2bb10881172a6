// V of the panel kernels for AVX2, FMA and F16C; AVX-VNNI and AVX-512 build on it. Internal linkage throughout.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "executor/kernels/panel_matmul_body.hpp"

namespace edgellm {

// How all of x86-64 lays activations out. Their methods need AVX2.
const ActivationFormat& avx2_byte_format() noexcept;
const ActivationFormat& avx2_word_format() noexcept;

namespace {

inline int32_t load_dword(const void* from) {
    int32_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

struct Avx2Panel {
    static constexpr int kRows = 8;
    static constexpr int kTokens = 4;

    using Floats = __m256;
    struct Nibbles {
        __m256i word[8];
    };
    struct Bytes {
        __m256i pair[8];  // words as 16 bits: first and third value, second and fourth value, and so on
    };
    using ByteSums = __m256i;

    static Floats zero_floats() { return _mm256_setzero_ps(); }
    static Floats set(float value) { return _mm256_set1_ps(value); }
    static Floats load_half(const std::byte* from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    }
    static void store(float* to, Floats v) { _mm256_storeu_ps(to, v); }
    static Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static Floats multiply_add(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

    static __m256i load_word(const std::byte* words, int index) {
        return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + index * kWords_bytes));
    }
    static Nibbles load_nibbles(const std::byte* words) {
        const __m256i low = _mm256_set1_epi8(15);
        Nibbles w;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m256i both = load_word(words, i);
            w.word[i] = _mm256_and_si256(both, low);
            w.word[4 + i] = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
        }
        return w;
    }
    // Sums of eight products of 15 × 127 in each of two places fit 16 bits: 30,480.
    static Floats dot_nibbles(const Nibbles& w, const int8_t* x, int32_t start) {
        __m256i pairs = _mm256_maddubs_epi16(w.word[0], _mm256_set1_epi32(load_dword(x)));
#pragma GCC unroll 8
        for (int i = 1; i < 8; ++i)
            pairs = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(w.word[i], _mm256_set1_epi32(load_dword(x + 4 * i))));
        const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        return _mm256_cvtepi32_ps(_mm256_add_epi32(sums, _mm256_set1_epi32(start)));
    }

    static Bytes load_bytes(const std::byte* words) {
        Bytes w;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const __m256i all = load_word(words, i);
            w.pair[2 * i] = _mm256_srai_epi16(_mm256_slli_epi16(all, 8), 8);
            w.pair[2 * i + 1] = _mm256_srai_epi16(all, 8);
        }
        return w;
    }
    static ByteSums zero_sums() { return _mm256_setzero_si256(); }
    static ByteSums add_bytes(ByteSums sums, const Bytes& w, const std::byte* x) {
#pragma GCC unroll 8
        for (int i = 0; i < 8; ++i)
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(w.pair[i], _mm256_set1_epi32(load_dword(x + 4 * i))));
        return sums;
    }
    static Floats total(ByteSums sums) { return _mm256_cvtepi32_ps(sums); }

    static float largest_magnitude(const float* values) {
        const __m256 sign = _mm256_set1_ps(-0.0F);
        __m256 largest = _mm256_setzero_ps();
        for (int i = 0; i < 4; ++i)
            largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, _mm256_loadu_ps(values + i * 8)));
        __m128 top = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
        top = _mm_max_ps(top, _mm_movehl_ps(top, top));
        return _mm_cvtss_f32(_mm_max_ss(top, _mm_movehdup_ps(top)));
    }
    static void round(const float* values, float inverse, __m256i* quants) {
        for (int i = 0; i < 4; ++i)
            quants[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(values + i * 8), _mm256_set1_ps(inverse)));
    }
    static int32_t quantise_bytes(const float* values, float inverse, int8_t* to) {
        __m256i q[4];
        round(values, inverse, q);
        // Packing works within 128-bit halves; the permutation restores the order.
        const __m256i packed =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permutevar8x32_epi32(packed, order));
        const __m256i all = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
        __m128i lanes = _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
        lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32(lanes, 0x4E));
        return _mm_cvtsi128_si32(_mm_add_epi32(lanes, _mm_shuffle_epi32(lanes, 0xB1)));
    }
    static void quantise_words(const float* values, float inverse, std::byte* to) {
        __m256i q[4];
        round(values, inverse, q);
        // Of four values the first and third come first, as Bytes has them.
        const __m256i pairs = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15,  //
                                               0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
        for (int i = 0; i < 2; ++i) {
            const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2 * i], q[2 * i + 1]), 0xD8);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * 32), _mm256_shuffle_epi8(packed, pairs));
        }
    }
};

}  // namespace
}  // namespace edgellm
