// JSON events: reads strict JSON once, without recursion, and tells a handler what it meets.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace edgellm {

class JsonHandler {
public:
    virtual ~JsonHandler() = default;
    virtual void begin_object() {}
    virtual void begin_array() {}
    virtual void end() {}                            // of the innermost object or array
    virtual void key(const std::string& /*name*/) {} // unescaped
    virtual void string() {}
    virtual void scalar() {}                         // number, true, false, null
};

// The byte where the text stops being JSON, or nullopt when all of it is one JSON value.
std::optional<std::size_t> read_json(std::string_view text, JsonHandler& handler);

}  // namespace edgellm
