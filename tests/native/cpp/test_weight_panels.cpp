// Panels hold the weights of their rows, kernels over them do exactly the arithmetic of a scalar loop, whatever the
// instruction set, and a stored file serves only the model it was made of.
#include <ggml.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <vector>

#include "avxvnni_emulation.hpp"
#include "check.hpp"
#include "contract/errors.hpp"
#include "executor/cpu/weight_panel_file.hpp"
#include "executor/cpu_features.hpp"
#include "executor/kernels/half.hpp"
#include "executor/kernels/matmul.hpp"
#include "executor/kernels/weight_panels.hpp"

using edgellm::MatmulKernel;
using edgellm::TensorType;
using edgellm::TensorView;
using edgellm::WeightPanels;

namespace {

constexpr TensorType kTypes[] = {TensorType::kQ8_0, TensorType::kQ4_0, TensorType::kQ4_1};
constexpr int64_t kBlock = edgellm::kPanelBlock;

std::mt19937 random_bits(11);

struct Matrix {
    Matrix(TensorType tensor_type, int64_t row_count, int64_t column_count)
        : type(tensor_type), rows(row_count), columns(column_count) {
        const auto raw = static_cast<ggml_type>(static_cast<uint32_t>(type));
        std::normal_distribution<float> normal;
        std::vector<float> values(static_cast<std::size_t>(rows * columns));
        for (float& value : values) value = normal(random_bits);
        row_bytes = ggml_row_size(raw, columns);
        bytes.resize(row_bytes * static_cast<std::size_t>(rows));
        ggml_quantize_chunk(raw, values.data(), bytes.data(), 0, rows, columns, nullptr);
    }

    TensorView view(const std::string& name) const { return {name, type, {columns, rows}, bytes}; }

    TensorType type;
    int64_t rows;
    int64_t columns;
    std::size_t row_bytes = 0;
    std::vector<std::byte> bytes;
};

// One row's block as the file has it.
struct Block {
    float scale = 0.0F;
    float minimum = 0.0F;
    int quants[kBlock] = {};  // as real weights are scale × quant + minimum
};

Block block_of(const Matrix& matrix, int64_t row, int64_t block) {
    const bool bytes = matrix.type == TensorType::kQ8_0;
    const bool minimum = matrix.type == TensorType::kQ4_1;
    const std::size_t header = minimum ? 4 : 2;
    const std::size_t size = header + (bytes ? 32 : 16);
    const std::byte* from =
        matrix.bytes.data() + static_cast<std::size_t>(row) * matrix.row_bytes + static_cast<std::size_t>(block) * size;
    Block result;
    uint16_t half;
    std::memcpy(&half, from, sizeof half);
    result.scale = edgellm::half_to_float(half);
    if (minimum) {
        std::memcpy(&half, from + 2, sizeof half);
        result.minimum = edgellm::half_to_float(half);
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(kBlock); ++i) {
        if (bytes) {
            result.quants[i] = static_cast<int8_t>(from[header + i]);
        } else {
            const int both = std::to_integer<int>(from[header + i % 16]);
            result.quants[i] = (i < 16 ? both & 15 : both >> 4) - (minimum ? 0 : 8);
        }
    }
    return result;
}

struct FreeAligned {
    void operator()(std::byte* memory) const { std::free(memory); }
};
using Aligned = std::unique_ptr<std::byte, FreeAligned>;

Aligned aligned_memory(std::size_t bytes) {
    return Aligned(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)));
}

// Prepared rows are byte quants, then per block scale, sum of values, and sum of quants.
float product_of(const Matrix& matrix, int64_t row, const std::byte* prepared) {
    const int64_t blocks = matrix.columns / kBlock;
    const auto* quants = reinterpret_cast<const int8_t*>(prepared);
    const auto* scales = reinterpret_cast<const float*>(prepared + matrix.columns);
    float sum = 0.0F;
    for (int64_t b = 0; b < blocks; ++b) {
        const Block block = block_of(matrix, row, b);
        int total = 0;
        for (int64_t i = 0; i < kBlock; ++i) total += block.quants[i] * quants[b * kBlock + i];
        sum = std::fma(block.scale * scales[b], static_cast<float>(total), sum);
        if (matrix.type == TensorType::kQ4_1) sum = std::fma(block.minimum, scales[blocks + b], sum);
    }
    return sum;
}

void check_kernel(const MatmulKernel& kernel, TensorType type, int64_t rows, int64_t columns, int64_t tokens) {
    const Matrix matrix(type, rows, columns);
    const auto& format = kernel.activation_format();
    const std::size_t stride = format.row_bytes(columns);
    const Aligned prepared = aligned_memory(stride * static_cast<std::size_t>(tokens));
    std::normal_distribution<float> normal;
    for (int64_t t = 0; t < tokens; ++t) {
        std::vector<float> values(static_cast<std::size_t>(columns));
        for (float& value : values) value = normal(random_bits);
        if (t == 1) std::fill(values.begin(), values.end(), -3.0F);  // every quant at its limit
        format.prepare(values.data(), columns, prepared.get() + static_cast<std::size_t>(t) * stride);
    }
    const std::size_t size = edgellm::panels_bytes(matrix.row_bytes, rows);
    std::vector<std::byte> panels(size);
    edgellm::pack_panels(type, matrix.bytes.data(), matrix.row_bytes, rows, columns, panels.data());
    std::vector<float> out(static_cast<std::size_t>(rows * tokens), NAN);
    edgellm::MatmulTask task;
    task.weights = panels.data();
    task.weight_row_bytes = matrix.row_bytes;
    task.input_size = columns;
    task.row_count = rows;
    task.activations = prepared.get();
    task.activation_row_bytes = stride;
    task.token_count = tokens;
    task.out = out.data();
    task.out_stride = rows;
    kernel.multiply(task);
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t r = 0; r < rows; ++r)
            CHECK(out[static_cast<std::size_t>(t * rows + r)] ==
                  product_of(matrix, r, prepared.get() + static_cast<std::size_t>(t) * stride));
    }
}

void check_all_sizes(const MatmulKernel& kernel, TensorType type) {
    for (const int64_t tokens : {1, 2, 3, 4, 5, 7}) check_kernel(kernel, type, 16, 96, tokens);
    for (const int64_t rows : {1, 15, 17, 33}) check_kernel(kernel, type, rows, 64, 3);
    check_kernel(kernel, type, 32, 1536, 4);
}

struct TemporaryFolder {
    TemporaryFolder() {
        std::string pattern = (std::filesystem::temp_directory_path() / "edgellm-panels-XXXXXX").string();
        path = ::mkdtemp(pattern.data());
    }
    ~TemporaryFolder() { std::filesystem::remove_all(path); }
    std::filesystem::path path;
};

}  // namespace

TEST(panels_hold_the_bytes_of_their_rows_and_zeros_beyond) {
    for (const TensorType type : kTypes) {
        const Matrix matrix(type, 19, 64);
        const std::size_t size = edgellm::panels_bytes(matrix.row_bytes, 19);
        CHECK(size == matrix.row_bytes * 32);
        std::vector<std::byte> panels(size, std::byte{0x5A});
        edgellm::pack_panels(type, matrix.bytes.data(), matrix.row_bytes, 19, 64, panels.data());
        // The scales of the second panel's second block.
        const std::size_t panel = matrix.row_bytes * 16;
        const std::byte* scales = panels.data() + panel + panel / 2;
        for (std::size_t row = 0; row < 16; ++row) {
            uint16_t half;
            std::memcpy(&half, scales + row * 2, sizeof half);
            CHECK(edgellm::half_to_float(half) == (row < 3 ? block_of(matrix, 16 + static_cast<int64_t>(row), 1).scale
                                                           : 0.0F));
        }
    }
}

TEST(avx2_kernels_over_panels_compute_what_a_scalar_loop_does) {
    if (!edgellm::supported_cpu()) return;
    for (const TensorType type : kTypes) {
        const MatmulKernel* kernel = edgellm::find_avx2_panel_kernel(type);
        if (kernel != nullptr) check_all_sizes(*kernel, type);
    }
}

#if defined(__x86_64__) && defined(__linux__)
TEST(avxvnni_kernels_over_panels_compute_what_a_scalar_loop_does) {
    if (!edgellm::supported_cpu()) return;
    if (!edgellm::has_byte_products()) avxvnni::install();
    for (const TensorType type : kTypes) {
        const MatmulKernel* kernel = edgellm::find_avxvnni_panel_kernel(type);
        CHECK(kernel != nullptr);
        if (kernel != nullptr) check_all_sizes(*kernel, type);
    }
}
#endif

TEST(the_kernel_set_is_that_of_the_cpu) {
    const std::string set = edgellm::own_kernel_set();
#if defined(__x86_64__)
    CHECK(set == (edgellm::has_byte_products() ? "avxvnni" : edgellm::supported_cpu() ? "avx2" : ""));
    const MatmulKernel* kernel = edgellm::find_own_matmul_kernel(TensorType::kQ4_1);
    CHECK(kernel == (edgellm::has_byte_products() ? edgellm::find_avxvnni_panel_kernel(TensorType::kQ4_1)
                                                  : edgellm::find_avx2_panel_kernel(TensorType::kQ4_1)));
#else
    CHECK(set == (edgellm::has_dot_products() ? "neon-dotprod" : ""));
#endif
}

TEST(stored_panels_are_mapped_and_equal_to_packed_ones) {
    const TemporaryFolder folder;
    const Matrix first(TensorType::kQ4_1, 48, 64);
    const Matrix second(TensorType::kQ8_0, 20, 96);
    const TensorView views[] = {first.view("first"), second.view("second")};
    const TensorView* tensors[] = {&views[0], &views[1]};
    const auto path = folder.path / "panels.bin";
    edgellm::write_weight_panels(tensors, path);
    const WeightPanels mapped(tensors, path);
    const WeightPanels packed(tensors, {});
    CHECK(mapped.mapped() && !packed.mapped());
    for (const TensorView* tensor : tensors) {
        CHECK(reinterpret_cast<std::uintptr_t>(mapped.find(*tensor)) % 64 == 0);
        CHECK(std::memcmp(mapped.find(*tensor), packed.find(*tensor), tensor->data.size()) == 0);
    }
    const TensorView other = first.view("other");
    CHECK(mapped.find(other) == nullptr);
    CHECK_THROWS((edgellm::write_weight_panels(tensors, path), 0), edgellm::ModelFileError, "exist already");
}

TEST(stored_panels_that_do_not_fit_are_left_alone_and_the_reason_is_told) {
    const TemporaryFolder folder;
    const Matrix matrix(TensorType::kQ4_1, 48, 64);
    const TensorView view = matrix.view("one");
    const TensorView renamed = matrix.view("another");
    const TensorView* tensors[] = {&view};
    const TensorView* others[] = {&renamed};
    const auto path = folder.path / "panels.bin";
    const auto expect_packed = [&](const std::string& reason) {
        const WeightPanels panels(tensors, path);
        CHECK(!panels.mapped() && panels.find(view) != nullptr);
        CHECK(panels.origin().find(reason) != std::string::npos);
    };
    expect_packed("does not exist");
    edgellm::write_weight_panels(others, path);
    expect_packed("is of other weights");
    std::filesystem::remove(path);
    edgellm::write_weight_panels(tensors, path);
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
    expect_packed("is not whole");
    std::ofstream(path, std::ios::binary | std::ios::in).write("x", 1);
    expect_packed("holds no weight panels");
    std::filesystem::resize_file(path, 10);
    expect_packed("is too short");
}

CHECK_MAIN()
