// TextStream: the text of one answer, token by token. What it lets out is final: whole code points, and never
// part of a stop string. A stop string is found where its last byte appears, however tokens divide it;
// of several ending there the longest counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/utf8_repair.hpp"

namespace edgellm {

struct VocabSpec;

// The exact bytes of a token: what an ordinary one adds to text, or the literal of a special one.
std::string_view token_piece(const VocabSpec& vocab, int32_t token);

class TextStream {
public:
    // vocab outlives the stream. Stop strings are valid UTF-8 and not empty.
    TextStream(const VocabSpec& vocab, std::vector<std::string> stop_strings, bool skip_special_tokens);

    // Appends to out what became final; true when a stop string was completed, after which nothing more comes.
    bool append(int32_t token, std::string& out);
    // Lets out what was held. cut: the answer ended before the model did, so half a code point is dropped.
    bool finish(bool cut, std::string& out);
    int32_t matched_stop() const { return matched_stop_; }  // index into stop_strings, -1 = none

private:
    bool release(std::size_t searched_from, std::string& out);
    std::size_t held_size() const;

    const VocabSpec& vocab_;
    std::vector<std::string> stop_strings_;
    bool skip_special_tokens_;
    bool at_start_ = true;
    Utf8Repair repair_;
    std::string pending_;          // valid UTF-8 that may be the beginning of a stop string
    int32_t matched_stop_ = -1;
};

}  // namespace edgellm
