#include "engine/guide/ebnf_lexemes.hpp"

#include <algorithm>
#include <bitset>
#include <utility>

#include "engine/guide/ebnf_words.hpp"

namespace edgellm {
namespace {

using Kind = EbnfNode::Kind;

constexpr std::size_t kMaxLexemes = 256;  // of one grammar, for the analysis
using LexemeSet = std::bitset<kMaxLexemes>;

void collect_references(const EbnfNode& node, std::vector<std::size_t>& references) {
    if (node.kind == Kind::kRule) references.push_back(node.rule);
    for (const EbnfNode& child : node.children) collect_references(child, references);
}

// Taking away the rules whose references are all regular, again and again, leaves those that recurse or lead to
// recursion.
std::vector<bool> find_regular_rules(const EbnfGrammar& grammar) {
    const std::size_t count = grammar.rules.size();
    std::vector<std::vector<std::size_t>> users(count);
    std::vector<std::size_t> open_references(count, 0);
    std::vector<std::size_t> ready;
    for (std::size_t i = 0; i < count; ++i) {
        std::vector<std::size_t> used;
        collect_references(grammar.rules[i].body, used);
        std::sort(used.begin(), used.end());
        used.erase(std::unique(used.begin(), used.end()), used.end());
        open_references[i] = used.size();
        for (const std::size_t reference : used) users[reference].push_back(i);
        if (used.empty()) ready.push_back(i);
    }
    std::vector<bool> regular(count, false);
    while (!ready.empty()) {
        const std::size_t rule = ready.back();
        ready.pop_back();
        regular[rule] = true;
        for (const std::size_t user : users[rule]) {
            if (--open_references[user] == 0) ready.push_back(user);
        }
    }
    return regular;
}

class Cutter {
public:
    explicit Cutter(const EbnfGrammar& grammar) : grammar_(grammar), words_(grammar) {}

    LexemeCut cut() {
        cut_.regular = find_regular_rules(grammar_);
        cut_.outlines.resize(grammar_.rules.size());
        for (std::size_t i = 0; i < grammar_.rules.size(); ++i) {
            if (!cut_.regular[i]) cut_.outlines[i] = outline(grammar_.rules[i].body);
        }
        return std::move(cut_);
    }

private:
    bool is_regular(const EbnfNode& node) const {
        if (node.kind == Kind::kRule) return cut_.regular[node.rule];
        return std::all_of(node.children.begin(), node.children.end(),
                           [this](const EbnfNode& child) { return is_regular(child); });
    }

    LexemeOutline outline(const EbnfNode& node) {
        if (is_regular(node)) return lexeme(node);
        LexemeOutline made;
        switch (node.kind) {
            case Kind::kRule:
                made.kind = LexemeOutline::Kind::kRule;
                made.index = node.rule;
                break;
            case Kind::kRepeat:
                made.kind = LexemeOutline::Kind::kRepeat;
                made.least = node.least;
                made.most = node.most;
                made.children.push_back(outline(node.children[0]));
                break;
            case Kind::kAlternatives: made.kind = LexemeOutline::Kind::kAlternatives; [[fallthrough]];
            case Kind::kSequence: add_merged(node, made); break;
            case Kind::kText:
            case Kind::kClass:
            case Kind::kAnyCharacter: break;  // always regular
        }
        return made;
    }

    // All regular alternatives become one lexeme. Neighbours in a sequence do where the border between them is not
    // told by the next character, and where the second may be empty; otherwise they stay apart, which leaves fewer
    // beginnings that look alike.
    void add_merged(const EbnfNode& node, LexemeOutline& made) {
        const bool sequence = node.kind == Kind::kSequence;
        EbnfNode regular;
        regular.kind = node.kind;
        WordFacts so_far;
        const auto flush = [&] {
            if (!regular.children.empty()) made.children.push_back(lexeme(regular));
            regular.children.clear();
            so_far = {};
        };
        for (const EbnfNode& child : node.children) {
            if (!is_regular(child)) {
                if (sequence) flush();
                made.children.push_back(outline(child));
                continue;
            }
            if (sequence) {
                const WordFacts facts = words_.describe(child);
                if (!facts.nullable && !so_far.extending.intersects(facts.first)) flush();
                so_far = followed_by(so_far, facts);
            }
            regular.children.push_back(child);
        }
        flush();
    }

    LexemeOutline lexeme(const EbnfNode& node) {
        LexemeOutline made;
        made.kind = LexemeOutline::Kind::kLexeme;
        made.index = cut_.lexemes.size();
        cut_.lexemes.push_back(node);
        return made;
    }

    const EbnfGrammar& grammar_;
    WordAnalysis words_;
    LexemeCut cut_;
};

// Which lexemes can come first in a rule, and which after each lexeme.
class LexemeOrder {
public:
    LexemeOrder(const LexemeCut& cut, std::vector<bool> nullable) : cut_(cut), lexeme_nullable_(std::move(nullable)) {
        begins_.resize(cut.outlines.size());
        rule_follow_.resize(cut.outlines.size());
        follow_.resize(cut.lexemes.size());
        find_begins();
    }

    const LexemeSet& first_of_rule(std::size_t rule) const { return begins_[rule].lexemes; }

    std::vector<LexemeSet> find_follow(std::size_t root) {
        std::vector<std::size_t> changed{root};
        std::vector<bool> seen(cut_.outlines.size(), false);
        while (!changed.empty()) {
            const std::size_t rule = changed.back();
            changed.pop_back();
            seen[rule] = true;
            walk(cut_.outlines[rule], rule_follow_[rule], [&](std::size_t used, const LexemeSet& follow) {
                const LexemeSet grown = rule_follow_[used] | follow;
                if (seen[used] && grown == rule_follow_[used]) return;
                seen[used] = true;
                rule_follow_[used] = grown;
                changed.push_back(used);
            });
        }
        return follow_;
    }

private:
    struct Begin {
        LexemeSet lexemes;
        bool nullable = false;
        bool operator==(const Begin&) const = default;
    };

    Begin begin_of(const LexemeOutline& node) const {
        Begin begin;
        switch (node.kind) {
            case LexemeOutline::Kind::kLexeme:
                begin.lexemes.set(node.index);
                begin.nullable = lexeme_nullable_[node.index];
                break;
            case LexemeOutline::Kind::kRule: return begins_[node.index];
            case LexemeOutline::Kind::kSequence:
                begin.nullable = true;
                for (const LexemeOutline& child : node.children) {
                    if (!begin.nullable) break;
                    const Begin one = begin_of(child);
                    begin.lexemes |= one.lexemes;
                    begin.nullable = one.nullable;
                }
                break;
            case LexemeOutline::Kind::kAlternatives:
                for (const LexemeOutline& child : node.children) {
                    const Begin one = begin_of(child);
                    begin.lexemes |= one.lexemes;
                    begin.nullable = begin.nullable || one.nullable;
                }
                break;
            case LexemeOutline::Kind::kRepeat:
                begin = begin_of(node.children[0]);
                begin.nullable = begin.nullable || node.least == 0;
                break;
        }
        return begin;
    }

    void find_begins() {
        std::vector<std::vector<std::size_t>> users(cut_.outlines.size());
        std::vector<std::size_t> changed;
        for (std::size_t i = 0; i < cut_.outlines.size(); ++i) {
            note_users(cut_.outlines[i], i, users);
            if (!cut_.regular[i]) changed.push_back(i);
        }
        while (!changed.empty()) {
            const std::size_t rule = changed.back();
            changed.pop_back();
            const Begin begin = begin_of(cut_.outlines[rule]);
            if (begin == begins_[rule]) continue;
            begins_[rule] = begin;
            changed.insert(changed.end(), users[rule].begin(), users[rule].end());
        }
    }

    static void note_users(const LexemeOutline& node, std::size_t user, std::vector<std::vector<std::size_t>>& users) {
        if (node.kind == LexemeOutline::Kind::kRule) users[node.index].push_back(user);
        for (const LexemeOutline& child : node.children) note_users(child, user, users);
    }

    // Notes what can follow each lexeme, given what can follow the node; tells what can follow each rule used.
    template <typename OnRule>
    void walk(const LexemeOutline& node, const LexemeSet& follow, const OnRule& on_rule) {
        switch (node.kind) {
            case LexemeOutline::Kind::kLexeme: follow_[node.index] |= follow; break;
            case LexemeOutline::Kind::kRule: on_rule(node.index, follow); break;
            case LexemeOutline::Kind::kAlternatives:
                for (const LexemeOutline& child : node.children) walk(child, follow, on_rule);
                break;
            case LexemeOutline::Kind::kRepeat:
                walk(node.children[0], node.most == 1 ? follow : follow | begin_of(node.children[0]).lexemes, on_rule);
                break;
            case LexemeOutline::Kind::kSequence: {
                LexemeSet after = follow;
                for (auto child = node.children.rbegin(); child != node.children.rend(); ++child) {
                    walk(*child, after, on_rule);
                    const Begin begin = begin_of(*child);
                    after = begin.nullable ? after | begin.lexemes : begin.lexemes;
                }
                break;
            }
        }
    }

    const LexemeCut& cut_;
    std::vector<bool> lexeme_nullable_;
    std::vector<Begin> begins_;
    std::vector<LexemeSet> rule_follow_;
    std::vector<LexemeSet> follow_;
};

}  // namespace

LexemeCut cut_into_lexemes(const EbnfGrammar& grammar) { return Cutter(grammar).cut(); }

bool lexemes_are_exact(const EbnfGrammar& grammar, const LexemeCut& cut) {
    const std::size_t count = cut.lexemes.size();
    if (count > kMaxLexemes) return false;
    WordAnalysis words(grammar);
    std::vector<WordFacts> facts;
    std::vector<bool> nullable;
    for (const EbnfNode& lexeme : cut.lexemes) {
        facts.push_back(words.describe(lexeme));
        nullable.push_back(facts.back().nullable);
    }
    LexemeOrder order(cut, nullable);
    std::vector<LexemeSet> together = order.find_follow(grammar.root);  // sets of lexemes that one place may expect
    std::vector<CharacterSet> next(count);
    for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t after = 0; after < count; ++after) {
            if (together[i].test(after)) next[i].add(facts[after].first);
        }
        // It would go on reading where the next one should begin.
        if (facts[i].extending.intersects(next[i])) return false;
    }
    together.push_back(order.first_of_rule(grammar.root));
    // Two that may begin alike: the one that can go on must not take what follows a whole word of the other.
    std::vector<LexemeSet> rivals(count);
    for (std::size_t a = 0; a < count; ++a) {
        for (std::size_t b = 0; b < count; ++b) {
            rivals[a].set(b, a != b && facts[a].first.intersects(facts[b].first) && facts[b].later.intersects(next[a]));
        }
    }
    return std::all_of(together.begin(), together.end(), [&](const LexemeSet& expected) {
        for (std::size_t a = 0; a < count; ++a) {
            if (expected.test(a) && (expected & rivals[a]).any()) return false;
        }
        return true;
    });
}

}  // namespace edgellm
