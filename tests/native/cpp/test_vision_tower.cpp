// The vision tower computes what the architecture says, whatever number of threads it has; a file that contradicts
// itself is refused by the key or tensor; encoded images are kept within bounds and never taken for each other.
#include "check.hpp"
#include "contract/errors.hpp"
#include "engine/image_encoder.hpp"
#include "executor/vision/vision_tower.hpp"
#include "tiny_tower.hpp"

#include <thread>

using namespace edgellm;

namespace {

std::unique_ptr<VisionTower> tower_of(const gguf_test::GgufWriter& writer, int32_t threads = 2) {
    const gguf_test::TemporaryFile file(writer.bytes());
    return make_vision_tower(GgufFile::open(file.path()), threads);
}

std::vector<float> encoded(VisionTower& tower, std::span<const uint8_t> pixels) {
    const VisionSpec& spec = tower.spec();
    const int64_t values = int64_t{spec.row_count()} * spec.projection_size;
    std::vector<float> rows(static_cast<std::size_t>(values));
    tower.encode(pixels, rows);
    return rows;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return INFINITY;
    double largest = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i)
        largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
    return largest;
}

std::vector<uint8_t> tile(const VisionTower& tower, uint32_t seed) {
    return tiny::random_pixels(static_cast<std::size_t>(tower.spec().tile_bytes()), seed);
}

EngineLimits limits(int32_t max_input_tokens = 100) {
    EngineLimits made;
    made.max_input_tokens = max_input_tokens;
    made.max_kv_tokens = 200;
    return made;
}

constexpr int32_t kProjection = 40;

}  // namespace

TEST(a_tile_becomes_the_rows_that_the_architecture_says) {
    using Shape = tiny::TowerShape;
    for (const Shape& shape : {
             Shape{},
             Shape{.image = 32, .patch = 8, .hidden = 48, .heads = 3, .scale = 2, .projection = 64, .seed = 2},
             Shape{.image = 30, .patch = 5, .hidden = 20, .heads = 1, .scale = 1, .projection = 7, .seed = 3},
             Shape{.image = 16, .patch = 4, .hidden = 64, .heads = 4, .scale = 4, .projection = 33, .seed = 4},
         }) {
        const tiny::Tower tower(shape);
        const auto made = tower_of(tower.writer);
        const auto pixels = tile(*made, shape.seed);
        CHECK(largest_difference(encoded(*made, pixels), tower.reference(pixels)) < 2e-4);
    }
}

TEST(neither_threads_nor_earlier_tiles_change_a_row) {
    const tiny::Tower tower{tiny::TowerShape{}};
    const auto alone = tower_of(tower.writer, 1);
    const auto expected = encoded(*alone, tile(*alone, 5));
    for (const int32_t threads : {1, 2, 3, 5}) {
        const auto made = tower_of(tower.writer, threads);
        encoded(*made, tile(*made, 6));
        CHECK(encoded(*made, tile(*made, 5)) == expected);
    }
}

TEST(pixels_of_another_size_are_refused) {
    const tiny::Tower tower{tiny::TowerShape{}};
    const auto made = tower_of(tower.writer);
    const auto pixels = tile(*made, 1);
    CHECK_THROWS(encoded(*made, std::span(pixels).first(pixels.size() - 1)), ExecutorError, "wrong size");
}

TEST(a_file_that_contradicts_itself_is_refused_by_name) {
    const auto refused = [](const char* text, auto change) {
        tiny::Tower tower{tiny::TowerShape{}};
        change(tower.writer);
        CHECK_THROWS(tower_of(tower.writer), ModelFileError, text);
    };
    using Writer = gguf_test::GgufWriter;
    const auto number = [](const char* key, uint32_t value) {
        return [=](Writer& writer) { writer.remove(key).u32(key, value); };
    };
    const auto text = [](const char* key, const char* value) {
        return [=](Writer& writer) { writer.remove(key).string(key, value); };
    };
    refused("general.architecture", text("general.architecture", "llama"));
    refused("clip.projector_type", text("clip.projector_type", "mlp"));
    refused("clip.projector_type", [](Writer& w) { w.remove("clip.projector_type"); });
    for (const char* key : {"image_size", "patch_size", "embedding_length", "feed_forward_length", "block_count",
                            "attention.head_count", "projector.scale_factor", "projection_dim", "rescale_factor",
                            "attention.layer_norm_epsilon", "image_mean", "image_std"}) {
        const std::string full = std::string("clip.vision.") + key;
        refused(full.c_str(), [&](Writer& w) { w.remove(full); });
    }
    refused("clip.vision.image_size", number("clip.vision.image_size", 1U << 30U));
    refused("patch_size does not divide", number("clip.vision.patch_size", 5));
    refused("scale_factor does not divide", number("clip.vision.projector.scale_factor", 4));
    refused("head_count does not divide", number("clip.vision.attention.head_count", 7));
    refused("v.position_embd.weight", number("clip.vision.image_size", 36));
    refused("v.blk.0.ffn_up.weight", number("clip.vision.feed_forward_length", 51));
    refused("v.blk.2.ln1.weight", number("clip.vision.block_count", 3));
    refused("v.blk.1.", number("clip.vision.block_count", 1));
    refused("mm.model.fc.weight", number("clip.vision.projection_dim", 41));
    refused("v.blk.1.attn_k.bias", [](Writer& w) { w.remove_tensor("v.blk.1.attn_k.bias"); });
    refused("'surplus'", [](Writer& w) { w.floats("surplus", {1}, {0.0F}); });
    refused("image_std", [](Writer& w) {
        gguf_test::Bytes bytes;
        bytes.put(Writer::kFloat32).put<uint64_t>(3).put(1.0F).put(0.0F).put(1.0F);
        w.remove("clip.vision.image_std").raw("clip.vision.image_std", Writer::kArray, bytes.text);
    });
}

TEST(damaged_weights_are_told_from_an_image) {
    tiny::Tower tower{tiny::TowerShape{}};
    tower.writer.remove_tensor("v.post_ln.bias").floats("v.post_ln.bias", {36}, std::vector<float>(36, NAN));
    const auto made = tower_of(tower.writer);
    CHECK_THROWS(encoded(*made, tile(*made, 1)), ExecutorError, "weights seem damaged");
}

TEST(an_image_is_encoded_once_and_every_image_has_a_key_of_its_own) {
    const tiny::Tower tower{tiny::TowerShape{}};
    ImageEncoder encoder(tower_of(tower.writer), kProjection, limits());
    const auto pixels = tiny::random_pixels(static_cast<std::size_t>(3 * encoder.tile_bytes()), 7);
    CHECK(encoder.find("one") == nullptr);
    const auto one = encoder.encode("one", pixels);
    CHECK(one->row_count == 3 * 4);
    CHECK(one->row_size == kProjection);
    CHECK(one->key < 0);
    CHECK(encoder.find("one") == one);
    CHECK(encoder.encode("one", pixels) == one);
    CHECK(encoder.encode("other", pixels)->key != one->key);
    const auto alone = tower_of(tower.writer);
    const auto last = encoded(*alone, std::span(pixels).last(static_cast<std::size_t>(encoder.tile_bytes())));
    CHECK(std::equal(last.begin(), last.end(), one->row(8)));
    CHECK_THROWS(encoder.encode("x", std::span(pixels).first(5)), ExecutorError, "whole number of tiles");
    CHECK_THROWS(encoder.encode("x", {}), ExecutorError, "whole number of tiles");
}

TEST(kept_images_stay_within_their_bytes_and_a_forgotten_one_gets_a_new_key) {
    const tiny::Tower tower{tiny::TowerShape{}};
    constexpr std::size_t kBytesOfOne = 4 * kProjection * sizeof(float);
    ImageEncoder encoder(tower_of(tower.writer), kProjection, limits(), 2 * kBytesOfOne);
    const auto pixels = tiny::random_pixels(static_cast<std::size_t>(encoder.tile_bytes()), 7);
    const auto first = encoder.encode("first", pixels);
    encoder.encode("second", pixels);
    CHECK(encoder.find("first") == first);  // used again: the second is the older one now
    encoder.encode("third", pixels);
    CHECK(encoder.kept_bytes() == 2 * kBytesOfOne);
    CHECK(encoder.find("second") == nullptr);
    CHECK(encoder.find("first") == first);
    encoder.encode("second", pixels);
    encoder.encode("third", pixels);
    CHECK(encoder.find("first") == nullptr);
    CHECK(encoder.encode("first", pixels)->key != first->key);
    // One that is larger than all that is kept is given, and not kept.
    const auto large = tiny::random_pixels(static_cast<std::size_t>(3 * encoder.tile_bytes()), 8);
    CHECK(encoder.encode("large", large)->row_count == 12);
    CHECK(encoder.kept_bytes() == 0);
}

TEST(an_encoding_ends_between_tiles_when_it_is_cancelled) {
    const tiny::Tower tower{tiny::TowerShape{}};
    ImageEncoder encoder(tower_of(tower.writer), kProjection, limits());
    const auto pixels = tiny::random_pixels(static_cast<std::size_t>(3 * encoder.tile_bytes()), 7);
    int asked = 0;
    const auto after_the_first = [&asked] { return ++asked > 1; };
    CHECK_THROWS(encoder.encode("one", pixels, after_the_first), Error, "the request was cancelled");
    CHECK(asked == 2);
    CHECK(encoder.find("one") == nullptr);
    CHECK(encoder.encode("one", pixels)->row_count == 12);
}

TEST(one_image_asked_for_by_many_at_once_is_one) {
    const tiny::Tower tower{tiny::TowerShape{}};
    ImageEncoder encoder(tower_of(tower.writer), kProjection, limits());
    const auto pixels = tiny::random_pixels(static_cast<std::size_t>(encoder.tile_bytes()), 7);
    std::vector<std::shared_ptr<const EncodedImage>> images(6);
    std::vector<std::thread> threads;
    for (auto& image : images) threads.emplace_back([&] { image = encoder.encode("one", pixels); });
    for (std::thread& thread : threads) thread.join();
    for (const auto& image : images) CHECK(image == images.front());
    encoder.count_request(images);
    CHECK(encoder.metrics().runs == 1);
    CHECK(encoder.metrics().total_images == 6);
    CHECK(encoder.metrics().total_image_tokens == 24);
}

TEST(a_prompt_that_is_too_long_is_refused_with_both_counts) {
    const tiny::Tower tower{tiny::TowerShape{}};
    const ImageEncoder encoder(tower_of(tower.writer), kProjection, limits(100));
    encoder.check_prompt_length(100);
    CHECK_THROWS(encoder.check_prompt_length(101), InvalidRequest, "101 tokens with its images; the most is 100");
    const ImageEncoder longer(tower_of(tower.writer), kProjection, limits(500));
    CHECK_THROWS(longer.check_prompt_length(200), InvalidRequest, "the most is 199");
}

TEST(a_tower_for_another_decoder_is_refused) {
    const tiny::Tower tower{tiny::TowerShape{}};
    CHECK_THROWS(ImageEncoder(tower_of(tower.writer), 64, limits()), ModelFileError, "projection_dim");
}

CHECK_MAIN()
