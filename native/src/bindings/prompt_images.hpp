// Prompt images: the images of one prompt, from pixels to rows. How a model wants its images cut and where their rows
// stand in a prompt is said by options.image_processor, a Python object with three methods:
//
//   expand(token_ids, sizes) -> list[int]   sizes has (height, width, do_resize) of each image; ids below zero stand
//                                           for rows, -1 for those of the first image, -2 for those of the second
//   digest(pixels, do_resize) -> bytes      tells pixels and processing apart; may release the GIL
//   tiles(pixels, do_resize) -> array       (tiles, height, width, 3) of bytes, as the vision tower takes them
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bindings/python_reference.hpp"
#include "contract/encoded_image.hpp"
#include "contract/stream_channel.hpp"
#include "contract/types.hpp"
#include "engine/image_encoder.hpp"

namespace edgellm::bindings {

struct PromptImages {
    std::vector<int32_t> token_ids;
    std::vector<ImageData> images;
};

// Makes room for rows in the token ids. Needs the GIL. Throws InvalidRequest, and whatever the processor raises.
void expand_images(PromptImages& prompt, const PythonReference& processor, const std::string& field);

// Needs the GIL, and releases it where an image is encoded. Refuses a prompt that is too long before that; ends with an
// Error when channel, which may be null, is cancelled meanwhile.
std::vector<std::shared_ptr<const EncodedImage>> encode_images(const PromptImages& prompt,
                                                               const PythonReference& processor, ImageEncoder& encoder,
                                                               const std::shared_ptr<StreamChannel>& channel);

}  // namespace edgellm::bindings
