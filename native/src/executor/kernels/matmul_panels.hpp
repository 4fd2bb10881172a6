// Matmul kernels over weight panels, written once; a translation unit names its instruction set and includes this.
// Internal linkage throughout: nothing compiled for one instruction set may serve another file.
//
// Activations are bytes with one scale for each 32 values. A block's products are summed exactly as integers, then
// scaled and added to eight float lanes, which are eight rows: every (row, token) pair runs the same operations in the
// same order whatever the tile and whatever the instruction set, so that results depend on neither.
//
// Set: static add(sums, weights, activations) adds products of 32 unsigned and signed bytes to what it keeps as sums,
//      for as many as a block has; static total(sums) gives eight sums of 32 bits.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "executor/kernels/matmul.hpp"
#include "executor/kernels/weight_panels.hpp"

namespace edgellm {
namespace {

constexpr int64_t kLanes = 8;         // floats in a vector
constexpr int64_t kVectors = 2;       // of a panel's rows
constexpr int kPanelTokens = 4;       // of a tile
constexpr float kMaxByteQuant = 127.0F;
constexpr int64_t kPanelPrefetch_bytes = 4096;  // how far ahead weights are asked for when they are first passed over
constexpr int64_t kCacheLine_bytes = 64;

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// A prepared row: byte quants, then per block a scale, the sum of its values, and the sum of its quants.
struct ByteRow {
    const int8_t* quants;
    const float* scales;
    const float* sums;
    const int32_t* quant_sums;
};

inline ByteRow byte_row(const std::byte* row, int64_t size) {
    const auto* scales = reinterpret_cast<const float*>(row + size);
    const int64_t blocks = size / kPanelBlock;
    return {reinterpret_cast<const int8_t*>(row), scales, scales + blocks,
            reinterpret_cast<const int32_t*>(scales + 2 * blocks)};
}

class ByteFormat final : public ActivationFormat {
public:
    std::size_t row_bytes(int64_t size) const noexcept override {
        const int64_t bytes = size + 3 * (size / kPanelBlock) * static_cast<int64_t>(sizeof(float));
        return static_cast<std::size_t>(round_up(bytes, static_cast<int64_t>(kActivationAlignment_bytes)));
    }

    void prepare(const float* values, int64_t size, std::byte* row) const noexcept override {
        const int64_t blocks = size / kPanelBlock;
        auto* quants = reinterpret_cast<int8_t*>(row);
        auto* scales = reinterpret_cast<float*>(row + size);
        auto* quant_sums = reinterpret_cast<int32_t*>(scales + 2 * blocks);
        for (int64_t b = 0; b < blocks; ++b) {
            prepare_block(values + b * kPanelBlock, quants + b * kPanelBlock, scales[b], quant_sums[b]);
            scales[blocks + b] = scales[b] * static_cast<float>(quant_sums[b]);
        }
    }

private:
    static void prepare_block(const float* values, int8_t* quants, float& scale, int32_t& quant_sum) {
        const __m256 sign = _mm256_set1_ps(-0.0F);
        __m256 v[4];
        __m256 largest = _mm256_setzero_ps();
        for (int i = 0; i < 4; ++i) {
            v[i] = _mm256_loadu_ps(values + i * kLanes);
            largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, v[i]));
        }
        __m128 top = _mm_max_ps(_mm256_castps256_ps128(largest), _mm256_extractf128_ps(largest, 1));
        top = _mm_max_ps(top, _mm_movehl_ps(top, top));
        top = _mm_max_ss(top, _mm_movehdup_ps(top));
        const float magnitude = _mm_cvtss_f32(top);
        scale = magnitude / kMaxByteQuant;
        // A block this small would overflow the reciprocal; it is zero for every purpose.
        const __m256 inverse = _mm256_set1_ps(scale > 1e-30F ? kMaxByteQuant / magnitude : 0.0F);
        __m256i q[4];
        for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
        const __m256i total = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
        // The packs work within 128-bit halves; the permutation restores the order.
        const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(quants),
                            _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
        __m128i lanes = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
        lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32(lanes, 0x4E));
        lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32(lanes, 0xB1));
        quant_sum = _mm_cvtsi128_si32(lanes);
    }
};

// What the kernels know of an encoding: the bytes of a block, and what its unsigned quants exceed the real ones by.
template <TensorType kType>
struct Panel;

template <>
struct Panel<TensorType::kQ8_0> {
    static constexpr int64_t kRuns = 8;
    static constexpr int kOffsetBits = 7;
    static constexpr bool kHasMinimum = false;
    static constexpr bool kHalfBytes = false;
};
template <>
struct Panel<TensorType::kQ4_0> {
    static constexpr int64_t kRuns = 4;
    static constexpr int kOffsetBits = 3;
    static constexpr bool kHasMinimum = false;
    static constexpr bool kHalfBytes = true;
};
template <>
struct Panel<TensorType::kQ4_1> {
    static constexpr int64_t kRuns = 4;
    static constexpr int kOffsetBits = 0;  // none
    static constexpr bool kHasMinimum = true;
    static constexpr bool kHalfBytes = true;
};

constexpr int64_t kHeaderPart_bytes = kPanelRows * 2;

template <typename P>
constexpr int64_t header_bytes() {
    return kHeaderPart_bytes * (P::kHasMinimum ? 2 : 1);
}

template <typename P>
constexpr int64_t block_bytes() {
    return header_bytes<P>() + P::kRuns * kPanelRun_bytes;
}

inline __m256i load_quants(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

inline __m256 load_halves(const std::byte* from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Four activations, repeated for eight rows.
inline __m256i broadcast_four(const int8_t* from) {
    int32_t four;
    std::memcpy(&four, from, sizeof four);
    return _mm256_set1_epi32(four);
}

template <typename Set, int kTokens>
inline __attribute__((always_inline)) void add_products(const __m256i* weights, const ByteRow* tokens, int64_t at,
                                                        __m256i (*sums)[kTokens]) {
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
        const __m256i four = broadcast_four(tokens[t].quants + at);
#pragma GCC unroll 2
        for (int64_t v = 0; v < kVectors; ++v) sums[v][t] = Set::add(sums[v][t], weights[v], four);
    }
}

// totals[vector][token] of one block, whose activations begin at `at` of their rows.
template <typename Set, typename P, int kTokens>
inline __attribute__((always_inline)) void multiply_block(const std::byte* quants, const ByteRow* tokens, int64_t at,
                                                          __m256i (*totals)[kTokens]) {
    const __m256i low_half = _mm256_set1_epi8(15);
    __m256i sums[kVectors][kTokens];
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) sums[v][t] = _mm256_setzero_si256();
    }
    // Not unrolled: sums and weights of one run fill the registers, and compilers would start the next.
#pragma GCC unroll 1
    for (int64_t run = 0; run < P::kRuns; ++run) {
        __m256i both[kVectors];
        __m256i weights[kVectors];
        const int64_t columns = at + run * 4;
#pragma GCC unroll 2
        for (int64_t v = 0; v < kVectors; ++v) {
            both[v] = load_quants(quants + run * kPanelRun_bytes + v * kPanelRun_bytes / kVectors);
            weights[v] = P::kHalfBytes ? _mm256_and_si256(both[v], low_half) : both[v];
        }
        add_products<Set, kTokens>(weights, tokens, columns, sums);
        if constexpr (P::kHalfBytes) {
#pragma GCC unroll 2
            for (int64_t v = 0; v < kVectors; ++v)
                weights[v] = _mm256_and_si256(_mm256_srli_epi16(both[v], 4), low_half);
            add_products<Set, kTokens>(weights, tokens, columns + kPanelBlock / 2, sums);
        }
    }
#pragma GCC unroll 2
    for (int64_t v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) totals[v][t] = Set::total(sums[v][t]);
    }
}

// sums[token][row] of one panel. They live in memory: the registers are for the integer sums.
template <typename Set, typename P, int kTokens, bool kFirstPass>
inline __attribute__((always_inline)) void multiply_panel(const std::byte* panel, int64_t blocks, const ByteRow* tokens,
                                                          float (*sums)[kPanelRows]) {
    for (int t = 0; t < kTokens; ++t) {
        for (int64_t v = 0; v < kVectors; ++v) _mm256_store_ps(sums[t] + v * kLanes, _mm256_setzero_ps());
    }
    for (int64_t b = 0; b < blocks; ++b) {
        const std::byte* block = panel + b * block_bytes<P>();
        if constexpr (kFirstPass) {
            for (int64_t line = 0; line < block_bytes<P>(); line += kCacheLine_bytes)
                __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(block) +
                                                                 static_cast<std::uintptr_t>(kPanelPrefetch_bytes + line)));
        }
        __m256i totals[kVectors][kTokens];
        multiply_block<Set, P, kTokens>(block + header_bytes<P>(), tokens, b * kPanelBlock, totals);
#pragma GCC unroll 2
        for (int64_t v = 0; v < kVectors; ++v) {
            const __m256 scale = load_halves(block + v * kLanes * 2);
            __m256 minimum = _mm256_setzero_ps();
            if constexpr (P::kHasMinimum) minimum = load_halves(block + kHeaderPart_bytes + v * kLanes * 2);
#pragma GCC unroll 4
            for (int t = 0; t < kTokens; ++t) {
                __m256i total = totals[v][t];
                if constexpr (P::kOffsetBits > 0)
                    total = _mm256_sub_epi32(
                        total, _mm256_slli_epi32(_mm256_set1_epi32(tokens[t].quant_sums[b]), P::kOffsetBits));
                __m256 sum = _mm256_load_ps(sums[t] + v * kLanes);
                sum = _mm256_fmadd_ps(_mm256_mul_ps(scale, _mm256_broadcast_ss(tokens[t].scales + b)),
                                      _mm256_cvtepi32_ps(total), sum);
                if constexpr (P::kHasMinimum)
                    sum = _mm256_fmadd_ps(minimum, _mm256_broadcast_ss(tokens[t].sums + b), sum);
                _mm256_store_ps(sums[t] + v * kLanes, sum);
            }
        }
    }
}

template <typename Set, TensorType kType>
class PanelKernel final : public MatmulKernel {
public:
    using P = Panel<kType>;

    const ActivationFormat& activation_format() const noexcept override {
        static const ByteFormat format;
        return format;
    }
    std::size_t scratch_bytes(int64_t) const noexcept override { return 0; }
    bool reads_panels() const noexcept override { return true; }

    void multiply(const MatmulTask& task) const noexcept override {
        for (int64_t row = 0; row < task.row_count; row += kPanelRows) {
            const std::byte* panel = task.weights + static_cast<std::size_t>(row) * task.weight_row_bytes;
            const int64_t rows = task.row_count - row < kPanelRows ? task.row_count - row : kPanelRows;
            for (int64_t t = 0; t < task.token_count; t += kPanelTokens)
                multiply_tokens(task, panel, row, rows, t);
        }
    }

private:
    static void multiply_tokens(const MatmulTask& task, const std::byte* panel, int64_t row, int64_t rows,
                                int64_t first_token) {
        const int64_t left = task.token_count - first_token;
        const int64_t count = left < kPanelTokens ? left : kPanelTokens;
        ByteRow tokens[kPanelTokens];
        for (int64_t i = 0; i < count; ++i)
            tokens[i] = byte_row(
                task.activations + static_cast<std::size_t>(first_token + i) * task.activation_row_bytes,
                task.input_size);
        alignas(32) float sums[kPanelTokens][kPanelRows];
        const int64_t blocks = task.input_size / kPanelBlock;
        switch (count) {
            case 1: multiply_panel<Set, P, 1, true>(panel, blocks, tokens, sums); break;
            case 2: multiply_panel<Set, P, 2, true>(panel, blocks, tokens, sums); break;
            case 3: multiply_panel<Set, P, 3, true>(panel, blocks, tokens, sums); break;
            default: multiply_panel<Set, P, kPanelTokens, true>(panel, blocks, tokens, sums); break;
        }
        for (int64_t i = 0; i < count; ++i)
            std::memcpy(task.out + (first_token + i) * task.out_stride + row, sums[i],
                        static_cast<std::size_t>(rows) * sizeof(float));
    }
};

}  // namespace
}  // namespace edgellm
