#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/guide/bad_guide.hpp"
#include "engine/guide/deep_stack.hpp"
#include "engine/guide/guide_grammar.hpp"
#include "engine/guide/llguidance_abi.hpp"
#include "engine/guide/work_watch.hpp"
#include "engine/token_guide.hpp"
#include "engine/value_checks.hpp"
#include "model/model_spec.hpp"

namespace edgellm {
namespace {

// A lexer state takes one to two kilobytes.
constexpr std::size_t kMaxLexerStates = 60'000;
// Grammars spelled out by character make more of them than the library expects; 20,000 take a millisecond.
constexpr std::size_t kMaxParserItemsOfMask = 400'000;
// An object opens four for each property that it may begin with.
constexpr std::size_t kMaxParserItemsOfRow = 20'000;
// What a grammar may take of the thread that serves all sequences: so much for each token, saved up to so much for
// masks that need more, such as the first ones. A mask takes 0.1 ms on average.
constexpr std::chrono::milliseconds kCpuTimePerToken{10};
constexpr std::chrono::milliseconds kMostSavedCpuTime{250};
// For masks that are tried while compiling, on the caller's thread.
constexpr std::chrono::milliseconds kCpuTimeOfTrial{2000};
// Of large grammars the first tokens are tried, two ways: what cannot be followed is better refused than given up.
constexpr std::size_t kTriedGrammarBytes = 8192;
constexpr int kTriedTokens = 12;
constexpr std::size_t kErrorBytes = 512;

// The library stays loaded for good: its threads' local data must outlive any user of it.
llg::Interface load_interface(const std::string& path) {
    void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (library == nullptr) {
        const char* why = dlerror();
        refuse_value("guidance_library", std::string("cannot be loaded: ") + (why == nullptr ? "unknown cause" : why));
    }
    const auto find = [&](auto& function, const char* name) {
        void* symbol = dlsym(library, name);
        if (symbol == nullptr)
            refuse_value("guidance_library", std::string("lacks ") + name + ": it is no llguidance library");
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(symbol);
    };
    llg::Interface found{};
    find(found.get_version, "llg_get_version");
    const std::string versions = found.get_version();  // its own and those of parts of it
    const std::string version = versions.substr(0, versions.find(' '));
    if (version != llg::kVersion) {
        refuse_value("guidance_library", "is " + for_message(version) + "; needed is " + llg::kVersion);
    }
    find(found.new_tokenizer, "llg_new_tokenizer_v2");
    find(found.free_tokenizer, "llg_free_tokenizer");
    find(found.set_defaults, "llg_constraint_init_set_defaults");
    find(found.new_matcher, "llg_new_matcher");
    find(found.clone_matcher, "llg_clone_matcher");
    find(found.free_matcher, "llg_free_matcher");
    find(found.get_error, "llg_matcher_get_error");
    find(found.get_mask_byte_size, "llg_matcher_get_mask_byte_size");
    find(found.compute_mask_into, "llg_matcher_compute_mask_into");
    find(found.consume_token, "llg_matcher_consume_token");
    find(found.is_stopped, "llg_matcher_is_stopped");
    find(found.is_error, "llg_matcher_is_error");
    find(found.get_cancellation_handle, "llg_matcher_get_cancellation_handle");
    find(found.cancel, "llg_cancel");
    find(found.free_cancellation_handle, "llg_free_cancellation_handle");
    return found;
}

// Library and tokenizer, shared by the compiler and all guides, in whatever order they go.
class Guidance {
public:
    Guidance(const std::string& library_path, const VocabSpec& vocab) : api(load_interface(library_path)) {
        std::vector<uint32_t> lengths;
        std::string bytes;
        for (std::size_t token = 0; token < vocab.token_bytes.size(); ++token) {
            const bool special = token < vocab.is_special.size() && vocab.is_special[token];
            const std::string piece =
                special ? llg::kSpecialTokenMark + vocab.special_text[token] : vocab.token_bytes[token];
            lengths.push_back(static_cast<uint32_t>(piece.size()));
            text_bytes.push_back(special ? 0 : lengths.back());
            bytes += piece;
            if (special && !vocab.special_text[token].empty())
                specials.emplace(vocab.special_text[token], static_cast<int32_t>(token));
        }
        std::vector<uint32_t> ends(vocab.end_token_ids.begin(), vocab.end_token_ids.end());
        llg::TokenizerInit init{};
        init.struct_size = sizeof(init);
        init.vocab_size = static_cast<uint32_t>(lengths.size());
        init.end_token = ends.empty() ? llg::kNoToken : ends.front();
        init.token_lengths = lengths.data();
        init.token_bytes = reinterpret_cast<const uint8_t*>(bytes.data());
        init.use_approximate_greedy_tokenize = true;  // only used to look ahead
        if (ends.size() > 1) {
            init.extra_end_tokens = ends.data() + 1;
            init.extra_end_token_count = static_cast<uint32_t>(ends.size() - 1);
        }
        char error[kErrorBytes] = {};
        tokenizer = api.new_tokenizer(&init, error, sizeof(error));
        if (tokenizer == nullptr) throw Error("the guidance library refused the vocabulary: " + for_message(error));
    }
    Guidance(const Guidance&) = delete;
    Guidance& operator=(const Guidance&) = delete;
    ~Guidance() { api.free_tokenizer(tokenizer); }

    // The first or the longest token of a mask that is text; -1 when there is none.
    int32_t tried_token(std::span<const uint32_t> mask, bool longest) const {
        int32_t found = -1;
        for (std::size_t token = 0; token < text_bytes.size(); ++token) {
            if (((mask[token / 32] >> (token % 32)) & 1U) == 0 || text_bytes[token] == 0) continue;
            if (found >= 0 && text_bytes[token] <= text_bytes[static_cast<std::size_t>(found)]) continue;
            found = static_cast<int32_t>(token);
            if (!longest) break;
        }
        return found;
    }

    const llg::Interface api;
    mutable WorkWatch watch;
    llg::Tokenizer* tokenizer = nullptr;
    SpecialTokens specials;
    std::vector<uint32_t> text_bytes;  // of every token; 0 for special ones
};

// One matcher of the library, watched while it works.
class Matcher {
public:
    Matcher(std::shared_ptr<const Guidance> guidance, llg::Matcher* matcher)
        : guidance_(std::move(guidance)),
          matcher_(matcher),
          handle_(guidance_->api.get_cancellation_handle(matcher)),
          work_(guidance_->watch.add([api = &guidance_->api, handle = handle_] { api->cancel(handle); })) {
        if (handle_ == nullptr) work_->forget();
    }
    Matcher(const Matcher&) = delete;
    Matcher& operator=(const Matcher&) = delete;
    ~Matcher() {
        work_->forget();
        if (handle_ != nullptr) guidance_->api.free_cancellation_handle(handle_);
        guidance_->api.free_matcher(matcher_);
    }

    std::unique_ptr<Matcher> clone() const {
        return std::make_unique<Matcher>(guidance_, guidance_->api.clone_matcher(matcher_));
    }

    // "" when there is none.
    std::string error() const {
        const char* text = guidance_->api.get_error(matcher_);
        return text == nullptr ? "" : text;
    }
    bool out_of_time() const { return work_->stopped(); }
    bool complete() const { return guidance_->api.is_stopped(matcher_) && !guidance_->api.is_error(matcher_); }
    std::size_t mask_words() const { return guidance_->api.get_mask_byte_size(matcher_) / sizeof(uint32_t); }

    // Both take the CPU time that they need out of left, and are false where error() says why.
    bool compute_mask(std::span<uint32_t> mask, CpuTime& left) {
        return timed(left, [&] {
            return guidance_->api.compute_mask_into(matcher_, mask.data(), mask_words() * sizeof(uint32_t)) == 0;
        });
    }
    bool consume(int32_t token_id, CpuTime& left) {
        return timed(left, [&] {
            return guidance_->api.consume_token(matcher_, static_cast<uint32_t>(token_id)) == 0;
        });
    }

private:
    template <typename Call>
    bool timed(CpuTime& left, const Call& call) {
        bool succeeded = false;
        left -= work_->run(left, [&] { succeeded = call(); });
        return succeeded;
    }

    std::shared_ptr<const Guidance> guidance_;
    llg::Matcher* matcher_;
    llg::CancellationHandle* handle_;
    std::shared_ptr<WatchedWork> work_;
};

class LlguidanceGuide final : public TokenGuide {
public:
    LlguidanceGuide(std::string field, std::unique_ptr<Matcher> matcher)
        : field_(std::move(field)), matcher_(std::move(matcher)) {}

    void allowed(std::span<uint32_t> mask) override {
        if (matcher_->mask_words() > mask.size()) throw Error("the grammar's vocabulary is larger than the model's");
        const bool followed = matcher_->compute_mask(mask, cpu_time_left_);
        if (!followed || cpu_time_left_ < CpuTime::zero()) give_up();
    }

    bool accept(int32_t token_id) override {
        if (!matcher_->consume(token_id, cpu_time_left_)) {
            if (matcher_->error().find("doesn't satisfy the grammar") != std::string::npos) return false;
            give_up();
        }
        if (cpu_time_left_ < CpuTime::zero()) give_up();
        cpu_time_left_ = std::min<CpuTime>(cpu_time_left_ + kCpuTimePerToken, kMostSavedCpuTime);
        return true;
    }

    bool complete() const override { return matcher_->complete(); }

private:
    [[noreturn]] void give_up() const {
        const std::string error = matcher_->error();
        const auto says = [&](std::string_view text) { return error.find(text) != std::string::npos; };
        std::string_view why = "cannot be followed any further; simplify it";
        if (matcher_->out_of_time() || cpu_time_left_ < CpuTime::zero()) {
            why = "it takes too much computing time for each token; make it less ambiguous, with fewer ways to read the "
                  "same text";
        } else if (says("Current row") || says("Too many items")) {
            why = "too many of its rules are open at once; use fewer alternatives, and repetition instead of recursion "
                  "at the end of a rule";
        } else if (says("exer") || says("fuel") || says("states")) {
            why = "its patterns take too many states; use fewer patterns, with shorter counted repetitions";
        }
        give_up_guide(field_, "met a limit of the grammar engine: " + std::string(why));
    }

    const std::string field_;
    std::unique_ptr<Matcher> matcher_;
    CpuTime cpu_time_left_ = kMostSavedCpuTime;
};

class LlguidanceCompiler final : public GuideCompiler {
public:
    LlguidanceCompiler(const std::string& library_path, const VocabSpec& vocab)
        : guidance_(std::make_shared<const Guidance>(library_path, vocab)) {}

    std::unique_ptr<TokenGuide> compile(const GuidedDecodingParams& params) override {
        std::unique_ptr<Matcher> matcher;
        std::string field;
        run_on_deep_stack([&] {
            const GuideGrammar grammar = make_guide_grammar(params, guidance_->specials);
            if (grammar.text.find('\0') != std::string::npos)
                refuse_guide(grammar.field, "must not contain NUL characters");
            matcher = make_matcher(grammar);
            try_out(*matcher, grammar);
            field = grammar.field;
        });
        return std::make_unique<LlguidanceGuide>(std::move(field), std::move(matcher));
    }

private:
    std::unique_ptr<Matcher> make_matcher(const GuideGrammar& grammar) const {
        llg::ConstraintInit init{};
        guidance_->api.set_defaults(&init, guidance_->tokenizer);
        init.log_buffer_level = 0;
        init.log_stderr_level = 0;
        init.limits.max_lexer_states = kMaxLexerStates;
        init.limits.step_max_items = kMaxParserItemsOfMask;
        init.limits.max_items_in_row = kMaxParserItemsOfRow;
        init.limits.precompute_large_lexemes = true;
        init.limits.verbose_errors = false;  // they would quote the answer so far
        return std::make_unique<Matcher>(
            guidance_, guidance_->api.new_matcher(&init, grammar.kind.c_str(), grammar.text.c_str()));
    }

    // Here, where nobody else waits for it. The first mask builds most of the lexer.
    void try_out(Matcher& matcher, const GuideGrammar& grammar) const {
        if (const std::string error = matcher.error(); !error.empty()) refuse(grammar, error);
        CpuTime left = kCpuTimeOfTrial;
        std::vector<uint32_t> mask(matcher.mask_words());
        if (!matcher.compute_mask(mask, left)) refuse(matcher, grammar);
        if (grammar.text.size() < kTriedGrammarBytes) return;
        for (const bool longest : {false, true}) {
            const std::unique_ptr<Matcher> trial = matcher.clone();
            for (int i = 0; i < kTriedTokens; ++i) {
                std::fill(mask.begin(), mask.end(), 0U);
                if (!trial->compute_mask(mask, left)) refuse(*trial, grammar);
                const int32_t token = guidance_->tried_token(mask, longest);
                if (token < 0) break;
                if (!trial->consume(token, left)) refuse(*trial, grammar);
                if (left < CpuTime::zero()) refuse_slow(grammar);
                if (trial->complete()) break;
            }
        }
    }

    [[noreturn]] static void refuse_slow(const GuideGrammar& grammar) {
        refuse_guide(grammar.field, "takes too much computing time to be enforced: make it smaller or less ambiguous");
    }

    [[noreturn]] void refuse(const Matcher& matcher, const GuideGrammar& grammar) const {
        if (matcher.out_of_time()) refuse_slow(grammar);
        refuse(grammar, matcher.error());
    }

    // Says in our own words what was refused, with the path of the keyword that it is about where that can be told.
    [[noreturn]] void refuse(const GuideGrammar& grammar, const std::string& error) const {
        const auto says = [&](std::string_view text) { return error.find(text) != std::string::npos; };
        for (const SchemaPlace& place : grammar.places) {
            if (place.keyword == "pattern") check_regex(place);
            if (place.keyword == "oneOf" && says("oneOf")) {
                refuse_guide(place.path, "cannot be enforced where its alternatives may overlap; use anyOf");
            }
            if (place.keyword == "patternProperties" && says("patternProperty")) {
                refuse_guide(place.path, "cannot be enforced where its patterns may overlap");
            }
            if ((place.keyword == "minProperties" || place.keyword == "maxProperties") && says("min/maxProperties")) {
                refuse_guide(place.path, "can be enforced only where all named properties are required");
            }
        }
        if (says("Unsatisfiable"))
            refuse_guide(grammar.field, "allows nothing: some of its demands exclude each other");
        if (says("too large") || says("too many") || says("limit") || says("Current row") || says("Too many"))
            refuse_guide(grammar.field, "is too large to be enforced");
        refuse_guide(grammar.field, "cannot be enforced: it is malformed, allows nothing, or is too ambiguous");
    }

    void check_regex(const SchemaPlace& place) const {
        const GuideGrammar alone{"lark", LarkGrammar().finish(lark_regex(place.value)), "", {}};
        const std::string error = make_matcher(alone)->error();
        if (error.empty()) return;
        const bool is_foreign = error.find("error: look-around") != std::string::npos ||
                                error.find("error: backreferences") != std::string::npos;
        refuse_guide(place.path, is_foreign ? "uses look-around or a back-reference, which cannot be enforced"
                                            : "is no regular expression: it does not parse");
    }

    std::shared_ptr<const Guidance> guidance_;
};

}  // namespace

std::unique_ptr<GuideCompiler> make_llguidance_compiler(const std::string& library_path, const VocabSpec& vocab) {
    return std::make_unique<LlguidanceCompiler>(library_path, vocab);
}

}  // namespace edgellm
