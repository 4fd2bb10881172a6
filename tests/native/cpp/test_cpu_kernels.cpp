// Kernels agree with scalar arithmetic in double precision, whatever the tile, and never read past their rows.
#include <ggml.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "check.hpp"
#include "executor/cpu_features.hpp"
#include "executor/ggml/ggml_matmul_kernel.hpp"
#include "executor/kernels/cpu_kernels.hpp"
#include "executor/kernels/half.hpp"
#include "executor/kernels/kv_layout.hpp"
#include "executor/kernels/matmul.hpp"

using edgellm::CpuKernels;
using edgellm::KvLayout;
using edgellm::KvType;
using edgellm::MatmulKernel;
using edgellm::TensorType;

namespace {

std::mt19937 random_bits(3);

std::vector<float> noise(std::size_t count, float spread = 1.0F) {
    std::normal_distribution<float> normal(0.0F, spread);
    std::vector<float> values(count);
    for (float& value : values) value = normal(random_bits);
    return values;
}

struct FreeAligned {
    void operator()(std::byte* memory) const { std::free(memory); }
};

std::unique_ptr<std::byte, FreeAligned> aligned_memory(std::size_t bytes) {
    return std::unique_ptr<std::byte, FreeAligned>(
        static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)));
}

std::vector<const CpuKernels*> kernel_tables() {
    std::vector<const CpuKernels*> tables = {&edgellm::portable_cpu_kernels()};
    if (edgellm::avx2_cpu_kernels() != nullptr && edgellm::supported_cpu())
        tables.push_back(edgellm::avx2_cpu_kernels());
    return tables;
}

// Weights in an exactly sized block, so that a sanitizer sees any read beyond.
struct Weights {
    Weights(TensorType tensor_type, int64_t row_count, int64_t row_size)
        : type(tensor_type), rows(row_count), size(row_size) {
        const auto raw = static_cast<ggml_type>(static_cast<uint32_t>(type));
        const auto values = noise(static_cast<std::size_t>(rows * size));
        row_bytes = ggml_row_size(raw, size);
        bytes.resize(row_bytes * static_cast<std::size_t>(rows));
        ggml_quantize_chunk(raw, values.data(), bytes.data(), 0, rows, size, nullptr);
        floats.resize(values.size());
        for (int64_t r = 0; r < rows; ++r)
            edgellm::dequantise_row(type, bytes.data() + static_cast<std::size_t>(r) * row_bytes, size,
                                    floats.data() + r * size);
    }

    TensorType type;
    int64_t rows;
    int64_t size;
    std::size_t row_bytes = 0;
    std::vector<std::byte> bytes;
    std::vector<float> floats;
};

std::vector<float> multiply(const MatmulKernel& kernel, const Weights& weights, const std::vector<float>& activations,
                            int64_t tokens, int64_t first_row, int64_t rows) {
    const auto& format = kernel.activation_format();
    const std::size_t stride = format.row_bytes(weights.size);
    const auto prepared = aligned_memory(stride * static_cast<std::size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t)
        format.prepare(activations.data() + t * weights.size, weights.size,
                       prepared.get() + static_cast<std::size_t>(t) * stride);
    std::vector<float> out(static_cast<std::size_t>(rows * tokens), NAN);
    edgellm::MatmulTask task;
    task.weights = weights.bytes.data() + static_cast<std::size_t>(first_row) * weights.row_bytes;
    task.weight_row_bytes = weights.row_bytes;
    task.input_size = weights.size;
    task.row_count = rows;
    task.activations = prepared.get();
    task.activation_row_bytes = stride;
    task.token_count = tokens;
    task.out = out.data();
    task.out_stride = rows;
    kernel.multiply(task);
    return out;
}

double dot(const Weights& weights, int64_t row, const float* x) {
    double sum = 0.0;
    for (int64_t i = 0; i < weights.size; ++i)
        sum += static_cast<double>(weights.floats[static_cast<std::size_t>(row * weights.size + i)]) *
               static_cast<double>(x[i]);
    return sum;
}

bool has_own_kernel(TensorType type) {
    return edgellm::find_own_matmul_kernel(type) != nullptr;
}

// Every set of this CPU, whichever is chosen.
std::vector<const MatmulKernel*> float_kernels(TensorType type) {
    std::vector<const MatmulKernel*> kernels;
    const auto add = [&](bool can_run, const MatmulKernel* kernel) {
        if (can_run && kernel != nullptr) kernels.push_back(kernel);
    };
    add(has_own_kernel(type), edgellm::find_own_matmul_kernel(type));
    add(edgellm::supported_cpu(), edgellm::find_avx2_float_kernel(type));
    add(edgellm::has_avx512_vnni(), edgellm::find_avx512_float_kernel(type));
    add(edgellm::has_dot_products(), edgellm::find_neon_float_kernel(type));
    return kernels;
}

// Quantised weights are in panels: test_panel_kernels.
constexpr TensorType kFloatTypes[] = {TensorType::kF32, TensorType::kF16, TensorType::kBF16};

}  // namespace

TEST(the_kernels_of_this_cpu_are_chosen_when_it_has_what_they_need) {
#if defined(__x86_64__)
    const bool expected = edgellm::supported_cpu();
#else
    const bool expected = edgellm::has_dot_products();
#endif
    for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_1, TensorType::kQ4_0, TensorType::kF32,
                                  TensorType::kF16, TensorType::kBF16})
        CHECK(has_own_kernel(type) == expected);
    CHECK(!has_own_kernel(TensorType::kQ6_K));
}

TEST(own_matmuls_match_double_precision) {
    for (const TensorType type : kFloatTypes) {
        if (!has_own_kernel(type)) continue;
        for (const int64_t size : {32, 64, 96, 256, 288, 576, 1536}) {
            const Weights weights(type, 37, size);
            const auto x = noise(static_cast<std::size_t>(size * 6), 3.0F);
            const auto out = multiply(*edgellm::find_own_matmul_kernel(type), weights, x, 6, 0, 37);
            for (int64_t t = 0; t < 6; ++t) {
                for (int64_t r = 0; r < 37; ++r) {
                    const double error = static_cast<double>(out[static_cast<std::size_t>(t * 37 + r)]) -
                                         dot(weights, r, x.data() + t * size);
                    CHECK(std::abs(error) < 2e-4 * 3.0 * std::sqrt(static_cast<double>(size)));
                }
            }
        }
    }
}

TEST(float_kernels_of_every_set_give_the_same_bits) {
    for (const TensorType type : kFloatTypes) {
        const MatmulKernel& portable = *edgellm::find_portable_float_kernel(type);
        for (const int64_t size : {1, 7, 8, 33, 96, 576}) {
            const Weights weights(type, 11, size);
            const auto x = noise(static_cast<std::size_t>(size * 19), 3.0F);
            const auto expected = multiply(portable, weights, x, 5, 0, 11);
            for (int64_t r = 0; r < 11; ++r)
                CHECK(std::abs(static_cast<double>(expected[static_cast<std::size_t>(r)]) - dot(weights, r, x.data())) <
                      2e-4 * 3.0 * std::sqrt(static_cast<double>(size)));
            for (const MatmulKernel* kernel : float_kernels(type)) {
                CHECK(multiply(*kernel, weights, x, 5, 0, 11) == expected);
                for (const int64_t tokens : {1, 2, 8, 9, 16, 19}) {
                    for (const int64_t rows : {1, 3, 4, 8, 11})
                        CHECK(multiply(*kernel, weights, x, tokens, 0, rows) ==
                              multiply(portable, weights, x, tokens, 0, rows));
                }
            }
        }
    }
    CHECK(edgellm::find_portable_float_kernel(TensorType::kQ8_0) == nullptr);
}

TEST(odd_sizes_of_float_rows_are_whole) {
    for (const TensorType type : {TensorType::kF32, TensorType::kF16, TensorType::kBF16}) {
        if (!has_own_kernel(type)) continue;
        for (const int64_t size : {1, 2, 7, 9, 31, 33}) {
            const Weights weights(type, 5, size);
            const auto x = noise(static_cast<std::size_t>(size));
            const auto out = multiply(*edgellm::find_own_matmul_kernel(type), weights, x, 1, 0, 5);
            for (int64_t r = 0; r < 5; ++r)
                CHECK(std::abs(static_cast<double>(out[static_cast<std::size_t>(r)]) - dot(weights, r, x.data())) <
                      1e-4);
        }
    }
}

TEST(a_products_bits_do_not_depend_on_the_tile) {
    for (const TensorType type : kFloatTypes) {
        if (!has_own_kernel(type)) continue;
        const MatmulKernel& kernel = *edgellm::find_own_matmul_kernel(type);
        constexpr int64_t kRows = 70;
        constexpr int64_t kSize = 352;
        const Weights weights(type, kRows, kSize);
        const auto x = noise(kSize * 11);
        const auto whole = multiply(kernel, weights, x, 11, 0, kRows);
        for (const int64_t tokens : {1, 2, 3, 4, 5, 7}) {
            for (const int64_t rows : {1, 2, 3, 5, 32, 33}) {
                const int64_t first = kRows - rows;
                const auto part = multiply(kernel, weights, x, tokens, first, rows);
                for (int64_t t = 0; t < tokens; ++t) {
                    for (int64_t r = 0; r < rows; ++r)
                        CHECK(part[static_cast<std::size_t>(t * rows + r)] ==
                              whole[static_cast<std::size_t>(t * kRows + first + r)]);
                }
            }
        }
    }
}

TEST(extreme_activations_stay_finite_and_right) {
    for (const TensorType type : kFloatTypes) {
        if (!has_own_kernel(type)) continue;
        const Weights weights(type, 4, 64);
        for (const float magnitude : {0.0F, 1e-38F, 1e-30F, 1e-10F, 1e10F, 1e30F}) {
            std::vector<float> x(64, magnitude);
            x[3] = -magnitude;
            const auto out = multiply(*edgellm::find_own_matmul_kernel(type), weights, x, 1, 0, 4);
            for (int64_t r = 0; r < 4; ++r) {
                const double error = static_cast<double>(out[static_cast<std::size_t>(r)]) - dot(weights, r, x.data());
                CHECK(std::abs(error) <= 1e-3 * static_cast<double>(magnitude) + 1e-28);
            }
        }
    }
}

TEST(library_matmuls_cover_every_encoding) {
    for (const TensorType type :
         {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ4_0, TensorType::kQ4_1,
          TensorType::kQ5_0, TensorType::kQ5_1, TensorType::kQ8_0, TensorType::kQ2_K, TensorType::kQ3_K,
          TensorType::kQ4_K, TensorType::kQ5_K, TensorType::kQ6_K}) {
        const MatmulKernel* kernel = edgellm::find_ggml_matmul_kernel(type);
        CHECK(kernel != nullptr);
        if (kernel == nullptr) continue;
        const Weights weights(type, 9, 512);
        const auto x = noise(512 * 3);
        const auto out = multiply(*kernel, weights, x, 3, 0, 9);
        for (int64_t t = 0; t < 3; ++t) {
            for (int64_t r = 0; r < 9; ++r)
                CHECK(std::abs(static_cast<double>(out[static_cast<std::size_t>(t * 9 + r)]) -
                               dot(weights, r, x.data() + t * 512)) < 1.5);
        }
    }
}

TEST(norm_silu_and_add_match_double_precision) {
    for (const CpuKernels* kernels : kernel_tables()) {
        for (const int64_t size : {1, 5, 8, 13, 64, 576}) {
            const auto count = static_cast<std::size_t>(size);
            const auto x = noise(count, 4.0F);
            const auto y = noise(count);
            std::vector<float> out(count);
            kernels->rms_norm(x.data(), y.data(), size, 1e-5F, out.data());
            double squares = 0.0;
            for (const float value : x) squares += static_cast<double>(value) * static_cast<double>(value);
            const double scale = 1.0 / std::sqrt(squares / static_cast<double>(size) + 1e-5);
            for (std::size_t i = 0; i < count; ++i)
                CHECK(std::abs(static_cast<double>(out[i]) -
                               static_cast<double>(x[i]) * scale * static_cast<double>(y[i])) < 1e-5);
            kernels->silu_multiply(x.data(), y.data(), size, out.data());
            for (std::size_t i = 0; i < count; ++i) {
                const auto g = static_cast<double>(x[i]);
                CHECK(std::abs(static_cast<double>(out[i]) - g / (1.0 + std::exp(-g)) * static_cast<double>(y[i])) <
                      1e-5);
            }
            out = y;
            kernels->add(x.data(), size, out.data());
            for (std::size_t i = 0; i < count; ++i) CHECK(out[i] == y[i] + x[i]);
        }
    }
}

TEST(silu_holds_at_both_ends) {
    for (const CpuKernels* kernels : kernel_tables()) {
        const std::vector<float> gate = {-1000.0F, -89.0F, -88.0F, -87.0F, 0.0F, 87.0F, 89.0F, 1000.0F, 1e30F};
        const std::vector<float> up(gate.size(), 1.0F);
        std::vector<float> out(gate.size());
        kernels->silu_multiply(gate.data(), up.data(), static_cast<int64_t>(gate.size()), out.data());
        for (std::size_t i = 0; i < gate.size(); ++i) {
            const auto g = static_cast<double>(gate[i]);
            CHECK(std::abs(static_cast<double>(out[i]) - g / (1.0 + std::exp(-g))) <= 1e-6 * std::abs(g));
        }
    }
}

TEST(halves_convert_exactly_and_round_to_even) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const auto half = static_cast<uint16_t>(bits);
        const float value = edgellm::half_to_float(half);
        CHECK(std::isnan(value) == std::isnan(ggml_fp16_to_fp32(half)));
        if (std::isnan(value)) continue;
        CHECK(value == ggml_fp16_to_fp32(half));
        CHECK(edgellm::float_to_half(value) == half);
    }
    for (const CpuKernels* kernels : kernel_tables()) {
        std::vector<float> values = noise(10000, 100.0F);
        for (const float special :
             {65519.0F, 65520.0F, 1e9F, -1e9F, 6e-8F, 2.98e-8F, 2.99e-8F, -0.0F, 1.00048828125F, 1.00146484375F})
            values.push_back(special);
        std::vector<uint16_t> halves(values.size());
        kernels->to_half(values.data(), static_cast<int64_t>(values.size()), halves.data());
        for (std::size_t i = 0; i < values.size(); ++i) CHECK(halves[i] == ggml_fp32_to_fp16(values[i]));
    }
}

namespace {

// A store of one layer with random keys and values for a sequence whose pages lie in any order.
struct AttentionCase {
    AttentionCase(KvType type, int32_t head_size, int32_t page_tokens, int32_t positions, int32_t kv_heads) {
        layout = {type, 1, kv_heads, head_size, page_tokens};
        const int32_t page_count = (positions + page_tokens - 1) / page_tokens;
        for (int32_t p = page_count - 1; p >= 0; --p) pages.push_back(p);
        store.resize(layout.page_bytes() * static_cast<std::size_t>(page_count),
                     std::byte{0xFF});  // unwritten: not a number
        const auto size = static_cast<std::size_t>(positions * kv_heads * head_size);
        keys = noise(size);
        values = noise(size);
        for (int32_t position = 0; position < positions; ++position) {
            const int32_t page = pages[static_cast<std::size_t>(position / page_tokens)];
            for (int32_t head = 0; head < kv_heads; ++head) {
                for (int32_t d = 0; d < head_size; ++d) {
                    put(layout.keys_offset(page, 0, head), layout.key_index(position % page_tokens, d),
                        keys[index(position, head, d)]);
                    put(layout.values_offset(page, 0, head), layout.value_index(position % page_tokens, d),
                        values[index(position, head, d)]);
                }
            }
        }
    }

    std::size_t index(int32_t position, int32_t head, int32_t d) const {
        return static_cast<std::size_t>((position * layout.kv_head_count + head) * layout.head_size + d);
    }

    void put(std::size_t offset, std::size_t at, float& value) {
        if (layout.type == KvType::kF16) {
            const uint16_t half = edgellm::float_to_half(value);
            value = edgellm::half_to_float(half);
            std::memcpy(store.data() + offset + at * 2, &half, 2);
        } else {
            std::memcpy(store.data() + offset + at * 4, &value, 4);
        }
    }

    std::vector<double> expected(const float* query, int32_t position, int32_t head) const {
        std::vector<double> scores;
        double largest = -1e300;
        for (int32_t p = 0; p <= position; ++p) {
            double score = 0.0;
            for (int32_t d = 0; d < layout.head_size; ++d)
                score += static_cast<double>(query[d]) * static_cast<double>(keys[index(p, head, d)]);
            scores.push_back(score * 0.3);
            largest = std::max(largest, scores.back());
        }
        double total = 0.0;
        for (double& score : scores) total += score = std::exp(score - largest);
        std::vector<double> out(static_cast<std::size_t>(layout.head_size));
        for (int32_t p = 0; p <= position; ++p) {
            for (int32_t d = 0; d < layout.head_size; ++d)
                out[static_cast<std::size_t>(d)] +=
                    scores[static_cast<std::size_t>(p)] / total * static_cast<double>(values[index(p, head, d)]);
        }
        return out;
    }

    std::vector<float> attend(const CpuKernels& kernels, const std::vector<float>& queries,
                              const std::vector<int32_t>& positions, int32_t head) const {
        const auto size = static_cast<std::size_t>(layout.head_size);
        std::vector<float> out(queries.size(), NAN);
        const auto scratch = aligned_memory(edgellm::attention_scratch_floats(layout.head_size) * sizeof(float));
        edgellm::AttentionTask task;
        task.store = store.data();
        task.layout = &layout;
        task.kv_head = head;
        task.pages = pages.data();
        task.scale = 0.3F;
        task.scratch = reinterpret_cast<float*>(scratch.get());
        task.query_count = static_cast<int32_t>(positions.size());
        for (std::size_t q = 0; q < positions.size(); ++q) {
            task.queries[q] = queries.data() + q * size;
            task.out[q] = out.data() + q * size;
            task.positions[q] = positions[q];
        }
        kernels.attend(task);
        return out;
    }

    KvLayout layout;
    std::vector<int32_t> pages;
    std::vector<std::byte> store;
    std::vector<float> keys;
    std::vector<float> values;
};

}  // namespace

TEST(attention_matches_double_precision) {
    for (const CpuKernels* kernels : kernel_tables()) {
        for (const KvType type : {KvType::kF16, KvType::kF32}) {
            for (const int32_t head_size : {4, 16, 20, 64, 80, 128}) {
                for (const int32_t page_tokens : {8, 32, 200}) {
                    const AttentionCase one(type, head_size, page_tokens, 200, 2);
                    const std::vector<int32_t> positions = {0, 1, 62, 63, 64, 65, 127, 128, 150, 197, 198, 199};
                    const auto queries = noise(positions.size() * static_cast<std::size_t>(head_size));
                    const auto out = one.attend(*kernels, queries, positions, 1);
                    for (std::size_t q = 0; q < positions.size(); ++q) {
                        const auto at = q * static_cast<std::size_t>(head_size);
                        const auto wanted = one.expected(queries.data() + at, positions[q], 1);
                        for (std::size_t d = 0; d < wanted.size(); ++d)
                            CHECK(std::abs(static_cast<double>(out[at + d]) - wanted[d]) < 1e-5);
                    }
                }
            }
        }
    }
}

TEST(a_querys_bits_do_not_depend_on_its_companions) {
    for (const CpuKernels* kernels : kernel_tables()) {
        for (const int32_t head_size : {20, 64}) {
            const AttentionCase one(KvType::kF16, head_size, 16, 150, 1);
            const std::vector<int32_t> positions = {149, 3, 64, 63, 100, 101, 102, 0, 148, 149, 77, 78};
            const auto size = static_cast<std::size_t>(head_size);
            const auto queries = noise(positions.size() * size);
            const auto together = one.attend(*kernels, queries, positions, 0);
            for (std::size_t count = 1; count <= 5; ++count) {
                for (std::size_t first = 0; first + count <= positions.size(); ++first) {
                    const std::vector<float> some(
                        queries.begin() + static_cast<std::ptrdiff_t>(first * size),
                        queries.begin() + static_cast<std::ptrdiff_t>((first + count) * size));
                    const std::vector<int32_t> where(positions.begin() + static_cast<std::ptrdiff_t>(first),
                                                     positions.begin() + static_cast<std::ptrdiff_t>(first + count));
                    const auto out = one.attend(*kernels, some, where, 0);
                    CHECK(std::memcmp(out.data(), together.data() + first * size, out.size() * sizeof(float)) == 0);
                }
            }
        }
    }
}

TEST(large_scores_do_not_overflow) {
    for (const CpuKernels* kernels : kernel_tables()) {
        const AttentionCase one(KvType::kF32, 16, 8, 70, 1);
        auto queries = noise(16);
        for (float& value : queries) value *= 1000.0F;
        const auto out = one.attend(*kernels, queries, {69}, 0);
        const auto wanted = one.expected(queries.data(), 69, 0);
        for (std::size_t d = 0; d < wanted.size(); ++d) CHECK(std::abs(static_cast<double>(out[d]) - wanted[d]) < 1e-2);
    }
}

CHECK_MAIN()
