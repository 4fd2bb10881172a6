#include "engine/guide/lark_text.hpp"

namespace edgellm {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

bool is_regex_operator(char c) { return std::string_view("\\.+*?()|[]{}^$#&-~/\"").find(c) != std::string_view::npos; }

// What an escape stands for, also inside brackets, where classes nest; empty when it is to be kept.
std::string_view ascii_class(char letter) {
    switch (letter) {
        case 'd': return "[0-9]";
        case 'w': return "[0-9A-Za-z_]";
        case 'D': return "[^0-9]";
        case 'W': return "[^0-9A-Za-z_]";
        default: return "";
    }
}

}  // namespace

std::string concat(std::initializer_list<std::string_view> parts) {
    std::string whole;
    for (const std::string_view part : parts) whole += part;
    return whole;
}

std::string quote_json(std::string_view text) {
    std::string quoted = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            quoted += '\\';
            quoted += c;
        } else if (static_cast<unsigned char>(c) < 0x20) {
            quoted += "\\u00";
            quoted += kHexDigits[static_cast<unsigned char>(c) >> 4U];
            quoted += kHexDigits[static_cast<unsigned char>(c) & 15U];
        } else {
            quoted += c;
        }
    }
    quoted += '"';
    return quoted;
}

std::string quote_for_regex(std::string_view text) {
    std::string quoted;
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < 0x20) {
            quoted += "\\x";
            quoted += kHexDigits[static_cast<unsigned char>(c) >> 4U];
            quoted += kHexDigits[static_cast<unsigned char>(c) & 15U];
        } else {
            if (is_regex_operator(c)) quoted += '\\';
            quoted += c;
        }
    }
    return quoted;
}

std::string lark_regex(std::string_view expression) {
    std::string out = "/";
    for (std::size_t i = 0; i < expression.size(); ++i) {
        const char c = expression[i];
        if (c == '\\' && i + 1 < expression.size()) {
            const char escaped = expression[++i];
            const std::string_view ascii = ascii_class(escaped);
            if (ascii.empty()) {
                out += '\\';
                out += escaped == '\n' ? 'n' : escaped;
            } else {
                out += ascii;
            }
            continue;
        }
        if (c == '/') {
            out += "\\/";
        } else if (c == '\n') {
            out += "\\n";
        } else {
            out += c;
        }
    }
    out += '/';
    return out;
}

std::string LarkGrammar::add(const std::string& name, const std::string& body) {
    rules_ += concat({name, ": ", body, "\n"});
    return name;
}

std::string LarkGrammar::add_lazy_rule(const std::string& body) {
    const std::string name = new_rule_name();
    rules_ += concat({name, "[lazy]: ", body, "\n"});
    return name;
}

std::string LarkGrammar::finish(const std::string& start) const { return concat({"start: ", start, "\n", rules_}); }

}  // namespace edgellm
