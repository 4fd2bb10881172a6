// Float matmul kernels for vectors of 512 bits, for the CPUs with AVX-512 VNNI: a vector is the eight lanes of
// one token beside those of the next, so that each dot product is summed as the other sets sum it. Prompts and images
// alone are multiplied so; fewer tokens than a tile has are left to AVX2, which these CPUs have, too.
#include "executor/kernels/matmul.hpp"

#if defined(__AVX512F__) && defined(__AVX512BW__)

#include <immintrin.h>

#include <cstring>

namespace edgellm {
namespace {

constexpr int64_t kLanes = 8;  // of one dot product
constexpr int kTileRows = 4;
constexpr int kTilePairs = 4;
constexpr int64_t kTileTokens = 2 * kTilePairs;

__m512 twice(__m256 eight) { return _mm512_castpd_ps(_mm512_broadcast_f64x4(_mm256_castps_pd(eight))); }

__m256i eight_codes_twice(const std::byte* from) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}

// Eight weights for both tokens of a vector.
struct WideF32 {
    static constexpr TensorType kType = TensorType::kF32;
    static constexpr int64_t kValueBytes = 4;
    static __m512 load(const std::byte* from) { return twice(_mm256_loadu_ps(reinterpret_cast<const float*>(from))); }
};

struct WideF16 {
    static constexpr TensorType kType = TensorType::kF16;
    static constexpr int64_t kValueBytes = 2;
    static __m512 load(const std::byte* from) { return _mm512_cvtph_ps(eight_codes_twice(from)); }
};

struct WideBF16 {
    static constexpr TensorType kType = TensorType::kBF16;
    static constexpr int64_t kValueBytes = 2;
    static __m512 load(const std::byte* from) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(eight_codes_twice(from)), 16));
    }
};

__m512 load_pair(const float* first, const float* second) {
    const __m512d low = _mm512_castps_pd(_mm512_castps256_ps512(_mm256_loadu_ps(first)));
    return _mm512_castpd_ps(_mm512_insertf64x4(low, _mm256_castps_pd(_mm256_loadu_ps(second)), 1));
}

// Sums of four weight rows for both tokens: the first four results are those of one token, the last four the other's.
// Lanes are added in the order of the other sets: the two halves, then the halves of those, then what is left.
__m256 sum_lanes(const __m512 (&sums)[kTileRows]) {
    __m512 halves[kTileRows];
    for (int r = 0; r < kTileRows; ++r)
        halves[r] = _mm512_add_ps(sums[r], _mm512_shuffle_f32x4(sums[r], sums[r], 0xB1));
    // Rows 0 and 1, 2 and 3 side by side in the halves of each token.
    const __m512 first = _mm512_mask_blend_ps(0xF0F0, halves[0], halves[1]);
    const __m512 second = _mm512_mask_blend_ps(0xF0F0, halves[2], halves[3]);
    const __m512 first_pairs = _mm512_add_ps(first, _mm512_permute_ps(first, 0x4E));
    const __m512 second_pairs = _mm512_add_ps(second, _mm512_permute_ps(second, 0x4E));
    const __m512 pairs = _mm512_mask_blend_ps(0xCCCC, first_pairs, second_pairs);
    const __m512 whole = _mm512_add_ps(pairs, _mm512_permute_ps(pairs, 0xB1));
    // Per token: row 0, row 2, row 1, row 3, each twice.
    const __m512i order = _mm512_setr_epi32(0, 4, 2, 6, 8, 12, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm512_castps512_ps256(_mm512_permutexvar_ps(order, whole));
}

template <typename Weights>
void multiply_tile(const std::byte* weights, std::size_t row_bytes, int64_t size, const float* const* tokens,
                   float* out, int64_t out_stride) {
    __m512 sums[kTilePairs][kTileRows];
#pragma GCC unroll 4
    for (int p = 0; p < kTilePairs; ++p) {
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r) sums[p][r] = _mm512_setzero_ps();
    }
    const auto step = [&](int64_t i, const __m512* w) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int p = 0; p < kTilePairs; ++p) {
            const __m512 x = load_pair(tokens[2 * p] + i, tokens[2 * p + 1] + i);
#pragma GCC unroll 4
            for (int r = 0; r < kTileRows; ++r) sums[p][r] = _mm512_fmadd_ps(w[r], x, sums[p][r]);
        }
    };
    __m512 w[kTileRows];
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
#pragma GCC unroll 4
        for (int r = 0; r < kTileRows; ++r)
            w[r] = Weights::load(weights + static_cast<std::size_t>(r) * row_bytes + i * Weights::kValueBytes);
        step(i, w);
    }
    if (i < size) {  // the row may end at the end of the file's mapping: never read past it
        for (int r = 0; r < kTileRows; ++r) {
            alignas(32) std::byte tail[kLanes * Weights::kValueBytes] = {};
            std::memcpy(tail, weights + static_cast<std::size_t>(r) * row_bytes + i * Weights::kValueBytes,
                        static_cast<std::size_t>((size - i) * Weights::kValueBytes));
            w[r] = Weights::load(tail);
        }
        step(i, w);
    }
    for (int p = 0; p < kTilePairs; ++p) {
        const __m256 results = sum_lanes(sums[p]);
        _mm_storeu_ps(out + 2 * p * out_stride, _mm256_castps256_ps128(results));
        _mm_storeu_ps(out + (2 * p + 1) * out_stride, _mm256_extractf128_ps(results, 1));
    }
}

template <typename Weights>
class WideFloatKernel final : public MatmulKernel {
public:
    const ActivationFormat& activation_format() const noexcept override { return narrow().activation_format(); }

    void multiply(const MatmulTask& task) const noexcept override {
        const int64_t wide_rows = task.row_count / kTileRows * kTileRows;
        const int64_t wide_tokens = wide_rows == 0 ? 0 : task.token_count / kTileTokens * kTileTokens;
        for (int64_t t = 0; t < wide_tokens; t += kTileTokens) {
            const float* tokens[kTileTokens];
            for (int64_t i = 0; i < kTileTokens; ++i)
                tokens[i] = reinterpret_cast<const float*>(task.activations +
                                                           static_cast<std::size_t>(t + i) * task.activation_row_bytes);
            for (int64_t r = 0; r < wide_rows; r += kTileRows)
                multiply_tile<Weights>(task.weights + static_cast<std::size_t>(r) * task.weight_row_bytes,
                                       task.weight_row_bytes, task.input_size, tokens,
                                       task.out + t * task.out_stride + r, task.out_stride);
        }
        // What is left: rows beside the tiles, then tokens after them.
        if (wide_tokens > 0 && wide_rows < task.row_count) {
            MatmulTask rest = task;
            rest.weights += static_cast<std::size_t>(wide_rows) * task.weight_row_bytes;
            rest.row_count -= wide_rows;
            rest.token_count = wide_tokens;
            rest.out += wide_rows;
            narrow().multiply(rest);
        }
        if (wide_tokens < task.token_count) {
            MatmulTask rest = task;
            rest.activations += static_cast<std::size_t>(wide_tokens) * task.activation_row_bytes;
            rest.token_count -= wide_tokens;
            rest.out += wide_tokens * task.out_stride;
            narrow().multiply(rest);
        }
    }

private:
    static const MatmulKernel& narrow() noexcept { return *find_avx2_float_kernel(Weights::kType); }
};

}  // namespace

const MatmulKernel* find_avx512_float_kernel(TensorType type) noexcept {
    if (find_avx2_float_kernel(type) == nullptr) return nullptr;
    static const WideFloatKernel<WideF32> f32;
    static const WideFloatKernel<WideF16> f16;
    static const WideFloatKernel<WideBF16> bf16;
    switch (type) {
        case TensorType::kF32: return &f32;
        case TensorType::kF16: return &f16;
        case TensorType::kBF16: return &bf16;
        default: return nullptr;
    }
}

}  // namespace edgellm

#else

namespace edgellm {

const MatmulKernel* find_avx512_float_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
