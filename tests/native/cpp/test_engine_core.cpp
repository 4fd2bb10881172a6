// The engine's answers: the same whatever runs beside, whatever was cached, however prompts are cut.
#include "check.hpp"
#include "engine_harness.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

using edgellm::FinishReason;
using edgellm::InvalidRequest;
using edgellm::LLMGenerationRequest;
using edgellm::LLMGenerationResponse;
using edgellm::StreamChannel;
using edgellm::StreamChunk;
using scripted::cold;
using scripted::drain;
using scripted::greedy_by_hand;
using scripted::joined;
using scripted::make_prompt;
using scripted::make_request;
using scripted::PartsWanted;
using scripted::Runtime;

TEST(greedy_answers_are_those_of_the_arithmetic) {
    Runtime runtime(cold());
    for (const int32_t size : {1, 7, 8, 9, 31, 32, 33, 100}) {
        const auto prompt = make_prompt(size, size);
        const auto response = runtime.run(make_request(prompt, 20));
        CHECK(response.output_ids[0] == greedy_by_hand(prompt, 20));
        CHECK(response.finish_reasons[0] == FinishReason::kLength);
        CHECK(response.prompt_token_counts[0] == size);
        CHECK(response.reused_token_counts[0] == 0);
    }
}

TEST(a_batch_gives_what_each_gives_alone) {
    Runtime alone(cold());
    Runtime together(cold());
    std::vector<LLMGenerationRequest> singles;
    for (int32_t i = 0; i < 9; ++i) {
        auto request = make_request(make_prompt(i, 3 + 11 * i), 15);
        request.temperature = 0.8F;
        request.requests[0].sampling_seed = static_cast<uint64_t>(i);
        singles.push_back(request);
    }
    const auto response = together.run(joined(singles));
    for (std::size_t i = 0; i < singles.size(); ++i) {
        CHECK(response.output_ids[i] == alone.run(singles[i]).output_ids[0]);
    }
    CHECK(together.script->most_groups == 4);
}

TEST(seeds_repeat_and_differ) {
    Runtime runtime;
    auto request = make_request(make_prompt(1, 10), 30);
    request.temperature = 1.0F;
    request.requests[0].sampling_seed = 7;
    const auto first = runtime.run(request);
    CHECK(first.output_ids == runtime.run(request).output_ids);
    request.requests[0].sampling_seed = 8;
    CHECK(first.output_ids != runtime.run(request).output_ids);
    request.requests[0].sampling_seed.reset();
    CHECK(runtime.run(request).output_ids != runtime.run(request).output_ids);
    request.sampling_seed = 7;
    CHECK(first.output_ids == runtime.run(request).output_ids);
    const auto pair = runtime.run(joined({request, request}));
    CHECK(pair.output_ids[0] == first.output_ids[0]);
    CHECK(pair.output_ids[1] != first.output_ids[0]);
}

TEST(prompts_are_read_in_bounded_pieces_and_smaller_ones_while_others_decode) {
    Runtime runtime(cold());
    runtime.run(make_request(make_prompt(1, 200), 1));
    CHECK(runtime.script->most_rows == 32);
    CHECK(runtime.script->steps == 7);
    runtime.script->most_rows = 0;
    runtime.run(joined({make_request(make_prompt(2, 1), 40), make_request(make_prompt(3, 200), 40)}));
    CHECK(runtime.script->most_rows == 32);  // the first step: no one decodes yet
    const int64_t steps = runtime.script->steps - 7;
    CHECK(steps >= 1 + (200 - 31 + 15) / 16);
}

TEST(an_end_token_ends_the_answer_and_adds_no_text) {
    Runtime runtime;
    runtime.script->logits = scripted::spelling(scripted::bytes_of("hello"), 3);
    const auto channel = StreamChannel::create();
    auto request = make_request({1, 2, 3}, 50);
    request.stream_channels = {channel};
    const auto response = runtime.run(request);
    CHECK(response.output_texts[0] == "hello");
    CHECK(response.output_ids[0].size() == 6);
    CHECK(response.output_ids[0].back() == scripted::kEndToken);
    CHECK(response.finish_reasons[0] == FinishReason::kEndId);
    const auto chunks = drain(*channel);
    CHECK(chunks.size() == 6);
    CHECK(chunks.front().prompt_token_count == 3);
    CHECK(chunks.front().reused_token_count == 0);
    std::string text;
    std::size_t tokens = 0;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
        text += chunks[i].text;
        tokens += chunks[i].token_ids.size();
        CHECK(chunks[i].finished == (i + 1 == chunks.size()));
    }
    CHECK(text == "hello" && tokens == 6);
    CHECK(chunks.back().reason == FinishReason::kEndId);
}

TEST(ignore_eos_goes_on_to_the_limit) {
    Runtime runtime;
    runtime.script->logits = scripted::spelling(scripted::bytes_of("ab"), 1);
    auto request = make_request({1}, 5);
    request.requests[0].extensions.ignore_eos = true;
    const auto response = runtime.run(request);
    CHECK(response.output_ids[0].size() == 5);
    CHECK(response.output_texts[0] == "ab");
    CHECK(response.finish_reasons[0] == FinishReason::kLength);
}

TEST(a_stop_string_ends_the_text_before_it_and_says_which) {
    Runtime runtime;
    runtime.script->logits = scripted::spelling(scripted::bytes_of("one STOP two"), 1);
    const auto channel = StreamChannel::create();
    auto request = make_request({1}, 50);
    request.requests[0].stop_strings = {"never", "STOP"};
    request.stream_channels = {channel};
    const auto response = runtime.run(request);
    CHECK(response.output_texts[0] == "one ");
    CHECK(response.finish_reasons[0] == FinishReason::kStopWords);
    CHECK(response.matched_stops[0] == 1);
    std::string text;
    const auto chunks = drain(*channel);
    for (const auto& chunk : chunks) text += chunk.text;
    CHECK(text == "one ");
    CHECK(chunks.back().finished && chunks.back().matched_stop == 1);
}

TEST(the_stream_interval_gathers_tokens) {
    Runtime runtime;
    const auto channel = StreamChannel::create();
    channel->set_stream_interval(4);
    auto request = make_request({1}, 10);
    request.stream_channels = {channel};
    runtime.run(request);
    std::vector<std::size_t> sizes;
    for (const auto& chunk : drain(*channel)) sizes.push_back(chunk.token_ids.size());
    CHECK(sizes == (std::vector<std::size_t>{4, 4, 2}));
}

TEST(special_tokens_are_text_only_when_asked_for) {
    Runtime runtime;
    runtime.script->logits = scripted::spelling({'a', scripted::kSpecialToken, 'b'}, 1);
    auto request = make_request({1}, 50);
    CHECK(runtime.run(request).output_texts[0] == "ab");
    request.skip_special_tokens = false;
    CHECK(runtime.run(request).output_texts[0] == "a<tool>b");
}

TEST(the_answer_ends_where_the_kv_store_does) {
    PartsWanted wanted;
    wanted.max_kv_tokens = 64;
    Runtime runtime(wanted);
    const auto response = runtime.run(make_request(make_prompt(1, 50), std::numeric_limits<int64_t>::max()));
    CHECK(response.output_ids[0].size() == 14);
    CHECK(response.finish_reasons[0] == FinishReason::kLength);
    CHECK(runtime.run(make_request(make_prompt(1, 63), 5)).output_ids[0].size() == 1);
}

TEST(a_length_of_zero_reads_the_prompt_and_no_more) {
    Runtime runtime;
    const auto response = runtime.run(make_request(make_prompt(1, 20), 0));
    CHECK(response.output_ids[0].empty());
    CHECK(response.finish_reasons[0] == FinishReason::kLength);
    CHECK(runtime.run(make_request(make_prompt(1, 20), 1)).reused_token_counts[0] == 19);
}

TEST(too_long_prompts_are_refused_with_numbers) {
    PartsWanted wanted;
    wanted.max_input_tokens = 100;
    wanted.max_kv_tokens = 100;
    Runtime runtime(wanted);
    CHECK_THROWS(runtime.run(make_request(make_prompt(1, 101), 1)), InvalidRequest, "EDGELLM_INPUT_TOO_LONG");
    CHECK_THROWS(runtime.run(make_request(make_prompt(1, 101), 1)), InvalidRequest,
                 "101 tokens; max_input_tokens is 100");
    CHECK_THROWS(runtime.run(make_request(make_prompt(1, 100), 1)), InvalidRequest, "EDGELLM_INPUT_TOO_LONG");
    CHECK_THROWS(runtime.run(make_request(make_prompt(1, 100), 1)), InvalidRequest, "max_kv_tokens is 100");
    CHECK(runtime.run(make_request(make_prompt(1, 99), 1)).output_ids[0].size() == 1);
}

TEST(logprobs_are_the_models_own_chosen_first) {
    Runtime runtime;
    auto request = make_request(make_prompt(1, 5), 3);
    request.num_logprobs = 4;
    request.requests[0].logit_bias = {{42, 100.0F}};
    const auto response = runtime.run(request);
    CHECK(response.logprobs[0].size() == 3);
    std::vector<float> logits(scripted::kVocabSize);
    scripted::hashed_logits(make_prompt(1, 5), logits);
    double sum = 0.0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const auto& first = response.logprobs[0][0];
    CHECK(first.size() == 5);
    CHECK(first[0].token_id == 42);
    CHECK(first[0].piece == "*");
    CHECK(std::abs(static_cast<double>(first[0].logprob) - (static_cast<double>(logits[42]) - std::log(sum))) < 1e-4);
    CHECK(first[1].token_id == static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    for (std::size_t i = 2; i < first.size(); ++i) CHECK(first[i - 1].logprob >= first[i].logprob);
}

TEST(logits_that_are_no_numbers_end_that_sequence_alone) {
    Runtime runtime;
    runtime.script->logits = [](std::span<const int32_t> context, std::span<float> logits) {
        scripted::hashed_logits(context, logits);
        if (context.front() == 13 && context.size() == 4) logits[7] = std::numeric_limits<float>::quiet_NaN();
        if (context.front() == 14 && context.size() == 4) logits[7] = std::numeric_limits<float>::infinity();
    };
    const auto channel = StreamChannel::create();
    auto request = joined({make_request({13}, 9), make_request({14}, 9), make_request({15}, 9)});
    request.stream_channels = {channel, StreamChannel::create(), StreamChannel::create()};
    const auto response = runtime.run(request);
    CHECK(response.finish_reasons ==
          (std::vector<FinishReason>{FinishReason::kError, FinishReason::kError, FinishReason::kLength}));
    CHECK(response.output_ids[0].size() == 3);
    CHECK(response.output_ids[2].size() == 9);
    CHECK(drain(*channel).back().reason == FinishReason::kError);
    CHECK(runtime.run(make_request({16}, 3)).output_ids[0].size() == 3);
}

TEST(a_cancelled_channel_ends_its_sequence_within_a_step) {
    Runtime runtime;
    const auto channel = StreamChannel::create();
    runtime.script->before_step = [&] {
        if (runtime.script->steps == 3) channel->cancel();
    };
    auto request = joined({make_request({1}, 100), make_request({2}, 6)});
    request.stream_channels = {channel, StreamChannel::create()};
    const auto response = runtime.run(request);
    CHECK(response.finish_reasons[0] == FinishReason::kCancelled);
    CHECK(response.output_ids[0].size() <= 4);
    CHECK(response.output_ids[1].size() == 6);
    CHECK(!channel->is_finished());
}

TEST(a_failed_step_ends_all_and_the_runtime_refuses_from_then_on) {
    Runtime runtime;
    runtime.script->fail_at_step = 2;
    const auto channel = StreamChannel::create();
    auto request = make_request({1}, 10);
    request.stream_channels = {channel};
    CHECK_THROWS(runtime.run(request), edgellm::ExecutorError, "failed worker");
    CHECK(drain(*channel).back().reason == FinishReason::kError);
    CHECK_THROWS(runtime.run(make_request({1}, 10)), edgellm::ExecutorError, "failed worker");
    CHECK_THROWS(runtime.runtime->score({1, 2}), edgellm::ExecutorError, "failed worker");
}

TEST(embeddings_are_the_last_hidden_row_at_length_one) {
    Runtime runtime;
    auto embed = make_request(make_prompt(1, 70), 5);
    embed.requests[0].extensions.embeddings = true;
    const auto response = runtime.run(joined({make_request(make_prompt(2, 10), 5), embed}));
    CHECK(response.embeddings.size() == 2);
    CHECK(response.embeddings[0].empty());
    CHECK(response.output_ids[0].size() == 5);
    CHECK(response.output_ids[1].empty());
    CHECK(response.finish_reasons[1] == FinishReason::kEndId);
    const auto& vector = response.embeddings[1];
    CHECK(vector.size() == scripted::kHiddenSize);
    double squares = 0.0;
    for (const float value : vector) squares += static_cast<double>(value) * static_cast<double>(value);
    CHECK(std::abs(squares - 1.0) < 1e-5);
    const float raw = scripted::number_from(scripted::hash_of(make_prompt(1, 70)), 0);
    CHECK((raw > 0.0F) == (vector[0] > 0.0F));
    CHECK(runtime.run(embed).embeddings[0] == vector);  // from the cache
    CHECK(runtime.run(embed).reused_token_counts[0] == 69);
}

TEST(scores_are_the_logits_of_every_position) {
    Runtime runtime;
    const auto tokens = make_prompt(1, 75);
    const auto scores = runtime.runtime->score(tokens);
    CHECK(scores.size() == 75 * static_cast<std::size_t>(scripted::kVocabSize));
    std::vector<float> logits(scripted::kVocabSize);
    for (const std::size_t position : {std::size_t{0}, std::size_t{40}, std::size_t{74}}) {
        scripted::hashed_logits(std::span(tokens).first(position + 1), logits);
        CHECK(std::equal(logits.begin(), logits.end(),
                         scores.begin() + static_cast<std::ptrdiff_t>(position * logits.size())));
    }
    CHECK_THROWS(runtime.runtime->score({}), InvalidRequest, "token_ids");
    CHECK_THROWS(runtime.runtime->score({scripted::kVocabSize}), InvalidRequest, "token_ids");
    CHECK(runtime.run(make_request(tokens, 3)).output_ids[0] == greedy_by_hand(tokens, 3));
}

CHECK_MAIN()
