// Rows that bring their values instead of a token: both executors take them for what the token's row would have been,
// whatever chunks and neighbours there are; the engine places them, and never takes one image's prefix for another's.
#include "contract/errors.hpp"
#include "engine_harness.hpp"
#include "executor_harness.hpp"

using namespace harness;

namespace {

struct Embedded {
    std::vector<std::vector<float>> rows;
    std::vector<const float*> pointers;
};

// Every third token as a row of values, taken from the table where the token would be found. F32: nothing is rounded.
Embedded embedded_thirds(const Model& model, const std::vector<int32_t>& tokens) {
    const auto* table = model.file->tensor("token_embd.weight");
    const auto width = static_cast<std::size_t>(model.spec.hidden_size);
    const auto* values = reinterpret_cast<const float*>(table->data.data());
    Embedded made;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (i % 3 != 0) continue;
        const float* const row = values + static_cast<std::size_t>(tokens[i]) * width;
        made.rows.emplace_back(row, row + width);
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i)
        made.pointers.push_back(i % 3 == 0 ? made.rows[next++].data() : nullptr);
    return made;
}

std::vector<ExecutorOptions> executors() {
    std::vector<ExecutorOptions> all;
    for (const char* name : {"fused", "ggml"}) {
        ExecutorOptions options = small_options();
        options.executor = name;
        all.push_back(options);
    }
    return all;
}

std::shared_ptr<const edgellm::EncodedImage> image_of(int32_t key, int32_t row_count) {
    auto image = std::make_shared<edgellm::EncodedImage>();
    image->key = key;
    image->row_count = row_count;
    image->row_size = scripted::kHiddenSize;
    image->rows.resize(static_cast<std::size_t>(row_count) * scripted::kHiddenSize);
    return image;
}

}  // namespace

TEST(a_row_with_the_values_of_a_token_is_that_token) {
    for (const ExecutorOptions& options : executors()) {
        const Model model{tiny::Decoder(tiny::Shape{})};
        const auto executor = model.executor(options);
        Sequence plain = sequence(tiny::random_tokens(60, 101, 5), 8, 0);
        const auto expected = run_whole(*executor, plain);
        const Embedded embedded = embedded_thirds(model, plain.tokens);
        for (std::size_t i = 0; i < plain.tokens.size(); i += 3) plain.tokens[i] = -7;  // not looked at
        for (const std::size_t chunk : {60U, 1U, 7U, 32U}) {
            std::vector<float> all;
            plain.rewind();
            while (plain.done < plain.tokens.size()) {
                const std::size_t first = plain.done;
                RowGroup group = plain.next(std::min(chunk, plain.tokens.size() - first), RowsWanted::kAll);
                group.embedded = std::span(embedded.pointers).subspan(first, group.tokens.size());
                const auto rows = step(*executor, {group});
                all.insert(all.end(), rows.begin(), rows.end());
            }
            CHECK(options.executor == "fused" ? identical(all, expected) : largest_difference(all, expected) < 1e-4);
        }
    }
}

TEST(neighbours_of_a_row_with_values_are_not_moved) {
    for (const ExecutorOptions& options : executors()) {
        const Model model{tiny::Decoder(tiny::Shape{})};
        const auto executor = model.executor(options);
        Sequence words = sequence(tiny::random_tokens(20, 101, 6), 8, 0);
        const auto expected = run_whole(*executor, words);
        Sequence image = sequence(tiny::random_tokens(30, 101, 7), 8, 40);
        const Embedded embedded = embedded_thirds(model, image.tokens);
        words.rewind();
        RowGroup group = image.next(image.tokens.size(), RowsWanted::kNone);
        group.embedded = embedded.pointers;
        const auto beside = step(*executor, {group, words.next(words.tokens.size(), RowsWanted::kAll)});
        CHECK(options.executor == "fused" ? identical(beside, expected) : largest_difference(beside, expected) < 1e-4);
    }
}

TEST(rows_with_values_are_checked) {
    const Model model{tiny::Decoder(tiny::Shape{})};
    const auto executor = model.executor(small_options());
    Sequence words = sequence(tiny::random_tokens(6, 101, 6), 8, 0);
    const std::vector<const float*> none(5, nullptr);
    RowGroup group = words.next(6, RowsWanted::kLast);
    group.embedded = none;
    CHECK_THROWS(step(*executor, {group}), edgellm::ExecutorError, "not every row says");
    words.rewind();
    words.tokens[3] = -1;
    CHECK_THROWS(step(*executor, {words.next(6, RowsWanted::kLast)}), edgellm::ExecutorError, "outside the vocabulary");
}

namespace {

// Text, an image of four rows, text.
edgellm::LLMGenerationRequest asked(const std::shared_ptr<const edgellm::EncodedImage>& image, int32_t rows = 4) {
    std::vector<int32_t> prompt = scripted::make_prompt(1, 20);
    for (int32_t i = 0; i < rows; ++i) prompt.push_back(edgellm::id_of_image_row(0));
    const auto end = scripted::make_prompt(2, 20);
    prompt.insert(prompt.end(), end.begin(), end.end());
    auto request = scripted::make_request(prompt, 3);
    request.requests[0].encoded_images = {image};
    return request;
}

}  // namespace

TEST(a_prefix_is_reused_for_the_same_image_alone) {
    const auto script = std::make_shared<scripted::Script>();
    const auto runtime = edgellm::make_llm_runtime(scripted::make_parts(script));
    const auto first = image_of(-5, 4);
    CHECK(runtime->handle_request(asked(first)).reused_token_counts[0] == 0);
    CHECK(runtime->handle_request(asked(first)).reused_token_counts[0] == 43);
    // What stands before the image is shared, and not one row of it.
    CHECK(runtime->handle_request(asked(image_of(-6, 4))).reused_token_counts[0] == 20);
    CHECK(runtime->handle_request(asked(first)).prompt_token_counts[0] == 44);
}

TEST(an_image_and_its_places_must_agree) {
    const auto script = std::make_shared<scripted::Script>();
    const auto runtime = edgellm::make_llm_runtime(scripted::make_parts(script));
    for (const int32_t rows : {3, 5}) {
        CHECK_THROWS(runtime->handle_request(asked(image_of(-5, 4), rows)), edgellm::InvalidRequest,
                     "has 4 rows, and the prompt places for " + std::to_string(rows));
    }
    auto without = asked(image_of(-5, 4));
    without.requests[0].encoded_images.clear();
    CHECK_THROWS(runtime->handle_request(without), edgellm::InvalidRequest, "token_ids[20]");
}

TEST(penalties_pass_over_rows_of_images) {
    const auto script = std::make_shared<scripted::Script>();
    const auto runtime = edgellm::make_llm_runtime(scripted::make_parts(script));
    auto request = asked(image_of(-5, 4));
    request.requests[0].extensions.repetition_penalty = 1.3F;
    request.requests[0].extensions.presence_penalty = 0.5F;
    CHECK(runtime->handle_request(request).output_ids[0].size() == 3);
}

CHECK_MAIN()
