// DecoderTensors: the weights of a decoder by their part in it, each checked for presence, shape and type.
#pragma once

#include <vector>

#include "model/gguf_file.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

// Matrices are [inputs, outputs] in GGUF order: one contiguous row per output. Views live as long as the file.
struct LayerTensors {
    const TensorView* attention_norm = nullptr;
    const TensorView* query = nullptr;
    const TensorView* key = nullptr;
    const TensorView* value = nullptr;
    const TensorView* query_bias = nullptr;  // nullptr: none
    const TensorView* key_bias = nullptr;    // nullptr: none
    const TensorView* value_bias = nullptr;  // nullptr: none
    const TensorView* query_norm = nullptr;  // nullptr: none
    const TensorView* key_norm = nullptr;    // nullptr: none
    const TensorView* attention_output = nullptr;
    const TensorView* feed_forward_norm = nullptr;
    const TensorView* gate = nullptr;
    const TensorView* up = nullptr;
    const TensorView* down = nullptr;
};

struct DecoderTensors {
    const TensorView* token_embedding = nullptr;
    const TensorView* output_norm = nullptr;
    const TensorView* output = nullptr;  // the token embedding when tied
    std::vector<LayerTensors> layers;
};

// Throws ModelFileError naming the first tensor that is missing, misshaped, of a wrong type or not part of the family.
DecoderTensors find_decoder_tensors(const GgufFile& file, const ModelSpec& spec);

}  // namespace edgellm
