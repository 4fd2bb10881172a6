// How a guide is refused, or given up later: an InvalidRequest with a marker, naming what is wrong and what to do.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include "contract/errors.hpp"

namespace edgellm {

// Text of the guide that goes into a message: one line, cut at a code point.
inline std::string for_message(std::string_view text, std::size_t most_bytes = 160) {
    std::size_t size = std::min(text.size(), most_bytes);
    while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0U) == 0x80U) --size;
    std::string line(text.substr(0, size));
    std::replace_if(line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
    if (size < text.size()) line += "...";
    return line;
}

[[noreturn]] inline void refuse_guide(std::string_view where, std::string_view why) {
    throw InvalidRequest(std::string(kBadGuide) + ": " + for_message(where) + " " + std::string(why));
}

// field is the guide; why ends the sentence.
[[noreturn]] inline void give_up_guide(std::string_view field, std::string_view why) {
    throw InvalidRequest(std::string(kGuideLimit) + ": " + std::string(field) + " " + std::string(why));
}

}  // namespace edgellm
