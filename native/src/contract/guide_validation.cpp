#include "contract/guide_validation.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "contract/json_events.hpp"

namespace edgellm {

namespace {

template <std::size_t Size>
bool holds(const std::array<std::string_view, Size>& names, std::string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

// Keywords that no grammar of this runtime enforces.
constexpr std::array<std::string_view, 4> kUnenforced = {"uniqueItems", "contains", "minContains", "maxContains"};
// Keywords whose objects have names as keys, not keywords.
constexpr std::array<std::string_view, 5> kNameMaps = {"properties", "patternProperties", "$defs", "definitions",
                                                       "dependentSchemas"};
// Keywords whose values are plain data.
constexpr std::array<std::string_view, 4> kPlainData = {"const", "enum", "default", "examples"};

// Finds the first unenforced keyword that stands where a schema has keywords.
class SchemaKeywords : public JsonHandler {
public:
    const std::string& unenforced() const { return unenforced_; }

    void begin_object() override { open_.push_back(next_); }
    void begin_array() override { open_.push_back(next_); }
    void end(std::size_t /*past*/) override {
        open_.pop_back();
        next_ = open_.empty() ? Position::kSchema : open_.back();
    }
    void key(const std::string& name) override {
        switch (open_.back()) {
            case Position::kNames:
                next_ = Position::kSchema;
                return;
            case Position::kData:
                next_ = Position::kData;
                return;
            case Position::kSchema:
                break;
        }
        if (unenforced_.empty() && holds(kUnenforced, name)) {
            unenforced_ = name;
        }
        next_ = holds(kNameMaps, name) ? Position::kNames : holds(kPlainData, name) ? Position::kData : Position::kSchema;
    }

private:
    enum class Position : uint8_t { kSchema, kNames, kData };

    Position next_ = Position::kSchema;  // what the value that comes next is
    std::vector<Position> open_;
    std::string unenforced_;
};

// Tells whether the text is an array of at least one string and nothing else.
class StringArray : public JsonHandler {
public:
    bool is_string_array() const { return is_array_ && string_count_ > 0 && other_count_ == 0; }

    void begin_object() override { open_other(); }
    void begin_array() override {
        if (depth_ == 0) {
            is_array_ = true;
        } else {
            ++other_count_;
        }
        ++depth_;
    }
    void end(std::size_t /*past*/) override { --depth_; }
    void string(const std::string& /*value*/, std::size_t /*past*/) override { ++(depth_ == 1 && is_array_ ? string_count_ : other_count_); }
    void scalar(std::size_t /*past*/) override { ++other_count_; }

private:
    void open_other() {
        ++other_count_;
        ++depth_;
    }

    bool is_array_ = false;
    int64_t depth_ = 0;
    int64_t string_count_ = 0;
    int64_t other_count_ = 0;
};

std::string not_json(const std::string& field, std::size_t byte) {
    return field + " is not valid JSON at byte " + std::to_string(byte);
}

std::string check_schema(const std::string& field, const std::string& guide) {
    SchemaKeywords keywords;
    if (const auto byte = read_json(guide, keywords)) {
        return not_json(field, *byte);
    }
    if (!keywords.unenforced().empty()) {
        return field + " uses '" + keywords.unenforced() + "', which cannot be enforced; leave it out";
    }
    return "";
}

std::string check_choices(const std::string& field, const std::string& guide) {
    StringArray choices;
    if (const auto byte = read_json(guide, choices)) {
        return not_json(field, *byte);
    }
    return choices.is_string_array() ? "" : field + " must be a non-empty array of strings";
}

std::string check_json(const std::string& field, const std::string& guide) {
    JsonHandler nothing;
    const auto byte = read_json(guide, nothing);
    return byte ? not_json(field, *byte) : "";
}

const char* guide_name(GuideType type) {
    switch (type) {
        case GuideType::kJsonObject: return "json_object";
        case GuideType::kJsonSchema: return "json_schema";
        case GuideType::kRegex: return "regex";
        case GuideType::kEbnf: return "ebnf";
        case GuideType::kStructuralTag: return "structural_tag";
        case GuideType::kChoice: return "choice";
    }
    return "type";
}

}  // namespace

std::string refused_guide_reason(const GuidedDecodingParams& params) {
    const std::string field = std::string("guided_decoding.") + guide_name(params.type);
    if (params.guide.size() > kMaxGuideBytes) {
        return field + " is too large: " + std::to_string(params.guide.size()) + " bytes, at most " +
               std::to_string(kMaxGuideBytes);
    }
    if (params.type == GuideType::kJsonObject) {
        return "";
    }
    if (params.guide.empty()) {
        return field + " must not be empty";
    }
    switch (params.type) {
        case GuideType::kJsonSchema: return check_schema(field, params.guide);
        case GuideType::kStructuralTag: return check_json(field, params.guide);
        case GuideType::kChoice: return check_choices(field, params.guide);
        case GuideType::kJsonObject:
        case GuideType::kRegex:
        case GuideType::kEbnf: return "";
    }
    return field + " is not a guide type";
}

}  // namespace edgellm
