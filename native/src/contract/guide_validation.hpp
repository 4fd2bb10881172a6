// Guide validation: what can be said about a guide before any grammar is compiled.
#pragma once

#include <cstddef>
#include <string>

#include "contract/types.hpp"

namespace edgellm {

inline constexpr std::size_t kMaxGuideBytes = 131072;

// Why the guide is refused, naming its kind and the cause; "" when it may go on to the grammar compiler.
// Regex and EBNF syntax, and schema keywords that the compiler refuses by itself, are the compiler's to judge.
std::string refused_guide_reason(const GuidedDecodingParams& params);

}  // namespace edgellm
