#include "executor/cpu/rotary.hpp"

#include <cmath>

namespace edgellm {

Rotary::Rotary(const RopeSpec& spec) : layout_(spec.layout) {
    for (int32_t pair = 0; pair < spec.dimensions / 2; ++pair) {
        const double exponent = -2.0 * pair / spec.dimensions;
        double frequency =
            std::pow(static_cast<double>(spec.freq_base), exponent) * static_cast<double>(spec.freq_scale);
        if (!spec.freq_factors.empty())
            frequency /= static_cast<double>(spec.freq_factors[static_cast<std::size_t>(pair)]);
        frequencies_.push_back(frequency);
    }
}

void Rotary::angles(int32_t position, float* out) const noexcept {
    float* sines = out + frequencies_.size();
    for (std::size_t pair = 0; pair < frequencies_.size(); ++pair) {
        const double angle = position * frequencies_[pair];
        out[pair] = static_cast<float>(std::cos(angle));
        sines[pair] = static_cast<float>(std::sin(angle));
    }
}

void Rotary::rotate(const float* angles, float* head) const noexcept {
    const std::size_t pairs = frequencies_.size();
    const float* sines = angles + pairs;
    const std::size_t step = layout_ == RopeLayout::kAdjacentPairs ? 2 : 1;
    const std::size_t apart = layout_ == RopeLayout::kAdjacentPairs ? 1 : pairs;
    for (std::size_t pair = 0; pair < pairs; ++pair) {
        float& first = head[pair * step];
        float& second = head[pair * step + apart];
        const float rotated = first * angles[pair] - second * sines[pair];
        second = first * sines[pair] + second * angles[pair];
        first = rotated;
    }
}

}  // namespace edgellm
