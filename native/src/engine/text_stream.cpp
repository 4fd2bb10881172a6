#include "engine/text_stream.hpp"

#include <algorithm>
#include <utility>

#include "model/model_spec.hpp"

namespace edgellm {
namespace {

bool is_special(const VocabSpec& vocab, std::size_t token) {
    return token < vocab.is_special.size() && vocab.is_special[token];
}

}  // namespace

std::string_view token_piece(const VocabSpec& vocab, int32_t token) {
    const auto index = static_cast<std::size_t>(token);
    if (is_special(vocab, index) && index < vocab.special_text.size()) return vocab.special_text[index];
    return index < vocab.token_bytes.size() ? std::string_view(vocab.token_bytes[index]) : std::string_view();
}

TextStream::TextStream(const VocabSpec& vocab, std::vector<std::string> stop_strings, bool skip_special_tokens)
    : vocab_(vocab), stop_strings_(std::move(stop_strings)), skip_special_tokens_(skip_special_tokens) {}

bool TextStream::append(int32_t token, std::string& out) {
    if (skip_special_tokens_ && is_special(vocab_, static_cast<std::size_t>(token))) return false;
    std::string_view bytes = token_piece(vocab_, token);
    if (bytes.empty()) return false;
    if (at_start_ && vocab_.strip_leading_space && bytes.front() == ' ') bytes.remove_prefix(1);
    at_start_ = false;
    const std::size_t searched_from = pending_.size();
    repair_.append(bytes, pending_);
    return release(searched_from, out);
}

bool TextStream::finish(bool cut, std::string& out) {
    const std::size_t searched_from = pending_.size();
    repair_.finish(!cut, pending_);
    if (release(searched_from, out)) return true;
    out += pending_;
    pending_.clear();
    return false;
}

// Looks for stop strings that end in the new part, then lets out all that cannot belong to one.
bool TextStream::release(std::size_t searched_from, std::string& out) {
    if (stop_strings_.empty()) {
        out += pending_;
        pending_.clear();
        return false;
    }
    for (std::size_t end = searched_from + 1; end <= pending_.size(); ++end) {
        const std::string_view seen = std::string_view(pending_).substr(0, end);
        std::size_t longest = 0;
        for (std::size_t i = 0; i < stop_strings_.size(); ++i) {
            if (stop_strings_[i].size() > longest && seen.ends_with(stop_strings_[i])) {
                longest = stop_strings_[i].size();
                matched_stop_ = static_cast<int32_t>(i);
            }
        }
        if (longest > 0) {
            out.append(pending_, 0, end - longest);
            pending_.clear();
            return true;
        }
    }
    const std::size_t final_size = pending_.size() - held_size();
    out.append(pending_, 0, final_size);
    pending_.erase(0, final_size);
    return false;
}

// The longest end of the pending text that some stop string begins with.
std::size_t TextStream::held_size() const {
    const std::string_view pending = pending_;
    std::size_t held = 0;
    for (const std::string& stop : stop_strings_) {
        for (std::size_t size = std::min(stop.size() - 1, pending.size()); size > held; --size) {
            if (std::string_view(stop).starts_with(pending.substr(pending.size() - size))) {
                held = size;
                break;
            }
        }
    }
    return held;
}

}  // namespace edgellm
