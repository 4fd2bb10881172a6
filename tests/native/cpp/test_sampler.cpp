// The sampler against plain arithmetic: every filter, every penalty, and draws that follow the distribution.
#include "check.hpp"
#include "contract/errors.hpp"

#include "engine/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

using edgellm::Sampler;
using edgellm::SamplerScratch;
using edgellm::SamplingSpec;

namespace {

std::vector<float> random_logits(std::size_t count, uint32_t seed, float spread = 3.0F) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0.0F, spread);
    std::vector<float> logits(count);
    for (float& logit : logits) logit = normal(random);
    return logits;
}

int32_t draw(const SamplingSpec& spec, std::vector<float> logits, std::vector<uint32_t> mask = {},
             std::vector<int32_t> prompt = {}) {
    SamplerScratch scratch;
    return Sampler(spec, prompt).sample(logits, mask, scratch).token;
}

// The reference: sort all, cut, normalise.
std::map<int32_t, double> distribution(const SamplingSpec& spec, const std::vector<float>& logits) {
    std::vector<std::pair<double, int32_t>> sorted;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        sorted.emplace_back(static_cast<double>(logits[i]) / static_cast<double>(spec.temperature),
                            -static_cast<int32_t>(i));
    }
    std::sort(sorted.rbegin(), sorted.rend());
    if (spec.top_k > 0) sorted.resize(std::min(sorted.size(), static_cast<std::size_t>(spec.top_k)));
    double total = 0.0;
    for (auto& [value, token] : sorted)
        total += value = std::exp(value - static_cast<double>(*std::max_element(logits.begin(), logits.end())) /
                                              static_cast<double>(spec.temperature));
    std::map<int32_t, double> kept;
    double covered = 0.0;
    double sum = 0.0;
    for (const auto& [weight, token] : sorted) {
        if (covered >= static_cast<double>(spec.top_p) * total || weight < static_cast<double>(spec.min_p)) break;
        covered += weight;
        kept[-token] = weight;
        sum += weight;
    }
    for (auto& [token, weight] : kept) weight /= sum;
    return kept;
}

void check_draws(SamplingSpec spec, const std::vector<float>& logits) {
    const auto expected = distribution(spec, logits);
    constexpr int kDraws = 20'000;
    std::map<int32_t, int> counts;
    for (int i = 0; i < kDraws; ++i) {
        spec.seed = static_cast<uint64_t>(i);
        ++counts[draw(spec, logits)];
    }
    for (const auto& [token, count] : counts) {
        CHECK(expected.contains(token));
        if (!expected.contains(token)) continue;
        const double p = expected.at(token);
        CHECK(std::abs(count - p * kDraws) < 6.0 * std::sqrt(kDraws * p * (1.0 - p)) + 1.0);
    }
    for (const auto& [token, p] : expected) CHECK(p * kDraws < 20.0 || counts.contains(token));
}

}  // namespace

TEST(greedy_takes_the_most_likely_and_the_lowest_id_among_equals) {
    for (const std::size_t count : {1UL, 5UL, 16UL, 33UL, 1000UL}) {
        auto logits = random_logits(count, static_cast<uint32_t>(count));
        const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        SamplingSpec spec;
        CHECK(draw(spec, logits) == best);
        spec.temperature = 5.0F;
        spec.top_k = 1;
        CHECK(draw(spec, logits) == best);
        spec.top_k = 0;
        spec.top_p = 0.0F;
        CHECK(draw(spec, logits) == best);
        spec.top_p = 1.0F;
        spec.temperature = 1e-30F;
        CHECK(draw(spec, logits) == best);
        spec.temperature = std::numeric_limits<float>::denorm_min();
        CHECK(draw(spec, logits) == best);
    }
    CHECK(draw({}, std::vector<float>(40, 1.5F)) == 0);
}

TEST(draws_follow_the_distribution_under_every_filter) {
    const auto logits = random_logits(60, 1, 1.5F);
    SamplingSpec spec;
    spec.temperature = 0.8F;
    check_draws(spec, logits);
    spec.top_k = 7;
    check_draws(spec, logits);
    spec.top_p = 0.7F;
    check_draws(spec, logits);
    spec.top_k = 0;
    check_draws(spec, logits);
    spec.min_p = 0.2F;
    check_draws(spec, logits);
    spec.top_p = 1.0F;
    check_draws(spec, logits);
    spec.top_k = 1000;
    check_draws(spec, logits);
    spec.temperature = 100.0F;
    check_draws(spec, logits);
}

TEST(a_wide_nucleus_is_found_without_sorting_all) {
    SamplingSpec spec;
    spec.temperature = 1.0F;
    spec.top_p = 0.95F;
    const auto logits = random_logits(5000, 2, 0.1F);  // nearly flat: thousands of tokens
    const auto expected = distribution(spec, logits);
    CHECK(expected.size() > 4000);
    std::map<int32_t, int> counts;
    for (int i = 0; i < 3000; ++i) {
        spec.seed = static_cast<uint64_t>(i);
        const int32_t token = draw(spec, logits);
        CHECK(expected.contains(token));
        ++counts[token];
    }
    CHECK(counts.size() > 1500);
}

TEST(a_draw_depends_on_seed_and_count_alone) {
    const auto logits = random_logits(500, 3);
    SamplingSpec spec;
    spec.temperature = 1.0F;
    spec.seed = 99;
    SamplerScratch one, other;
    other.weights.assign(7, 3.0F);
    other.candidates.resize(9);
    Sampler a(spec, {}), b(spec, {});
    std::vector<int32_t> first, second;
    for (int i = 0; i < 50; ++i) {
        auto copy = logits;
        first.push_back(a.sample(copy, {}, one).token);
        copy = logits;
        second.push_back(b.sample(copy, {}, other).token);
    }
    CHECK(first == second);
    CHECK(std::count(first.begin(), first.end(), first[0]) < 50);
}

TEST(penalties_weaken_what_was_said) {
    SamplingSpec spec;
    spec.presence_penalty = 1.0F;
    SamplerScratch scratch;
    Sampler presence(spec, {});
    std::vector<float> logits{2.0F, 1.5F, 0.0F};
    CHECK(presence.sample(logits, {}, scratch).token == 0);
    logits = {2.0F, 1.5F, 0.0F};
    CHECK(presence.sample(logits, {}, scratch).token == 1);
    CHECK(logits[0] == 1.0F);
    logits = {2.0F, 1.5F, 0.0F};
    presence.sample(logits, {}, scratch);
    CHECK(logits == (std::vector<float>{1.0F, 0.5F, 0.0F}));

    SamplingSpec by_count;
    by_count.frequency_penalty = 0.5F;
    Sampler frequency(by_count, std::vector<int32_t>{1, 1, 1});
    for (int i = 0; i < 3; ++i) {
        logits = {9.0F, 0.0F};
        frequency.sample(logits, {}, scratch);
    }
    CHECK(logits == (std::vector<float>{8.0F, 0.0F}));  // the prompt does not count
}

TEST(the_repetition_penalty_counts_prompt_and_answer_once) {
    SamplingSpec spec;
    spec.repetition_penalty = 2.0F;
    SamplerScratch scratch;
    Sampler sampler(spec, std::vector<int32_t>{0, 1, 1});
    std::vector<float> logits{8.0F, -1.0F, 1.0F, 3.0F};
    CHECK(sampler.sample(logits, {}, scratch).token == 0);
    CHECK(logits == (std::vector<float>{4.0F, -2.0F, 1.0F, 3.0F}));
    logits = {8.0F, -1.0F, 1.0F, 30.0F};
    sampler.sample(logits, {}, scratch);
    logits = {8.0F, -1.0F, 1.0F, 30.0F};
    sampler.sample(logits, {}, scratch);
    CHECK(logits == (std::vector<float>{4.0F, -2.0F, 1.0F, 15.0F}));
    spec.repetition_penalty = std::numeric_limits<float>::denorm_min();
    spec.temperature = 1.0F;
    CHECK(draw(spec, {3.0F, -1.0F}, {}, {0, 1}) == 0);  // no infinity comes of it
}

TEST(bias_and_mask_decide_before_the_filters) {
    SamplingSpec spec;
    spec.logit_bias = {{2, 100.0F}, {0, -100.0F}};
    CHECK(draw(spec, {5.0F, 1.0F, 0.0F}) == 2);
    std::vector<float> logits = random_logits(100, 4);
    logits[77] = 50.0F;
    SamplingSpec free;
    free.temperature = 1.0F;
    for (const int32_t top_k : {0, 5}) {
        for (const float top_p : {1.0F, 0.9F}) {
            free.top_k = top_k;
            free.top_p = top_p;
            std::vector<uint32_t> mask(4);
            mask[0] = 1U << 3U;
            mask[1] = 1U << 31U;
            for (uint64_t seed = 0; seed < 50; ++seed) {
                free.seed = seed;
                const int32_t token = draw(free, logits, mask);
                CHECK(token == 3 || token == 63);
            }
        }
    }
}

TEST(an_empty_mask_is_an_error_not_a_token) {
    SamplingSpec spec;
    const std::vector<uint32_t> nothing(1);
    CHECK_THROWS(draw(spec, {1.0F, 2.0F}, nothing), edgellm::InvalidRequest, "EDGELLM_GUIDE_LIMIT: guided_decoding allows no token");
    spec.temperature = 1.0F;
    CHECK_THROWS(draw(spec, {1.0F, 2.0F}, nothing), edgellm::InvalidRequest, "EDGELLM_GUIDE_LIMIT: guided_decoding allows no token");
    spec.top_k = 5;
    CHECK_THROWS(draw(spec, {1.0F, 2.0F}, nothing), edgellm::InvalidRequest, "EDGELLM_GUIDE_LIMIT: guided_decoding allows no token");
}

TEST(logits_that_are_no_numbers_are_an_error) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
        for (const std::size_t at : {0UL, 17UL, 39UL}) {
            auto logits = random_logits(40, 5);
            logits[at] = bad;
            CHECK_THROWS(draw({}, logits), edgellm::SamplingError, "not a number");
        }
    }
}

TEST(logprobs_are_of_the_raw_logits_whatever_the_sampling) {
    const auto logits = random_logits(3000, 6);
    double total = 0.0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit));
    SamplingSpec spec;
    spec.temperature = 1.3F;
    spec.presence_penalty = 1.0F;
    spec.logit_bias = {{5, 50.0F}};
    spec.logprob_count = 8;
    SamplerScratch scratch;
    auto copy = logits;
    const auto sampled = Sampler(spec, {}).sample(copy, {}, scratch);
    CHECK(sampled.token == 5);
    CHECK(sampled.logprobs.size() == 9);
    std::vector<int32_t> order(logits.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
    });
    for (std::size_t i = 0; i < 9; ++i) {
        const auto& entry = sampled.logprobs[i];
        CHECK(entry.token == (i == 0 ? 5 : order[i - 1]));
        const double expected = static_cast<double>(logits[static_cast<std::size_t>(entry.token)]) - std::log(total);
        CHECK(std::abs(static_cast<double>(entry.logprob) - expected) < 1e-5);
    }
}

TEST(extreme_logits_keep_their_order) {
    SamplingSpec spec;
    spec.temperature = 1.0F;
    CHECK(draw(spec, {-1e30F, 1e30F, 0.0F}) == 1);
    spec.top_p = 0.9F;
    CHECK(draw(spec, {-1e38F, 3e38F, 0.0F}) == 1);
}

TEST(weights_of_a_row_are_exact_to_float_precision) {
    const auto logits = random_logits(1003, 7, 20.0F);
    const float top = *std::max_element(logits.begin(), logits.end());
    std::vector<float> weights(logits.size());
    const double sum = edgellm::softmax_weights(logits, top, 0.7F, weights);
    double expected_sum = 0.0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
        const double expected =
            std::exp((static_cast<double>(logits[i]) - static_cast<double>(top)) / static_cast<double>(0.7F));
        expected_sum += expected;
        CHECK(std::abs(static_cast<double>(weights[i]) - expected) <= expected * 2e-5 + 1e-37);
    }
    CHECK(std::abs(sum - expected_sum) < 1e-5 * expected_sum);
}

CHECK_MAIN()
