// ImageEncoder: tiles of images through the vision tower, and a bounded memory of what came out, so that the next turn
// of a conversation does not pay for its images again. Thread-safe: one image is encoded at a time, on its caller's
// thread, beside whatever the engine computes.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "contract/encoded_image.hpp"
#include "contract/types.hpp"
#include "engine/engine_limits.hpp"
#include "executor/vision/vision_tower.hpp"

namespace edgellm {

class ImageEncoder {
public:
    // Rows of images that are kept for later turns: some sixty thousand of a decoder of 576 values.
    static constexpr std::size_t kMaxKeptBytes = std::size_t{128} << 20U;

    // Throws ModelFileError unless the tower makes rows of hidden_size values.
    ImageEncoder(std::unique_ptr<VisionTower> tower, int32_t hidden_size, const EngineLimits& limits,
                 std::size_t max_kept_bytes = kMaxKeptBytes);

    int64_t tile_bytes() const { return tower_->spec().tile_bytes(); }

    // Throws InvalidRequest (kInputTooLong) with both counts for a prompt that no engine of these limits takes: asked
    // before any image of it is encoded.
    void check_prompt_length(std::size_t tokens) const;

    // The image of that digest, null where it is not kept. A digest tells pixels and processing apart.
    std::shared_ptr<const EncodedImage> find(std::string_view digest);

    // tiles are the pixels of whole tiles, one after the other. is_cancelled may be empty; asked before each of them,
    // it ends the encoding with an Error. Throws ExecutorError.
    std::shared_ptr<const EncodedImage> encode(std::string_view digest, std::span<const uint8_t> tiles,
                                               const std::function<bool()>& is_cancelled = {});

    void count_request(std::span<const std::shared_ptr<const EncodedImage>> images);
    MultimodalMetrics metrics() const;
    std::size_t kept_bytes() const;

private:
    using Kept = std::pair<std::string, std::shared_ptr<const EncodedImage>>;

    void keep(std::string_view digest, std::shared_ptr<const EncodedImage> image);

    const std::unique_ptr<VisionTower> tower_;
    const EngineLimits limits_;
    const std::size_t max_kept_bytes_;
    std::mutex encoding_;
    int32_t next_key_ = -1;                                   // under encoding_

    mutable std::mutex mutex_;                                // of what follows
    std::list<Kept> kept_;                                    // last used first
    std::unordered_map<std::string_view, std::list<Kept>::iterator> by_digest_;
    std::size_t kept_bytes_ = 0;
    MultimodalMetrics metrics_;
};

}  // namespace edgellm
