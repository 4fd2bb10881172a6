// Matmul kernels for quantised weights, for AVX2, FMA and F16C.
//
// Weights meet activations of 16 bits with one scale for each 32 values: a product block is two vpmaddwd, exact in
// 32 bits, then one FMA into eight float lanes. Every (row, token) pair runs the same operations in the same order
// whatever the tile, so results do not depend on the batch.
#include "executor/kernels/matmul.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <cstring>

#include "executor/kernels/matmul_avx2.hpp"

namespace edgellm {
namespace {

constexpr int64_t kBlock = 32;  // values that share a scale, in weights and activations
constexpr float kMaxQuant = 32767.0F;
constexpr int64_t kRowsAtOnce = 32;        // rows whose scales are unpacked together
constexpr int64_t kRowsWhenStreaming = 4;  // the same when no later token reuses the weights

inline int load_int(const std::byte* from) {
    int value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline int load_half(const std::byte* from) {
    uint16_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// A prepared row: int16 quants, then per block a scale, then per block the sum of its values; both padded to lanes.
struct QuantRow {
    const int16_t* quants;
    const float* scales;
    const float* sums;
};

inline QuantRow quant_row(const std::byte* row, int64_t size) {
    const auto* scales = reinterpret_cast<const float*>(row + size * 2);
    return {reinterpret_cast<const int16_t*>(row), scales, scales + round_up(size / kBlock, kLanes)};
}

class QuantFormat final : public ActivationFormat {
public:
    std::size_t row_bytes(int64_t size) const noexcept override {
        const int64_t bytes = size * 2 + 2 * round_up(size / kBlock, kLanes) * static_cast<int64_t>(sizeof(float));
        return static_cast<std::size_t>(round_up(bytes, static_cast<int64_t>(kActivationAlignment_bytes)));
    }

    void prepare(const float* values, int64_t size, std::byte* row) const noexcept override {
        const int64_t blocks = size / kBlock;
        const int64_t padded = round_up(blocks, kLanes);
        auto* quants = reinterpret_cast<int16_t*>(row);
        auto* scales = reinterpret_cast<float*>(row + size * 2);
        float* sums = scales + padded;
        for (int64_t b = 0; b < blocks; ++b)
            prepare_block(values + b * kBlock, quants + b * kBlock, scales[b], sums[b]);
        for (int64_t b = blocks; b < padded; ++b) scales[b] = sums[b] = 0.0F;
    }

private:
    static void prepare_block(const float* values, int16_t* quants, float& scale, float& sum) {
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
        scale = magnitude / kMaxQuant;
        // A block this small would overflow the reciprocal; it is zero for every purpose.
        const __m256 inverse = _mm256_set1_ps(scale > 1e-30F ? kMaxQuant / magnitude : 0.0F);
        __m256i q[4];
        __m256i total = _mm256_setzero_si256();
        for (int i = 0; i < 4; ++i) {
            q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
            total = _mm256_add_epi32(total, q[i]);
        }
        for (int i = 0; i < 2; ++i) {
            // packs works within 128-bit halves; the permutation restores the order.
            const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2 * i], q[2 * i + 1]), 0xD8);
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(quants + i * 16), packed);
        }
        __m128i lanes = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
        lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32(lanes, 0x4E));
        lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32(lanes, 0xB1));
        sum = scale * static_cast<float>(_mm_cvtsi128_si32(lanes));
    }
};

struct WeightBlock {
    __m256i first;   // values 0..15 as int16
    __m256i second;  // values 16..31 as int16
};

// Moves the last `count` of eight halves to the front and clears the rest: a row's last scales are fetched as eight
// that end with the row, never past it.
inline __m128i keep_last(__m128i halves, int64_t count) {
    alignas(16) static constexpr int8_t kSlide[32] = {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                                                      -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    const int8_t* from = kSlide + 2 * (kLanes - count);
    return _mm_shuffle_epi8(halves, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Eight scales from blocks of block_bytes each.
inline __m128i gather_halves(const std::byte* first, int64_t block_bytes) {
    __m128i halves = _mm_cvtsi32_si128(load_half(first));
    halves = _mm_insert_epi16(halves, load_half(first + block_bytes), 1);
    halves = _mm_insert_epi16(halves, load_half(first + 2 * block_bytes), 2);
    halves = _mm_insert_epi16(halves, load_half(first + 3 * block_bytes), 3);
    halves = _mm_insert_epi16(halves, load_half(first + 4 * block_bytes), 4);
    halves = _mm_insert_epi16(halves, load_half(first + 5 * block_bytes), 5);
    halves = _mm_insert_epi16(halves, load_half(first + 6 * block_bytes), 6);
    return _mm_insert_epi16(halves, load_half(first + 7 * block_bytes), 7);
}

// Scales of fewer than eight blocks, which are a whole row.
inline __m256 gather_short_row(const std::byte* first, int64_t block_bytes, int64_t count) {
    alignas(16) uint16_t values[kLanes] = {};
    for (int64_t i = 0; i < count; ++i) values[i] = static_cast<uint16_t>(load_half(first + i * block_bytes));
    return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(values)));
}

struct Q8_0 {
    static constexpr int64_t kBlockBytes = 34;
    static constexpr bool kHasMinimum = false;
    static WeightBlock unpack(const std::byte* block) {
        return {_mm256_cvtepi8_epi16(load_16(block + 2)), _mm256_cvtepi8_epi16(load_16(block + 18))};
    }
    // Of the last `count` of eight blocks.
    static void scales(const std::byte* first, int64_t count, float* scale, float*) {
        _mm256_store_ps(scale, _mm256_cvtph_ps(keep_last(gather_halves(first, kBlockBytes), count)));
    }
    static void scales_of_short_row(const std::byte* first, int64_t count, float* scale, float*) {
        _mm256_store_ps(scale, gather_short_row(first, kBlockBytes, count));
    }
};

struct Q4_0 {
    static constexpr int64_t kBlockBytes = 18;
    static constexpr bool kHasMinimum = false;
    static WeightBlock unpack(const std::byte* block) {
        const __m256i bytes = _mm256_cvtepu8_epi16(load_16(block + 2));
        const __m256i offset = _mm256_set1_epi16(8);
        return {_mm256_sub_epi16(_mm256_and_si256(bytes, _mm256_set1_epi16(15)), offset),
                _mm256_sub_epi16(_mm256_srli_epi16(bytes, 4), offset)};
    }
    // Of the last `count` of eight blocks.
    static void scales(const std::byte* first, int64_t count, float* scale, float*) {
        _mm256_store_ps(scale, _mm256_cvtph_ps(keep_last(gather_halves(first, kBlockBytes), count)));
    }
    static void scales_of_short_row(const std::byte* first, int64_t count, float* scale, float*) {
        _mm256_store_ps(scale, gather_short_row(first, kBlockBytes, count));
    }
};

struct Q4_1 {
    static constexpr int64_t kBlockBytes = 20;
    static constexpr bool kHasMinimum = true;
    static WeightBlock unpack(const std::byte* block) {
        const __m256i bytes = _mm256_cvtepu8_epi16(load_16(block + 4));
        return {_mm256_and_si256(bytes, _mm256_set1_epi16(15)), _mm256_srli_epi16(bytes, 4)};
    }
    // Of the last `count` of eight blocks. Scale and minimum are neighbours: they are fetched together, then parted.
    static void scales(const std::byte* first, int64_t count, float* scale, float* minimum) {
        const auto four = [&](const std::byte* from) {
            __m128i pairs = _mm_cvtsi32_si128(load_int(from));
            pairs = _mm_insert_epi32(pairs, load_int(from + kBlockBytes), 1);
            pairs = _mm_insert_epi32(pairs, load_int(from + 2 * kBlockBytes), 2);
            pairs = _mm_insert_epi32(pairs, load_int(from + 3 * kBlockBytes), 3);
            return _mm_shuffle_epi8(pairs, _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
        };
        const __m128i low = four(first);
        const __m128i high = four(first + 4 * kBlockBytes);
        _mm256_store_ps(scale, _mm256_cvtph_ps(keep_last(_mm_unpacklo_epi64(low, high), count)));
        _mm256_store_ps(minimum, _mm256_cvtph_ps(keep_last(_mm_unpackhi_epi64(low, high), count)));
    }
    static void scales_of_short_row(const std::byte* first, int64_t count, float* scale, float* minimum) {
        _mm256_store_ps(scale, gather_short_row(first, kBlockBytes, count));
        _mm256_store_ps(minimum, gather_short_row(first + 2, kBlockBytes, count));
    }
};

// Scales of up to kRowsAtOnce rows as floats: row r at r * stride.
struct UnpackedScales {
    float* scales;
    float* minimums;
    int64_t stride;
};

template <typename Weights>
__attribute__((noinline)) void unpack_scales(const std::byte* weights, std::size_t row_bytes, int64_t rows,
                                             int64_t blocks, UnpackedScales& to) {
    for (int64_t r = 0; r < rows; ++r) {
        const std::byte* row = weights + static_cast<std::size_t>(r) * row_bytes;
        float* scales = to.scales + r * to.stride;
        float* minimums = to.minimums + r * to.stride;
        if (blocks < kLanes) {
            Weights::scales_of_short_row(row, blocks, scales, minimums);
            continue;
        }
        int64_t b = 0;
        for (; b + kLanes <= blocks; b += kLanes)
            Weights::scales(row + b * Weights::kBlockBytes, kLanes, scales + b, minimums + b);
        if (b < blocks)
            Weights::scales(row + (blocks - kLanes) * Weights::kBlockBytes, blocks - b, scales + b, minimums + b);
    }
}

// Products summed in pairs. With several tokens in the tile activations come straight from memory: as an intrinsic the
// compiler would load them once for all rows, run out of registers, and spill what matters more.
template <int kTokens>
inline __m256i multiply_pairs(__m256i weights, const __m256i* activations) {
    if constexpr (kTokens == 1) return _mm256_madd_epi16(weights, _mm256_loadu_si256(activations));
    __m256i products;
    asm("vpmaddwd %2, %1, %0" : "=x"(products) : "x"(weights), "m"(*activations));
    return products;
}

template <typename Weights, int kRows, int kTokens, bool kFirstPass>
inline __attribute__((always_inline)) void multiply_tile(const std::byte* weights, std::size_t row_bytes,
                                                         int64_t blocks, const UnpackedScales& unpacked,
                                                         const QuantRow* tokens, float* out, int64_t out_stride) {
    __m256 sums[kRows][kTokens];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) sums[r][t] = _mm256_setzero_ps();
    }
    alignas(32) float scale[kRows][kTokens][kLanes];
    for (int64_t base = 0; base < blocks; base += kLanes) {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
            const __m256 row_scales = _mm256_load_ps(unpacked.scales + r * unpacked.stride + base);
#pragma GCC unroll 4
            for (int t = 0; t < kTokens; ++t) {
                _mm256_store_ps(scale[r][t], _mm256_mul_ps(row_scales, _mm256_loadu_ps(tokens[t].scales + base)));
                if constexpr (Weights::kHasMinimum) {
                    const __m256 minimums = _mm256_load_ps(unpacked.minimums + r * unpacked.stride + base);
                    sums[r][t] = _mm256_fmadd_ps(minimums, _mm256_loadu_ps(tokens[t].sums + base), sums[r][t]);
                }
            }
        }
        const int64_t count = blocks - base < kLanes ? blocks - base : kLanes;
        const std::byte* block = weights + base * Weights::kBlockBytes;
        for (int64_t b = 0; b < count; ++b, block += Weights::kBlockBytes) {
            if constexpr (kFirstPass)
                prefetch_ahead(weights + (base + b) * kRows * Weights::kBlockBytes, kRows * Weights::kBlockBytes);
            WeightBlock w[kRows];
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) w[r] = Weights::unpack(block + static_cast<std::size_t>(r) * row_bytes);
            const int64_t at = (base + b) * kBlock;
#pragma GCC unroll 4
            for (int t = 0; t < kTokens; ++t) {
                const auto* x = reinterpret_cast<const __m256i*>(tokens[t].quants + at);
#pragma GCC unroll 4
                for (int r = 0; r < kRows; ++r) {
                    const __m256i product = _mm256_add_epi32(multiply_pairs<kTokens>(w[r].first, x),
                                                             multiply_pairs<kTokens>(w[r].second, x + 1));
                    sums[r][t] =
                        _mm256_fmadd_ps(_mm256_cvtepi32_ps(product), _mm256_broadcast_ss(&scale[r][t][b]), sums[r][t]);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) out[t * out_stride + r] = sum_lanes(sums[r][t]);
    }
}

// Rows of one token tile: twos or fours, then the odd ones. The first pass over weights brings them into the caches.
template <typename Weights, int kRows, int kTokens, bool kFirstPass>
inline void multiply_rows(const MatmulTask& task, int64_t first_row, int64_t rows, const UnpackedScales& unpacked,
                          const QuantRow* tokens, float* out) {
    const int64_t blocks = task.input_size / kBlock;
    int64_t r = 0;
    const auto at = [&](int64_t row) {
        return task.weights + static_cast<std::size_t>(first_row + row) * task.weight_row_bytes;
    };
    const auto scales_at = [&](int64_t row) {
        return UnpackedScales{unpacked.scales + row * unpacked.stride, unpacked.minimums + row * unpacked.stride,
                              unpacked.stride};
    };
    for (; r + kRows <= rows; r += kRows) {
        multiply_tile<Weights, kRows, kTokens, kFirstPass>(at(r), task.weight_row_bytes, blocks, scales_at(r), tokens,
                                                           out + r, task.out_stride);
    }
    for (; r < rows; ++r)
        multiply_tile<Weights, 1, kTokens, false>(at(r), task.weight_row_bytes, blocks, scales_at(r), tokens, out + r,
                                                  task.out_stride);
}

template <typename Weights>
class QuantKernel final : public MatmulKernel {
public:
    const ActivationFormat& activation_format() const noexcept override {
        static const QuantFormat format;
        return format;
    }

    std::size_t scratch_bytes(int64_t input_size) const noexcept override {
        return static_cast<std::size_t>(2 * kRowsAtOnce * round_up(input_size / kBlock, kLanes)) * sizeof(float);
    }

    void multiply(const MatmulTask& task) const noexcept override {
        const int64_t step = task.token_count <= kPromptTokens ? kRowsWhenStreaming : kRowsAtOnce;
        for (int64_t row = 0; row < task.row_count; row += step) {
            const int64_t rows = task.row_count - row < step ? task.row_count - row : step;
            multiply_some(task, row, rows);
        }
    }

private:
    static void multiply_some(const MatmulTask& task, int64_t first_row, int64_t rows) {
        const int64_t blocks = task.input_size / kBlock;
        UnpackedScales unpacked{reinterpret_cast<float*>(task.scratch), nullptr, round_up(blocks, kLanes)};
        unpacked.minimums = unpacked.scales + kRowsAtOnce * unpacked.stride;
        unpack_scales<Weights>(task.weights + static_cast<std::size_t>(first_row) * task.weight_row_bytes,
                               task.weight_row_bytes, rows, blocks, unpacked);
        QuantRow tokens[kPromptTokens];
        for (int64_t t = 0; t < task.token_count; t += kPromptTokens) {
            const int64_t count = task.token_count - t < kPromptTokens ? task.token_count - t : kPromptTokens;
            for (int64_t i = 0; i < count; ++i)
                tokens[i] = quant_row(task.activations + static_cast<std::size_t>(t + i) * task.activation_row_bytes,
                                      task.input_size);
            float* out = task.out + t * task.out_stride + first_row;
            if (t == 0) {
                multiply_tokens<true>(task, count, first_row, rows, unpacked, tokens, out);
            } else {
                multiply_tokens<false>(task, count, first_row, rows, unpacked, tokens, out);
            }
        }
    }

    template <bool kFirstPass>
    static void multiply_tokens(const MatmulTask& task, int64_t count, int64_t first_row, int64_t rows,
                                const UnpackedScales& unpacked, const QuantRow* tokens, float* out) {
        switch (count) {
            case 1:
                multiply_rows<Weights, kDecodeRows, 1, kFirstPass>(task, first_row, rows, unpacked, tokens, out);
                break;
            case 2:
                multiply_rows<Weights, kPromptRows, 2, kFirstPass>(task, first_row, rows, unpacked, tokens, out);
                break;
            case 3:
                multiply_rows<Weights, kPromptRows, 3, kFirstPass>(task, first_row, rows, unpacked, tokens, out);
                break;
            default:
                multiply_rows<Weights, kPromptRows, 4, kFirstPass>(task, first_row, rows, unpacked, tokens, out);
                break;
        }
    }
};

}  // namespace

const MatmulKernel* find_avx2_quant_kernel(TensorType type) noexcept {
    static const QuantKernel<Q8_0> q8_0;
    static const QuantKernel<Q4_0> q4_0;
    static const QuantKernel<Q4_1> q4_1;
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

const MatmulKernel* find_avx2_quant_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
