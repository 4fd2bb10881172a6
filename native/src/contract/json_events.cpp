#include "contract/json_events.hpp"

#include <cstdint>
#include <vector>

namespace edgellm {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, uint32_t code_point) {
    const auto byte = [&out](uint32_t value) { out.push_back(static_cast<char>(static_cast<uint8_t>(value))); };
    if (code_point < 0x80) {
        byte(code_point);
    } else if (code_point < 0x800) {
        byte(0xC0 | (code_point >> 6));
        byte(0x80 | (code_point & 0x3F));
    } else if (code_point < 0x10000) {
        byte(0xE0 | (code_point >> 12));
        byte(0x80 | ((code_point >> 6) & 0x3F));
        byte(0x80 | (code_point & 0x3F));
    } else {
        byte(0xF0 | (code_point >> 18));
        byte(0x80 | ((code_point >> 12) & 0x3F));
        byte(0x80 | ((code_point >> 6) & 0x3F));
        byte(0x80 | (code_point & 0x3F));
    }
}

class Reader {
public:
    Reader(std::string_view text, JsonHandler& handler) : text_(text), handler_(handler) {}

    std::optional<std::size_t> read() {
        if (!read_value()) {
            return at_;
        }
        while (!open_.empty()) {
            if (!read_next_member()) {
                return at_;
            }
        }
        skip_space();
        return at_ == text_.size() ? std::nullopt : std::optional(at_);
    }

private:
    enum class Container : uint8_t { kObject, kArray };
    struct Open {
        Container container;
        bool is_empty = true;
    };

    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

    bool take(char expected) {
        if (at_ >= text_.size() || text_[at_] != expected) {
            return false;
        }
        ++at_;
        return true;
    }

    bool take(std::string_view word) {
        if (text_.substr(at_, word.size()) != word) {
            return false;
        }
        at_ += word.size();
        return true;
    }

    void skip_space() {
        while (at_ < text_.size() && std::string_view(" \t\n\r").find(text_[at_]) != std::string_view::npos) {
            ++at_;
        }
    }

    // Opens a container or reads a whole scalar.
    bool read_value() {
        skip_space();
        handler_.at(at_);
        switch (peek()) {
            case '{':
                ++at_;
                open_.push_back({Container::kObject});
                handler_.begin_object();
                return true;
            case '[':
                ++at_;
                open_.push_back({Container::kArray});
                handler_.begin_array();
                return true;
            case '"':
                if (!read_string()) {
                    return false;
                }
                handler_.string(string_, at_);
                return true;
            default:
                if (!take("true") && !take("false") && !take("null") && !read_number()) {
                    return false;
                }
                handler_.scalar(at_);
                return true;
        }
    }

    // One step inside the innermost container: its end, or the next member's value.
    bool read_next_member() {
        Open& innermost = open_.back();
        skip_space();
        if (take(innermost.container == Container::kObject ? '}' : ']')) {
            open_.pop_back();
            handler_.end(at_);
            return true;
        }
        if (!innermost.is_empty) {
            if (!take(',')) {
                return false;
            }
            skip_space();
        }
        innermost.is_empty = false;
        if (innermost.container == Container::kObject) {
            if (peek() != '"' || !read_string()) {
                return false;
            }
            handler_.key(string_);
            skip_space();
            if (!take(':')) {
                return false;
            }
        }
        return read_value();
    }

    bool read_digits() {
        const std::size_t start = at_;
        while (is_digit(peek())) {
            ++at_;
        }
        return at_ > start;
    }

    bool read_number() {
        take('-');
        if (!take('0') && !read_digits()) {
            return false;
        }
        if (take('.') && !read_digits()) {
            return false;
        }
        if (take('e') || take('E')) {
            if (!take('+')) {
                take('-');
            }
            return read_digits();
        }
        return true;
    }

    bool read_string() {
        ++at_;
        string_.clear();
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '"') {
                ++at_;
                return true;
            }
            if (static_cast<uint8_t>(c) < 0x20) {
                return false;
            }
            ++at_;
            if (c != '\\') {
                string_.push_back(c);
            } else if (!read_escape()) {
                return false;
            }
        }
        return false;
    }

    bool read_escape() {
        constexpr std::string_view kEscapes = "\"\\/bfnrt";
        constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
        const std::size_t which = at_ < text_.size() ? kEscapes.find(text_[at_]) : std::string_view::npos;
        if (which != std::string_view::npos) {
            string_.push_back(kMeanings[which]);
            ++at_;
            return true;
        }
        return take('u') && read_code_point();
    }

    bool read_code_point() {
        const std::optional<uint32_t> first = read_four_hex_digits();
        if (!first || (*first >= 0xDC00 && *first < 0xE000)) {
            return false;
        }
        if (*first < 0xD800 || *first >= 0xE000) {
            append_utf8(string_, *first);
            return true;
        }
        if (!take("\\u")) {
            return false;
        }
        const std::optional<uint32_t> second = read_four_hex_digits();
        if (!second || *second < 0xDC00 || *second >= 0xE000) {
            return false;
        }
        append_utf8(string_, 0x10000 + ((*first - 0xD800) << 10) + (*second - 0xDC00));
        return true;
    }

    std::optional<uint32_t> read_four_hex_digits() {
        uint32_t value = 0;
        for (int digit = 0; digit < 4; ++digit, ++at_) {
            const char c = peek();
            uint32_t nibble = 0;
            if (is_digit(c)) {
                nibble = static_cast<uint32_t>(c - '0');
            } else if (c >= 'a' && c <= 'f') {
                nibble = static_cast<uint32_t>(c - 'a') + 10;
            } else if (c >= 'A' && c <= 'F') {
                nibble = static_cast<uint32_t>(c - 'A') + 10;
            } else {
                return std::nullopt;
            }
            value = value << 4 | nibble;
        }
        return value;
    }

    std::string_view text_;
    JsonHandler& handler_;
    std::size_t at_ = 0;
    std::vector<Open> open_;
    std::string string_;
};

}  // namespace

std::optional<std::size_t> read_json(std::string_view text, JsonHandler& handler) {
    return Reader(text, handler).read();
}

}  // namespace edgellm
