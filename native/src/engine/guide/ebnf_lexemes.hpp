// Cuts the recursive rules of an EBNF grammar into lexemes: the longest pieces that do not recurse, each a regular
// expression. The grammar compiler reads lexemes greedily, so a piece that could eat the beginning of what follows
// it changes the language; lexemes_are_exact tells when none can.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/guide/ebnf.hpp"

namespace edgellm {

// A rule's body over lexemes.
struct LexemeOutline {
    enum class Kind : uint8_t { kLexeme, kRule, kSequence, kAlternatives, kRepeat };

    Kind kind = Kind::kSequence;
    std::size_t index = 0;                  // of a lexeme, or of a rule of the grammar
    int32_t least = 0;                      // of kRepeat
    int32_t most = -1;                      // of kRepeat, -1 = no bound
    std::vector<LexemeOutline> children;
};

struct LexemeCut {
    std::vector<bool> regular;              // by rule: neither recurses nor leads to recursion
    std::vector<EbnfNode> lexemes;
    std::vector<LexemeOutline> outlines;    // by rule; empty for regular ones
};

LexemeCut cut_into_lexemes(const EbnfGrammar& grammar);

// True only if the greedy reading of the cut accepts exactly the grammar's language. Requires a root that recurses.
bool lexemes_are_exact(const EbnfGrammar& grammar, const LexemeCut& cut);

}  // namespace edgellm
