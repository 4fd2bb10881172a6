// Text from an untrusted file, made safe and short for an error message.
#pragma once

#include <string>
#include <string_view>

namespace edgellm {

// At most 80 characters of printable ASCII; anything else shows as '?'.
inline std::string printable(std::string_view text) {
    constexpr std::size_t kMaxShown_chars = 80;
    std::string shown;
    for (const char c : text.substr(0, kMaxShown_chars)) shown += c >= ' ' && c <= '~' ? c : '?';
    if (text.size() > kMaxShown_chars) shown += "...";
    return shown;
}

}  // namespace edgellm
