// Matrix times activations: the seam between executors and the kernels that know one weight encoding each.
// A result is one dot product whose arithmetic and order depend on its weight row and its activation row alone,
// never on how many rows or tokens a call carries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/gguf_file.hpp"

namespace edgellm {

// How activations are laid out for a kernel: converted once, read by every weight row.
class ActivationFormat {
public:
    virtual ~ActivationFormat() = default;
    virtual std::size_t row_bytes(int64_t size) const noexcept = 0;  // a multiple of kActivationAlignment_bytes
    virtual void prepare(const float* values, int64_t size, std::byte* row) const noexcept = 0;
};

inline constexpr std::size_t kActivationAlignment_bytes = 64;

struct MatmulTask {
    const std::byte* weights = nullptr;  // first of row_count consecutive rows, or of the panels that hold them
    std::size_t weight_row_bytes = 0;
    int64_t input_size = 0;  // values in a row
    int64_t row_count = 0;
    const std::byte* activations = nullptr;  // first of token_count prepared rows
    std::size_t activation_row_bytes = 0;
    int64_t token_count = 0;
    float* out = nullptr;  // out[token * out_stride + row]
    int64_t out_stride = 0;
};

class MatmulKernel {
public:
    virtual ~MatmulKernel() = default;
    virtual const ActivationFormat& activation_format() const noexcept = 0;
    virtual int64_t panel_rows() const noexcept { return 1; }  // above 1: reads panels, see weight_panels.hpp
    virtual void multiply(const MatmulTask& task) const noexcept = 0;
};

// The kernel of this project for an encoding on this CPU; nullptr where there is none.
const MatmulKernel* find_own_matmul_kernel(TensorType type) noexcept;

// By instruction set: nullptr for encodings without one, and where they were not built. These functions, too, may only
// be called on a CPU that has the set.
const MatmulKernel* find_avx2_float_kernel(TensorType type) noexcept;  // with FMA and F16C, as all of AVX2 here
const MatmulKernel* find_avx512_float_kernel(TensorType type) noexcept;
const MatmulKernel* find_avx2_panel_kernel(TensorType type) noexcept;
const MatmulKernel* find_avx_vnni_panel_kernel(TensorType type) noexcept;
const MatmulKernel* find_avx512_vnni_panel_kernel(TensorType type) noexcept;
const MatmulKernel* find_neon_float_kernel(TensorType type) noexcept;
const MatmulKernel* find_neon_panel_kernel(TensorType type) noexcept;

// On every CPU, slow: what the sets above equal bit for bit.
const MatmulKernel* find_portable_float_kernel(TensorType type) noexcept;
const MatmulKernel* find_portable_panel_kernel(TensorType type) noexcept;

struct PanelKernelSet {
    const char* name;  // for people
    const MatmulKernel* (*find)(TensorType type) noexcept;
};

// The sets of panel kernels that this CPU can run, the fastest first.
const std::vector<PanelKernelSet>& panel_kernel_sets();

}  // namespace edgellm
