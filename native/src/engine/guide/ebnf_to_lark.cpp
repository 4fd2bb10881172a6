#include "engine/guide/ebnf_to_lark.hpp"

#include <algorithm>
#include <vector>

#include "engine/guide/ebnf_lexemes.hpp"

namespace edgellm {
namespace {

using Kind = EbnfNode::Kind;

std::string class_character(uint32_t code_point) {
    constexpr std::string_view kHexDigits = "0123456789abcdef";
    std::string hex;
    do {
        hex.insert(hex.begin(), kHexDigits[code_point % 16]);
        code_point /= 16;
    } while (code_point > 0);
    return concat({"\\x{", hex, "}"});
}

std::string class_expression(const EbnfNode& node) {
    std::string text = node.negated ? "/[^" : "/[";
    for (const auto& [first, last] : node.ranges) {
        text += class_character(first);
        if (last != first) text += concat({"-", class_character(last)});
    }
    text += "]/";
    return text;
}

// Each code point a literal of its own.
std::string spelled_out(const std::string& text) {
    std::string body;
    for (std::size_t at = 0; at < text.size();) {
        std::size_t end = at + 1;
        while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) ++end;
        body += concat({body.empty() ? "" : " ", quote_json(std::string_view(text).substr(at, end - at))});
        at = end;
    }
    return body.empty() ? "\"\"" : body;
}

template <typename Node>
std::string repeat_suffix(const Node& node) {
    if (node.most < 0 && node.least <= 1) return node.least == 0 ? "*" : "+";
    if (node.most == 1 && node.least == 0) return "?";
    return concat({"{", std::to_string(node.least), ",", node.most < 0 ? "" : std::to_string(node.most), "}"});
}

template <typename Nodes, typename Translate>
std::string join(const Nodes& nodes, std::string_view separator, const Translate& translate) {
    std::string text;
    for (const auto& node : nodes) text += concat({text.empty() ? "" : separator, "(", translate(node), ")"});
    return text.empty() ? "\"\"" : text;
}

class Translator {
public:
    Translator(const EbnfGrammar& grammar, LarkGrammar& lark)
        : grammar_(grammar), lark_(lark), cut_(cut_into_lexemes(grammar)) {}

    std::string translate() {
        const bool recursive = !cut_.regular[grammar_.root];
        const bool spelled = recursive && !lexemes_are_exact(grammar_, cut_);
        for (std::size_t i = 0; i < grammar_.rules.size(); ++i) {
            names_.push_back(spelled || !cut_.regular[i] ? lark_.new_rule_name() : lark_.new_terminal_name());
        }
        for (const EbnfNode& lexeme : cut_.lexemes) {
            lexemes_.push_back(spelled ? "" : lark_.add_terminal(body(lexeme, false)));
        }
        for (std::size_t i = 0; i < grammar_.rules.size(); ++i) {
            const bool outlined = !spelled && !cut_.regular[i];
            lark_.add(names_[i], outlined ? body(cut_.outlines[i]) : body(grammar_.rules[i].body, spelled));
        }
        return names_[grammar_.root];
    }

private:
    // A terminal's body, or, spelled, a rule's body in which every character is a literal of its own.
    std::string body(const EbnfNode& node, bool spelled) const {
        const auto child_body = [&](const EbnfNode& child) { return body(child, spelled); };
        switch (node.kind) {
            case Kind::kText: return spelled ? spelled_out(node.text) : quote_json(node.text);
            case Kind::kClass: return class_expression(node);
            case Kind::kAnyCharacter: return "/(?s:.)/";
            case Kind::kRule: return names_[node.rule];
            case Kind::kSequence: return join(node.children, " ", child_body);
            case Kind::kAlternatives: return join(node.children, " | ", child_body);
            case Kind::kRepeat: return concat({"(", child_body(node.children[0]), ")", repeat_suffix(node)});
        }
        return "";
    }

    std::string body(const LexemeOutline& node) const {
        const auto child_body = [&](const LexemeOutline& child) { return body(child); };
        switch (node.kind) {
            case LexemeOutline::Kind::kLexeme: return lexemes_[node.index];
            case LexemeOutline::Kind::kRule: return names_[node.index];
            case LexemeOutline::Kind::kSequence: return join(node.children, " ", child_body);
            case LexemeOutline::Kind::kAlternatives: return join(node.children, " | ", child_body);
            case LexemeOutline::Kind::kRepeat:
                return concat({"(", child_body(node.children[0]), ")", repeat_suffix(node)});
        }
        return "";
    }

    const EbnfGrammar& grammar_;
    LarkGrammar& lark_;
    LexemeCut cut_;
    std::vector<std::string> names_;
    std::vector<std::string> lexemes_;
};

}  // namespace

std::string add_ebnf(const EbnfGrammar& grammar, LarkGrammar& lark) { return Translator(grammar, lark).translate(); }

}  // namespace edgellm
