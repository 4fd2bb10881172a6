// The engine with its context cache: cached answers equal cold ones, and what is reused is counted.
#include "check.hpp"
#include "engine_harness.hpp"

using scripted::cold;
using scripted::greedy_by_hand;
using scripted::joined;
using scripted::make_prompt;
using scripted::make_request;
using scripted::PartsWanted;
using scripted::Runtime;

TEST(answers_with_a_cached_prefix_equal_cold_ones) {
    Runtime cached;
    for (int32_t round = 0; round < 40; ++round) {
        // Conversations that share beginnings of many lengths, ending on and off page borders.
        auto prompt = make_prompt(5, 1 + (round * 7) % 60);
        const auto tail = make_prompt(round % 6, 1 + (round * 5) % 40);
        prompt.insert(prompt.end(), tail.begin(), tail.end());
        const auto answer = cached.run(make_request(prompt, 12));
        CHECK(answer.output_ids[0] == greedy_by_hand(prompt, 12));
    }
    const auto metrics = *cached.runtime->context_cache_metrics();
    CHECK(metrics.hit_sequences > 20);
    CHECK(cached.script->copies > 0);
}

TEST(a_second_turn_reuses_the_first_with_its_answer) {
    Runtime runtime;
    auto prompt = make_prompt(1, 50);
    const auto first = runtime.run(make_request(prompt, 10));
    CHECK(first.reused_token_counts[0] == 0);
    prompt.insert(prompt.end(), first.output_ids[0].begin(), first.output_ids[0].end());
    prompt.push_back(3);
    const int64_t rows_before = runtime.script->rows;
    const auto second = runtime.run(make_request(prompt, 1));
    // The answer's last token was never fed: 59 of 61 positions are there.
    CHECK(second.reused_token_counts[0] == 59);
    CHECK(runtime.script->rows - rows_before == 2);
    const auto again = runtime.run(make_request(prompt, 1));
    CHECK(again.reused_token_counts[0] == 60);  // one row is always computed
    CHECK(again.output_ids == second.output_ids);
    const auto metrics = *runtime.runtime->context_cache_metrics();
    CHECK(metrics.admitted_sequences == 3);
    CHECK(metrics.hit_sequences == 2);
    CHECK(metrics.no_reusable_prefix_plans == 1);
    CHECK(metrics.standard_plans == 1);
    CHECK(metrics.full_input_rewind_plans == 1);
    CHECK(metrics.matched_tokens == 59 + 61);
    CHECK(metrics.reused_tokens == 59 + 60);
    CHECK(metrics.current_records == 1);
    CHECK(runtime.runtime->prefill_metrics().reused_tokens == 59 + 60);
    CHECK(runtime.runtime->prefill_metrics().computed_tokens == 50 + 2 + 1);
    CHECK(runtime.runtime->prefill_metrics().runs == 3);
    CHECK(runtime.runtime->generation_metrics().generated_tokens == 12);
}

TEST(policies_of_lookup_and_commit_are_kept) {
    Runtime runtime;
    const auto prompt = make_prompt(1, 40);
    auto request = make_request(prompt, 9);
    request.context_cache_commit_policy = edgellm::ContextCacheCommitPolicy::kPrefillStateOnly;
    const auto first = runtime.run(request);
    auto longer = prompt;
    longer.insert(longer.end(), first.output_ids[0].begin(), first.output_ids[0].end());
    longer.push_back(1);
    CHECK(runtime.run(make_request(longer, 1)).reused_token_counts[0] == 40);
    auto bypass = make_request(longer, 1);
    bypass.context_cache_lookup_policy = edgellm::ContextCacheLookupPolicy::kBypass;
    CHECK(runtime.run(bypass).reused_token_counts[0] == 0);
    CHECK(runtime.runtime->context_cache_metrics()->lookup_bypass_sequences == 1);
    auto replay = make_request(longer, 1);
    replay.context_cache_replay_tail_length = 10;
    CHECK(runtime.run(replay).reused_token_counts[0] == 40);  // 50 tokens, the last 10 computed again
}

TEST(prefixes_stay_inside_their_domain) {
    Runtime runtime;
    auto request = make_request(make_prompt(1, 40), 2);
    request.requests[0].extensions.cache_domain = "alice";
    runtime.run(request);
    CHECK(runtime.run(request).reused_token_counts[0] == 39);
    request.requests[0].extensions.cache_domain = "bob";
    CHECK(runtime.run(request).reused_token_counts[0] == 0);
    request.requests[0].extensions.cache_domain = "";
    CHECK(runtime.run(request).reused_token_counts[0] == 0);
}

TEST(requests_of_one_call_share_the_prefix_that_one_of_them_computes) {
    Runtime runtime;
    const auto prompt = make_prompt(1, 90);
    const auto response =
        runtime.run(joined({make_request(prompt, 5), make_request(prompt, 5), make_request(prompt, 5)}));
    CHECK(response.reused_token_counts == (std::vector<int32_t>{0, 89, 89}));
    for (const auto& ids : response.output_ids) CHECK(ids == greedy_by_hand(prompt, 5));
    CHECK(runtime.script->rows < 2 * 90);
}

TEST(without_a_cache_nothing_is_reused_and_no_metrics_are_given) {
    Runtime runtime(cold());
    const auto prompt = make_prompt(1, 40);
    runtime.run(make_request(prompt, 2));
    CHECK(runtime.run(make_request(prompt, 2)).reused_token_counts[0] == 0);
    CHECK(!runtime.runtime->context_cache_metrics());
}

TEST(pages_are_evicted_under_pressure_and_answers_stay_right) {
    PartsWanted wanted;
    wanted.max_kv_tokens = 64;
    wanted.max_batch_size = 2;
    wanted.context_cache_tokens = 16;
    Runtime runtime(wanted);
    for (int32_t i = 0; i < 60; ++i) {
        const auto prompt = make_prompt(i % 7, 20 + i % 30);
        const auto other = make_prompt(i % 5 + 100, 40);
        const auto response = runtime.run(joined({make_request(prompt, 12), make_request(other, 20)}));
        CHECK(response.output_ids[0] == greedy_by_hand(prompt, 12));
        auto expected = greedy_by_hand(other, 20);
        CHECK(response.output_ids[1] == expected);
    }
    const auto metrics = *runtime.runtime->context_cache_metrics();
    CHECK(metrics.evicted_records > 0);
    CHECK(metrics.reclaimed_base_kv_pages > 0);
    CHECK(metrics.hit_sequences > 0);
    CHECK(metrics.base_kv_pages.capacity == 2 * 8 + 2);
}

TEST(records_are_bounded) {
    PartsWanted wanted;
    wanted.max_records = 2;
    Runtime runtime(wanted);
    for (int32_t i = 0; i < 5; ++i) runtime.run(make_request(make_prompt(i, 20), 2));
    CHECK(runtime.runtime->context_cache_metrics()->current_records == 2);
    CHECK(runtime.runtime->context_cache_metrics()->evicted_records == 3);
    CHECK(runtime.run(make_request(make_prompt(4, 20), 2)).reused_token_counts[0] == 19);
    CHECK(runtime.run(make_request(make_prompt(0, 20), 2)).reused_token_counts[0] == 0);
}

CHECK_MAIN()
