// VisionSpec: shape and weights of a vision tower (SigLIP) with its connector (pixel shuffle, one linear layer), read
// from a GGUF file and checked. Keys and tensors have the names that GGUF files of vision models share.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "model/gguf_file.hpp"

namespace edgellm {

inline constexpr int32_t kColours = 3;

struct VisionSpec {
    int32_t image_size = 0;         // pixels on a side of the square tiles that the tower sees
    int32_t patch_size = 0;         // pixels on a side
    int32_t hidden_size = 0;
    int32_t intermediate_size = 0;
    int32_t layer_count = 0;
    int32_t head_count = 0;
    float norm_epsilon = 0.0F;
    int32_t scale_factor = 0;       // patches on a side that become one row
    int32_t projection_size = 0;    // of a row: the decoder's hidden size
    float rescale_factor = 0.0F;    // of a pixel's value, before mean and deviation
    std::array<float, kColours> mean{};
    std::array<float, kColours> deviation{};

    int32_t patches_on_side() const { return image_size / patch_size; }
    int32_t patch_count() const { return patches_on_side() * patches_on_side(); }
    int32_t patch_values() const { return kColours * patch_size * patch_size; }
    int32_t head_size() const { return hidden_size / head_count; }
    int32_t row_count() const { return patch_count() / (scale_factor * scale_factor); }  // of one tile
    int32_t shuffled_size() const { return hidden_size * scale_factor * scale_factor; }
    int64_t tile_bytes() const { return int64_t{image_size} * image_size * kColours; }
};

// A linear layer: the matrix is [inputs, outputs] in GGUF order, one contiguous row per output.
struct LinearTensors {
    const TensorView* weight = nullptr;
    const TensorView* bias = nullptr;  // nullptr: none
};

struct VisionLayerTensors {
    LinearTensors attention_norm;
    LinearTensors query;
    LinearTensors key;
    LinearTensors value;
    LinearTensors attention_output;
    LinearTensors feed_forward_norm;
    LinearTensors up;
    LinearTensors down;
};

struct VisionTensors {
    LinearTensors patch_embedding;
    const TensorView* position_embedding = nullptr;  // [hidden, patches]
    std::vector<VisionLayerTensors> layers;
    LinearTensors output_norm;
    const TensorView* connector = nullptr;           // [shuffled, projection]
};

// Throw ModelFileError naming the key or the tensor that is missing, out of range, misshaped or unknown.
VisionSpec read_vision_spec(const GgufFile& file);
VisionTensors find_vision_tensors(const GgufFile& file, const VisionSpec& spec);

}  // namespace edgellm
