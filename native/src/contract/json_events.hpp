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
    virtual void at(std::size_t /*byte*/) {}         // where the value that is told next begins
    virtual void begin_object() {}
    virtual void begin_array() {}
    virtual void end(std::size_t /*past*/) {}        // of the innermost object or array; past its last byte
    virtual void key(const std::string& /*name*/) {} // unescaped
    virtual void string(const std::string& /*value*/, std::size_t /*past*/) {}  // unescaped
    virtual void scalar(std::size_t /*past*/) {}     // number, true, false, null
};

// The byte where the text stops being JSON, or nullopt when all of it is one JSON value.
std::optional<std::size_t> read_json(std::string_view text, JsonHandler& handler);

}  // namespace edgellm
