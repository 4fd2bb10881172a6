// CpuWeights: the decoder's weights, each matrix with the kernel for it: used where they lie in the file's mapping, or
// as panels where the kernel reads those.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "executor/cpu/panel_weights.hpp"
#include "executor/kernels/matmul.hpp"
#include "model/decoder_tensors.hpp"
#include "model/gguf_file.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

struct CpuMatrix {
    const std::byte* rows = nullptr;  // or panels: a row is where it would be in the file for multiples of panel rows
    std::size_t row_bytes = 0;
    int64_t inputs = 0;
    int64_t outputs = 0;
    const MatmulKernel* kernel = nullptr;
    std::size_t format = 0;  // index of the kernel's activation format in CpuWeights::formats()
};

// An activation format that some matrices read, and the most values a row of it takes.
struct UsedFormat {
    const ActivationFormat* format = nullptr;
    int64_t widest_input = 0;
};

struct CpuLayer {
    const float* attention_norm = nullptr;
    CpuMatrix query;
    CpuMatrix key;
    CpuMatrix value;
    const float* query_bias = nullptr;  // nullptr: none, here and below
    const float* key_bias = nullptr;
    const float* value_bias = nullptr;
    const float* query_norm = nullptr;
    const float* key_norm = nullptr;
    CpuMatrix attention_output;
    const float* feed_forward_norm = nullptr;
    CpuMatrix gate;
    CpuMatrix up;
    CpuMatrix down;
};

class CpuWeights {
public:
    // portable_kernels leaves out those that need more than the baseline of the instruction set.
    // Throws ModelFileError naming a tensor whose encoding has no kernel.
    // derived_folder: see ExecutorOptions.
    CpuWeights(std::shared_ptr<const GgufFile> file, const ModelSpec& spec, bool portable_kernels,
               const std::filesystem::path& derived_folder);

    const std::vector<CpuLayer>& layers() const noexcept { return layers_; }
    const float* output_norm() const noexcept { return output_norm_; }
    const CpuMatrix& output() const noexcept { return output_; }
    const std::vector<UsedFormat>& formats() const noexcept { return formats_; }
    int64_t weight_bytes() const noexcept { return weight_bytes_; }
    const char* panel_kernels() const noexcept;  // for people; nullptr where no weights are panels

    void embed(int32_t token, float* out) const;

private:
    const MatmulKernel& kernel_for(const TensorView& view) const;
    CpuMatrix matrix(const TensorView& view);
    const float* vector(const TensorView* view);

    std::shared_ptr<const GgufFile> file_;
    std::unique_ptr<const PanelWeights> panels_;
    bool portable_kernels_;
    const TensorView* token_embedding_ = nullptr;
    std::vector<CpuLayer> layers_;
    const float* output_norm_ = nullptr;
    CpuMatrix output_;
    std::vector<UsedFormat> formats_;
    int64_t weight_bytes_ = 0;
};

}  // namespace edgellm
