// Sizes of the tensor encodings a GGUF file may hold; one table for loader, checks and executors.
#pragma once

#include <cstdint>
#include <string>

#include "model/gguf_file.hpp"

namespace edgellm {

struct TensorTypeTraits {
    TensorType type;
    const char* name;
    int64_t block_elements;  // values that share one block; a row holds whole blocks
    int64_t block_bytes;
};

// nullptr when the number names no encoding this runtime reads.
const TensorTypeTraits* find_tensor_type(uint32_t raw_type) noexcept;

const TensorTypeTraits& tensor_type_traits(TensorType type);

// "F32, F16, Q4_0, ..." for error texts.
std::string supported_tensor_types();

// Bytes of one row (the innermost dimension) of a tensor whose sizes were checked.
int64_t row_bytes(const TensorView& tensor);

}  // namespace edgellm
