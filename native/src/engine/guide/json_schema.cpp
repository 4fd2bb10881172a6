#include "engine/guide/json_schema.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <unordered_set>

#include "engine/guide/bad_guide.hpp"
#include "engine/guide/lark_text.hpp"

namespace edgellm {
namespace {

constexpr std::size_t kMaxSchemas = 8192;
// Compilation takes time with the square of these.
constexpr std::size_t kMaxPropertiesOfOneObject = 1024;
constexpr std::size_t kMaxPatternProperties = 64;
// A step of 1,000,003 took 18 s and 300 MB to compile. Steps can meet in one number, so their common multiple counts.
constexpr uint64_t kMaxCommonStep = 10'000;

// White space between tokens is free but bounded: small models otherwise go on with it until the answer is cut.
constexpr std::string_view kCompilerOptions = R"("x-guidance":{"whitespace_pattern":"[\\x20\\x0A\\x0D\\x09]{1,64}"})";

constexpr std::array<std::string_view, 16> kUnenforced = {"not",
                                                          "if",
                                                          "then",
                                                          "else",
                                                          "dependentRequired",
                                                          "dependentSchemas",
                                                          "dependencies",
                                                          "propertyNames",
                                                          "unevaluatedItems",
                                                          "unevaluatedProperties",
                                                          "uniqueItems",
                                                          "contains",
                                                          "minContains",
                                                          "maxContains",
                                                          "$dynamicRef",
                                                          "$recursiveRef"};
constexpr std::array<std::string_view, 4> kNamedSchemas = {"properties", "patternProperties", "$defs", "definitions"};
constexpr std::array<std::string_view, 4> kSchemaLists = {"prefixItems", "allOf", "anyOf", "oneOf"};
constexpr std::array<std::string_view, 3> kSingleSchemas = {"items", "additionalItems", "additionalProperties"};
constexpr std::array<std::string_view, 6> kCounts = {"minLength", "maxLength",     "minItems",
                                                     "maxItems",  "minProperties", "maxProperties"};
constexpr std::array<std::string_view, 5> kNumbers = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
                                                      "multipleOf"};
constexpr std::array<std::string_view, 7> kTypes = {"null",   "boolean", "integer", "number",
                                                    "string", "array",   "object"};
constexpr std::array<std::string_view, 10> kFormats = {"date-time", "time", "date", "duration", "email",
                                                       "hostname",  "ipv4", "ipv6", "uuid",     "uri"};

template <std::size_t Size>
bool holds(const std::array<std::string_view, Size>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_number(const JsonValue& value) {
    return value.kind == JsonValue::Kind::kScalar &&
           (value.source[0] == '-' || (value.source[0] >= '0' && value.source[0] <= '9'));
}

bool is_count(const JsonValue& value) {
    return is_number(value) && value.source.size() < 16 &&
           value.source.find_first_not_of("0123456789") == std::string_view::npos;
}

// The digits of a step without zeros at either end: powers of ten cost nothing. 0 when there are too many of them.
uint64_t step_digits(std::string_view number) {
    uint64_t digits = 0;
    for (const char c : number.substr(0, number.find_first_of("eE"))) {
        if (c >= '0' && c <= '9') digits = digits * 10 + static_cast<uint64_t>(c - '0');
        if (digits > kMaxCommonStep * 1'000'000'000) return 0;
    }
    while (digits > 0 && digits % 10 == 0) digits /= 10;
    return digits;
}

bool is_type_name(const JsonValue& value) { return value.is_string() && holds(kTypes, value.text); }

// What a keyword's value must be, or null when it is well formed or none of these.
const char* demanded_form(const std::string& keyword, const JsonValue& value) {
    const bool is_list = value.is_array() && !value.items.empty();
    const auto all = [&](const auto& fits) { return std::all_of(value.items.begin(), value.items.end(), fits); };
    if (holds(kCounts, keyword)) return is_count(value) ? nullptr : "must be a whole number that is not negative";
    if (holds(kNumbers, keyword)) return is_number(value) || value.is_bool() ? nullptr : "must be a number";
    if (keyword == "type") {
        return is_type_name(value) || (is_list && all(is_type_name)) ? nullptr
                                                                     : "must be a type of JSON, or a list of them";
    }
    if (keyword == "enum") return is_list ? nullptr : "must be a list of values that is not empty";
    if (keyword == "required") {
        return value.is_array() && all([](const JsonValue& name) { return name.is_string(); })
                   ? nullptr
                   : "must be a list of names";
    }
    if (keyword == "pattern") return value.is_string() ? nullptr : "must be a string";
    return nullptr;
}

// "%7Ea~1b" of a JSON pointer inside a URI fragment.
std::optional<std::string> decode_pointer_segment(std::string_view segment) {
    std::string bytes;
    for (std::size_t i = 0; i < segment.size(); ++i) {
        if (segment[i] != '%') {
            bytes += segment[i];
            continue;
        }
        const auto hex = [](char c) {
            constexpr std::string_view kDigits = "0123456789abcdef";
            return kDigits.find(static_cast<char>(c >= 'A' && c <= 'F' ? c + ('a' - 'A') : c));
        };
        if (i + 2 >= segment.size() || hex(segment[i + 1]) > 15 || hex(segment[i + 2]) > 15) return std::nullopt;
        bytes += static_cast<char>(hex(segment[i + 1]) * 16 + hex(segment[i + 2]));
        i += 2;
    }
    std::string decoded;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] != '~') {
            decoded += bytes[i];
            continue;
        }
        if (i + 1 >= bytes.size() || (bytes[i + 1] != '0' && bytes[i + 1] != '1')) return std::nullopt;
        decoded += bytes[++i] == '0' ? '~' : '/';
    }
    return decoded;
}

class SchemaChecker {
public:
    explicit SchemaChecker(const JsonValue& root) : root_(root) {}

    void check_all(const std::string& where) {
        check(root_, where);
        // References may lead to places that are no schema by themselves; each new one may hold more of them.
        while (!references_.empty()) {
            const Reference reference = std::move(references_.back());
            references_.pop_back();
            const JsonValue* target = resolve(reference.pointer);
            if (target == nullptr) refuse_guide(reference.path, "points to nothing inside the schema");
            if (!checked_.contains(target)) check(*target, where + reference.pointer.substr(1));
        }
    }

    std::vector<SchemaPlace> take_places() { return std::move(places_); }

private:
    struct Reference {
        std::string pointer;
        std::string path;
    };

    void check(const JsonValue& schema, const std::string& path) {
        checked_.insert(&schema);
        if (schema.is_bool()) return;
        if (!schema.is_object()) refuse_guide(path, "must be a schema: an object, true or false");
        if (checked_.size() > kMaxSchemas) {
            refuse_guide(path, "makes the schema too large: at most " + std::to_string(kMaxSchemas) + " subschemas");
        }
        for (const auto& [keyword, value] : schema.members) check_keyword(schema, keyword, value, path + "." + keyword);
    }

    void check_keyword(const JsonValue& schema, const std::string& keyword, const JsonValue& value,
                       const std::string& path) {
        if (holds(kUnenforced, keyword)) refuse_guide(path, "cannot be enforced; leave it out");
        if (keyword == "x-guidance") refuse_guide(path, "is not taken from requests; leave it out");
        if (keyword == "$schema" && &schema != &root_) refuse_guide(path, "is taken at the top of the schema only");
        if (const char* demanded = demanded_form(keyword, value)) refuse_guide(path, demanded);
        if (keyword == "multipleOf") check_step(value, path);
        if (keyword == "$ref") {
            if (!value.is_string() || (value.text != "#" && !value.text.starts_with("#/"))) {
                refuse_guide(path, "must be a JSON pointer into this schema, such as #/$defs/name");
            }
            references_.push_back({value.text, path});
        } else if (keyword == "format") {
            if (!value.is_string() || !holds(kFormats, value.text)) {
                refuse_guide(path, "is a format that cannot be enforced; use a pattern");
            }
        } else if (keyword == "prefixItems") {
            const JsonValue* items = schema.find("items");
            if (schema.find("additionalItems") != nullptr || (items != nullptr && items->is_array())) {
                refuse_guide(path, "cannot be enforced beside additionalItems or a list of items; use items");
            }
        }
        if (keyword == "pattern" || keyword == "oneOf" || keyword == "patternProperties" ||
            keyword == "minProperties" || keyword == "maxProperties") {
            places_.push_back({path, keyword, value.text});
        }
        if (holds(kNamedSchemas, keyword)) {
            check_named(keyword, value, path);
        } else if (holds(kSchemaLists, keyword) || (keyword == "items" && value.is_array())) {
            if (!value.is_array()) refuse_guide(path, "must be an array of schemas");
            for (std::size_t i = 0; i < value.items.size(); ++i) {
                check(value.items[i], path + "[" + std::to_string(i) + "]");
            }
        } else if (holds(kSingleSchemas, keyword)) {
            check(value, path);
        }
    }

    void check_step(const JsonValue& value, const std::string& path) {
        const std::string_view mantissa = value.source.substr(0, value.source.find_first_of("eE"));
        if (mantissa.starts_with('-') || mantissa.find_first_of("123456789") == std::string_view::npos) {
            refuse_guide(path, "must be greater than 0");
        }
        const uint64_t digits = step_digits(value.source);
        if (digits > 0 && digits <= kMaxCommonStep) common_step_ = std::lcm(common_step_, digits);
        if (digits == 0 || digits > kMaxCommonStep || common_step_ > kMaxCommonStep) {
            refuse_guide(path, "cannot be enforced: the digits of all steps, together, may go up to " +
                                   std::to_string(kMaxCommonStep));
        }
    }

    void check_named(const std::string& keyword, const JsonValue& value, const std::string& path) {
        if (!value.is_object()) refuse_guide(path, "must be an object of schemas");
        if (keyword == "properties" && value.members.size() > kMaxPropertiesOfOneObject) {
            refuse_guide(path, "has too many members: at most " + std::to_string(kMaxPropertiesOfOneObject));
        }
        if (keyword == "patternProperties") {
            pattern_property_count_ += value.members.size();
            if (pattern_property_count_ > kMaxPatternProperties) {
                refuse_guide(path, "makes too many of them: at most " + std::to_string(kMaxPatternProperties));
            }
        }
        for (const auto& [name, one] : value.members) check(one, path + "." + name);
    }

    const JsonValue* resolve(std::string_view pointer) const {
        const JsonValue* value = &root_;
        pointer.remove_prefix(1);  // '#'
        while (!pointer.empty() && value != nullptr) {
            pointer.remove_prefix(1);  // '/'
            const std::size_t size = std::min(pointer.find('/'), pointer.size());
            const std::optional<std::string> name = decode_pointer_segment(pointer.substr(0, size));
            pointer.remove_prefix(size);
            if (!name) return nullptr;
            if (value->is_array()) {
                const bool is_index =
                    !name->empty() && name->size() < 9 && name->find_first_not_of("0123456789") == std::string::npos;
                const std::size_t index = is_index ? std::stoul(*name) : value->items.size();
                value = index < value->items.size() ? &value->items[index] : nullptr;
            } else {
                value = value->find(*name);
            }
        }
        return value;
    }

    const JsonValue& root_;
    std::unordered_set<const JsonValue*> checked_;
    std::vector<Reference> references_;
    std::vector<SchemaPlace> places_;
    std::size_t pattern_property_count_ = 0;
    uint64_t common_step_ = 1;
};

// $schema is left out: the compiler would read some keywords differently, or not at all, under older drafts.
std::string compiler_text(const JsonValue& root) {
    std::string text = concat({"{", kCompilerOptions});
    for (const auto& [name, value] : root.members) {
        if (name != "$schema") text += concat({",", quote_json(name), ":", value.source});
    }
    text += '}';
    return text;
}

}  // namespace

CheckedSchema check_json_schema(const JsonValue& schema, std::string_view where) {
    if (schema.source == "false") refuse_guide(where, "allows nothing");
    SchemaChecker checker(schema);
    checker.check_all(std::string(where));
    return {compiler_text(schema), checker.take_places()};
}

CheckedSchema any_object_schema() { return {concat({"{", kCompilerOptions, R"(,"type":"object"})"}), {}}; }

}  // namespace edgellm
