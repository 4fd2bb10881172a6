// EBNF trees in the grammar compiler's language, with exactly their own language:
// a grammar that does not recurse becomes one regular expression; a recursive one is cut into lexemes where greedy
// reading cannot change it, and is otherwise spelled out character by character, which is slower.
#pragma once

#include <string>

#include "engine/guide/ebnf.hpp"
#include "engine/guide/lark_text.hpp"

namespace edgellm {

// Adds the grammar's rules and returns the name that stands for its root.
std::string add_ebnf(const EbnfGrammar& grammar, LarkGrammar& lark);

}  // namespace edgellm
