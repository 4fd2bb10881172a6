// JsonValue: a whole JSON text in memory, with the source text of every part, so that parts can be passed on as
// they were written. Depth is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace edgellm {

// The grammar compiler reads JSON recursively and refuses more.
inline constexpr std::size_t kMaxJsonDepth = 100;

struct JsonValue {
    enum class Kind : uint8_t { kScalar, kString, kArray, kObject };  // scalars: numbers, true, false, null

    Kind kind = Kind::kScalar;
    std::string_view source;
    std::string text;                                        // of a string, unescaped
    std::vector<JsonValue> items;                            // of an array
    std::vector<std::pair<std::string, JsonValue>> members;  // of an object, in order, repeated names and all

    bool is_object() const { return kind == Kind::kObject; }
    bool is_array() const { return kind == Kind::kArray; }
    bool is_string() const { return kind == Kind::kString; }
    bool is_bool() const { return source == "true" || source == "false"; }

    // The last member of that name, as readers of JSON have it; null when there is none.
    const JsonValue* find(std::string_view name) const;
};

// text outlives the value. Throws InvalidRequest (kBadGuide) that starts with where.
JsonValue read_json_document(std::string_view text, std::string_view where);

}  // namespace edgellm
