// EncodedImage: an image as a decoder reads it: rows in place of tokens. Shared, and never changed.
#pragma once

#include <cstdint>
#include <vector>

namespace edgellm {

struct EncodedImage {
    // Stands for every row of this image where tokens are compared: below zero, which no token is, and another one for
    // every image of an engine's life. A prefix that holds it therefore holds the same rows in the same places.
    int32_t key = -1;
    int32_t row_count = 0;
    int32_t row_size = 0;     // values: the decoder's hidden size
    std::vector<float> rows;  // [row_count][row_size]

    const float* row(int32_t index) const {
        return rows.data() + static_cast<std::size_t>(index) * static_cast<std::size_t>(row_size);
    }
};

// Where a prompt's token ids stand for a row of the request's image of that index, counted from 0.
constexpr int32_t id_of_image_row(int32_t image_index) { return -1 - image_index; }
constexpr int32_t image_index_of(int32_t id) { return -1 - id; }

}  // namespace edgellm
