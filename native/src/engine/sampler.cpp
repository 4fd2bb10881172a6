#include "engine/sampler.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "engine/guide/bad_guide.hpp"

namespace edgellm {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
// A tiny repetition penalty would divide a logit into infinity, and differences of infinities are no numbers.
constexpr float kLargestLogit = 1e30F;
// The nucleus is looked for among so many tokens first, then among eight times as many, and so on.
constexpr std::size_t kFirstNucleus = 64;
constexpr std::size_t kNucleusGrowth = 8;

uint64_t mix(uint64_t value) {  // the finaliser of SplitMix64
    value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    value = (value ^ (value >> 27U)) * 0x94D049BB133111EBULL;
    return value ^ (value >> 31U);
}

void apply_mask(std::span<float> logits, std::span<const uint32_t> mask) {
    for (std::size_t word = 0; word * 32 < logits.size(); ++word) {
        const uint32_t bits = word < mask.size() ? mask[word] : 0;
        if (bits == 0xFFFFFFFFU) continue;
        const std::size_t end = std::min(logits.size(), word * 32 + 32);
        for (std::size_t token = word * 32; token < end; ++token) {
            if (((bits >> (token % 32)) & 1U) == 0) logits[token] = kNever;
        }
    }
}

}  // namespace

Sampler::Sampler(SamplingSpec spec, std::span<const int32_t> prompt)
    : spec_(std::move(spec)),
      penalised_(spec_.frequency_penalty != 0.0F || spec_.presence_penalty != 0.0F ||
                 spec_.repetition_penalty != 1.0F) {
    if (spec_.repetition_penalty == 1.0F) return;
    // Rows of images are no tokens, and below zero.
    std::copy_if(prompt.begin(), prompt.end(), std::inserter(prompt_tokens_, prompt_tokens_.end()),
                 [](int32_t token) { return token >= 0; });
}

SampledToken Sampler::sample(std::span<float> logits, std::span<const uint32_t> mask, SamplerScratch& scratch) {
    if (!all_finite(logits)) throw SamplingError("the model gave a logit that is not a number or is infinite");
    SampledToken result;
    const bool adjusted = penalised_ || !spec_.logit_bias.empty() || !mask.empty();
    const bool reported = spec_.logprob_count > 0;
    std::span<const float> raw = logits;
    if (reported && adjusted) {
        scratch.raw.assign(logits.begin(), logits.end());
        raw = scratch.raw;
    }
    if (adjusted) adjust(logits, mask);
    result.token = choose(logits, scratch);
    if (logits[static_cast<std::size_t>(result.token)] == kNever) {
        give_up_guide("guided_decoding", "allows no token of this model's vocabulary at this point; loosen it there");
    }
    if (reported) {
        select_most_likely(raw, static_cast<std::size_t>(spec_.logprob_count), scratch.candidates);
        const double total = log_sum_exp(raw, scratch.candidates.front().logit);
        const auto logprob = [total](float logit) { return static_cast<float>(static_cast<double>(logit) - total); };
        result.logprobs.reserve(scratch.candidates.size() + 1);
        result.logprobs.push_back({result.token, logprob(raw[static_cast<std::size_t>(result.token)])});
        for (const Candidate& likely : scratch.candidates)
            result.logprobs.push_back({likely.token, logprob(likely.logit)});
    }
    if (penalised_) ++generated_counts_[result.token];
    ++drawn_;
    return result;
}

void Sampler::apply_penalties(std::span<float> logits) const {
    if (spec_.repetition_penalty != 1.0F) {
        const auto weaken = [&](int32_t token) {
            float& logit = logits[static_cast<std::size_t>(token)];
            logit = logit > 0.0F ? logit / spec_.repetition_penalty : logit * spec_.repetition_penalty;
            logit = std::clamp(logit, -kLargestLogit, kLargestLogit);
        };
        for (const int32_t token : prompt_tokens_) weaken(token);
        for (const auto& [token, count] : generated_counts_) {
            if (!prompt_tokens_.contains(token)) weaken(token);
        }
    }
    for (const auto& [token, count] : generated_counts_) {
        logits[static_cast<std::size_t>(token)] -=
            spec_.frequency_penalty * static_cast<float>(count) + spec_.presence_penalty;
    }
}

void Sampler::adjust(std::span<float> logits, std::span<const uint32_t> mask) const {
    if (penalised_) apply_penalties(logits);
    for (const auto& [token, bias] : spec_.logit_bias) logits[static_cast<std::size_t>(token)] += bias;
    if (!mask.empty()) apply_mask(logits, mask);
}

int32_t Sampler::choose(std::span<const float> logits, SamplerScratch& scratch) const {
    const int32_t best = most_likely_token(logits);
    if (spec_.temperature == 0.0F || spec_.top_k == 1 || spec_.top_p == 0.0F) return best;
    const float top = logits[static_cast<std::size_t>(best)];
    if (top == kNever) return best;

    if (spec_.top_k > 0) {
        select_most_likely(logits, static_cast<std::size_t>(spec_.top_k), scratch.candidates);
        double total = 0.0;
        for (const Candidate& one : scratch.candidates) {
            total += std::exp(static_cast<double>((one.logit - top) / spec_.temperature));
        }
        return draw_from_candidates(scratch, top, total);
    }

    scratch.weights.resize(logits.size());
    const std::span<float> weights(scratch.weights);
    const double total = softmax_weights(logits, top, spec_.temperature, weights);
    if (spec_.top_p < 1.0F) {
        const double wanted = total * static_cast<double>(spec_.top_p);
        for (std::size_t count = kFirstNucleus;; count *= kNucleusGrowth) {
            select_most_likely(logits, count, scratch.candidates);
            double covered = 0.0;
            for (const Candidate& one : scratch.candidates) {
                covered += static_cast<double>(weights[static_cast<std::size_t>(one.token)]);
            }
            if (covered >= wanted || scratch.candidates.size() == logits.size()) break;
        }
        return draw_from_candidates(scratch, top, total);
    }

    // The whole vocabulary, less what min_p cuts: no order is needed.
    double kept = total;
    if (spec_.min_p > 0.0F) {
        kept = 0.0;
        for (float& weight : weights) {
            if (weight < spec_.min_p) weight = 0.0F;  // the most likely token weighs 1
            kept += static_cast<double>(weight);
        }
    }
    double left = next_uniform() * kept;
    int32_t chosen = best;
    for (std::size_t token = 0; token < weights.size(); ++token) {
        if (weights[token] <= 0.0F) continue;
        chosen = static_cast<int32_t>(token);
        left -= static_cast<double>(weights[token]);
        if (left < 0.0) break;
    }
    return chosen;
}

// candidates are sorted; total_weight is what top_p is a part of.
int32_t Sampler::draw_from_candidates(SamplerScratch& scratch, float top, double total_weight) const {
    const std::vector<Candidate>& candidates = scratch.candidates;
    const double wanted =
        spec_.top_p < 1.0F ? total_weight * static_cast<double>(spec_.top_p) : std::numeric_limits<double>::infinity();
    scratch.weights.resize(std::max(scratch.weights.size(), candidates.size()));
    double kept = 0.0;
    std::size_t count = 0;
    for (; count < candidates.size() && kept < wanted; ++count) {
        const double weight = std::exp(static_cast<double>((candidates[count].logit - top) / spec_.temperature));
        if (weight < static_cast<double>(spec_.min_p) || weight <= 0.0) break;
        scratch.weights[count] = static_cast<float>(weight);
        kept += weight;
    }
    double left = next_uniform() * kept;
    for (std::size_t i = 0; i < count; ++i) {
        left -= static_cast<double>(scratch.weights[i]);
        if (left < 0.0) return candidates[i].token;
    }
    return candidates[count == 0 ? 0 : count - 1].token;
}

// Counter-based: number n of a seed needs none of the earlier ones.
double Sampler::next_uniform() const {
    const uint64_t bits = mix(mix(spec_.seed + 0x9E3779B97F4A7C15ULL) + (drawn_ + 1) * 0x9E3779B97F4A7C15ULL);
    return static_cast<double>(bits >> 11U) * 0x1.0p-53;
}

}  // namespace edgellm
