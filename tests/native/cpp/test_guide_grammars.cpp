// What guides become before the grammar compiler sees them; no library is needed.
#include "check.hpp"
#include "damaged_guides.hpp"

#include "contract/errors.hpp"
#include "engine/guide/character_set.hpp"
#include "engine/guide/ebnf.hpp"
#include "engine/guide/ebnf_lexemes.hpp"
#include "engine/guide/guide_grammar.hpp"
#include "engine/guide/json_document.hpp"
#include "engine/guide/lark_text.hpp"

#include <string>

using edgellm::CharacterSet;
using edgellm::GuideType;
using edgellm::InvalidRequest;

namespace {

bool read_by_lexemes(const std::string& text) {
    const edgellm::EbnfGrammar grammar = edgellm::read_ebnf(text, "grammar");
    const edgellm::LexemeCut cut = edgellm::cut_into_lexemes(grammar);
    CHECK(!cut.regular[grammar.root]);
    return edgellm::lexemes_are_exact(grammar, cut);
}

}  // namespace

TEST(json_documents_keep_the_source_of_every_part) {
    const std::string text = R"( {"a" : [1, "x\u00e9", {"b":null}], "a": true } )";
    const edgellm::JsonValue value = edgellm::read_json_document(text, "doc");
    CHECK(value.is_object() && value.members.size() == 2);
    CHECK(value.source == R"({"a" : [1, "x\u00e9", {"b":null}], "a": true })");
    CHECK(value.members[0].second.source == R"([1, "x\u00e9", {"b":null}])");
    CHECK(value.members[0].second.items[1].text == "xé");
    CHECK(value.members[0].second.items[1].source == R"("x\u00e9")");
    CHECK(value.find("a")->is_bool());  // the last one counts
    CHECK(value.find("b") == nullptr);
}

TEST(json_depth_is_bounded) {
    const std::string fits = std::string(edgellm::kMaxJsonDepth, '[') + std::string(edgellm::kMaxJsonDepth, ']');
    CHECK(edgellm::read_json_document(fits, "doc").is_array());
    CHECK_THROWS(edgellm::read_json_document("[" + fits + "]", "doc"), InvalidRequest, "doc is nested too deeply");
    CHECK_THROWS(edgellm::read_json_document(std::string(100'000, '['), "doc"), InvalidRequest, "too deeply");
    CHECK_THROWS(edgellm::read_json_document("[1,]", "doc"), InvalidRequest, "not valid JSON at byte 3");
}

TEST(character_sets_intersect_where_they_meet) {
    CharacterSet letters;
    letters.add('a', 'f');
    letters.add('k', 'p');
    letters.add('g', 'g');
    CharacterSet digits;
    digits.add('0', '9');
    CHECK(!letters.intersects(digits));
    CHECK(letters.complement().intersects(digits));
    CharacterSet gap;
    gap.add('h', 'j');
    CHECK(!letters.intersects(gap) && letters.complement().intersects(gap));
    CharacterSet many;
    for (uint32_t i = 0; i < 2000; i += 2) many.add(1000 + i, 1000 + i);
    CharacterSet between;
    between.add(1001, 1001);
    CHECK(many.intersects(between));  // too many ranges: taken for the hull
}

TEST(grammars_whose_pieces_are_told_apart_are_read_by_lexemes) {
    CHECK(read_by_lexemes(R"x(root ::= value
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20})x"));
    CHECK(read_by_lexemes("root ::= \"(\" root* \")\""));
}

TEST(grammars_whose_pieces_could_eat_each_other_are_not) {
    CHECK(!read_by_lexemes("root ::= \"(\" root? \")\" ws \"\\n\"\nws ::= [ \\n]*"));
    CHECK(!read_by_lexemes("root ::= \"a\" root \"b\" | [ab]* \"c\""));
    CHECK(!read_by_lexemes("root ::= \"x\" root \"yz\" | \"xyyy\" root | \"w\""));
}

TEST(lark_quoting_survives_every_character) {
    CHECK(edgellm::quote_json("a\"\\\n\x01é") == "\"a\\\"\\\\\\u000a\\u0001é\"");
    CHECK(edgellm::quote_for_regex("a.b/[x]\n") == "a\\.b\\/\\[x\\]\\x0a");
    CHECK(edgellm::lark_regex("a/b\\/\\d[\\w]\n") == "/a\\/b\\/[0-9][[0-9A-Za-z_]]\\n/");
}

TEST(schemas_reach_the_compiler_without_their_draft_and_with_bounded_space) {
    const auto grammar = edgellm::make_guide_grammar(
        {GuideType::kJsonSchema, R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"string"})"}, {});
    CHECK(grammar.kind == "json");
    CHECK(grammar.text.find("$schema") == std::string::npos);
    CHECK(grammar.text.find("whitespace_pattern") != std::string::npos);
    CHECK(grammar.text.find(R"("type":"string")") != std::string::npos);
}

TEST(guides_that_are_no_guides_are_refused_before_anything_is_compiled) {
    CHECK_THROWS(edgellm::make_guide_grammar({GuideType::kJsonSchema, std::string(131073, ' ')}, {}), InvalidRequest,
                 "is too large");
    CHECK_THROWS(edgellm::make_guide_grammar({GuideType::kChoice, R"({"a":1})"}, {}), InvalidRequest,
                 "array of strings");
    CHECK_THROWS(edgellm::make_guide_grammar({GuideType::kEbnf, ""}, {}), InvalidRequest, "EDGELLM_BAD_GUIDE");
}

TEST(damaged_guides_are_read_or_refused_and_nothing_else) {
    scripted::DamagedGuides damaged(1);
    int read = 0;
    for (int i = 0; i < 20'000; ++i) {
        try {
            edgellm::make_guide_grammar(damaged.next(), {{"<f", 300}, {"x", 301}});
            ++read;
        } catch (const InvalidRequest& refusal) {
            CHECK(std::string(refusal.what()).starts_with("EDGELLM_BAD_GUIDE"));
        }
    }
    CHECK(read > 1000);
}

CHECK_MAIN()
