#include "engine/image_encoder.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "contract/errors.hpp"

namespace edgellm {
namespace {

std::size_t bytes_of(const EncodedImage& image) { return image.rows.size() * sizeof(float); }

}  // namespace

ImageEncoder::ImageEncoder(std::unique_ptr<VisionTower> tower, int32_t hidden_size, const EngineLimits& limits,
                           std::size_t max_kept_bytes)
    : tower_(std::move(tower)), limits_(limits), max_kept_bytes_(max_kept_bytes) {
    const int32_t made = tower_->spec().projection_size;
    if (made != hidden_size) {
        throw ModelFileError("the vision tower makes rows of " + std::to_string(made) +
                             " values, and the decoder reads " + std::to_string(hidden_size) +
                             ": key clip.vision.projection_dim contradicts llm.gguf");
    }
}

void ImageEncoder::check_prompt_length(std::size_t tokens) const {
    const auto most = std::min(int64_t{limits_.max_input_tokens}, int64_t{limits_.max_kv_tokens} - 1);
    if (static_cast<int64_t>(tokens) <= most) return;
    throw InvalidRequest(std::string(kInputTooLong) + ": the prompt has " + std::to_string(tokens) +
                         " tokens with its images; the most is " + std::to_string(most));
}

std::shared_ptr<const EncodedImage> ImageEncoder::find(std::string_view digest) {
    const std::lock_guard lock(mutex_);
    const auto found = by_digest_.find(digest);
    if (found == by_digest_.end()) return nullptr;
    kept_.splice(kept_.begin(), kept_, found->second);
    return found->second->second;
}

std::shared_ptr<const EncodedImage> ImageEncoder::encode(std::string_view digest, std::span<const uint8_t> tiles,
                                                         const std::function<bool()>& is_cancelled) {
    const VisionSpec& spec = tower_->spec();
    const auto tile_bytes = static_cast<std::size_t>(spec.tile_bytes());
    if (tiles.empty() || tiles.size() % tile_bytes != 0) throw ExecutorError("an image has no whole number of tiles");
    const std::lock_guard lock(encoding_);
    // Who waited for another one to encode the same image takes that one.
    if (auto known = find(digest)) return known;
    if (next_key_ == std::numeric_limits<int32_t>::min()) throw ExecutorError("this engine has seen too many images");

    auto image = std::make_shared<EncodedImage>();
    const auto tile_count = static_cast<int32_t>(tiles.size() / tile_bytes);
    image->key = next_key_--;
    image->row_count = spec.row_count() * tile_count;
    image->row_size = spec.projection_size;
    const auto tile_values =
        static_cast<std::size_t>(spec.row_count()) * static_cast<std::size_t>(spec.projection_size);
    image->rows.resize(tile_values * static_cast<std::size_t>(tile_count));
    for (std::size_t tile = 0; tile < static_cast<std::size_t>(tile_count); ++tile) {
        if (is_cancelled && is_cancelled()) throw Error("the request was cancelled");
        tower_->encode(tiles.subspan(tile * tile_bytes, tile_bytes),
                       std::span(image->rows).subspan(tile * tile_values, tile_values));
    }
    keep(digest, image);
    return image;
}

void ImageEncoder::keep(std::string_view digest, std::shared_ptr<const EncodedImage> image) {
    const std::lock_guard lock(mutex_);
    kept_bytes_ += bytes_of(*image);
    kept_.emplace_front(digest, std::move(image));
    by_digest_.emplace(kept_.front().first, kept_.begin());
    while (kept_bytes_ > max_kept_bytes_) {
        const Kept& oldest = kept_.back();
        kept_bytes_ -= bytes_of(*oldest.second);
        by_digest_.erase(oldest.first);
        kept_.pop_back();
    }
}

void ImageEncoder::count_request(std::span<const std::shared_ptr<const EncodedImage>> images) {
    const std::lock_guard lock(mutex_);
    ++metrics_.runs;
    metrics_.total_images += static_cast<int64_t>(images.size());
    for (const auto& image : images) metrics_.total_image_tokens += image->row_count;
}

MultimodalMetrics ImageEncoder::metrics() const {
    const std::lock_guard lock(mutex_);
    return metrics_;
}

std::size_t ImageEncoder::kept_bytes() const {
    const std::lock_guard lock(mutex_);
    return kept_bytes_;
}

}  // namespace edgellm
