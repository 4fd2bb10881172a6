// GuideGrammar: what a guide asks for, in the grammar compiler's terms.
#pragma once

#include <string>
#include <vector>

#include "contract/types.hpp"
#include "engine/guide/json_schema.hpp"
#include "engine/guide/structural_tag.hpp"

namespace edgellm {

struct GuideGrammar {
    std::string kind;                  // "json" or "lark"
    std::string text;
    std::string field;                 // "guided_decoding.regex", for messages
    std::vector<SchemaPlace> places;   // that the compiler may still refuse
};

// Throws InvalidRequest (kBadGuide).
GuideGrammar make_guide_grammar(const GuidedDecodingParams& params, const SpecialTokens& specials);

}  // namespace edgellm
