#include "engine/guide/json_document.hpp"

#include "contract/json_events.hpp"
#include "engine/guide/bad_guide.hpp"

namespace edgellm {
namespace {

class DocumentBuilder final : public JsonHandler {
public:
    DocumentBuilder(std::string_view text, std::string_view where) : text_(text), where_(where) {}

    void at(std::size_t byte) override { begin_ = byte; }
    void begin_object() override { open(JsonValue::Kind::kObject); }
    void begin_array() override { open(JsonValue::Kind::kArray); }
    void key(const std::string& name) override { open_.back().next_name = name; }
    void end(std::size_t past) override {
        Open closed = std::move(open_.back());
        open_.pop_back();
        closed.value.source = text_.substr(closed.begin, past - closed.begin);
        attach(std::move(closed.value));
    }
    void string(const std::string& value, std::size_t past) override {
        JsonValue made = leaf(JsonValue::Kind::kString, past);
        made.text = value;
        attach(std::move(made));
    }
    void scalar(std::size_t past) override { attach(leaf(JsonValue::Kind::kScalar, past)); }

    JsonValue take() { return std::move(root_); }

private:
    struct Open {
        JsonValue value;
        std::size_t begin;
        std::string next_name;
    };

    void open(JsonValue::Kind kind) {
        if (open_.size() >= kMaxJsonDepth) {
            refuse_guide(where_, "is nested too deeply: at most " + std::to_string(kMaxJsonDepth) + " levels");
        }
        Open opened{{}, begin_, {}};
        opened.value.kind = kind;
        open_.push_back(std::move(opened));
    }
    JsonValue leaf(JsonValue::Kind kind, std::size_t past) const {
        JsonValue made;
        made.kind = kind;
        made.source = text_.substr(begin_, past - begin_);
        return made;
    }
    void attach(JsonValue value) {
        if (open_.empty()) {
            root_ = std::move(value);
        } else if (open_.back().value.is_object()) {
            open_.back().value.members.emplace_back(open_.back().next_name, std::move(value));
        } else {
            open_.back().value.items.push_back(std::move(value));
        }
    }

    std::string_view text_;
    std::string_view where_;
    std::size_t begin_ = 0;
    std::vector<Open> open_;
    JsonValue root_;
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
        if (member->first == name) return &member->second;
    }
    return nullptr;
}

JsonValue read_json_document(std::string_view text, std::string_view where) {
    DocumentBuilder builder(text, where);
    if (const auto byte = read_json(text, builder)) {
        refuse_guide(where, "is not valid JSON at byte " + std::to_string(*byte));
    }
    return builder.take();
}

}  // namespace edgellm
