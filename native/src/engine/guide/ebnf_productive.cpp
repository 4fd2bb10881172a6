#include "engine/guide/ebnf_productive.hpp"

#include <algorithm>
#include <vector>

namespace edgellm {
namespace {

using Kind = EbnfNode::Kind;

bool is_productive(const EbnfNode& node, const std::vector<bool>& rules) {
    const auto child_is = [&rules](const EbnfNode& child) { return is_productive(child, rules); };
    switch (node.kind) {
        case Kind::kText:
        case Kind::kClass:
        case Kind::kAnyCharacter: return true;
        case Kind::kRule: return rules[node.rule];
        case Kind::kSequence: return std::all_of(node.children.begin(), node.children.end(), child_is);
        case Kind::kAlternatives: return std::any_of(node.children.begin(), node.children.end(), child_is);
        case Kind::kRepeat: return node.least == 0 || child_is(node.children[0]);
    }
    return false;
}

void collect_rules(const EbnfNode& node, std::vector<std::size_t>& rules) {
    if (node.kind == Kind::kRule) rules.push_back(node.rule);
    for (const EbnfNode& child : node.children) collect_rules(child, rules);
}

std::vector<bool> find_productive_rules(const EbnfGrammar& grammar) {
    std::vector<std::vector<std::size_t>> users(grammar.rules.size());
    std::vector<std::size_t> to_look_at;
    for (std::size_t i = 0; i < grammar.rules.size(); ++i) {
        std::vector<std::size_t> used;
        collect_rules(grammar.rules[i].body, used);
        for (const std::size_t rule : used) users[rule].push_back(i);
        to_look_at.push_back(i);
    }
    std::vector<bool> productive(grammar.rules.size(), false);
    while (!to_look_at.empty()) {
        const std::size_t rule = to_look_at.back();
        to_look_at.pop_back();
        if (productive[rule] || !is_productive(grammar.rules[rule].body, productive)) continue;
        productive[rule] = true;
        to_look_at.insert(to_look_at.end(), users[rule].begin(), users[rule].end());
    }
    return productive;
}

// Of a node that is productive itself.
void prune(EbnfNode& node, const std::vector<bool>& rules) {
    if (node.kind == Kind::kRepeat && !is_productive(node.children[0], rules)) {
        node = EbnfNode{};  // none of it is all there can be
        return;
    }
    if (node.kind == Kind::kAlternatives) {
        std::erase_if(node.children, [&rules](const EbnfNode& child) { return !is_productive(child, rules); });
    }
    for (EbnfNode& child : node.children) prune(child, rules);
}

}  // namespace

bool keep_productive_parts(EbnfGrammar& grammar) {
    const std::vector<bool> productive = find_productive_rules(grammar);
    for (std::size_t i = 0; i < grammar.rules.size(); ++i) {
        if (productive[i]) {
            prune(grammar.rules[i].body, productive);
        } else {
            grammar.rules[i].body = EbnfNode{};  // nobody refers to it any more
        }
    }
    return productive[grammar.root];
}

}  // namespace edgellm
