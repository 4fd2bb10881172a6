// Matmul kernels for float weights, over the vectors of one instruction set: float activations, and one fused
// multiply-add for each eight products, summed in one fixed order, so that every set gives the same bits.
// Internal linkage throughout: nothing compiled for one instruction set may serve another file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "executor/kernels/matmul.hpp"

namespace edgellm {
namespace {

constexpr int64_t kLanes = 8;  // floats in the vectors of every set

// Weight rows and tokens of a tile. Results do not depend on them; speed does, by what fits 16 registers of 256 bits.
constexpr int kDecodeRows = 4;  // when one token is multiplied
constexpr int kPromptRows = 2;
constexpr int kPromptTokens = 4;

constexpr int64_t kPrefetch_bytes = 8192;  // how far ahead weights are asked for when they are first passed over
constexpr int64_t kCacheLine_bytes = 64;

constexpr int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Asks for the lines of [from, from + size) at the prefetch distance; the address need not exist.
inline void prefetch_ahead(const std::byte* from, int64_t size) {
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(from) + kPrefetch_bytes;
    for (int64_t line = 0; line < size; line += kCacheLine_bytes)
        __builtin_prefetch(reinterpret_cast<const void*>(start + static_cast<std::uintptr_t>(line)));
}

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

// Encodings of weights. Vectors is one of a set: what eight floats are, and how they are read, multiplied and summed.
template <typename Vectors>
struct F32 {
    using Set = Vectors;
    static constexpr int64_t kValueBytes = 4;
    static typename Vectors::Floats load(const std::byte* from) { return Vectors::load_float(from); }
};

template <typename Vectors>
struct F16 {
    using Set = Vectors;
    static constexpr int64_t kValueBytes = 2;
    static typename Vectors::Floats load(const std::byte* from) { return Vectors::load_half(from); }
};

template <typename Vectors>
struct BF16 {
    using Set = Vectors;
    static constexpr int64_t kValueBytes = 2;
    static typename Vectors::Floats load(const std::byte* from) { return Vectors::load_bfloat(from); }
};

template <typename Weights, int kRows, int kTokens, bool kFirstPass>
inline __attribute__((always_inline)) void multiply_float_tile(const std::byte* weights, std::size_t row_bytes,
                                                               int64_t size, const float* const* tokens, float* out,
                                                               int64_t out_stride) {
    using Set = typename Weights::Set;
    using Floats = typename Set::Floats;
    Floats sums[kRows][kTokens];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) sums[r][t] = Set::zero();
    }
    const auto step = [&](int64_t i, const Floats* w) __attribute__((always_inline)) {
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
            const Floats x = Set::load_float(reinterpret_cast<const std::byte*>(tokens[t] + i));
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) sums[r][t] = Set::multiply_add(w[r], x, sums[r][t]);
        }
    };
    Floats w[kRows];
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
        for (int t = 0; t < kTokens; ++t) out[t * out_stride + r] = Set::sum(sums[r][t]);
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

template <typename Vectors>
const MatmulKernel* float_kernel(TensorType type) noexcept {
    static const FloatKernel<F32<Vectors>> f32;
    static const FloatKernel<F16<Vectors>> f16;
    static const FloatKernel<BF16<Vectors>> bf16;
    switch (type) {
        case TensorType::kF32: return &f32;
        case TensorType::kF16: return &f16;
        case TensorType::kBF16: return &bf16;
        default: return nullptr;
    }
}

}  // namespace
}  // namespace edgellm
