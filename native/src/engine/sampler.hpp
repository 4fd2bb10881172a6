// Sampler: picks the next token of one sequence from its logits. The draw depends on the sequence's own seed
// and token count alone, so a seeded request repeats itself whatever runs beside it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "contract/errors.hpp"
#include "engine/logit_math.hpp"

namespace edgellm {

// Checked values; every default is neutral.
struct SamplingSpec {
    float temperature = 0.0F;         // 0 = the most likely token
    int32_t top_k = 0;                // 0 = off
    float top_p = 1.0F;               // 1 = off; 0 leaves the most likely token alone
    float min_p = 0.0F;               // 0 = off
    float frequency_penalty = 0.0F;
    float presence_penalty = 0.0F;
    float repetition_penalty = 1.0F;
    std::vector<std::pair<int32_t, float>> logit_bias;
    uint64_t seed = 0;
    int32_t logprob_count = 0;        // most likely tokens reported beside the chosen one; 0 = none at all
};

struct TokenLogprob {
    int32_t token = 0;
    float logprob = 0.0F;
};

struct SampledToken {
    int32_t token = 0;
    std::vector<TokenLogprob> logprobs;  // the chosen one first, then the most likely ones
};

// The logits of one sequence cannot be sampled from; only that sequence ends.
class SamplingError : public Error {
public:
    using Error::Error;
};

// Memory that samplers of one engine take turns with.
struct SamplerScratch {
    std::vector<float> raw;
    std::vector<float> weights;
    std::vector<Candidate> candidates;
};

class Sampler {
public:
    Sampler(SamplingSpec spec, std::span<const int32_t> prompt);

    // Changes logits. mask is empty or has one bit per token; bit t of mask[t / 32] allows token t.
    SampledToken sample(std::span<float> logits, std::span<const uint32_t> mask, SamplerScratch& scratch);

private:
    void apply_penalties(std::span<float> logits) const;
    void adjust(std::span<float> logits, std::span<const uint32_t> mask) const;
    int32_t choose(std::span<const float> logits, SamplerScratch& scratch) const;
    int32_t draw_from_candidates(SamplerScratch& scratch, float top, double total_weight) const;
    double next_uniform() const;

    SamplingSpec spec_;
    bool penalised_;
    std::unordered_map<int32_t, int32_t> generated_counts_;  // kept only when penalties are on
    std::unordered_set<int32_t> prompt_tokens_;              // kept only for the repetition penalty
    uint64_t drawn_ = 0;
};

}  // namespace edgellm
