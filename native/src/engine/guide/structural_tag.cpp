#include "engine/guide/structural_tag.hpp"

#include <algorithm>
#include <vector>

#include "engine/guide/bad_guide.hpp"
#include "engine/guide/ebnf_to_lark.hpp"

namespace edgellm {
namespace {

class TagTranslator {
public:
    TagTranslator(const SpecialTokens& specials, LarkGrammar& lark, std::vector<SchemaPlace>& places)
        : specials_(specials), lark_(lark), places_(places) {}

    std::string translate(const JsonValue& tag, const std::string& where) {
        if (!tag.is_object()) refuse_guide(where, "must be an object");
        if (const JsonValue* type = tag.find("type");
            type != nullptr && (!type->is_string() || type->text != "structural_tag")) {
            refuse_guide(where + ".type", "must be structural_tag");
        }
        if (const JsonValue* format = tag.find("format")) {
            only_members(tag, {"type", "format"}, where);
            return lark_.add_rule(format_body(*format, where + ".format", true));
        }
        only_members(tag, {"type", "structures", "triggers"}, where);
        Tags tags;
        const JsonValue& structures = require_array(tag, "structures", where);
        for (std::size_t i = 0; i < structures.items.size(); ++i) {
            const std::string path = where + ".structures[" + std::to_string(i) + "]";
            const JsonValue& one = structures.items[i];
            if (!one.is_object()) refuse_guide(path, "must be an object");
            only_members(one, {"type", "begin", "schema", "end"}, path);
            tags.push_back({require_text(one, "begin", path), json_body(require(one, "schema", path), path + ".schema"),
                            literal(require_text(one, "end", path))});
        }
        return lark_.add_rule(triggered_body(tags, read_triggers(tag, where), false, false, where));
    }

private:
    struct Tag {
        std::string begin;
        std::string content;  // grammar text
        std::string end;      // grammar text
    };
    using Tags = std::vector<Tag>;

    static void only_members(const JsonValue& object, const std::vector<std::string_view>& known,
                             const std::string& path) {
        for (const auto& [name, value] : object.members) {
            if (std::find(known.begin(), known.end(), name) == known.end()) {
                refuse_guide(path + "." + name, "is not supported; leave it out");
            }
        }
    }
    static const JsonValue& require(const JsonValue& object, std::string_view name, const std::string& path) {
        const JsonValue* value = object.find(name);
        if (value == nullptr) refuse_guide(path + "." + std::string(name), "is missing");
        return *value;
    }
    static const std::string& require_text(const JsonValue& object, std::string_view name, const std::string& path) {
        const JsonValue& value = require(object, name, path);
        if (!value.is_string()) refuse_guide(path + "." + std::string(name), "must be a string");
        return value.text;
    }
    static const JsonValue& require_array(const JsonValue& object, std::string_view name, const std::string& path) {
        const JsonValue& value = require(object, name, path);
        if (!value.is_array() || value.items.empty())
            refuse_guide(path + "." + std::string(name), "must be a non-empty array");
        return value;
    }
    static bool flag(const JsonValue& object, std::string_view name, const std::string& path) {
        const JsonValue* value = object.find(name);
        if (value == nullptr) return false;
        if (!value->is_bool()) refuse_guide(path + "." + std::string(name), "must be true or false");
        return value->source == "true";
    }
    static std::vector<std::string> read_triggers(const JsonValue& object, const std::string& path) {
        std::vector<std::string> triggers;
        for (const JsonValue& trigger : require_array(object, "triggers", path).items) {
            if (!trigger.is_string() || trigger.text.empty())
                refuse_guide(path + ".triggers", "must hold non-empty strings");
            triggers.push_back(trigger.text);
        }
        return triggers;
    }

    // Grammar text of one format. last: nothing follows it, so that free text may go on to the end.
    std::string format_body(const JsonValue& format, const std::string& path, bool last) {
        if (!format.is_object()) refuse_guide(path, "must be an object");
        const std::string& type = require_text(format, "type", path);
        if (type == "const_string") {
            only_members(format, {"type", "value"}, path);
            return literal(require_text(format, "value", path));
        }
        if (type == "json_schema") {
            only_members(format, {"type", "json_schema"}, path);
            return json_body(require(format, "json_schema", path), path + ".json_schema");
        }
        if (type == "regex") {
            only_members(format, {"type", "pattern"}, path);
            const std::string& pattern = require_text(format, "pattern", path);
            if (pattern.empty()) refuse_guide(path + ".pattern", "must not be empty");
            places_.push_back({path + ".pattern", "pattern", pattern});
            return lark_.add_terminal(lark_regex(pattern));
        }
        if (type == "grammar") {
            only_members(format, {"type", "grammar"}, path);
            return add_ebnf(read_ebnf(require_text(format, "grammar", path), path + ".grammar"), lark_);
        }
        if (type == "any_text") {
            only_members(format, {"type"}, path);
            if (!last) refuse_guide(path, "of type any_text must come last or fill a tag");
            return std::string(kAnyText);
        }
        if (type == "sequence") return sequence_body(format, path, last);
        if (type == "or") return or_body(format, path, last);
        if (type == "tag") return tag_body(read_tag(format, path));
        if (type == "triggered_tags") {
            if (!last) refuse_guide(path, "of type triggered_tags must come last");
            only_members(format, {"type", "triggers", "tags", "at_least_one", "stop_after_first"}, path);
            return triggered_body(read_tags(format, path), read_triggers(format, path),
                                  flag(format, "at_least_one", path), flag(format, "stop_after_first", path), path);
        }
        if (type == "tags_with_separator") return separated_body(format, path);
        refuse_guide(path + ".type", concat({"'", for_message(type), "' is not supported"}));
    }

    std::string sequence_body(const JsonValue& format, const std::string& path, bool last) {
        only_members(format, {"type", "elements"}, path);
        std::string body;
        const JsonValue& elements = require_array(format, "elements", path);
        for (std::size_t i = 0; i < elements.items.size(); ++i) {
            const bool last_of_all = last && i + 1 == elements.items.size();
            body += concat({" (", format_body(elements.items[i], element_path(path, i), last_of_all), ")"});
        }
        return body;
    }

    std::string or_body(const JsonValue& format, const std::string& path, bool last) {
        only_members(format, {"type", "elements"}, path);
        std::string body;
        const JsonValue& elements = require_array(format, "elements", path);
        for (std::size_t i = 0; i < elements.items.size(); ++i) {
            body += concat({i == 0 ? "(" : " | (", format_body(elements.items[i], element_path(path, i), last), ")"});
        }
        return body;
    }

    Tag read_tag(const JsonValue& format, const std::string& path) {
        if (!format.is_object()) refuse_guide(path, "must be an object");
        only_members(format, {"type", "begin", "content", "end"}, path);
        if (const JsonValue* type = format.find("type"); type != nullptr && type->text != "tag")
            refuse_guide(path + ".type", "must be tag");
        Tag tag{require_text(format, "begin", path), "", ""};
        const JsonValue& content = require(format, "content", path);
        const std::string& end = require_text(format, "end", path);
        const JsonValue* content_type = content.find("type");
        if (content_type != nullptr && content_type->text == "any_text") {
            only_members(content, {"type"}, path + ".content");
            if (end.empty()) refuse_guide(path + ".end", "must not be empty after any_text");
            tag.content = text_up_to(end, path + ".end");
        } else {
            tag.content = format_body(content, path + ".content", false);
            tag.end = literal(end);
        }
        return tag;
    }

    Tags read_tags(const JsonValue& format, const std::string& path) {
        Tags tags;
        const JsonValue& list = require_array(format, "tags", path);
        for (std::size_t i = 0; i < list.items.size(); ++i) {
            tags.push_back(read_tag(list.items[i], path + ".tags[" + std::to_string(i) + "]"));
        }
        return tags;
    }

    std::string tag_body(const Tag& tag) { return concat({literal(tag.begin), " (", tag.content, ") ", tag.end}); }

    // Free text up to a trigger, then one of the tags that begin with it, and so on.
    std::string triggered_body(const Tags& tags, const std::vector<std::string>& triggers, bool at_least_one,
                               bool stop_after_first, const std::string& path) {
        std::vector<std::string> ways(triggers.size());
        for (const Tag& tag : tags) {
            std::size_t which = 0;
            while (which < triggers.size() && !tag.begin.starts_with(triggers[which])) ++which;
            if (which == triggers.size())
                refuse_guide(path + ".triggers", "must hold a beginning of every tag's begin");
            const std::string rest = literal(std::string_view(tag.begin).substr(triggers[which].size()));
            ways[which] += concat({ways[which].empty() ? "(" : " | (", rest, " (", tag.content, ") ", tag.end, ")"});
        }
        std::string any_tag;
        for (std::size_t i = 0; i < triggers.size(); ++i) {
            // A trigger without tags may not be written: nothing could follow it.
            if (ways[i].empty())
                refuse_guide(path + ".triggers[" + std::to_string(i) + "]", "begins no tag; leave it out");
            const std::string head = text_up_to(triggers[i], path + ".triggers[" + std::to_string(i) + "]");
            any_tag += concat({i == 0 ? "" : " | ", lark_.add_rule(concat({head, " (", ways[i], ")"}))});
        }
        const std::string text = lark_.add_rule(lark_.add_terminal(std::string(kAnyText)));
        if (stop_after_first) return at_least_one ? any_tag : concat({"(", any_tag, ") | ", text});
        return concat({"(", any_tag, ")", at_least_one ? "+ " : "* ", text});
    }

    std::string separated_body(const JsonValue& format, const std::string& path) {
        only_members(format, {"type", "tags", "separator", "at_least_one", "stop_after_first"}, path);
        const Tags tags = read_tags(format, path);
        std::string any_tag;
        for (const Tag& tag : tags) any_tag += concat({any_tag.empty() ? "" : " | ", lark_.add_rule(tag_body(tag))});
        any_tag = lark_.add_rule(any_tag);
        std::string body = any_tag;
        if (!flag(format, "stop_after_first", path)) {
            body += concat({" (", literal(require_text(format, "separator", path)), " ", any_tag, ")*"});
        }
        return flag(format, "at_least_one", path) ? body : concat({"(", body, ")?"});
    }

    std::string json_body(const JsonValue& schema, const std::string& path) {
        CheckedSchema checked = check_json_schema(schema, path);
        places_.insert(places_.end(), checked.places.begin(), checked.places.end());
        return concat({"%json ", checked.text});
    }

    // Text in which special tokens stand by id, since no text matches them.
    std::string literal(std::string_view text) const {
        std::string body;
        std::size_t plain_from = 0;
        const auto flush = [&](std::size_t end) {
            if (end > plain_from) body += quote_json(text.substr(plain_from, end - plain_from)) + " ";
        };
        for (std::size_t at = 0; at < text.size();) {
            const auto special = special_at(text, at);
            if (special == specials_.end()) {
                ++at;
                continue;
            }
            flush(at);
            body += token_reference(special->second) + " ";
            at += special->first.size();
            plain_from = at;
        }
        flush(text.size());
        return body;
    }

    // Free text that ends where this first appears, with what follows a special token it begins with.
    std::string text_up_to(const std::string& mark, const std::string& path) {
        const auto special = special_at(mark, 0);
        if (special != specials_.end()) {
            const std::string rest = literal(std::string_view(mark).substr(special->first.size()));
            return lark_.add_rule(concat({kAnyText, " ", token_reference(special->second), " ", rest}));
        }
        for (std::size_t at = 1; at < mark.size(); ++at) {
            if (special_at(mark, at) != specials_.end())
                refuse_guide(path, "may have a special token only at its beginning");
        }
        return lark_.add_lazy_rule(concat({"/(?s:.*)", quote_for_regex(mark), "/"}));
    }

    SpecialTokens::const_iterator special_at(std::string_view text, std::size_t at) const {
        auto longest = specials_.end();
        for (auto one = specials_.begin(); one != specials_.end(); ++one) {
            if (text.substr(at).starts_with(one->first) &&
                (longest == specials_.end() || one->first.size() > longest->first.size())) {
                longest = one;
            }
        }
        return longest;
    }

    static std::string token_reference(int32_t token) { return concat({"<[", std::to_string(token), "]>"}); }
    static std::string element_path(const std::string& path, std::size_t index) {
        return concat({path, ".elements[", std::to_string(index), "]"});
    }

    const SpecialTokens& specials_;
    LarkGrammar& lark_;
    std::vector<SchemaPlace>& places_;
};

}  // namespace

std::string add_structural_tag(const JsonValue& tag, std::string_view where, const SpecialTokens& specials,
                               LarkGrammar& lark, std::vector<SchemaPlace>& places) {
    return TagTranslator(specials, lark, places).translate(tag, std::string(where));
}

}  // namespace edgellm
