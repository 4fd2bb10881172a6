// Text comes out whole: valid UTF-8, never part of a stop string, the same however tokens divide it.
#include "check.hpp"
#include "scripted_executor.hpp"

#include "engine/text_stream.hpp"
#include "engine/utf8_repair.hpp"

#include <algorithm>
#include <random>

using edgellm::TextStream;
using edgellm::Utf8Repair;

namespace {

const std::string kUnknown = "\xEF\xBF\xBD";

std::string repaired(const std::string& bytes, bool replace_unfinished = true) {
    Utf8Repair repair;
    std::string out;
    for (const char byte : bytes) repair.append(std::string(1, byte), out);
    repair.finish(replace_unfinished, out);
    std::string at_once;
    Utf8Repair other;
    other.append(bytes, at_once);
    other.finish(replace_unfinished, at_once);
    CHECK(out == at_once);
    return out;
}

struct Streamed {
    std::string text;
    int32_t matched_stop = -1;
    std::vector<std::string> deltas;
};

// A vocabulary of the given pieces, one token each.
edgellm::VocabSpec vocab_of(const std::vector<std::string>& pieces) {
    edgellm::VocabSpec vocab;
    vocab.token_bytes = pieces;
    vocab.special_text.resize(pieces.size());
    vocab.is_special.resize(pieces.size());
    return vocab;
}

Streamed stream(const std::vector<std::string>& pieces, const std::vector<std::string>& stops, bool cut = false) {
    const edgellm::VocabSpec vocab = vocab_of(pieces);
    TextStream text(vocab, stops, true);
    Streamed result;
    for (std::size_t token = 0; token < pieces.size(); ++token) {
        std::string delta;
        const bool stopped = text.append(static_cast<int32_t>(token), delta);
        result.deltas.push_back(delta);
        result.text += delta;
        if (stopped) {
            result.matched_stop = text.matched_stop();
            return result;
        }
    }
    std::string rest;
    text.finish(cut, rest);
    result.text += rest;
    result.matched_stop = text.matched_stop();
    return result;
}

}  // namespace

TEST(valid_text_passes_unchanged) {
    const std::string text = "aé€😀\xF4\x8F\xBF\xBF\xED\x9F\xBF";
    CHECK(repaired(text) == text);
}

TEST(each_maximal_invalid_part_becomes_one_replacement) {
    CHECK(repaired("\xFF") == kUnknown);
    CHECK(repaired("\x80\x80") == kUnknown + kUnknown);
    CHECK(repaired("\xC0\xAF") == kUnknown + kUnknown);  // overlong
    CHECK(repaired("\xE2\x82x") == kUnknown + "x");      // truncated, then a letter
    CHECK(repaired("\xE0\x9F\xBF") == kUnknown + kUnknown + kUnknown);
    CHECK(repaired("\xED\xA0\x80") == kUnknown + kUnknown + kUnknown);  // a surrogate
    CHECK(repaired("\xF0\x90\x8D\xF0\x9F\x98\x80") == kUnknown + "😀");
    CHECK(repaired("\xF5\x80") == kUnknown + kUnknown);
    CHECK(repaired("\xF4\x90\x80\x80") == kUnknown + kUnknown + kUnknown + kUnknown);
}

TEST(an_unfinished_code_point_is_replaced_or_dropped) {
    CHECK(repaired("a\xF0\x9F\x98") == "a" + kUnknown);
    CHECK(repaired("a\xF0\x9F\x98", false) == "a");
}

TEST(a_code_point_over_several_tokens_comes_out_whole) {
    const Streamed result = stream({"\xF0", "\x9F", "\x98", "\x80", "!"}, {});
    CHECK(result.deltas == (std::vector<std::string>{"", "", "", "😀", "!"}));
}

TEST(text_cut_from_outside_ends_before_half_a_code_point) {
    CHECK(stream({"a", "\xF0\x9F"}, {}, true).text == "a");
    CHECK(stream({"a", "\xF0\x9F"}, {}, false).text == "a" + kUnknown);
}

TEST(stop_strings_are_found_over_token_borders_and_never_shown) {
    const Streamed result = stream({"Hel", "lo E", "N", "D of"}, {"END"});
    CHECK(result.text == "Hello ");
    CHECK(result.matched_stop == 0);
    CHECK(result.deltas[1] == "lo ");
}

TEST(what_only_looked_like_a_stop_string_comes_out) {
    CHECK(stream({"a E", "N", "C"}, {"END"}).text == "a ENC");
    CHECK(stream({"a E", "N"}, {"END"}).text == "a EN");
    CHECK(stream({"ab", "ab", "ac"}, {"abac"}).text == "ab");
}

TEST(the_stop_string_that_ends_first_wins_then_the_longest) {
    CHECK(stream({"xabcy"}, {"abc", "b"}).matched_stop == 1);
    CHECK(stream({"xabcy"}, {"abc", "b"}).text == "xa");
    CHECK(stream({"xabcy"}, {"c", "abc", "bc"}).matched_stop == 1);
    CHECK(stream({"xabcy"}, {"c", "abc", "bc"}).text == "x");
    CHECK(stream({"é"}, {"é"}).text.empty());
}

TEST(the_leading_space_of_sentencepiece_models_goes_once) {
    edgellm::VocabSpec vocab = vocab_of({" a", " b"});
    vocab.strip_leading_space = true;
    TextStream text(vocab, {}, true);
    std::string out;
    text.append(0, out);
    text.append(1, out);
    CHECK(out == "a b");
}

TEST(tokens_outside_the_vocabulary_add_nothing) {
    const edgellm::VocabSpec vocab = vocab_of({"a"});
    TextStream text(vocab, {}, true);
    std::string out;
    CHECK(!text.append(5, out) && out.empty());
}

TEST(any_division_into_tokens_gives_the_same_text) {
    std::mt19937 random(3);
    const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random()) % count; };
    const std::vector<std::string> alphabet = {"a", "b", "ab", "é", "😀", "\xFF", "\xE2\x82", "\n", "STOP", "ST", "OP"};
    for (int round = 0; round < 3000; ++round) {
        std::string bytes;
        for (std::size_t i = pick(20); i > 0; --i) bytes += alphabet[pick(alphabet.size())];
        std::vector<std::string> stops;
        for (std::size_t i = pick(3); i > 0; --i) {
            std::string stop;
            for (std::size_t j = 1 + pick(3); j > 0; --j)
                stop += std::vector<std::string>{"a", "b", "é", "STOP", "O"}[pick(5)];
            stops.push_back(stop);
        }
        std::vector<std::string> whole{bytes};
        std::vector<std::string> singles;
        for (const char byte : bytes) singles.emplace_back(1, byte);
        std::vector<std::string> pieces;
        for (std::size_t at = 0; at < bytes.size();) {
            const std::size_t size = std::min(bytes.size() - at, 1 + pick(4));
            pieces.push_back(bytes.substr(at, size));
            at += size;
        }
        const bool cut = pick(2) == 0;
        const Streamed expected = stream(whole, stops, cut);
        for (const auto& division : {singles, pieces}) {
            const Streamed result = stream(division, stops, cut);
            CHECK(result.text == expected.text);
            CHECK(result.matched_stop == expected.matched_stop);
        }
        for (const std::string& stop : stops) CHECK(expected.text.find(stop) == std::string::npos);
    }
}

CHECK_MAIN()
