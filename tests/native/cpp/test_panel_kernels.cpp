// Panel kernels of every instruction set this CPU has give the bits of plain loops, whose rounding of activations is
// stated here a second time; and they never read or write past what is theirs.
#include <ggml.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "executor/cpu_features.hpp"
#include "executor/ggml/ggml_matmul_kernel.hpp"
#include "executor/kernels/half.hpp"
#include "executor/kernels/matmul.hpp"
#include "executor/kernels/weight_panels.hpp"

using edgellm::MatmulKernel;
using edgellm::TensorType;

namespace {

constexpr int64_t kBlock = 32;
constexpr TensorType kTypes[] = {TensorType::kQ8_0, TensorType::kQ4_1, TensorType::kQ4_0};
constexpr int64_t kRowCounts[] = {1, 7, 15, 16, 17, 31, 37, 48};
constexpr int64_t kSizes[] = {32, 64, 96, 288, 352, 576};
constexpr int64_t kTokenCounts[] = {1, 2, 3, 4, 5, 7, 8, 9, 17};

std::mt19937 random_bits(5);

std::vector<float> noise(std::size_t count, float spread) {
    std::normal_distribution<float> normal(0.0F, spread);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_bits);
    return values;
}

struct FreeAligned {
    void operator()(std::byte* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<std::byte, FreeAligned>;

// Ends where a sanitizer sees the next byte.
Memory aligned_memory(std::size_t bytes) {
    return Memory(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)));
}

struct Weights {
    Weights(TensorType tensor_type, int64_t row_count, int64_t row_size)
        : type(tensor_type), rows(row_count), size(row_size) {
        const auto raw = static_cast<ggml_type>(static_cast<uint32_t>(type));
        const auto values = noise(static_cast<std::size_t>(rows * size), 1.0F);
        row_bytes = ggml_row_size(raw, size);
        bytes.resize(row_bytes * static_cast<std::size_t>(rows));
        ggml_quantize_chunk(raw, values.data(), bytes.data(), 0, rows, size, nullptr);
        pack();
    }

    void pack() {
        panels = aligned_memory(static_cast<std::size_t>(edgellm::panel_count(rows)) * edgellm::panel_bytes(row_bytes));
        edgellm::pack_panels(type, bytes.data(), row_bytes, rows, panels.get());
    }

    const std::byte* block(int64_t row, int64_t index) const {
        const std::size_t block_bytes = row_bytes / static_cast<std::size_t>(size / kBlock);
        return bytes.data() + static_cast<std::size_t>(row) * row_bytes + static_cast<std::size_t>(index) * block_bytes;
    }

    TensorType type;
    int64_t rows;
    int64_t size;
    std::size_t row_bytes = 0;
    std::vector<std::byte> bytes;
    Memory panels;
};

std::vector<float> multiply(const MatmulKernel& kernel, const Weights& weights, const std::vector<float>& activations,
                            int64_t tokens, int64_t rows) {
    const auto& format = kernel.activation_format();
    const std::size_t stride = format.row_bytes(weights.size);
    const Memory prepared = aligned_memory(stride * static_cast<std::size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t)
        format.prepare(activations.data() + t * weights.size, weights.size,
                       prepared.get() + static_cast<std::size_t>(t) * stride);
    constexpr float kUntouched = 12345.0F;
    const int64_t out_stride = rows + 3;
    std::vector<float> out(static_cast<std::size_t>(out_stride * tokens), kUntouched);
    edgellm::MatmulTask task;
    task.weights = weights.panels.get();
    task.weight_row_bytes = weights.row_bytes;
    task.input_size = weights.size;
    task.row_count = rows;
    task.activations = prepared.get();
    task.activation_row_bytes = stride;
    task.token_count = tokens;
    task.out = out.data();
    task.out_stride = out_stride;
    kernel.multiply(task);
    std::vector<float> dense;
    for (int64_t t = 0; t < tokens; ++t) {
        const auto row = out.begin() + static_cast<std::ptrdiff_t>(t * out_stride);
        dense.insert(dense.end(), row, row + static_cast<std::ptrdiff_t>(rows));
        for (int64_t i = rows; i < out_stride; ++i) CHECK(row[static_cast<std::ptrdiff_t>(i)] == kUntouched);
    }
    return dense;
}

float half_at(const std::byte* from) {
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    return edgellm::half_to_float(half);
}

// Value i of a block as its integer: without the offset of Q4_0 taken away.
int32_t quant(const Weights& weights, const std::byte* block, int i) {
    if (weights.type == TensorType::kQ8_0) return static_cast<int8_t>(block[2 + i]);
    const std::byte* nibbles = block + (weights.type == TensorType::kQ4_1 ? 4 : 2);
    const auto both = static_cast<uint32_t>(nibbles[i % 16]);
    return static_cast<int32_t>(i < 16 ? both & 15U : both >> 4U);
}

// What a kernel must give: integers per block, exact, and one fused multiply-add a block and term, in this order.
float expected(const Weights& weights, int64_t row, const float* x) {
    const float most = weights.type == TensorType::kQ8_0 ? 32512.0F : 127.0F;
    float sum = 0.0F;
    for (int64_t b = 0; b < weights.size / kBlock; ++b) {
        const std::byte* block = weights.block(row, b);
        float largest = 0.0F;
        for (int i = 0; i < kBlock; ++i) largest = std::fmax(largest, std::fabs(x[b * kBlock + i]));
        const float scale = largest / most;
        const float inverse = scale > 1e-30F ? most / largest : 0.0F;
        int32_t dot = 0;
        int32_t total = 0;
        for (int i = 0; i < kBlock; ++i) {
            const auto rounded = static_cast<int32_t>(std::nearbyint(x[b * kBlock + i] * inverse));
            const int32_t offset = weights.type == TensorType::kQ4_0 ? 8 : 0;
            dot += (quant(weights, block, i) - offset) * rounded;
            total += rounded;
        }
        sum = std::fma(static_cast<float>(dot), half_at(block) * scale, sum);
        if (weights.type == TensorType::kQ4_1)
            sum = std::fma(half_at(block + 2), scale * static_cast<float>(total), sum);
    }
    return sum;
}

struct NamedKernel {
    std::string name;
    const MatmulKernel* kernel;
};

std::vector<NamedKernel> kernels_of(TensorType type) {
    std::vector<NamedKernel> kernels = {{"portable", edgellm::find_portable_panel_kernel(type)}};
    for (const edgellm::PanelKernelSet& set : edgellm::panel_kernel_sets())
        kernels.push_back({set.name, set.find(type)});
    return kernels;
}

void check_bits(const Weights& weights, const std::vector<float>& x, int64_t tokens) {
    std::vector<float> wanted;
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < weights.rows; ++r) wanted.push_back(expected(weights, r, x.data() + t * weights.size));
    }
    for (const NamedKernel& one : kernels_of(weights.type)) {
        const auto out = multiply(*one.kernel, weights, x, tokens, weights.rows);
        CHECK(out.size() == wanted.size());
        CHECK(std::memcmp(out.data(), wanted.data(), out.size() * sizeof(float)) == 0);
    }
}

}  // namespace

TEST(every_set_that_the_cpu_has_is_offered) {
    std::vector<std::string> wanted;
#if defined(__x86_64__)
    if (edgellm::has_avx512_vnni()) wanted.emplace_back("AVX-512 VNNI");
    if (edgellm::has_avx_vnni()) wanted.emplace_back("AVX-VNNI");
    if (edgellm::supported_cpu()) wanted.emplace_back("AVX2");
#else
    if (edgellm::has_dot_products()) wanted.emplace_back("NEON dot products");
#endif
    std::vector<std::string> offered;
    for (const edgellm::PanelKernelSet& set : edgellm::panel_kernel_sets()) {
        offered.emplace_back(set.name);
        for (const TensorType type : kTypes) CHECK(set.find(type) != nullptr);
        CHECK(set.find(TensorType::kF16) == nullptr);
    }
    CHECK(offered == wanted);
}

TEST(every_set_gives_the_bits_of_plain_loops) {
    for (const TensorType type : kTypes) {
        for (const int64_t rows : kRowCounts) {
            for (const int64_t size : kSizes) {
                const Weights weights(type, rows, size);
                check_bits(weights, noise(static_cast<std::size_t>(size * 3), 3.0F), 3);
            }
        }
    }
}

TEST(the_number_of_tokens_changes_no_bit) {
    for (const TensorType type : kTypes) {
        const Weights weights(type, 37, 288);
        for (const int64_t tokens : kTokenCounts)
            check_bits(weights, noise(static_cast<std::size_t>(288 * tokens), 0.1F), tokens);
    }
}

TEST(fewer_rows_than_the_panels_have_are_the_first_of_them) {
    for (const TensorType type : kTypes) {
        const Weights weights(type, 48, 96);
        const auto x = noise(96 * 5, 1.0F);
        for (const NamedKernel& one : kernels_of(type)) {
            const auto whole = multiply(*one.kernel, weights, x, 5, 48);
            for (const int64_t rows : {1, 4, 8, 9, 16, 20, 33}) {
                const auto part = multiply(*one.kernel, weights, x, 5, rows);
                for (int64_t t = 0; t < 5; ++t)
                    CHECK(std::memcmp(part.data() + t * rows, whole.data() + t * 48,
                                      static_cast<std::size_t>(rows) * sizeof(float)) == 0);
            }
        }
    }
}

// Weights and activations at the ends of their ranges: the largest sums must neither wrap nor saturate.
TEST(full_scale_blocks_are_exact) {
    for (const TensorType type : kTypes) {
        for (const int pattern : {0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0}) {
            Weights weights(type, 16, 64);
            const std::size_t block_bytes = weights.row_bytes / 2;
            const std::size_t header_bytes = type == TensorType::kQ4_1 ? 4 : 2;
            const uint16_t one = edgellm::float_to_half(1.0F);
            for (std::size_t at = 0; at < weights.bytes.size(); at += block_bytes) {
                std::memset(weights.bytes.data() + at, pattern, block_bytes);
                for (std::size_t half = 0; half < header_bytes; half += 2)
                    std::memcpy(weights.bytes.data() + at + half, &one, sizeof one);
            }
            weights.pack();
            for (const float sign : {1.0F, -1.0F}) check_bits(weights, std::vector<float>(64, sign * 5.0F), 1);
        }
    }
}

TEST(extreme_activations_give_the_same_bits) {
    for (const TensorType type : kTypes) {
        const Weights weights(type, 17, 64);
        for (const float magnitude : {0.0F, 1e-38F, 1e-30F, 1e-27F, 1e-10F, 1e10F, 1e30F}) {
            auto x = noise(64, magnitude);
            x[3] = -magnitude;
            check_bits(weights, x, 1);
            CHECK(std::isfinite(expected(weights, 0, x.data())));
        }
    }
}

// Halfway cases go to the even integer in every set.
TEST(ties_are_rounded_to_even) {
    std::vector<float> x(64);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i) - 32) + 0.5F;
    x[0] = 127.0F;
    x[32] = -127.0F;
    for (const TensorType type : kTypes) check_bits(Weights(type, 16, 64), x, 1);
}

// Rounded to 8 bits an activation is off by at most half of 1/127 of its block's largest; to 16 bits by 256 times less.
TEST(results_are_near_double_precision_by_the_rounding_of_activations) {
    for (const TensorType type : kTypes) {
        constexpr int64_t kSize = 576;
        const Weights weights(type, 20, kSize);
        const auto x = noise(kSize, 1.0F);
        const auto out = multiply(*edgellm::find_own_matmul_kernel(type), weights, x, 1, 20);
        const double step = type == TensorType::kQ8_0 ? 0.5 / 32512 : 0.5 / 127;
        std::vector<float> row(kSize);
        for (int64_t r = 0; r < 20; ++r) {
            edgellm::dequantise_row(type, weights.block(r, 0), kSize, row.data());
            double exact = 0.0;
            double bound = 1e-4;
            for (int64_t b = 0; b < kSize; b += kBlock) {
                double largest = 0.0;
                for (int64_t i = b; i < b + kBlock; ++i) {
                    exact += static_cast<double>(row[static_cast<std::size_t>(i)]) *
                             static_cast<double>(x[static_cast<std::size_t>(i)]);
                    largest = std::fmax(largest, std::fabs(static_cast<double>(x[static_cast<std::size_t>(i)])));
                }
                for (int64_t i = b; i < b + kBlock; ++i)
                    bound += std::fabs(static_cast<double>(row[static_cast<std::size_t>(i)])) * largest * step;
            }
            CHECK(std::abs(static_cast<double>(out[static_cast<std::size_t>(r)]) - exact) <= bound);
        }
    }
}

TEST(missing_rows_of_the_last_panel_are_zeros) {
    for (const TensorType type : kTypes) {
        const Weights weights(type, 17, 64);
        const std::size_t bytes = edgellm::panel_bytes(weights.row_bytes);
        std::size_t not_zero = 0;
        for (std::size_t i = 0; i < bytes; ++i) not_zero += weights.panels.get()[bytes + i] != std::byte{0} ? 1U : 0U;
        CHECK(not_zero <= weights.row_bytes);
    }
}

CHECK_MAIN()
