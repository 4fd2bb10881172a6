#include "model/tensor_types.hpp"

#include <array>

#include "contract/errors.hpp"

namespace edgellm {
namespace {

constexpr std::array kTypes = {
    TensorTypeTraits{TensorType::kF32, "F32", 1, 4},       TensorTypeTraits{TensorType::kF16, "F16", 1, 2},
    TensorTypeTraits{TensorType::kBF16, "BF16", 1, 2},     TensorTypeTraits{TensorType::kQ4_0, "Q4_0", 32, 18},
    TensorTypeTraits{TensorType::kQ4_1, "Q4_1", 32, 20},   TensorTypeTraits{TensorType::kQ5_0, "Q5_0", 32, 22},
    TensorTypeTraits{TensorType::kQ5_1, "Q5_1", 32, 24},   TensorTypeTraits{TensorType::kQ8_0, "Q8_0", 32, 34},
    TensorTypeTraits{TensorType::kQ2_K, "Q2_K", 256, 84},  TensorTypeTraits{TensorType::kQ3_K, "Q3_K", 256, 110},
    TensorTypeTraits{TensorType::kQ4_K, "Q4_K", 256, 144}, TensorTypeTraits{TensorType::kQ5_K, "Q5_K", 256, 176},
    TensorTypeTraits{TensorType::kQ6_K, "Q6_K", 256, 210}, TensorTypeTraits{TensorType::kQ8_K, "Q8_K", 256, 292},
};

}  // namespace

const TensorTypeTraits* find_tensor_type(uint32_t raw_type) noexcept {
    for (const TensorTypeTraits& traits : kTypes) {
        if (static_cast<uint32_t>(traits.type) == raw_type) return &traits;
    }
    return nullptr;
}

const TensorTypeTraits& tensor_type_traits(TensorType type) {
    const TensorTypeTraits* traits = find_tensor_type(static_cast<uint32_t>(type));
    if (traits == nullptr)
        throw ModelFileError("tensor type " + std::to_string(static_cast<uint32_t>(type)) + " is unknown");
    return *traits;
}

std::string supported_tensor_types() {
    std::string names;
    for (const TensorTypeTraits& traits : kTypes) {
        if (!names.empty()) names += ", ";
        names += traits.name;
    }
    return names;
}

int64_t row_bytes(const TensorView& tensor) {
    const TensorTypeTraits& traits = tensor_type_traits(tensor.type);
    return tensor.shape.at(0) / traits.block_elements * traits.block_bytes;
}

}  // namespace edgellm
