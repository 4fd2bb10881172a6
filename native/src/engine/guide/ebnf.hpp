// EBNF guides: the dialect with `root ::= ...`, read into a tree.
//   rule ::= alternatives          a rule goes on until the next `name ::=`; # starts a comment
//   "text" 'text' [a-z] [^a-z] .   with \n \r \t \\ \" \xHH \uHHHH \UHHHHHHHH and escaped punctuation
//   name  ( ... )  |  * + ?  {n} {n,} {,m} {n,m}
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace edgellm {

struct EbnfNode {
    enum class Kind : uint8_t { kText, kClass, kAnyCharacter, kRule, kSequence, kAlternatives, kRepeat };

    Kind kind = Kind::kSequence;                       // an empty sequence is the empty text
    std::string text;                                  // of kText
    bool negated = false;                              // of kClass
    std::vector<std::pair<uint32_t, uint32_t>> ranges; // of kClass: code points, both ends included
    std::size_t rule = 0;                              // of kRule: index into EbnfGrammar::rules
    int32_t least = 0;                                 // of kRepeat
    int32_t most = -1;                                 // of kRepeat, -1 = no bound
    std::vector<EbnfNode> children;
};

struct EbnfRule {
    std::string name;
    EbnfNode body;
};

struct EbnfGrammar {
    std::vector<EbnfRule> rules;
    std::size_t root = 0;
};

// Throws InvalidRequest (kBadGuide) with where and the line. Undefined, repeated and missing rules are errors, and so
// is a root without words; other parts that no finite text matches are left out.
EbnfGrammar read_ebnf(std::string_view text, std::string_view where);

}  // namespace edgellm
