// Matmul kernels for float weights, for AVX2, FMA and F16C: float activations, one FMA for each eight products.
#include "executor/kernels/matmul.hpp"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <cstring>

#include "executor/kernels/matmul_avx2.hpp"

namespace edgellm {
namespace {

class FloatFormat final : public ActivationFormat {
public:
    std::size_t row_bytes(int64_t size) const noexcept override {
        const auto padded = static_cast<std::size_t>(round_up(size, kLanes)) * sizeof(float);
        return (padded + kActivationAlignment_bytes - 1) / kActivationAlignment_bytes * kActivationAlignment_bytes;
    }
    void prepare(const float* values, int64_t size, std::byte* row) const noexcept override {
        auto* to = reinterpret_cast<float*>(row);
        std::memcpy(to, values, static_cast<std::size_t>(size) * sizeof(float));
        for (int64_t i = size; i < round_up(size, kLanes); ++i) to[i] = 0.0F;
    }
};

struct F32 {
    static constexpr int64_t kValueBytes = 4;
    static __m256 load(const std::byte* from) { return _mm256_loadu_ps(reinterpret_cast<const float*>(from)); }
};

struct F16 {
    static constexpr int64_t kValueBytes = 2;
    static __m256 load(const std::byte* from) { return _mm256_cvtph_ps(load_16(from)); }
};

struct BF16 {
    static constexpr int64_t kValueBytes = 2;
    static __m256 load(const std::byte* from) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(from)), 16));
    }
};

template <typename Weights, int kRows, int kTokens, bool kFirstPass>
inline __attribute__((always_inline)) void multiply_float_tile(const std::byte* weights, std::size_t row_bytes,
                                                               int64_t size, const float* const* tokens, float* out,
                                                               int64_t out_stride) {
    __m256 sums[kRows][kTokens];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) sums[r][t] = _mm256_setzero_ps();
    }
    const auto step = [&](int64_t i, const __m256* w) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
            const __m256 x = _mm256_loadu_ps(tokens[t] + i);
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) sums[r][t] = _mm256_fmadd_ps(w[r], x, sums[r][t]);
        }
    };
    __m256 w[kRows];
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
        if constexpr (kFirstPass)
            prefetch_ahead(weights + i * kRows * Weights::kValueBytes, kLanes * kRows * Weights::kValueBytes);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r)
            w[r] = Weights::load(weights + static_cast<std::size_t>(r) * row_bytes + i * Weights::kValueBytes);
        step(i, w);
    }
    if (i < size) {  // the row may end at the end of the file's mapping: never read past it
        for (int r = 0; r < kRows; ++r) {
            alignas(32) std::byte tail[kLanes * Weights::kValueBytes] = {};
            std::memcpy(tail, weights + static_cast<std::size_t>(r) * row_bytes + i * Weights::kValueBytes,
                        static_cast<std::size_t>((size - i) * Weights::kValueBytes));
            w[r] = Weights::load(tail);
        }
        step(i, w);
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) out[t * out_stride + r] = sum_lanes(sums[r][t]);
    }
}

template <typename Weights>
class FloatKernel final : public MatmulKernel {
public:
    const ActivationFormat& activation_format() const noexcept override {
        static const FloatFormat format;
        return format;
    }

    void multiply(const MatmulTask& task) const noexcept override {
        const float* tokens[kPromptTokens];
        for (int64_t t = 0; t < task.token_count; t += kPromptTokens) {
            const int64_t count = task.token_count - t < kPromptTokens ? task.token_count - t : kPromptTokens;
            for (int64_t i = 0; i < count; ++i)
                tokens[i] = reinterpret_cast<const float*>(task.activations +
                                                           static_cast<std::size_t>(t + i) * task.activation_row_bytes);
            float* out = task.out + t * task.out_stride;
            if (t == 0) {
                multiply_tokens<true>(task, count, tokens, out);
            } else {
                multiply_tokens<false>(task, count, tokens, out);
            }
        }
    }

private:
    template <bool kFirstPass>
    static void multiply_tokens(const MatmulTask& task, int64_t count, const float* const* tokens, float* out) {
        switch (count) {
            case 1: multiply_rows<kDecodeRows, 1, kFirstPass>(task, tokens, out); break;
            case 2: multiply_rows<kPromptRows, 2, kFirstPass>(task, tokens, out); break;
            case 3: multiply_rows<kPromptRows, 3, kFirstPass>(task, tokens, out); break;
            default: multiply_rows<kPromptRows, 4, kFirstPass>(task, tokens, out); break;
        }
    }

    template <int kRows, int kTokens, bool kFirstPass>
    static void multiply_rows(const MatmulTask& task, const float* const* tokens, float* out) {
        int64_t r = 0;
        const auto at = [&](int64_t row) {
            return task.weights + static_cast<std::size_t>(row) * task.weight_row_bytes;
        };
        for (; r + kRows <= task.row_count; r += kRows) {
            multiply_float_tile<Weights, kRows, kTokens, kFirstPass>(at(r), task.weight_row_bytes, task.input_size,
                                                                     tokens, out + r, task.out_stride);
        }
        for (; r < task.row_count; ++r) {
            multiply_float_tile<Weights, 1, kTokens, false>(at(r), task.weight_row_bytes, task.input_size, tokens,
                                                            out + r, task.out_stride);
        }
    }
};

}  // namespace

const MatmulKernel* find_avx2_float_kernel(TensorType type) noexcept {
    static const FloatKernel<F32> f32;
    static const FloatKernel<F16> f16;
    static const FloatKernel<BF16> bf16;
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

const MatmulKernel* find_avx2_float_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
