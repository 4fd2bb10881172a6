// Guides of every kind with random damage, for tests that nothing but a refusal may come of them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "contract/types.hpp"

namespace scripted {

class DamagedGuides {
public:
    explicit DamagedGuides(uint32_t seed) : random_(seed) {}

    edgellm::GuidedDecodingParams next() {
        using edgellm::GuideType;
        static const std::vector<std::pair<GuideType, std::string>> kSound = {
            {GuideType::kJsonSchema,
             R"({"$schema":"http://json-schema.org/draft-07/schema#","type":"object","properties":{"a":{"$ref":"#/$defs/x"},"b":{"type":["integer","null"],"minimum":-3,"multipleOf":0.5},"c":{"type":"string","pattern":"^[a-z]{1,3}$","format":"date"}},"required":["a"],"additionalProperties":false,"$defs":{"x":{"anyOf":[{"enum":[1,"é",null]},{"type":"array","items":{"$ref":"#"},"prefixItems":[{}],"minItems":1}]}}})"},
            {GuideType::kRegex, R"((?:[a-z\d]+|\u{e9}[^\]x-z]{2,5})*(\.|\/)?)"},
            {GuideType::kEbnf,
             "root ::= \"{\" ws (pair (\",\" ws pair)*)? \"}\" # c\npair ::= [a-z\\x41-\\u0050]+ \":\" ws (root | 'x' "
             "| .){1,3}\nws ::= [ \\t\\n]*\n"},
            {GuideType::kStructuralTag,
             R"({"type":"structural_tag","format":{"type":"triggered_tags","triggers":["<f="],"at_least_one":true,"tags":[{"begin":"<f=a>","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"</f>"},{"begin":"<f=b>","content":{"type":"sequence","elements":[{"type":"regex","pattern":"[0-9]+"},{"type":"grammar","grammar":"root ::= \"x\" root?"}]},"end":"</f>"}]}})"},
            {GuideType::kChoice, R"(["yes","no","é\n\ud83d\ude00"])"},
        };
        auto [type, text] = kSound[pick(kSound.size())];
        static const std::string kSpice =
            "{}[]()\"\\|*+?:,/#<>^$-. \n\x01\xFF"
            "019aent";
        for (std::size_t damage = 1 + pick(4); damage > 0 && !text.empty(); --damage) {
            const std::size_t at = pick(text.size());
            switch (pick(5)) {
                case 0: text.erase(at, 1 + pick(6)); break;
                case 1: text.insert(at, 1, kSpice[pick(kSpice.size())]); break;
                case 2: text[at] = kSpice[pick(kSpice.size())]; break;
                case 3: text.insert(at, text.substr(pick(text.size()), 1 + pick(20))); break;
                default: text.resize(at); break;
            }
        }
        return {type, text};
    }

private:
    std::size_t pick(std::size_t count) { return static_cast<std::size_t>(random_()) % count; }
    std::mt19937 random_;
};

}  // namespace scripted
