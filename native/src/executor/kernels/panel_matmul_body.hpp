// The kernels over weight panels, written once. A translation unit defines a vector type V and takes
// panel_kernel<V>(type). Everything has internal linkage: nothing compiled for one instruction set may serve another.
//
// Activations are rounded in blocks of 32 with a scale each: to 8 bits for weights of 4, to 16 bits for weights of 8. A
// block's product is a sum of integers, exact in any order; with float scales it is added to the row's sum by one fused
// multiply-add a block, block after block. So every instruction set gives the same bits, whatever the tile.
//
// V: kRows weight rows in a vector, kTokens in a tile of a prompt; Ints, Floats;
//    Floats: zero_floats(), set(float), load_half(const std::byte*), store(float*, Floats), multiply(a, b),
//            multiply_add(a, b, c) = a * b + c;
//    Nibbles (the eight words of a block): load_nibbles(const std::byte* words), dot_nibbles(w, const int8_t* x, start)
//            = start + w·x, as floats;
//    Bytes (half the words of a block), ByteSums: load_bytes(words), zero_sums(), add_bytes(sums, w, x), total(sums)
//            as floats; x is half a block of a WordRow;
//    quantise_bytes, quantise_words: what ByteFormat and WordFormat say.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "executor/kernels/matmul.hpp"
#include "executor/kernels/weight_panels.hpp"

namespace edgellm {
namespace {

constexpr int64_t kPanelPrefetch_bytes = 12288;  // how far ahead weights are asked for when they are first passed over
constexpr int64_t kPanelCacheLine_bytes = 64;
// A block this small would overflow the reciprocal; it is zero for every purpose.
constexpr float kSmallestScale = 1e-30F;
constexpr float kMaxByte = 127.0F;
constexpr float kMaxWord = 127.0F * 256;  // 256 × high + low with both inside a signed byte, as NEON reads it
constexpr int kNibbleOffset = 8;  // of Q4_0: what is stored is the value plus this

constexpr std::size_t padded_row(std::size_t bytes) {
    return (bytes + kActivationAlignment_bytes - 1) / kActivationAlignment_bytes * kActivationAlignment_bytes;
}

// A row rounded to 8 bits: quants; then by block scales, sums of its values, and what Q4_0's offset takes away.
struct ByteRow {
    const int8_t* quants;
    const float* scales;
    const float* sums;
    const int32_t* starts;

    static ByteRow at(const std::byte* row, int64_t size) {
        const int64_t blocks = size / kPanelBlock;
        const auto* scales = reinterpret_cast<const float*>(row + size);
        return {reinterpret_cast<const int8_t*>(row), scales, scales + blocks,
                reinterpret_cast<const int32_t*>(scales + 2 * blocks)};
    }
};

// V::quantise_bytes(values, inverse, quants): rounds 32 values times inverse to the nearest integers, ties to even, and
// gives their sum. V::largest_magnitude(values): of 32 values.
template <typename V>
class ByteFormat final : public ActivationFormat {
public:
    std::size_t row_bytes(int64_t size) const noexcept override {
        return padded_row(static_cast<std::size_t>(size + size / kPanelBlock * 12));
    }

    void prepare(const float* values, int64_t size, std::byte* row) const noexcept override {
        const int64_t blocks = size / kPanelBlock;
        auto* quants = reinterpret_cast<int8_t*>(row);
        auto* scales = reinterpret_cast<float*>(row + size);
        float* sums = scales + blocks;
        auto* starts = reinterpret_cast<int32_t*>(sums + blocks);
        for (int64_t b = 0; b < blocks; ++b) {
            const float* from = values + b * kPanelBlock;
            const float magnitude = V::largest_magnitude(from);
            scales[b] = magnitude / kMaxByte;
            const float inverse = scales[b] > kSmallestScale ? kMaxByte / magnitude : 0.0F;
            const int32_t total = V::quantise_bytes(from, inverse, quants + b * kPanelBlock);
            sums[b] = scales[b] * static_cast<float>(total);
            starts[b] = -kNibbleOffset * total;
        }
    }
};

// A row rounded to 16 bits: two bytes a value, in the order that V reads, then scales by block.
struct WordRow {
    const std::byte* quants;
    const float* scales;

    static WordRow at(const std::byte* row, int64_t size) {
        return {row, reinterpret_cast<const float*>(row + size * 2)};
    }
};

// V::quantise_words(values, inverse, to): rounds 32 values times inverse, in the order that V reads them.
template <typename V>
class WordFormat final : public ActivationFormat {
public:
    std::size_t row_bytes(int64_t size) const noexcept override {
        return padded_row(static_cast<std::size_t>(size * 2 + size / kPanelBlock * 4));
    }

    void prepare(const float* values, int64_t size, std::byte* row) const noexcept override {
        auto* scales = reinterpret_cast<float*>(row + size * 2);
        for (int64_t b = 0; b < size / kPanelBlock; ++b) {
            const float* from = values + b * kPanelBlock;
            const float magnitude = V::largest_magnitude(from);
            scales[b] = magnitude / kMaxWord;
            const float inverse = scales[b] > kSmallestScale ? kMaxWord / magnitude : 0.0F;
            V::quantise_words(from, inverse, row + b * kPanelBlock * 2);
        }
    }
};

struct PanelQ8_0 {
    static constexpr int64_t kQuant_bytes = 32;  // of a block
    static constexpr bool kHasMinimum = false;
    static constexpr bool kHasOffset = false;
};
struct PanelQ4_0 {
    static constexpr int64_t kQuant_bytes = 16;
    static constexpr bool kHasMinimum = false;
    static constexpr bool kHasOffset = true;
};
struct PanelQ4_1 {
    static constexpr int64_t kQuant_bytes = 16;
    static constexpr bool kHasMinimum = true;
    static constexpr bool kHasOffset = false;
};

// Where the parts of V::kRows rows of a panel lie: the same distances in each block. A share of the panel is asked for
// ahead while these rows are computed.
struct PanelPart {
    const std::byte* share;
    const std::byte* quants;
    const std::byte* scales;
    const std::byte* minimums;
};

constexpr int64_t kHalves_bytes = kPanelRows * 2;                // scales of a block
constexpr int64_t kWords_bytes = kPanelRows * kPanelWord_bytes;  // one word of every row

template <typename Type>
constexpr int64_t file_block_bytes() {
    return Type::kQuant_bytes + 2 + (Type::kHasMinimum ? 2 : 0);
}

template <typename Type>
inline PanelPart panel_part(const std::byte* panel, int64_t blocks, int64_t first_row) {
    const std::byte* scales = panel + blocks * kPanelRows * Type::kQuant_bytes;
    return {panel + first_row * blocks * file_block_bytes<Type>(), panel + first_row * kPanelWord_bytes,
            scales + first_row * 2, scales + blocks * kHalves_bytes + first_row * 2};
}

// Asks for the lines of [from, from + size) at the prefetch distance; the address need not exist.
inline void prefetch_panel(const std::byte* from, int64_t size) {
    const std::uintptr_t start = reinterpret_cast<std::uintptr_t>(from) + kPanelPrefetch_bytes;
    for (int64_t line = 0; line < size; line += kPanelCacheLine_bytes)
        __builtin_prefetch(reinterpret_cast<const void*>(start + static_cast<std::uintptr_t>(line)));
}

// One block of V::kRows rows times each token's block.
template <typename V, typename Type, int kTokens>
inline __attribute__((always_inline)) void multiply_nibble_block(const PanelPart& part, int64_t b,
                                                                 const ByteRow* tokens, typename V::Floats* sums) {
    const typename V::Nibbles w = V::load_nibbles(part.quants + b * 4 * kWords_bytes);
    const auto scales = V::load_half(part.scales + b * kHalves_bytes);
    [[maybe_unused]] typename V::Floats minimums = V::zero_floats();
    if constexpr (Type::kHasMinimum) minimums = V::load_half(part.minimums + b * kHalves_bytes);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
        const ByteRow& x = tokens[t];
        const auto dots = V::dot_nibbles(w, x.quants + b * kPanelBlock, Type::kHasOffset ? x.starts[b] : 0);
        sums[t] = V::multiply_add(dots, V::multiply(scales, V::set(x.scales[b])), sums[t]);
        if constexpr (Type::kHasMinimum) sums[t] = V::multiply_add(minimums, V::set(x.sums[b]), sums[t]);
    }
}

template <typename V, typename Type, int kTokens>
inline __attribute__((always_inline)) void multiply_byte_block(const PanelPart& part, int64_t b, const WordRow* tokens,
                                                               typename V::Floats* sums) {
    // Set here and not where the first half is added: there GCC 12 at -O1 takes one token's sums for another's.
    typename V::ByteSums dots[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) dots[t] = V::zero_sums();
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
        const typename V::Bytes w = V::load_bytes(part.quants + (b * 8 + half * 4) * kWords_bytes);
#pragma GCC unroll 16
        for (int t = 0; t < kTokens; ++t) {
            const std::byte* x = tokens[t].quants + (b * kPanelBlock + half * (kPanelBlock / 2)) * 2;
            dots[t] = V::add_bytes(dots[t], w, x);
        }
    }
    const auto scales = V::load_half(part.scales + b * kHalves_bytes);
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t)
        sums[t] = V::multiply_add(V::total(dots[t]), V::multiply(scales, V::set(tokens[t].scales[b])), sums[t]);
}

// All blocks of V::kRows rows for a tile of tokens; rows beyond row_count are computed and not given.
template <typename V, typename Type, typename Row, int kTokens, bool kFirstPass>
inline __attribute__((always_inline)) void multiply_panel_part(const PanelPart& part, int64_t blocks, const Row* tokens,
                                                               int64_t row_count, float* out, int64_t out_stride) {
    typename V::Floats sums[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) sums[t] = V::zero_floats();
    for (int64_t b = 0; b < blocks; ++b) {
        if constexpr (kFirstPass) {
            constexpr int64_t size = file_block_bytes<Type>() * V::kRows;
            prefetch_panel(part.share + b * size, size);
        }
        if constexpr (Type::kQuant_bytes == 16) {
            multiply_nibble_block<V, Type, kTokens>(part, b, tokens, sums);
        } else {
            multiply_byte_block<V, Type, kTokens>(part, b, tokens, sums);
        }
    }
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
        float* const to = out + t * out_stride;
        if (row_count >= V::kRows) {
            V::store(to, sums[t]);
        } else {
            float lanes[V::kRows];
            V::store(lanes, sums[t]);
            for (int64_t r = 0; r < row_count; ++r) to[r] = lanes[r];
        }
    }
}

template <typename V, typename Type, typename Row>
class PanelKernel final : public MatmulKernel {
public:
    explicit PanelKernel(const ActivationFormat& format) : format_(format) {}

    const ActivationFormat& activation_format() const noexcept override { return format_; }
    int64_t panel_rows() const noexcept override { return kPanelRows; }

    void multiply(const MatmulTask& task) const noexcept override {
        Row tokens[V::kTokens];
        for (int64_t t = 0; t < task.token_count; t += V::kTokens) {
            const int64_t left = task.token_count - t;
            const int count = left < V::kTokens ? static_cast<int>(left) : V::kTokens;
            for (int i = 0; i < count; ++i) {
                const std::byte* row = task.activations + static_cast<std::size_t>(t + i) * task.activation_row_bytes;
                tokens[i] = Row::at(row, task.input_size);
            }
            float* const out = task.out + t * task.out_stride;
            if (t == 0) {
                multiply_tokens<V::kTokens, true>(task, count, tokens, out);
            } else {
                multiply_tokens<V::kTokens, false>(task, count, tokens, out);
            }
        }
    }

private:
    // The tile whose size is the number of tokens.
    template <int kTokens, bool kFirstPass>
    static void multiply_tokens(const MatmulTask& task, int count, const Row* tokens, float* out) {
        if constexpr (kTokens > 1) {
            if (count < kTokens) {
                multiply_tokens<kTokens - 1, kFirstPass>(task, count, tokens, out);
                return;
            }
        }
        multiply_panels<kTokens, kFirstPass>(task, tokens, out);
    }

    template <int kTokens, bool kFirstPass>
    __attribute__((noinline)) static void multiply_panels(const MatmulTask& task, const Row* tokens, float* out) {
        const int64_t blocks = task.input_size / kPanelBlock;
        const std::byte* panel = task.weights;
        for (int64_t row = 0; row < task.row_count; row += kPanelRows, panel += panel_bytes(task.weight_row_bytes)) {
            for (int64_t first = 0; first < kPanelRows && row + first < task.row_count; first += V::kRows) {
                multiply_panel_part<V, Type, Row, kTokens, kFirstPass>(panel_part<Type>(panel, blocks, first), blocks,
                                                                       tokens, task.row_count - row - first,
                                                                       out + row + first, task.out_stride);
            }
        }
    }

    const ActivationFormat& format_;
};

// byte_format and word_format: of any instruction set whose quants V reads.
template <typename V>
const MatmulKernel* panel_kernel(TensorType type, const ActivationFormat& byte_format,
                                 const ActivationFormat& word_format) {
    static const PanelKernel<V, PanelQ8_0, WordRow> q8_0(word_format);
    static const PanelKernel<V, PanelQ4_0, ByteRow> q4_0(byte_format);
    static const PanelKernel<V, PanelQ4_1, ByteRow> q4_1(byte_format);
    switch (type) {
        case TensorType::kQ8_0: return &q8_0;
        case TensorType::kQ4_0: return &q4_0;
        case TensorType::kQ4_1: return &q4_1;
        default: return nullptr;
    }
}

}  // namespace
}  // namespace edgellm
