// Utf8Repair: bytes that arrive in pieces become valid UTF-8. Whole code points come out at once; each maximal
// invalid part becomes one U+FFFD, as the Unicode standard recommends and decoders do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace edgellm {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

class Utf8Repair {
public:
    void append(std::string_view bytes, std::string& out);
    // An unfinished code point at the end: replaced, or dropped when the text was cut from outside.
    void finish(bool replace_unfinished, std::string& out);

private:
    bool start(uint8_t byte);  // false when no code point starts with it

    char held_[4] = {};
    std::size_t held_size_ = 0;
    std::size_t wanted_size_ = 0;
    uint8_t lowest_next_ = 0x80;
    uint8_t highest_next_ = 0xBF;
};

}  // namespace edgellm
