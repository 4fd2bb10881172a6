// Takes out of a grammar what no finite text can match, so that no answer is led into a dead end.
#pragma once

#include "engine/guide/ebnf.hpp"

namespace edgellm {

// False when nothing is left of the root.
bool keep_productive_parts(EbnfGrammar& grammar);

}  // namespace edgellm
