// Guides against the real grammar compiler: what they let a model write, what they keep it from, what is refused.
#include "check.hpp"
#include "damaged_guides.hpp"
#include "guide_prober.hpp"

#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

using edgellm::GuideType;
using edgellm::InvalidRequest;
using scripted::GuideProber;
using scripted::Verdict;

namespace {

GuideProber& prober() {
    static GuideProber one;
    return one;
}

bool whole(GuideType type, const std::string& guide, const std::string& answer) {
    return prober().judge(type, guide, answer) == Verdict::kWhole;
}
bool refused(GuideType type, const std::string& guide, const std::string& answer) {
    return prober().judge(type, guide, answer) == Verdict::kRefused;
}
bool unfinished(GuideType type, const std::string& guide, const std::string& answer) {
    return prober().judge(type, guide, answer) == Verdict::kUnfinished;
}

std::string repeated(const std::string& text, int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
}

// More members than the grammar engine can have open at once.
std::string many_wide_objects() {
    std::string objects;
    for (int i = 0; i < 10; ++i) {
        std::string properties;
        for (int j = 0; j < 700; ++j)
            properties += (j == 0 ? "\"p" : ",\"p") + std::to_string(i * 1000 + j) + "\":{}";
        objects += (i == 0 ? "" : ",") + std::string(R"({"type":"object","properties":{)") + properties + "}}";
    }
    return R"({"anyOf":[)" + objects + "]}";
}

const std::string kJsonGrammar = R"gbnf(
# any JSON value
root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= | " " | "\n" [ \t]{0,20}
)gbnf";

}  // namespace

TEST(a_json_object_guide_lets_through_objects_alone) {
    CHECK(whole(GuideType::kJsonObject, "", R"({"a": [1, 2.5, "x", null, {"b": true}]})"));
    CHECK(whole(GuideType::kJsonObject, "", "{\n    \"a\": 1\n}"));
    CHECK(refused(GuideType::kJsonObject, "", "[1]"));
    CHECK(refused(GuideType::kJsonObject, "", "Sure"));
    CHECK(refused(GuideType::kJsonObject, "", R"({"a":1}x)"));
    CHECK(unfinished(GuideType::kJsonObject, "", R"({"a":)"));
}

TEST(white_space_inside_json_is_bounded) {
    CHECK(whole(GuideType::kJsonObject, "", "{" + std::string(64, ' ') + "}"));
    CHECK(refused(GuideType::kJsonObject, "", "{" + std::string(65, ' ')));
}

TEST(a_schema_is_enforced_keyword_by_keyword) {
    const std::string schema = R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{
        "name":{"type":"string","minLength":1,"maxLength":5},"age":{"type":"integer","minimum":0,"maximum":150},
        "kind":{"enum":["cat","dog"]},"tags":{"type":"array","items":{"type":"string","pattern":"^[a-z]+$"},"minItems":1,"maxItems":2}},
        "required":["name","age"],"additionalProperties":false})";
    CHECK(whole(GuideType::kJsonSchema, schema, R"({"name":"Tom","age":3})"));
    CHECK(whole(GuideType::kJsonSchema, schema, R"({"name": "Tom", "age": 150, "kind": "cat", "tags": ["a", "b"]})"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"name":"Thomas")"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"name":"")"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"name":"Tom","age":151)"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"name":"Tom","age":1.5)"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"name":"Tom","age":1,"kind":"cow")"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"name":"Tom","age":1,"extra":)"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"name":"Tom","age":1,"tags":["a","b","c")"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"name":"Tom","age":1,"tags":["A")"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"name":"Tom"})"));
}

TEST(keywords_that_the_contract_refuses_and_this_runtime_enforces) {
    CHECK(whole(GuideType::kJsonSchema, R"({"type":"integer","multipleOf":5,"minimum":0,"maximum":100})", "35"));
    CHECK(!whole(GuideType::kJsonSchema, R"({"type":"integer","multipleOf":5,"minimum":0,"maximum":100})", "36"));
    CHECK(!whole(GuideType::kJsonSchema, R"({"type":"integer","multipleOf":5,"minimum":0,"maximum":100})", "105"));
    CHECK(whole(GuideType::kJsonSchema, R"({"type":"number","multipleOf":0.25})", "1.75"));
    CHECK(!whole(GuideType::kJsonSchema, R"({"type":"number","multipleOf":0.25})", "1.7"));
    CHECK(whole(GuideType::kJsonSchema, R"({"type":"integer","multipleOf":1000000})", "3000000"));
    const std::string patterns =
        R"({"type":"object","patternProperties":{"^n_":{"type":"integer"}},"additionalProperties":false})";
    CHECK(whole(GuideType::kJsonSchema, patterns, R"({"n_a":1})"));
    CHECK(refused(GuideType::kJsonSchema, patterns, R"({"n_a":"x")"));
    CHECK(refused(GuideType::kJsonSchema, patterns, R"({"m)"));
}

TEST(references_are_followed_and_recursion_works) {
    const std::string schema = R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
        "value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["value","next"]}}})";
    CHECK(whole(GuideType::kJsonSchema, schema, R"({"value":1,"next":{"value":2,"next":null}})"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"value":1,"next":7)"));
}

TEST(unenforceable_keywords_are_refused_with_their_path) {
    const auto refuses = [](const std::string& schema, const std::string& text) {
        CHECK_THROWS(prober().compile(GuideType::kJsonSchema, schema), InvalidRequest, text);
        CHECK_THROWS(prober().compile(GuideType::kJsonSchema, schema), InvalidRequest, "EDGELLM_BAD_GUIDE");
    };
    refuses(R"({"type":"object","properties":{"a":{"not":{"type":"string"}}}})", "json_schema.properties.a.not cannot");
    refuses(R"({"anyOf":[{},{"if":{}}]})", "json_schema.anyOf[1].if cannot");
    refuses(R"({"type":"array","uniqueItems":true})", "uniqueItems");
    refuses(R"({"type":"object","properties":{"x":{"type":"array","contains":{}}}})", "contains");
    refuses(R"({"propertyNames":{"maxLength":3}})", "json_schema.propertyNames cannot");
    refuses(R"({"dependentRequired":{"a":["b"]}})", "json_schema.dependentRequired cannot");
    refuses(R"({"unevaluatedProperties":false})", "json_schema.unevaluatedProperties cannot");
    // Under an old draft the compiler would not know these, and let everything through.
    refuses(R"({"$schema":"http://json-schema.org/draft-04/schema#","type":"string","if":{}})",
            "json_schema.if cannot");
    refuses(R"({"type":"array","prefixItems":[{"type":"string"}],"additionalItems":false})",
            "json_schema.prefixItems cannot");
    refuses(R"({"x-guidance":{"lenient":true},"type":"array"})", "json_schema.x-guidance");
    refuses(R"({"properties":{"a":{"type":"string","format":"iban"}}})", "json_schema.properties.a.format");
    refuses(R"({"properties":{"a":{"type":"string","pattern":"(?=x)y"}}})", "json_schema.properties.a.pattern");
    refuses(R"({"properties":{"a":{"oneOf":[{"type":"string"},{"minLength":2}]}}})", "json_schema.properties.a.oneOf");
    refuses(R"({"patternProperties":{"a":{},"b":{}}})", "json_schema.patternProperties");
    refuses(R"({"type":"object","properties":{"a":{},"b":{}},"minProperties":2})", "minProperties");
    refuses(R"({"$ref":"#/$defs/none"})", "json_schema.$ref points to nothing");
    refuses(R"({"$ref":"http://example.org/x"})", "json_schema.$ref");
    refuses(R"({"$ref":"#/x/y","x":{"y":{"not":{}}}})", "/x/y.not cannot");
    refuses("false", "allows nothing");
    refuses(R"({"enum":[]})", "json_schema.enum must be");
    refuses(R"({"properties":{"a":{"type":"strange"}}})", "json_schema.properties.a.type must be");
    refuses(R"({"minLength":-1})", "json_schema.minLength must be");
    refuses(R"({"maximum":"9"})", "json_schema.maximum must be");
    refuses(R"({"multipleOf":1000003})", "json_schema.multipleOf cannot");
    for (const char* schema : {R"({"multipleOf":0})", R"({"multipleOf":0.0e5})", R"({"multipleOf":-5})"}) {
        refuses(schema, "json_schema.multipleOf must be greater than 0");
    }
    refuses(R"({"allOf":[{"multipleOf":997},{"multipleOf":99.1}]})", "json_schema.allOf[1].multipleOf cannot");
    refuses(R"({"required":"a"})", "json_schema.required must be");
    refuses(R"({"allOf":[{"type":"string"},{"type":"integer"}]})", "json_schema allows nothing");
    refuses(R"({"type":"string","minLength":9,"maxLength":3})", "json_schema allows nothing");
    refuses(R"({"type":"object","properties":[]})", "json_schema.properties must be an object");
    refuses("7", "must be a schema");
    refuses(R"({"a")", "not valid JSON");
}

TEST(names_that_look_like_keywords_are_just_names) {
    const std::string schema =
        R"({"type":"object","properties":{"not":{"type":"string"},"if":{"const":{"not":1}}},"required":["not"],"additionalProperties":false})";
    CHECK(whole(GuideType::kJsonSchema, schema, R"({"not":"x","if":{"not":1}})"));
}

TEST(a_regex_guide_matches_the_whole_answer) {
    CHECK(whole(GuideType::kRegex, R"([0-9]{3}-[0-9]{4})", "555-1234"));
    CHECK(unfinished(GuideType::kRegex, R"([0-9]{3}-[0-9]{4})", "555-123"));
    CHECK(refused(GuideType::kRegex, R"([0-9]{3}-[0-9]{4})", "5555"));
    CHECK(whole(GuideType::kRegex, R"(^yes$)", "yes"));
    CHECK(whole(GuideType::kRegex, R"(a/b\/c"\n)", "a/b/c\"\n"));
    CHECK(whole(GuideType::kRegex, R"(\d+\w[^\D])", "12x3"));
    CHECK(refused(GuideType::kRegex, R"(\d+)", "\xD9\xA3"));  // an Arabic digit
    CHECK(whole(GuideType::kRegex, "(é|ü)+", "éü"));
    CHECK(whole(GuideType::kRegex, "a*", ""));
}

TEST(bad_regexes_are_refused) {
    CHECK_THROWS(prober().compile(GuideType::kRegex, "[0-9"), InvalidRequest, "guided_decoding.regex");
    for (const char* unfinished : {"((", "[0-9", "[z-a]", "a{99999999999}", "(look-around"}) {
        CHECK_THROWS(prober().compile(GuideType::kRegex, unfinished), InvalidRequest,
                     "guided_decoding.regex is no regular expression: it does not parse");
    }
    for (const char* foreign : {"(?=a)b", "(?<!a)b", R"((a)\1)"}) {
        CHECK_THROWS(prober().compile(GuideType::kRegex, foreign), InvalidRequest,
                     "guided_decoding.regex uses look-around or a back-reference");
    }
    CHECK_THROWS(prober().compile(GuideType::kRegex, ""), InvalidRequest, "must not be empty");
    CHECK_THROWS(prober().compile(GuideType::kRegex, std::string("a\0b", 3)), InvalidRequest, "NUL");
}

TEST(a_choice_is_one_of_the_strings_exactly) {
    const std::string choices = R"x(["yes","no","not sure (?)","naïve\n",""])x";
    for (const std::string answer : {"yes", "no", "not sure (?)", "naïve\n", ""})
        CHECK(whole(GuideType::kChoice, choices, answer));
    CHECK(refused(GuideType::kChoice, choices, "maybe"));
    CHECK(unfinished(GuideType::kChoice, choices, "not"));
    CHECK_THROWS(prober().compile(GuideType::kChoice, "[]"), InvalidRequest, "non-empty array of strings");
    CHECK_THROWS(prober().compile(GuideType::kChoice, "[1]"), InvalidRequest, "non-empty array of strings");
}

TEST(an_ebnf_grammar_without_recursion_is_exact) {
    const std::string grammar = "root ::= word \"end\" # the word may itself hold \"end\"\nword ::= [a-z]*";
    CHECK(whole(GuideType::kEbnf, grammar, "endend"));
    CHECK(whole(GuideType::kEbnf, grammar, "xxend"));
    CHECK(unfinished(GuideType::kEbnf, grammar, "xxen"));
    CHECK(refused(GuideType::kEbnf, grammar, "X"));
    CHECK(whole(GuideType::kEbnf, R"(root ::= ("a" | "b"){2,3} [^x-z\]]? "\u00e9" 'q"' .)", "abba\xC3\xA9q\"\n"));
    CHECK(whole(GuideType::kEbnf, "root ::= \"a\" | \"\"", ""));
    CHECK(whole(GuideType::kEbnf, "root ::= \"/\" \"\\\\\" \"\\x41\" [\\-\\]]", "/\\A]"));
}

TEST(recursive_ebnf_grammars_work) {
    for (const std::string answer :
         {R"({"a":[1,-2.5e3,{"b":"x\n"},[],true],"c":{}})", "{}", "{\"a\": {\"b\": null}}", R"({"k":"😀"})"}) {
        std::string escaped = answer;
        const auto at = escaped.find('\n');
        if (at != std::string::npos) escaped.replace(at, 1, "\\n");
        CHECK(whole(GuideType::kEbnf, kJsonGrammar, escaped));
    }
    CHECK(refused(GuideType::kEbnf, kJsonGrammar, "[1]"));
    CHECK(refused(GuideType::kEbnf, kJsonGrammar, R"({"a":01)"));
    CHECK(refused(GuideType::kEbnf, kJsonGrammar, R"({"a"})"));
    const std::string arithmetic = R"x(root ::= (expr "=" ws term "\n")+
expr ::= term ([-+*/] ws term)*
term ::= ident | num | "(" ws expr ")" ws
ident ::= [a-z] [a-z0-9_]* ws
num ::= [0-9]+ ws
ws ::= [ \t\n]*)x";
    CHECK(whole(GuideType::kEbnf, arithmetic, "(a+b1)*12 = 7\n"));
    CHECK(whole(GuideType::kEbnf, arithmetic, "1=1\n2=x\n"));
    CHECK(refused(GuideType::kEbnf, arithmetic, "1=+"));
    const std::string balanced = "root ::= \"(\" root* \")\"";
    CHECK(whole(GuideType::kEbnf, balanced, "(()(()))"));
    CHECK(refused(GuideType::kEbnf, balanced, "())"));
}

TEST(bad_ebnf_is_refused_with_its_line) {
    const auto refuses = [](const std::string& grammar, const std::string& text) {
        CHECK_THROWS(prober().compile(GuideType::kEbnf, grammar), InvalidRequest, text);
    };
    refuses("xx", "(line 1) must have a rule");
    refuses("root ::= a\n", "uses the rule 'a'");
    refuses("start ::= \"a\"", "rule 'root'");
    refuses("root ::= \"a\"\nroot ::= \"b\"", "(line 2) defines the rule 'root' twice");
    refuses("root ::= \"a\n\"", "not closed on its line");
    refuses("root ::= [z-a]", "ends before it starts");
    refuses("root ::= (\"a\"", "close the group");
    refuses("root ::= \"a\" (= \"b\")", "look-ahead");
    refuses("root ::= TagDispatch(\"a\")", "macro");
    refuses("root ::= \"\\q\"", "unknown escape");
    refuses("root ::= \"a\"{3,2}", "upper bound");
    refuses("root ::= \"a\"{999999}", "repetitions");
    refuses("root ::= " + repeated("(", 5000) + "\"a\"" + repeated(")", 5000), "nested too deeply");
    refuses("root ::= \"\\ud800\"", "no character");
    refuses("root ::= [a-", "not closed");
    refuses("root ::= root", "allows nothing");
}

TEST(triggered_tags_leave_other_text_free) {
    const std::string tags =
        R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<function="],"tags":[
        {"begin":"<function=add>","content":{"type":"json_schema","json_schema":{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}},"end":"</function>"},
        {"begin":"<function=say>","content":{"type":"any_text"},"end":"</function>"}]}})";
    CHECK(whole(GuideType::kStructuralTag, tags, "Just text < with signs."));
    CHECK(whole(GuideType::kStructuralTag, tags, "Well: <function=add>{\"x\":1}</function> done"));
    CHECK(whole(GuideType::kStructuralTag, tags,
                "<function=say>anything {</function><function=add>{\"x\": 2}</function>"));
    CHECK(refused(GuideType::kStructuralTag, tags, "<function=mul>"));
    CHECK(refused(GuideType::kStructuralTag, tags, "<function=add>{\"y\""));
    CHECK(unfinished(GuideType::kStructuralTag, tags, "<function=add>{\"x\":1}"));
    CHECK(unfinished(GuideType::kStructuralTag, tags, "<function=say>anything"));
}

TEST(the_older_form_of_structural_tags_is_taken) {
    const std::string tags =
        R"({"type":"structural_tag","structures":[{"begin":"<a>","schema":{"type":"integer"},"end":"</a>"},
        {"begin":"<b>","schema":{"type":"boolean"},"end":"</b>"}],"triggers":["<a","<b"]})";
    CHECK(whole(GuideType::kStructuralTag, tags, "x<a>1</a>y<b>true</b>z"));
    CHECK(refused(GuideType::kStructuralTag, tags, "x<b>1"));
    CHECK(refused(GuideType::kStructuralTag, tags, "x<ab"));
}

TEST(at_least_one_and_stop_after_first_are_kept) {
    const std::string must =
        R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<t>"],"at_least_one":true,"stop_after_first":true,
        "tags":[{"begin":"<t>","content":{"type":"regex","pattern":"[0-9]+"},"end":"</t>"}]}})";
    CHECK(unfinished(GuideType::kStructuralTag, must, "text"));
    CHECK(whole(GuideType::kStructuralTag, must, "text<t>12</t>"));
    CHECK(refused(GuideType::kStructuralTag, must, "text<t>12</t>more"));
}

TEST(sequences_choices_and_separated_tags_compose) {
    const std::string format =
        R"({"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"const_string","value":"A:"},
        {"type":"or","elements":[{"type":"const_string","value":"x"},{"type":"grammar","grammar":"root ::= \"y\" root | \"y\""}]},
        {"type":"tags_with_separator","separator":",","at_least_one":true,"tags":[{"begin":"[","content":{"type":"regex","pattern":"[a-z]*"},"end":"]"}]}]}})";
    CHECK(whole(GuideType::kStructuralTag, format, "A:x[q],[]"));
    CHECK(whole(GuideType::kStructuralTag, format, "A:yyy[q]"));
    CHECK(unfinished(GuideType::kStructuralTag, format, "A:x"));
    CHECK(refused(GuideType::kStructuralTag, format, "A:z"));
    CHECK(refused(GuideType::kStructuralTag, format, "A:x[q];"));
}

TEST(special_tokens_in_tags_stand_by_their_id) {
    const std::string tags = R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<tool>"],
        "tags":[{"begin":"<tool>","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"</tool>"}]}})";
    auto tokens = scripted::bytes_of("hi ");
    tokens.push_back(scripted::kSpecialToken);
    const auto rest = scripted::bytes_of("5</tool>");
    auto good = tokens;
    good.insert(good.end(), rest.begin(), rest.end());
    CHECK(prober().judge(GuideType::kStructuralTag, tags, good) == Verdict::kWhole);
    auto bad = tokens;
    bad.push_back('x');
    CHECK(prober().judge(GuideType::kStructuralTag, tags, bad) == Verdict::kRefused);
}

TEST(bad_structural_tags_are_refused_by_name) {
    const auto refuses = [](const std::string& tag, const std::string& text) {
        CHECK_THROWS(prober().compile(GuideType::kStructuralTag, tag), InvalidRequest, text);
    };
    refuses("{}", "structural_tag.structures is missing");
    refuses("[]", "must be an object");
    refuses(R"({"format":{"type":"qwen_xml_parameter"}})", "'qwen_xml_parameter' is not supported");
    refuses(R"({"format":{"type":"const_string"}})", "structural_tag.format.value is missing");
    refuses(R"({"format":{"type":"any_text","excludes":["a"]}})", "format.excludes is not supported");
    refuses(R"({"format":{"type":"json_schema","json_schema":{"not":{}}}})", "json_schema.not cannot");
    refuses(R"({"format":{"type":"regex","pattern":"[0-9"}})",
            "structural_tag.format.pattern is no regular expression");
    refuses(R"({"format":{"type":"json_schema","json_schema":{"pattern":"a(?=b)c"}}})",
            "format.json_schema.pattern uses look-around");
    refuses(
        R"({"format":{"type":"triggered_tags","triggers":["<x"],"tags":[{"begin":"<y>","content":{"type":"any_text"},"end":"</y>"}]}})",
        "triggers");
    refuses(R"({"format":{"type":"sequence","elements":[{"type":"any_text"},{"type":"const_string","value":"x"}]}})",
            "any_text must come last");
    refuses("{", "not valid JSON");
}

TEST(size_depth_and_count_are_bounded) {
    CHECK_THROWS(prober().compile(GuideType::kRegex, std::string(131073, 'a')), InvalidRequest,
                 "guided_decoding.regex is too large");
    CHECK_THROWS(prober().compile(GuideType::kJsonSchema, repeated(R"({"items":)", 5000) + "{}" + repeated("}", 5000)),
                 InvalidRequest, "nested too deeply");
    std::string many = R"({"type":"object","properties":{"a":{})";
    for (int i = 0; i < 1100; ++i) many += ",\"p" + std::to_string(i) + "\":{}";
    CHECK_THROWS(prober().compile(GuideType::kJsonSchema, many + "}}"), InvalidRequest, "too many members");
}

TEST(the_deepest_chains_of_the_largest_guides_do_not_overflow_a_stack) {
    std::string schema = R"({"$ref":"#/$defs/a0","$defs":{)";
    for (int i = 0; i < 1700; ++i) {
        schema += "\"a" + std::to_string(i) + R"(":{"type":"object","properties":{"x":{"$ref":"#/$defs/a)" +
                  std::to_string(i + 1) + "\"}}},";
    }
    schema += R"("a1700":{"type":"string"}}})";
    CHECK(schema.size() < 131072);
    std::string rules = "root ::= r0\n";
    std::string recursive = "root ::= r0\n";
    for (int i = 0; i < 7000; ++i) {
        rules += "r" + std::to_string(i) + "::=r" + std::to_string(i + 1) + "\n";
        recursive += "r" + std::to_string(i) + "::=r" + std::to_string(i + 1) + "\n";
    }
    rules += "r7000::=\"a\"";
    recursive += "r7000::=\"a\"root?\"b\"";
    // Used and destroyed on this thread, whose stack is an ordinary one.
    CHECK(prober().judge(GuideType::kJsonSchema, schema, R"({"x":{"x":{}}})") == Verdict::kWhole);
    CHECK(whole(GuideType::kEbnf, rules, "a"));
    CHECK(whole(GuideType::kEbnf, recursive, "aabb"));
    CHECK(whole(GuideType::kRegex, std::string(20000, 'a'), std::string(20000, 'a')));
}

TEST(damaged_guides_compile_or_are_refused_and_nothing_else) {
    scripted::DamagedGuides damaged(2);
    int compiled = 0;
    for (int i = 0; i < 3000; ++i) {
        try {
            const auto guide = prober().compiler().compile(damaged.next());
            ++compiled;
            for (const int32_t token : scripted::bytes_of("{\"a\":1")) {
                if (guide->complete() || !GuideProber::allows(*guide, token)) break;
                CHECK(guide->accept(token));
            }
        } catch (const InvalidRequest& refusal) {
            CHECK(std::string(refusal.what()).starts_with("EDGELLM_BAD_GUIDE"));
        }
    }
    CHECK(compiled > 100);
}

TEST(guides_are_compiled_from_many_threads_and_outlive_their_compiler) {
    std::vector<std::unique_ptr<edgellm::TokenGuide>> guides(8);
    {
        GuideProber own;
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < guides.size(); ++i) {
            threads.emplace_back([&, i] {
                for (int round = 0; round < 20; ++round) {
                    guides[i] = own.compile(GuideType::kJsonSchema, R"({"type":"object","properties":{"p)" +
                                                                        std::to_string(i) + R"(":{"type":"string"}}})");
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
    }
    for (const auto& guide : guides) CHECK(GuideProber::allows(*guide, '{') && !GuideProber::allows(*guide, 'x'));
}

TEST(a_wrong_library_is_refused_by_name) {
    CHECK_THROWS(edgellm::make_llguidance_compiler("/nowhere/library.so", *scripted::make_vocab()), InvalidRequest,
                 "guidance_library");
    CHECK_THROWS(edgellm::make_llguidance_compiler("libm.so.6", *scripted::make_vocab()), InvalidRequest,
                 "no llguidance library");
}

TEST(guided_answers_of_the_engine_follow_the_guide) {
    const auto script = std::make_shared<scripted::Script>();
    auto parts = scripted::make_parts(script);
    parts.guides = edgellm::make_llguidance_compiler(scripted::guidance_library(), *scripted::make_vocab());
    const auto runtime = edgellm::make_llm_runtime(std::move(parts));
    auto request = scripted::make_request(scripted::make_prompt(1, 9), 100);
    request.requests.resize(4, request.requests[0]);
    request.temperature = 1.0F;
    request.sampling_seed = 5;
    request.requests[0].guided_decoding = scripted::guide(GuideType::kChoice, R"(["alpha","beta"])");
    request.requests[1].guided_decoding = scripted::guide(GuideType::kRegex, "[0-9]{4}");
    request.requests[1].extensions.ignore_eos = true;
    request.requests[2].guided_decoding = scripted::guide(
        GuideType::kJsonSchema,
        R"({"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"],"additionalProperties":false})");
    const auto response = runtime->handle_request(request);
    CHECK(response.output_texts[0] == "alpha" || response.output_texts[0] == "beta");
    CHECK(response.output_texts[1].size() == 4 &&
          response.output_texts[1].find_first_not_of("0123456789") == std::string::npos);
    CHECK(response.output_texts[2].starts_with("{") && response.output_texts[2].ends_with("}"));
    CHECK(response.output_texts[2].find("true") != std::string::npos ||
          response.output_texts[2].find("false") != std::string::npos);
    for (int i = 0; i < 3; ++i)
        CHECK(response.finish_reasons[static_cast<std::size_t>(i)] == edgellm::FinishReason::kEndId);
    CHECK(response.output_ids[3].size() == 100);
}

TEST(a_schema_of_hundreds_of_patterns_is_followed) {
    std::string properties;
    for (int i = 0; i < 600; ++i) {
        const std::string number = std::to_string(i);
        properties += (i == 0 ? "" : ",") + std::string(R"("p)") + number +
                      R"(":{"type":"string","pattern":"^(a|b){1,50}c)" + number + R"($"})";
    }
    const std::string schema = R"({"type":"object","properties":{)" + properties + "}}";
    CHECK(whole(GuideType::kJsonSchema, schema, R"({"p0":"abbac0","p599":"bc599"})"));
    CHECK(refused(GuideType::kJsonSchema, schema, R"({"p0":"abbac1")"));
}

TEST(a_schema_beyond_the_limits_of_the_grammar_engine_is_refused_when_it_is_compiled) {
    CHECK_THROWS(prober().compile(GuideType::kJsonSchema, many_wide_objects()), InvalidRequest,
                 "EDGELLM_BAD_GUIDE: guided_decoding.json_schema is too large to be enforced");
}

TEST(a_limit_that_only_the_answer_meets_says_what_to_do) {
    const std::string late = R"({"type":"object","properties":{"first":{"const":"0123456789abcdef"},"then":)" +
                             many_wide_objects() + R"(},"required":["first","then"]})";
    const auto compiled = prober().compile(GuideType::kJsonSchema, late);
    const auto follow = [&](const std::string& text) {
        for (const int32_t token : scripted::bytes_of(text)) {
            CHECK(GuideProber::allows(*compiled, token));
            CHECK(compiled->accept(token));
        }
        return true;
    };
    CHECK_THROWS(follow(R"({"first":"0123456789abcdef","then":{"p)"), InvalidRequest,
                 "EDGELLM_GUIDE_LIMIT: guided_decoding.json_schema met a limit of the grammar engine: ");
}

TEST(recursion_is_followed_over_a_thousand_levels) {
    const std::string ebnf = "root ::= \"a\" root \"c\" | \"a\" root \"d\" | \"b\"";
    CHECK(whole(GuideType::kEbnf, ebnf, std::string(1000, 'a') + "b" + std::string(1000, 'c')));
}

TEST(an_ambiguous_grammar_ends_alone_while_its_neighbour_goes_on) {
    const auto script = std::make_shared<scripted::Script>();
    script->logits = [](std::span<const int32_t>, std::span<float> logits) { scripted::only('a', logits); };
    scripted::PartsWanted wanted;
    wanted.max_kv_tokens = 4096;
    auto parts = scripted::make_parts(script, wanted);
    parts.guides = edgellm::make_llguidance_compiler(scripted::guidance_library(), *scripted::make_vocab());
    const auto engine = edgellm::make_request_engine(std::move(parts), 8, 8);
    auto ambiguous = scripted::make_request(scripted::make_prompt(1, 9), 3000);
    ambiguous.requests[0].guided_decoding =
        scripted::guide(GuideType::kEbnf, R"(root ::= root root | root root root | "a" | "")");
    const auto doomed = engine->submit(ambiguous);
    const auto neighbour = engine->submit(scripted::make_request(scripted::make_prompt(2, 9), 3000));
    CHECK_THROWS(doomed->get(), InvalidRequest,
                 "EDGELLM_GUIDE_LIMIT: guided_decoding.ebnf met a limit of the grammar engine: it takes too much "
                 "computing time");
    CHECK(neighbour->get().output_ids[0].size() == 3000);
    CHECK(engine->running());
    auto sound = scripted::make_request(scripted::make_prompt(3, 9), 20);
    sound.requests[0].guided_decoding = scripted::guide(GuideType::kRegex, "a{5}");
    CHECK(engine->submit(sound)->get().output_texts[0] == "aaaaa");
}

int main() {
    if (scripted::guidance_library().empty()) {
        std::printf("skipped: no llguidance library was found beside ggml\n");
        return 77;
    }
    return check::run_all();
}
