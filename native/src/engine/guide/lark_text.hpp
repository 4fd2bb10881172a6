// Pieces of grammar text in the grammar compiler's language, a variant of Lark: quoting, and a grammar under
// construction.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace edgellm {

std::string concat(std::initializer_list<std::string_view> parts);
std::string quote_json(std::string_view text);        // also a Lark string literal; text is valid UTF-8
std::string quote_for_regex(std::string_view text);   // matches exactly that text

// A regular expression between slashes. \d and \w mean ASCII, as in the contract's own grammar engine.
std::string lark_regex(std::string_view expression);

// Text of any kind, line breaks too.
inline constexpr std::string_view kAnyText = "/(?s:.*)/";

// Rules of one grammar; names never clash.
class LarkGrammar {
public:
    // Returns the new rule's name. Terminals are single regular expressions; other rules may recurse.
    std::string add_rule(const std::string& body) { return add(new_rule_name(), body); }
    std::string add_terminal(const std::string& body) { return add(new_terminal_name(), body); }
    // A terminal expression after which text is cut as early as it can be.
    std::string add_lazy_rule(const std::string& body);

    std::string new_rule_name() { return concat({"r", std::to_string(next_++)}); }
    std::string new_terminal_name() { return concat({"T", std::to_string(next_++)}); }
    std::string add(const std::string& name, const std::string& body);

    std::string finish(const std::string& start) const;

private:
    std::string rules_;
    uint64_t next_ = 0;
};

}  // namespace edgellm
