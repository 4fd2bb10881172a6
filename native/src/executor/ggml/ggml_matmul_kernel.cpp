#include "executor/ggml/ggml_matmul_kernel.hpp"

#include <ggml-cpu.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>

namespace edgellm {
namespace {

ggml_type to_ggml(TensorType type) { return static_cast<ggml_type>(static_cast<uint32_t>(type)); }

class GgmlFormat final : public ActivationFormat {
public:
    explicit GgmlFormat(ggml_type type) : type_(type), from_float_(ggml_get_type_traits_cpu(type)->from_float) {}

    bool usable() const noexcept { return type_ == GGML_TYPE_F32 || from_float_ != nullptr; }

    std::size_t row_bytes(int64_t size) const noexcept override {
        const std::size_t bytes = ggml_row_size(type_, size);
        return (bytes + kActivationAlignment_bytes - 1) / kActivationAlignment_bytes * kActivationAlignment_bytes;
    }

    void prepare(const float* values, int64_t size, std::byte* row) const noexcept override {
        if (type_ == GGML_TYPE_F32) {
            std::memcpy(row, values, static_cast<std::size_t>(size) * sizeof(float));
        } else {
            from_float_(values, row, size);
        }
    }

private:
    ggml_type type_;
    ggml_from_float_t from_float_;
};

class GgmlKernel final : public MatmulKernel {
public:
    GgmlKernel(ggml_type type, const GgmlFormat& format)
        : dot_(ggml_get_type_traits_cpu(type)->vec_dot), format_(format) {}

    const ActivationFormat& activation_format() const noexcept override { return format_; }

    void multiply(const MatmulTask& task) const noexcept override {
        for (int64_t t = 0; t < task.token_count; ++t) {
            const std::byte* activations = task.activations + static_cast<std::size_t>(t) * task.activation_row_bytes;
            for (int64_t r = 0; r < task.row_count; ++r) {
                dot_(static_cast<int>(task.input_size), task.out + t * task.out_stride + r, 0,
                     task.weights + static_cast<std::size_t>(r) * task.weight_row_bytes, 0, activations, 0, 1);
            }
        }
    }

private:
    ggml_vec_dot_t dot_;
    const GgmlFormat& format_;
};

// Formats are shared between kernels, so that executors can tell by address that one preparation serves several.
class Registry {
public:
    Registry() { ggml_cpu_init(); }

    const MatmulKernel* kernel(TensorType type) {
        const std::lock_guard lock(mutex_);
        auto& slot = kernels_[to_ggml(type)];
        if (slot != nullptr) return slot.get();
        const ggml_type_traits_cpu* traits = ggml_get_type_traits_cpu(to_ggml(type));
        if (traits == nullptr || traits->vec_dot == nullptr) return nullptr;
        auto& format = formats_[traits->vec_dot_type];
        if (format == nullptr) format = std::make_unique<GgmlFormat>(traits->vec_dot_type);
        if (!format->usable()) return nullptr;
        slot = std::make_unique<GgmlKernel>(to_ggml(type), *format);
        return slot.get();
    }

private:
    std::mutex mutex_;
    std::map<ggml_type, std::unique_ptr<GgmlFormat>> formats_;
    std::map<ggml_type, std::unique_ptr<GgmlKernel>> kernels_;
};

}  // namespace

const MatmulKernel* find_ggml_matmul_kernel(TensorType type) {
    static Registry registry;
    return registry.kernel(type);
}

void dequantise_row(TensorType type, const std::byte* row, int64_t size, float* out) {
    if (type == TensorType::kF32) {
        std::memcpy(out, row, static_cast<std::size_t>(size) * sizeof(float));
    } else {
        ggml_get_type_traits(to_ggml(type))->to_float(row, out, size);
    }
}

}  // namespace edgellm
