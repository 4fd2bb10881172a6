// JSON schemas before they reach the grammar compiler: what it would enforce only in part, or silently not at all,
// is refused here with its path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/guide/json_document.hpp"

namespace edgellm {

// A place that the compiler may still refuse, so that its refusal can be given a path.
struct SchemaPlace {
    std::string path;
    std::string keyword;
    std::string value;   // of a pattern
};

struct CheckedSchema {
    std::string text;                  // for the compiler, with this runtime's rules of white space
    std::vector<SchemaPlace> places;
};

// Throws InvalidRequest (kBadGuide) that names keyword and path; where is the path of the schema itself.
CheckedSchema check_json_schema(const JsonValue& schema, std::string_view where);

// The schema of any JSON object.
CheckedSchema any_object_schema();

}  // namespace edgellm
