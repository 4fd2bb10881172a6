#include "bindings/prompt_images.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <tuple>

#include "bindings/media.hpp"
#include "contract/errors.hpp"

namespace edgellm::bindings {

namespace {

using TileArray = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;
using Size = std::tuple<int64_t, int64_t, bool>;  // height, width, do_resize

[[noreturn]] void refuse(const std::string& field, const std::string& what) {
    throw InvalidRequest(std::string(kBadValue) + ": " + field + ": " + what);
}

}  // namespace

void expand_images(PromptImages& prompt, const PythonReference& processor, const std::string& field) {
    const auto below_zero = [](int32_t id) { return id < 0; };
    // Below zero stands for rows, and only the processor may say so.
    if (std::any_of(prompt.token_ids.begin(), prompt.token_ids.end(), below_zero))
        refuse("token_ids", "has an id below 0");
    if (processor.get().is_none()) {
        if (!prompt.images.empty()) refuse(field, "the runtime was made without options.image_processor");
        return;
    }
    std::vector<Size> sizes;
    for (const ImageData& image : prompt.images) {
        if (image.is_video) refuse(field, "this model takes no videos");
        if (image.pixels == nullptr) refuse(field, "an image has no pixels");
        sizes.emplace_back(image.height, image.width, image.do_resize);
    }
    const py::object ids = processor.get().attr("expand")(prompt.token_ids, sizes);
    prompt.token_ids = ids.cast<std::vector<int32_t>>();
}

std::vector<std::shared_ptr<const EncodedImage>> encode_images(const PromptImages& prompt,
                                                               const PythonReference& processor, ImageEncoder& encoder,
                                                               const std::shared_ptr<StreamChannel>& channel) {
    const auto is_cancelled = [&] { return channel != nullptr && channel->is_cancelled(); };
    encoder.check_prompt_length(prompt.token_ids.size());
    std::vector<std::shared_ptr<const EncodedImage>> encoded;
    for (const ImageData& image : prompt.images) {
        const py::array pixels = pixel_view(image);
        const auto digest = processor.get().attr("digest")(pixels, image.do_resize).cast<std::string>();
        if (auto known = encoder.find(digest)) {
            encoded.push_back(std::move(known));
            continue;
        }
        const auto tiles = processor.get().attr("tiles")(pixels, image.do_resize).cast<TileArray>();
        const std::span<const uint8_t> content(tiles.data(), static_cast<std::size_t>(tiles.size()));
        const py::gil_scoped_release without_gil;  // Encodes.
        encoded.push_back(encoder.encode(digest, content, is_cancelled));
    }
    encoder.count_request(encoded);
    return encoded;
}

}  // namespace edgellm::bindings
