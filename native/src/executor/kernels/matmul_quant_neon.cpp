// Matmul kernels for quantised weights, for 64-bit Arm with dot products of bytes.
//
// Activations have 16 bits with one scale for each 32 values, kept as two bytes each, 256 × high + low: a product block
// is four sdot, exact in 32 bits, then one FMA into four float lanes. Every (row, token) pair runs the same operations
// in the same order whatever the tile, so results do not depend on the batch.
#include "executor/kernels/matmul.hpp"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)

#include <arm_neon.h>

#include <cmath>
#include <cstring>

namespace edgellm {
namespace {

constexpr int64_t kBlock = 32;             // values that share a scale, in weights and activations
constexpr float kMaxQuant = 127.0F * 256;  // so that neither byte leaves its range
constexpr int kTileRows = 4;
constexpr int kTileTokens = 4;

float load_half(const std::byte* from) {
    __fp16 value;
    std::memcpy(&value, from, sizeof value);
    return static_cast<float>(value);
}

// A prepared row: per block 32 high bytes and 32 low bytes, then the blocks' scales, then the sums of their values.
struct QuantRow {
    const int8_t* quants = nullptr;
    const float* scales = nullptr;
    const float* sums = nullptr;
};

QuantRow quant_row(const std::byte* row, int64_t size) {
    const auto* scales = reinterpret_cast<const float*>(row + size * 2);
    return {reinterpret_cast<const int8_t*>(row), scales, scales + size / kBlock};
}

class QuantFormat final : public ActivationFormat {
public:
    std::size_t row_bytes(int64_t size) const noexcept override {
        const auto bytes = static_cast<std::size_t>(size * 2) + 2 * sizeof(float) * static_cast<std::size_t>(size / kBlock);
        return (bytes + kActivationAlignment_bytes - 1) / kActivationAlignment_bytes * kActivationAlignment_bytes;
    }

    void prepare(const float* values, int64_t size, std::byte* row) const noexcept override {
        const int64_t blocks = size / kBlock;
        auto* quants = reinterpret_cast<int8_t*>(row);
        auto* scales = reinterpret_cast<float*>(row + size * 2);
        for (int64_t b = 0; b < blocks; ++b)
            prepare_block(values + b * kBlock, quants + 2 * b * kBlock, scales[b], scales[blocks + b]);
    }

private:
    static void prepare_block(const float* values, int8_t* quants, float& scale, float& sum) {
        float magnitude = 0.0F;
        for (int64_t i = 0; i < kBlock; ++i) magnitude = std::fmax(magnitude, std::fabs(values[i]));
        scale = magnitude / kMaxQuant;
        // A block this small would overflow the reciprocal; it is zero for every purpose.
        const float inverse = scale > 1e-30F ? kMaxQuant / magnitude : 0.0F;
        int32_t total = 0;
        for (int64_t i = 0; i < kBlock; ++i) {
            const auto quant = static_cast<int32_t>(std::nearbyint(values[i] * inverse));
            const int32_t high = (quant + 128) >> 8;
            quants[i] = static_cast<int8_t>(high);
            quants[kBlock + i] = static_cast<int8_t>(quant - high * 256);
            total += quant;
        }
        sum = scale * static_cast<float>(total);
    }
};

struct WeightBlock {
    int8x16_t first;   // values 0..15
    int8x16_t second;  // values 16..31
};

WeightBlock nibbles(const std::byte* from) {
    const uint8x16_t bytes = vld1q_u8(reinterpret_cast<const uint8_t*>(from));
    return {vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4))};
}

struct Q8_0 {
    static constexpr int64_t kBlockBytes = 34;
    static constexpr bool kHasMinimum = false;
    static WeightBlock unpack(const std::byte* block) {
        const auto* quants = reinterpret_cast<const int8_t*>(block + 2);
        return {vld1q_s8(quants), vld1q_s8(quants + 16)};
    }
};

struct Q4_0 {
    static constexpr int64_t kBlockBytes = 18;
    static constexpr bool kHasMinimum = false;
    static WeightBlock unpack(const std::byte* block) {
        const WeightBlock raw = nibbles(block + 2);
        return {vsubq_s8(raw.first, vdupq_n_s8(8)), vsubq_s8(raw.second, vdupq_n_s8(8))};
    }
};

struct Q4_1 {
    static constexpr int64_t kBlockBytes = 20;
    static constexpr bool kHasMinimum = true;
    static WeightBlock unpack(const std::byte* block) { return nibbles(block + 4); }
};

template <typename Weights, int kRows, int kTokens>
void multiply_tile(const std::byte* weights, std::size_t row_bytes, int64_t blocks, const QuantRow* tokens, float* out,
                   int64_t out_stride) {
    float32x4_t sums[kRows][kTokens];
    float minimums[kRows][kTokens];
    for (int r = 0; r < kRows; ++r) {
        for (int t = 0; t < kTokens; ++t) {
            sums[r][t] = vdupq_n_f32(0.0F);
            minimums[r][t] = 0.0F;
        }
    }
    for (int64_t b = 0; b < blocks; ++b) {
        WeightBlock w[kRows];
        float scale[kRows];
        float minimum[kRows] = {};
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
            const std::byte* block = weights + static_cast<std::size_t>(r) * row_bytes + b * Weights::kBlockBytes;
            w[r] = Weights::unpack(block);
            scale[r] = load_half(block);
            if constexpr (Weights::kHasMinimum) minimum[r] = load_half(block + 2);
        }
#pragma GCC unroll 4
        for (int t = 0; t < kTokens; ++t) {
            const int8_t* x = tokens[t].quants + 2 * b * kBlock;
            const int8x16_t high[2] = {vld1q_s8(x), vld1q_s8(x + 16)};
            const int8x16_t low[2] = {vld1q_s8(x + kBlock), vld1q_s8(x + kBlock + 16)};
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) {
                const int32x4_t zero = vdupq_n_s32(0);
                const int32x4_t upper = vdotq_s32(vdotq_s32(zero, w[r].first, high[0]), w[r].second, high[1]);
                const int32x4_t lower = vdotq_s32(vdotq_s32(zero, w[r].first, low[0]), w[r].second, low[1]);
                const int32x4_t product = vaddq_s32(vshlq_n_s32(upper, 8), lower);
                sums[r][t] = vfmaq_n_f32(sums[r][t], vcvtq_f32_s32(product), scale[r] * tokens[t].scales[b]);
                if constexpr (Weights::kHasMinimum)
                    minimums[r][t] = std::fma(minimum[r], tokens[t].sums[b], minimums[r][t]);
            }
        }
    }
    for (int r = 0; r < kRows; ++r) {
        for (int t = 0; t < kTokens; ++t) out[t * out_stride + r] = vaddvq_f32(sums[r][t]) + minimums[r][t];
    }
}

template <typename Weights>
class QuantKernel final : public MatmulKernel {
public:
    const ActivationFormat& activation_format() const noexcept override {
        static const QuantFormat format;
        return format;
    }

    std::size_t scratch_bytes(int64_t) const noexcept override { return 0; }

    void multiply(const MatmulTask& task) const noexcept override {
        int64_t row = 0;
        for (; row + kTileRows <= task.row_count; row += kTileRows) multiply_rows<kTileRows>(task, row);
        for (; row < task.row_count; ++row) multiply_rows<1>(task, row);
    }

private:
    // All tokens of a few rows, whose weights stay in the cache meanwhile.
    template <int kRows>
    static void multiply_rows(const MatmulTask& task, int64_t row) {
        int64_t token = 0;
        for (; token + kTileTokens <= task.token_count; token += kTileTokens)
            multiply_tokens<kRows, kTileTokens>(task, row, token);
        for (; token < task.token_count; ++token) multiply_tokens<kRows, 1>(task, row, token);
    }

    template <int kRows, int kTokens>
    static void multiply_tokens(const MatmulTask& task, int64_t row, int64_t token) {
        QuantRow tokens[kTokens];
        for (int t = 0; t < kTokens; ++t) {
            tokens[t] = quant_row(task.activations + static_cast<std::size_t>(token + t) * task.activation_row_bytes,
                                  task.input_size);
        }
        multiply_tile<Weights, kRows, kTokens>(task.weights + static_cast<std::size_t>(row) * task.weight_row_bytes,
                                               task.weight_row_bytes, task.input_size / kBlock, tokens,
                                               task.out + token * task.out_stride + row, task.out_stride);
    }
};

}  // namespace

const MatmulKernel* find_neon_quant_kernel(TensorType type) noexcept {
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

const MatmulKernel* find_neon_quant_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
