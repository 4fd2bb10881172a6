// Rotary position embedding: angles of a position once per step, then rotation of any number of heads.
#pragma once

#include <cstdint>
#include <vector>

#include "model/model_spec.hpp"

namespace edgellm {

class Rotary {
public:
    explicit Rotary(const RopeSpec& spec);

    int32_t pair_count() const noexcept { return static_cast<int32_t>(frequencies_.size()); }

    // Fills cosines, then sines: 2 × pair_count() values.
    void angles(int32_t position, float* out) const noexcept;

    // Rotates the first rope dimensions of one head in place.
    void rotate(const float* angles, float* head) const noexcept;

private:
    RopeLayout layout_;
    std::vector<double> frequencies_;  // radians per position, by pair
};

}  // namespace edgellm
