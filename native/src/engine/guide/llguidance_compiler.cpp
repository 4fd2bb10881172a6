#include <dlfcn.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/guide/bad_guide.hpp"
#include "engine/guide/deep_stack.hpp"
#include "engine/guide/guide_grammar.hpp"
#include "engine/guide/llguidance_abi.hpp"
#include "engine/token_guide.hpp"
#include "engine/value_checks.hpp"
#include "model/model_spec.hpp"

namespace edgellm {
namespace {

// A lexer state takes one to two kilobytes.
constexpr std::size_t kMaxLexerStates = 60'000;
// Grammars spelled out by character make more of them than the library expects; 20,000 take a millisecond.
constexpr std::size_t kMaxParserItemsOfMask = 400'000;
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
    find(found.free_matcher, "llg_free_matcher");
    find(found.get_error, "llg_matcher_get_error");
    find(found.get_mask_byte_size, "llg_matcher_get_mask_byte_size");
    find(found.compute_mask_into, "llg_matcher_compute_mask_into");
    find(found.consume_token, "llg_matcher_consume_token");
    find(found.is_stopped, "llg_matcher_is_stopped");
    find(found.is_error, "llg_matcher_is_error");
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

    const llg::Interface api;
    llg::Tokenizer* tokenizer = nullptr;
    SpecialTokens specials;
};

class LlguidanceGuide final : public TokenGuide {
public:
    LlguidanceGuide(std::shared_ptr<const Guidance> guidance, const GuideGrammar& grammar)
        : guidance_(std::move(guidance)) {
        llg::ConstraintInit init{};
        guidance_->api.set_defaults(&init, guidance_->tokenizer);
        init.log_buffer_level = 0;
        init.log_stderr_level = 0;
        init.limits.max_lexer_states = kMaxLexerStates;
        init.limits.step_max_items = kMaxParserItemsOfMask;
        init.limits.precompute_large_lexemes = true;
        init.limits.verbose_errors = false;  // they would quote the answer so far
        matcher_ = guidance_->api.new_matcher(&init, grammar.kind.c_str(), grammar.text.c_str());
    }
    LlguidanceGuide(const LlguidanceGuide&) = delete;
    LlguidanceGuide& operator=(const LlguidanceGuide&) = delete;
    ~LlguidanceGuide() override { guidance_->api.free_matcher(matcher_); }

    // "" when there is none.
    std::string error() const {
        const char* text = guidance_->api.get_error(matcher_);
        return text == nullptr ? "" : text;
    }

    void allowed(std::span<uint32_t> mask) override {
        const std::size_t byte_size = guidance_->api.get_mask_byte_size(matcher_);
        if (byte_size > mask.size_bytes()) throw Error("the grammar's vocabulary is larger than the model's");
        if (guidance_->api.compute_mask_into(matcher_, mask.data(), byte_size) != 0) {
            throw Error("the grammar could not be followed any further");
        }
    }

    // The first mask builds most of the lexer. Failing leaves an error behind.
    void warm_up() {
        std::vector<uint32_t> mask(guidance_->api.get_mask_byte_size(matcher_) / sizeof(uint32_t));
        (void)guidance_->api.compute_mask_into(matcher_, mask.data(), mask.size() * sizeof(uint32_t));
    }

    bool accept(int32_t token_id) override {
        return guidance_->api.consume_token(matcher_, static_cast<uint32_t>(token_id)) == 0;
    }

    bool complete() const override { return guidance_->api.is_stopped(matcher_) && !guidance_->api.is_error(matcher_); }

private:
    std::shared_ptr<const Guidance> guidance_;
    llg::Matcher* matcher_;
};

class LlguidanceCompiler final : public GuideCompiler {
public:
    LlguidanceCompiler(const std::string& library_path, const VocabSpec& vocab)
        : guidance_(std::make_shared<const Guidance>(library_path, vocab)) {}

    std::unique_ptr<TokenGuide> compile(const GuidedDecodingParams& params) override {
        std::unique_ptr<LlguidanceGuide> guide;
        run_on_deep_stack([&] {
            const GuideGrammar grammar = make_guide_grammar(params, guidance_->specials);
            if (grammar.text.find('\0') != std::string::npos)
                refuse_guide(grammar.field, "must not contain NUL characters");
            guide = std::make_unique<LlguidanceGuide>(guidance_, grammar);
            if (guide->error().empty()) guide->warm_up();  // here, where nobody else waits for it
            if (const std::string error = guide->error(); !error.empty()) refuse(grammar, error);
        });
        return guide;
    }

private:
    // Says in our own words what was refused, with the path of the keyword that it is about where that can be told.
    [[noreturn]] void refuse(const GuideGrammar& grammar, const std::string& error) const {
        const auto says = [&](std::string_view text) { return error.find(text) != std::string::npos; };
        for (const SchemaPlace& place : grammar.places) {
            if (place.keyword == "pattern" && !is_regex(place.value)) {
                refuse_guide(place.path,
                             "is no regular expression that can be enforced: look-around and back-references cannot");
            }
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
        if (says("too large") || says("too many") || says("limit"))
            refuse_guide(grammar.field, "is too large to be enforced");
        refuse_guide(grammar.field, "cannot be enforced: it is malformed, allows nothing, or is too ambiguous");
    }

    bool is_regex(const std::string& pattern) const {
        const GuideGrammar alone{"lark", LarkGrammar().finish(lark_regex(pattern)), "", {}};
        return LlguidanceGuide(guidance_, alone).error().empty();
    }

    std::shared_ptr<const Guidance> guidance_;
};

}  // namespace

std::unique_ptr<GuideCompiler> make_llguidance_compiler(const std::string& library_path, const VocabSpec& vocab) {
    return std::make_unique<LlguidanceCompiler>(library_path, vocab);
}

}  // namespace edgellm
