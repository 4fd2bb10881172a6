// Structural tags: free text in which tagged parts follow a format, such as calls of tools.
// Taken are {"type": "structural_tag", "format": ...} with the formats const_string, json_schema, regex, grammar,
// any_text, sequence, or, tag, triggered_tags and tags_with_separator, and the older form with "structures" and
// "triggers". Anything else is refused by its name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "engine/guide/json_document.hpp"
#include "engine/guide/json_schema.hpp"
#include "engine/guide/lark_text.hpp"

namespace edgellm {

// Text of special tokens, which no text matches: in grammars they stand by id.
using SpecialTokens = std::map<std::string, int32_t, std::less<>>;

// Adds the tag's rules and returns the name of the start; places are what the compiler may still refuse.
// Throws InvalidRequest (kBadGuide) with the path.
std::string add_structural_tag(const JsonValue& tag, std::string_view where, const SpecialTokens& specials,
                               LarkGrammar& lark, std::vector<SchemaPlace>& places);

}  // namespace edgellm
