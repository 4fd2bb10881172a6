#include "engine/guide/guide_grammar.hpp"

#include "contract/guide_validation.hpp"
#include "engine/guide/bad_guide.hpp"
#include "engine/guide/ebnf_to_lark.hpp"

namespace edgellm {
namespace {

std::string choice_grammar(const std::string& guide, const std::string& field) {
    const JsonValue choices = read_json_document(guide, field);
    std::string expression;
    for (const JsonValue& choice : choices.items) {
        if (!expression.empty()) expression += '|';
        expression += concat({"(?:", quote_for_regex(choice.text), ")"});
    }
    return LarkGrammar().finish(concat({"/", expression, "/"}));
}

}  // namespace

GuideGrammar make_guide_grammar(const GuidedDecodingParams& params, const SpecialTokens& specials) {
    if (const std::string reason = refused_guide_reason(params); !reason.empty()) {
        throw InvalidRequest(std::string(kBadGuide) + ": " + reason);
    }
    LarkGrammar lark;
    switch (params.type) {
        case GuideType::kJsonObject: return {"json", any_object_schema().text, "guided_decoding.json_object", {}};
        case GuideType::kJsonSchema: {
            const std::string field = "guided_decoding.json_schema";
            CheckedSchema schema = check_json_schema(read_json_document(params.guide, field), field);
            return {"json", std::move(schema.text), field, std::move(schema.places)};
        }
        case GuideType::kRegex: {
            const std::string field = "guided_decoding.regex";
            return {"lark", lark.finish(lark_regex(params.guide)), field, {{field, "pattern", params.guide}}};
        }
        case GuideType::kEbnf: {
            const std::string field = "guided_decoding.ebnf";
            const std::string start = add_ebnf(read_ebnf(params.guide, field), lark);
            return {"lark", lark.finish(start), field, {}};
        }
        case GuideType::kStructuralTag: {
            const std::string field = "guided_decoding.structural_tag";
            std::vector<SchemaPlace> places;
            const std::string start =
                add_structural_tag(read_json_document(params.guide, field), field, specials, lark, places);
            return {"lark", lark.finish(start), field, std::move(places)};
        }
        case GuideType::kChoice: {
            const std::string field = "guided_decoding.choice";
            return {"lark", choice_grammar(params.guide, field), field, {}};
        }
    }
    refuse_guide("guided_decoding", "has an unknown type");
}

}  // namespace edgellm
