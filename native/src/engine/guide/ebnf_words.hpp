// WordAnalysis: what is known of the words of the regular parts of an EBNF grammar. The sets may be too large, never
// too small, so that what they rule out is ruled out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/guide/character_set.hpp"
#include "engine/guide/ebnf.hpp"

namespace edgellm {

struct WordFacts {
    bool nullable = true;
    CharacterSet first;
    CharacterSet later;      // at any position but the first
    CharacterSet all;
    CharacterSet extending;  // what can come after a whole word inside a longer one
};

// Of words of left with words of right behind them.
WordFacts followed_by(const WordFacts& left, const WordFacts& right);

class WordAnalysis {
public:
    explicit WordAnalysis(const EbnfGrammar& grammar) : grammar_(grammar), of_rules_(grammar.rules.size()) {}

    WordFacts describe(const EbnfNode& node);  // which leads to no rule that recurses

private:
    WordFacts of_alternatives(const EbnfNode& node);

    const EbnfGrammar& grammar_;
    std::vector<std::optional<WordFacts>> of_rules_;
};

}  // namespace edgellm
