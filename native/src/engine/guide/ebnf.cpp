#include "engine/guide/ebnf.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/guide/bad_guide.hpp"
#include "engine/guide/character_set.hpp"
#include "engine/guide/ebnf_productive.hpp"

namespace edgellm {
namespace {

constexpr int32_t kMaxDepth = 60;  // of groups; the compiler's own limit is higher
constexpr int32_t kMaxRepetitions = 100'000;

bool is_name_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           c == '.';
}

bool is_surrogate(uint32_t code_point) { return code_point >= 0xD800 && code_point <= 0xDFFF; }

void append_utf8(std::string& out, uint32_t code_point) {
    const auto byte = [&out](uint32_t value) { out += static_cast<char>(static_cast<unsigned char>(value)); };
    if (code_point < 0x80) {
        byte(code_point);
    } else if (code_point < 0x800) {
        byte(0xC0U | (code_point >> 6U));
        byte(0x80U | (code_point & 0x3FU));
    } else if (code_point < 0x10000) {
        byte(0xE0U | (code_point >> 12U));
        byte(0x80U | ((code_point >> 6U) & 0x3FU));
        byte(0x80U | (code_point & 0x3FU));
    } else {
        byte(0xF0U | (code_point >> 18U));
        byte(0x80U | ((code_point >> 12U) & 0x3FU));
        byte(0x80U | ((code_point >> 6U) & 0x3FU));
        byte(0x80U | (code_point & 0x3FU));
    }
}

class EbnfReader {
public:
    EbnfReader(std::string_view text, std::string_view where) : text_(text), where_(where) {}

    EbnfGrammar read() {
        skip_space();
        while (at_ < text_.size()) {
            const std::optional<std::string> name = rule_name_ahead();
            if (!name) refuse("must have a rule here: name ::= ...");
            const std::size_t rule = rule_index(*name);
            if (defined_[rule]) refuse("defines the rule '" + for_message(*name) + "' twice");
            defined_[rule] = true;
            EbnfNode body = read_alternatives(0);
            grammar_.rules[rule].body = std::move(body);
        }
        for (std::size_t i = 0; i < defined_.size(); ++i) {
            if (!defined_[i])
                refuse_guide(where_,
                             "uses the rule '" + for_message(grammar_.rules[i].name) + "' and does not define it");
        }
        const auto root = indices_.find("root");
        if (root == indices_.end()) refuse_guide(where_, "must define the rule 'root'");
        grammar_.root = root->second;
        return std::move(grammar_);
    }

private:
    [[noreturn]] void refuse(const std::string& why) const {
        const auto line =
            1 +
            std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
        refuse_guide(std::string(where_) + " (line " + std::to_string(line) + ")", why);
    }

    char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

    void skip_space() {
        while (at_ < text_.size()) {
            if (text_[at_] == '#') {
                at_ = std::min(text_.find('\n', at_), text_.size());
            } else if (std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
                ++at_;
            } else {
                return;
            }
        }
    }

    std::string_view read_name() {
        const std::size_t start = at_;
        while (at_ < text_.size() && is_name_character(text_[at_])) ++at_;
        return text_.substr(start, at_ - start);
    }

    // Moves past `name ::=` when that is what comes.
    std::optional<std::string> rule_name_ahead() {
        const std::size_t start = at_;
        const std::string name(read_name());
        skip_space();
        if (!name.empty() && text_.substr(at_, 3) == "::=") {
            at_ += 3;
            skip_space();
            return name;
        }
        at_ = start;
        return std::nullopt;
    }

    bool rule_starts_here() {
        const std::size_t start = at_;
        const bool starts = rule_name_ahead().has_value();
        at_ = start;
        return starts;
    }

    std::size_t rule_index(const std::string& name) {
        const auto [found, added] = indices_.emplace(name, grammar_.rules.size());
        if (added) {
            grammar_.rules.push_back({name, {}});
            defined_.push_back(false);
        }
        return found->second;
    }

    EbnfNode read_alternatives(int32_t depth) {
        EbnfNode alternatives;
        alternatives.kind = EbnfNode::Kind::kAlternatives;
        alternatives.children.push_back(read_sequence(depth));
        while (peek() == '|') {
            ++at_;
            skip_space();
            alternatives.children.push_back(read_sequence(depth));
        }
        return alternatives.children.size() == 1 ? std::move(alternatives.children.front()) : std::move(alternatives);
    }

    EbnfNode read_sequence(int32_t depth) {
        EbnfNode sequence;
        while (at_ < text_.size() && peek() != '|' && peek() != ')') {
            if (is_name_character(peek()) && rule_starts_here()) break;
            sequence.children.push_back(read_repeats(read_element(depth)));
            skip_space();
        }
        return sequence.children.size() == 1 ? std::move(sequence.children.front()) : std::move(sequence);
    }

    EbnfNode read_element(int32_t depth) {
        EbnfNode node;
        const char c = peek();
        if (c == '"' || c == '\'') {
            node.kind = EbnfNode::Kind::kText;
            ++at_;
            while (peek() != c) append_utf8(node.text, read_character());
            ++at_;
        } else if (c == '[') {
            read_class(node);
        } else if (c == '(') {
            if (depth >= kMaxDepth) refuse("is nested too deeply: at most " + std::to_string(kMaxDepth) + " groups");
            ++at_;
            skip_space();
            if (peek() == '=' || peek() == '!') refuse("uses a look-ahead, which cannot be enforced");
            node = read_alternatives(depth + 1);
            if (peek() != ')') refuse("must close the group with ')'");
            ++at_;
        } else if (c == '.' && (at_ + 1 >= text_.size() || !is_name_character(text_[at_ + 1]))) {
            node.kind = EbnfNode::Kind::kAnyCharacter;
            ++at_;
        } else if (is_name_character(c)) {
            const std::string name(read_name());
            if (peek() == '(') refuse("uses the macro '" + for_message(name) + "', which is not supported");
            node.kind = EbnfNode::Kind::kRule;
            node.rule = rule_index(name);
        } else {
            refuse("has a character that starts nothing here");
        }
        return node;
    }

    EbnfNode read_repeats(EbnfNode element) {
        for (bool repeated = false;; repeated = true) {
            skip_space();
            EbnfNode repeat;
            repeat.kind = EbnfNode::Kind::kRepeat;
            switch (peek()) {
                case '*': ++at_; break;
                case '+':
                    ++at_;
                    repeat.least = 1;
                    break;
                case '?':
                    ++at_;
                    repeat.most = 1;
                    break;
                case '{': read_bounds(repeat); break;
                default: return element;
            }
            // "a**" says no more than "a*", and unbounded stacks of repeats are deep trees.
            if (repeated) refuse("repeats a repetition; put it into a group");
            repeat.children.push_back(std::move(element));
            element = std::move(repeat);
        }
    }

    void read_bounds(EbnfNode& repeat) {
        ++at_;
        skip_space();
        const std::optional<int32_t> least = read_count();
        repeat.least = least.value_or(0);
        repeat.most = repeat.least;
        skip_space();
        if (peek() == ',') {
            ++at_;
            skip_space();
            repeat.most = read_count().value_or(-1);
            skip_space();
        } else if (!least) {
            refuse("must have a number of repetitions");
        }
        if (peek() != '}') refuse("must close the repetition with '}'");
        ++at_;
        if (repeat.most >= 0 && repeat.most < repeat.least)
            refuse("has repetitions whose upper bound is below the lower");
    }

    std::optional<int32_t> read_count() {
        if (peek() < '0' || peek() > '9') return std::nullopt;
        int32_t count = 0;
        while (peek() >= '0' && peek() <= '9') {
            count = count * 10 + (text_[at_++] - '0');
            if (count > kMaxRepetitions)
                refuse("asks for more than " + std::to_string(kMaxRepetitions) + " repetitions");
        }
        return count;
    }

    void read_class(EbnfNode& node) {
        node.kind = EbnfNode::Kind::kClass;
        ++at_;
        if (peek() == '^') {
            node.negated = true;
            ++at_;
        }
        while (peek() != ']') {
            const uint32_t first = read_character();
            uint32_t last = first;
            if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
                ++at_;
                last = read_character();
            }
            if (last < first) refuse("has a character range that ends before it starts");
            node.ranges.emplace_back(first, last);
        }
        ++at_;
        if (node.ranges.empty() && !node.negated) refuse("has an empty character class, which nothing matches");
        if (node.ranges.empty()) node.kind = EbnfNode::Kind::kAnyCharacter;
    }

    // One code point of a literal or class.
    uint32_t read_character() {
        if (at_ >= text_.size() || text_[at_] == '\n') refuse("has a literal or class that is not closed on its line");
        const auto lead = static_cast<unsigned char>(text_[at_++]);
        if (lead == '\\') return read_escape();
        if (lead < 0x80) return lead;
        const std::size_t more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC0 || at_ + more > text_.size()) refuse("is not valid UTF-8");
        uint32_t code_point = lead & (0x3FU >> more);
        for (std::size_t i = 0; i < more; ++i)
            code_point = code_point << 6U | (static_cast<unsigned char>(text_[at_++]) & 0x3FU);
        return code_point;
    }

    uint32_t read_escape() {
        const char letter = peek();
        ++at_;
        switch (letter) {
            case 'n': return '\n';
            case 'r': return '\r';
            case 't': return '\t';
            case 'f': return '\f';
            case 'v': return '\v';
            case 'x': return read_hex(2);
            case 'u': return read_hex(4);
            case 'U': return read_hex(8);
            default: break;
        }
        if (is_name_character(letter) && letter != '-' && letter != '.' && letter != '_')
            refuse("has an unknown escape");
        if (letter <= ' ') refuse("has an unknown escape");
        return static_cast<unsigned char>(letter);
    }

    uint32_t read_hex(int digits) {
        uint32_t value = 0;
        for (int i = 0; i < digits; ++i) {
            const char c = peek();
            const char lower = c >= 'A' && c <= 'F' ? static_cast<char>(c + ('a' - 'A')) : c;
            if (lower >= '0' && lower <= '9') {
                value = value << 4U | static_cast<uint32_t>(lower - '0');
            } else if (lower >= 'a' && lower <= 'f') {
                value = value << 4U | static_cast<uint32_t>(lower - 'a' + 10);
            } else {
                refuse("has an escape with too few hexadecimal digits");
            }
            ++at_;
        }
        if (value > kLastCodePoint || is_surrogate(value)) refuse("has an escape that is no character");
        return value;
    }

    std::string_view text_;
    std::string_view where_;
    std::size_t at_ = 0;
    EbnfGrammar grammar_;
    std::map<std::string, std::size_t> indices_;
    std::vector<bool> defined_;
};

}  // namespace

EbnfGrammar read_ebnf(std::string_view text, std::string_view where) {
    EbnfGrammar grammar = EbnfReader(text, where).read();
    if (!keep_productive_parts(grammar)) refuse_guide(where, "allows nothing: 'root' never comes to an end");
    return grammar;
}

}  // namespace edgellm
