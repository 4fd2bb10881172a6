// Passes over one row of logits, written so that compilers vectorise them without relaxing float rules.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace edgellm {

struct Candidate {
    float logit = 0.0F;
    int32_t token = 0;
};

// Higher logit first, lower id among equals: a total order, so that every selection is repeatable.
inline bool more_likely(const Candidate& left, const Candidate& right) {
    return left.logit > right.logit || (left.logit == right.logit && left.token < right.token);
}

bool all_finite(std::span<const float> logits);
int32_t most_likely_token(std::span<const float> logits);  // -inf everywhere: token 0

// weights[t] = exp((logits[t] - top) / temperature), where top is the highest logit. Returns their sum.
double softmax_weights(std::span<const float> logits, float top, float temperature, std::span<float> weights);
double log_sum_exp(std::span<const float> logits, float top);

// The count most likely of the row, best first.
void select_most_likely(std::span<const float> logits, std::size_t count, std::vector<Candidate>& out);

}  // namespace edgellm
