#include "engine/logit_math.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

namespace edgellm {
namespace {

constexpr std::size_t kLanes = 16;
// Beyond this a heap costs more than one partial sort of the whole row.
constexpr std::size_t kHeapLimit = 512;

// exp(x) for x <= 0 with a relative error below 2e-7: 2^n times a polynomial on [-ln2/2, ln2/2].
// From -87 down the result is 0, which no sum of weights can tell from the true value. Comparisons are those of
// integers, which compilers vectorise where those of floats might trap.
inline float exp_of_negative(float x) {
    constexpr uint32_t kMagnitude = 0x7FFFFFFFU;
    constexpr uint32_t kLargest = std::bit_cast<uint32_t>(87.0F);
    constexpr float kRoundingShift = 12582912.0F;  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
    const uint32_t magnitude = std::bit_cast<uint32_t>(x) & kMagnitude;
    const uint32_t inside = magnitude < kLargest ? 0xFFFFFFFFU : 0U;
    const float clamped = -std::bit_cast<float>(magnitude & inside);
    const float shifted = clamped * 1.44269504F + kRoundingShift;
    const float n = shifted - kRoundingShift;
    const float r = (clamped - n * 0.693359375F) + n * 2.12194440e-4F;
    float p = 1.98756915e-4F;
    p = p * r + 1.39819995e-3F;
    p = p * r + 8.3334519e-3F;
    p = p * r + 4.1665796e-2F;
    p = p * r + 1.6666666e-1F;
    p = p * r + 0.5F;
    p = p * r * r + r + 1.0F;
    const uint32_t exponent = (std::bit_cast<uint32_t>(shifted) + 127U) << 23U;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(p * std::bit_cast<float>(exponent)) & inside);
}

double sum_of(const std::array<double, kLanes>& lanes) {
    double sum = 0.0;
    for (const double lane : lanes) sum += lane;
    return sum;
}

}  // namespace

bool all_finite(std::span<const float> logits) {
    constexpr uint32_t kExponentBits = 0x7F800000U;
    uint32_t bad = 0;
    for (const float logit : logits) {
        bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(logit) & kExponentBits) == kExponentBits);
    }
    return bad == 0;
}

int32_t most_likely_token(std::span<const float> logits) {
    std::array<float, kLanes> best;
    best.fill(-std::numeric_limits<float>::infinity());
    std::size_t i = 0;
    for (; i + kLanes <= logits.size(); i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            best[lane] = logits[i + lane] > best[lane] ? logits[i + lane] : best[lane];
        }
    }
    float top = *std::max_element(best.begin(), best.end());
    for (; i < logits.size(); ++i) top = std::max(top, logits[i]);
    const auto found = std::find(logits.begin(), logits.end(), top);
    return found == logits.end() ? 0 : static_cast<int32_t>(found - logits.begin());
}

double softmax_weights(std::span<const float> logits, float top, float temperature, std::span<float> weights) {
    std::array<double, kLanes> lanes{};
    std::size_t i = 0;
    for (; i + kLanes <= logits.size(); i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) {
            weights[i + lane] = exp_of_negative((logits[i + lane] - top) / temperature);
        }
        for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(weights[i + lane]);
    }
    double sum = sum_of(lanes);
    for (; i < logits.size(); ++i) {
        weights[i] = exp_of_negative((logits[i] - top) / temperature);
        sum += static_cast<double>(weights[i]);
    }
    return sum;
}

double log_sum_exp(std::span<const float> logits, float top) {
    std::array<double, kLanes> lanes{};
    std::array<float, kLanes> weights{};
    std::size_t i = 0;
    for (; i + kLanes <= logits.size(); i += kLanes) {
        for (std::size_t lane = 0; lane < kLanes; ++lane) weights[lane] = exp_of_negative(logits[i + lane] - top);
        for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(weights[lane]);
    }
    double sum = sum_of(lanes);
    for (; i < logits.size(); ++i) sum += static_cast<double>(exp_of_negative(logits[i] - top));
    return static_cast<double>(top) + std::log(sum);
}

void select_most_likely(std::span<const float> logits, std::size_t count, std::vector<Candidate>& out) {
    out.clear();
    count = std::min(count, logits.size());
    if (count == 0) return;
    if (count > kHeapLimit) {
        out.resize(logits.size());
        for (std::size_t i = 0; i < logits.size(); ++i) out[i] = {logits[i], static_cast<int32_t>(i)};
        if (count < out.size()) {
            std::nth_element(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), out.end(), more_likely);
            out.resize(count);
        }
    } else {
        for (std::size_t i = 0; i < count; ++i) out.push_back({logits[i], static_cast<int32_t>(i)});
        std::make_heap(out.begin(), out.end(), more_likely);  // the least likely one on top
        for (std::size_t i = count; i < logits.size(); ++i) {
            // Ids ascend, so an equal logit never displaces.
            if (!(logits[i] > out.front().logit)) continue;
            std::pop_heap(out.begin(), out.end(), more_likely);
            out.back() = {logits[i], static_cast<int32_t>(i)};
            std::push_heap(out.begin(), out.end(), more_likely);
        }
    }
    std::sort(out.begin(), out.end(), more_likely);
}

}  // namespace edgellm
