// Range checks of values that came from outside. Each failure is an InvalidRequest that names the field.
#pragma once

#include <cmath>
#include <concepts>
#include <string>
#include <string_view>

#include "contract/errors.hpp"

namespace edgellm {

[[noreturn]] inline void refuse_value(std::string_view field, std::string_view remedy) {
    throw InvalidRequest(std::string(kBadValue) + ": " + std::string(field) + " " + std::string(remedy));
}

template <std::integral T>
T check_range(std::string_view field, T value, T lowest, T highest) {
    if (value < lowest || value > highest) {
        refuse_value(field, "must be between " + std::to_string(lowest) + " and " + std::to_string(highest) + ", not " +
                                std::to_string(value));
    }
    return value;
}

// text_of_range is for people, such as "between 0 and 1".
inline float check_range(std::string_view field, float value, float lowest, float highest,
                         std::string_view text_of_range) {
    if (!std::isfinite(value) || value < lowest || value > highest) {
        refuse_value(field, "must be " + std::string(text_of_range) + ", not " + std::to_string(value));
    }
    return value;
}

}  // namespace edgellm
