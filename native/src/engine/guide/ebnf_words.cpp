#include "engine/guide/ebnf_words.hpp"

namespace edgellm {
namespace {

using Kind = EbnfNode::Kind;

WordFacts of_text(const std::string& text) {
    WordFacts facts;
    facts.nullable = text.empty();
    for (std::size_t at = 0; at < text.size();) {
        const auto lead = static_cast<unsigned char>(text[at]);
        const std::size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        uint32_t code_point = size == 1 ? lead : lead & (0x7FU >> size);
        for (std::size_t i = 1; i < size; ++i)
            code_point = code_point << 6U | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
        (at == 0 ? facts.first : facts.later).add(code_point, code_point);
        facts.all.add(code_point, code_point);
        at += size;
    }
    return facts;
}

WordFacts of_class(const EbnfNode& node) {
    WordFacts facts;
    facts.nullable = false;
    for (const auto& [first, last] : node.ranges) facts.first.add(first, last);
    if (node.negated || node.kind == Kind::kAnyCharacter) facts.first = facts.first.complement();
    facts.all = facts.first;
    return facts;
}

WordFacts repeated(const WordFacts& once, const EbnfNode& node) {
    WordFacts facts = once;
    facts.nullable = once.nullable || node.least == 0;
    if (node.least != node.most || once.nullable) facts.extending.add(once.first);
    if (node.most != 1) {
        facts.later.add(once.all);
        if (once.extending.intersects(once.first)) facts.extending = facts.all;
    }
    return facts;
}

}  // namespace

WordFacts followed_by(const WordFacts& left, const WordFacts& right) {
    WordFacts facts;
    facts.nullable = left.nullable && right.nullable;
    facts.first = left.first;
    if (left.nullable) facts.first.add(right.first);
    facts.later = left.later;
    facts.later.add(right.all);
    facts.all = left.all;
    facts.all.add(right.all);
    facts.extending = right.extending;
    if (right.nullable) {
        facts.extending.add(left.extending);
        facts.extending.add(right.first);
    }
    // Where one ends and the other begins is not told by the next character: anything may happen.
    if (left.extending.intersects(right.first)) facts.extending = facts.all;
    return facts;
}

WordFacts WordAnalysis::describe(const EbnfNode& node) {
    switch (node.kind) {
        case Kind::kText: return of_text(node.text);
        case Kind::kClass:
        case Kind::kAnyCharacter: return of_class(node);
        case Kind::kRule:
            if (!of_rules_[node.rule]) of_rules_[node.rule] = describe(grammar_.rules[node.rule].body);
            return *of_rules_[node.rule];
        case Kind::kSequence: {
            WordFacts facts;
            for (const EbnfNode& child : node.children) facts = followed_by(facts, describe(child));
            return facts;
        }
        case Kind::kAlternatives: return of_alternatives(node);
        case Kind::kRepeat: return repeated(describe(node.children[0]), node);
    }
    return {};
}

WordFacts WordAnalysis::of_alternatives(const EbnfNode& node) {
    WordFacts facts;
    facts.nullable = false;
    bool told_apart = true;
    bool all_single = true;
    for (const EbnfNode& child : node.children) {
        const WordFacts one = describe(child);
        told_apart = told_apart && !facts.first.intersects(one.first);
        all_single = all_single && (child.kind == Kind::kClass || child.kind == Kind::kAnyCharacter);
        facts.nullable = facts.nullable || one.nullable;
        facts.first.add(one.first);
        facts.later.add(one.later);
        facts.all.add(one.all);
        facts.extending.add(one.extending);
    }
    if (facts.nullable) facts.extending.add(facts.first);
    if (!told_apart && !all_single) facts.extending = facts.all;
    return facts;
}

}  // namespace edgellm
