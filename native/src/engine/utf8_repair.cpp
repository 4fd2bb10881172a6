#include "engine/utf8_repair.hpp"

namespace edgellm {

void Utf8Repair::append(std::string_view bytes, std::string& out) {
    for (const char character : bytes) {
        const auto byte = static_cast<uint8_t>(character);
        if (held_size_ > 0) {
            if (byte >= lowest_next_ && byte <= highest_next_) {
                held_[held_size_++] = character;
                lowest_next_ = 0x80;
                highest_next_ = 0xBF;
                if (held_size_ == wanted_size_) {
                    out.append(held_, held_size_);
                    held_size_ = 0;
                }
                continue;
            }
            out += kReplacementCharacter;
            held_size_ = 0;  // this byte starts anew
        }
        if (byte < 0x80) {
            out += character;
        } else if (start(byte)) {
            held_[0] = character;
            held_size_ = 1;
        } else {
            out += kReplacementCharacter;
        }
    }
}

void Utf8Repair::finish(bool replace_unfinished, std::string& out) {
    if (held_size_ > 0 && replace_unfinished) out += kReplacementCharacter;
    held_size_ = 0;
}

// The second byte's range keeps out overlong forms, surrogates and what lies beyond U+10FFFF.
bool Utf8Repair::start(uint8_t byte) {
    lowest_next_ = 0x80;
    highest_next_ = 0xBF;
    if (byte >= 0xC2 && byte <= 0xDF) {
        wanted_size_ = 2;
    } else if (byte >= 0xE0 && byte <= 0xEF) {
        wanted_size_ = 3;
        if (byte == 0xE0) lowest_next_ = 0xA0;
        if (byte == 0xED) highest_next_ = 0x9F;
    } else if (byte >= 0xF0 && byte <= 0xF4) {
        wanted_size_ = 4;
        if (byte == 0xF0) lowest_next_ = 0x90;
        if (byte == 0xF4) highest_next_ = 0x8F;
    } else {
        return false;
    }
    return true;
}

}  // namespace edgellm
