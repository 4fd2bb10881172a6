// Random EBNF grammars: the guide lets a model write exactly the words that a plain recogniser accepts.
#include "check.hpp"
#include "guide_prober.hpp"

#include "contract/errors.hpp"
#include "engine/guide/ebnf.hpp"
#include "engine/guide/ebnf_lexemes.hpp"

#include <random>
#include <set>

using edgellm::EbnfGrammar;
using edgellm::EbnfNode;
using edgellm::GuideType;
using scripted::Verdict;

namespace {

// Accepts by sets of end positions, growing them until nothing changes, so that left recursion ends too.
class Recogniser {
public:
    Recogniser(const EbnfGrammar& grammar, const std::string& word) : grammar_(grammar), word_(word) {
        ends_.assign(grammar.rules.size(), std::vector<std::set<std::size_t>>(word.size() + 1));
    }
    bool accepts() {
        for (bool grew = true; grew;) {
            grew = false;
            for (std::size_t rule = 0; rule < grammar_.rules.size(); ++rule) {
                for (std::size_t at = 0; at <= word_.size(); ++at) {
                    const std::size_t before = ends_[rule][at].size();
                    const std::set<std::size_t> found = match(grammar_.rules[rule].body, at);
                    ends_[rule][at].insert(found.begin(), found.end());
                    grew = grew || ends_[rule][at].size() != before;
                }
            }
        }
        return ends_[grammar_.root][0].contains(word_.size());
    }

private:
    using Ends = std::set<std::size_t>;

    Ends match(const EbnfNode& node, std::size_t at) const {
        Ends ends;
        switch (node.kind) {
            case EbnfNode::Kind::kText:
                if (word_.substr(at).starts_with(node.text)) ends.insert(at + node.text.size());
                break;
            case EbnfNode::Kind::kClass:
            case EbnfNode::Kind::kAnyCharacter: {
                bool inside = false;
                if (at < word_.size()) {
                    for (const auto& [first, last] : node.ranges) {
                        inside = inside || (static_cast<unsigned char>(word_[at]) >= first &&
                                            static_cast<unsigned char>(word_[at]) <= last);
                    }
                    if (inside != (node.negated || node.ranges.empty())) ends.insert(at + 1);
                }
                break;
            }
            case EbnfNode::Kind::kRule: ends = ends_[node.rule][at]; break;
            case EbnfNode::Kind::kSequence:
                ends.insert(at);
                for (const EbnfNode& child : node.children) ends = then(ends, child);
                break;
            case EbnfNode::Kind::kAlternatives:
                for (const EbnfNode& child : node.children) ends.merge(match(child, at));
                break;
            case EbnfNode::Kind::kRepeat: {
                Ends now{at};
                for (int32_t i = 0; i < node.least; ++i) now = then(now, node.children[0]);
                ends = now;
                for (int32_t i = node.least; node.most < 0 ? i < node.least + 8 : i < node.most; ++i) {
                    now = then(now, node.children[0]);
                    ends.insert(now.begin(), now.end());
                }
                break;
            }
        }
        return ends;
    }
    Ends then(const Ends& starts, const EbnfNode& node) const {
        Ends ends;
        for (const std::size_t start : starts) ends.merge(match(node, start));
        return ends;
    }

    const EbnfGrammar& grammar_;
    const std::string& word_;
    std::vector<std::vector<Ends>> ends_;
};

class GrammarMaker {
public:
    explicit GrammarMaker(uint32_t seed) : random_(seed) {}
    std::string make() {
        return "root ::= " + alternatives(2) + "\nx ::= " + alternatives(2) + "\ny ::= " + alternatives(2) + "\n";
    }

private:
    uint32_t pick(uint32_t count) { return static_cast<uint32_t>(random_()) % count; }
    std::string alternatives(int depth) {
        std::string text = sequence(depth);
        for (uint32_t more = pick(3); more > 0; --more) text += " | " + sequence(depth);
        return text;
    }
    std::string sequence(int depth) {
        std::string text;
        for (uint32_t more = pick(4); more > 0; --more) text += element(depth) + " ";
        return text.empty() ? "\"a\"" : text;
    }
    std::string element(int depth) {
        static const std::vector<std::string> kRepeats = {"", "", "", "*", "+", "?", "{1,2}", "{2}"};
        static const std::vector<std::string> kElements = {"\"a\"",
                                                           "\"b\"",
                                                           "\"(\"",
                                                           "\"ab\"",
                                                           "\"ba\"",
                                                           "[ab]",
                                                           "[^a]",
                                                           "x",
                                                           "y",
                                                           "root",
                                                           "(\"(\" root \")\")",
                                                           "(\"(\" x \")\")"};
        const std::string inner = depth > 0 && pick(4) == 0 ? "(" + alternatives(depth - 1) + ")"
                                                            : kElements[pick(static_cast<uint32_t>(kElements.size()))];
        return inner + kRepeats[pick(static_cast<uint32_t>(kRepeats.size()))];
    }
    std::mt19937 random_;
};

std::vector<std::string> words_up_to(std::size_t size) {
    std::vector<std::string> words{""};
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i].size() == size) continue;
        for (const char letter : {'a', 'b', '(', ')'}) words.push_back(words[i] + letter);
    }
    return words;
}

}  // namespace

TEST(random_grammars_are_enforced_exactly) {
    scripted::GuideProber prober;
    const std::vector<std::string> words = words_up_to(3);
    int compiled = 0, recursive = 0, exact_lexemes = 0, accepted = 0;
    for (uint32_t seed = 0; seed < 80; ++seed) {
        const std::string text = GrammarMaker(seed).make();
        EbnfGrammar grammar;
        try {
            grammar = edgellm::read_ebnf(text, "grammar");
        } catch (const edgellm::InvalidRequest&) {
            continue;  // no word at all
        }
        const edgellm::LexemeCut cut = edgellm::cut_into_lexemes(grammar);
        ++compiled;
        recursive += cut.regular[grammar.root] ? 0 : 1;
        exact_lexemes += !cut.regular[grammar.root] && edgellm::lexemes_are_exact(grammar, cut) ? 1 : 0;
        for (const std::string& word : words) {
            const bool expected = Recogniser(grammar, word).accepts();
            const bool found = prober.judge(GuideType::kEbnf, text, word) == Verdict::kWhole;
            accepted += expected ? 1 : 0;
            if (expected != found)
                check::fail(__FILE__, __LINE__, (expected ? "lost '" : "let through '") + word + "' of\n" + text);
        }
    }
    std::printf("%d grammars, %d recursive, %d of them by lexemes, %d words accepted\n", compiled, recursive,
                exact_lexemes, accepted);
    CHECK(compiled > 60 && recursive > 40 && exact_lexemes > 2 && accepted > 500);
}

int main() {
    if (scripted::guidance_library().empty()) {
        std::printf("skipped: no llguidance library was found beside ggml\n");
        return 77;
    }
    return check::run_all();
}
