// ScriptedExecutor: an Executor whose arithmetic is a hash of the context as read back through the KV pages, so
// that a wrong page, a wrong position or a lost copy changes the answer or is caught at once.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "contract/errors.hpp"
#include "engine/engine_parts.hpp"
#include "executor/executor.hpp"

namespace scripted {

inline constexpr int32_t kVocabSize = 300;  // 0..255 are bytes, then specials, then words
inline constexpr int32_t kEndToken = 256;
inline constexpr int32_t kSpecialToken = 257;  // "<tool>"
inline constexpr int32_t kFirstWord = 260;     // tokens of several bytes
inline constexpr int32_t kHiddenSize = 16;

// What a test may look at and steer; shared with the executor that the engine owns.
struct Script {
    // Fills the logits that follow a context; null = the hash of the context.
    std::function<void(std::span<const int32_t> context, std::span<float> logits)> logits;
    std::function<void()> before_step;
    std::atomic<int64_t> fail_at_step{-1};
    std::atomic<int64_t> steps{0};
    std::atomic<int64_t> rows{0};
    std::atomic<int64_t> most_rows{0};
    std::atomic<int64_t> most_groups{0};
    std::atomic<int64_t> copies{0};
    std::atomic<int64_t> idle_calls{0};
};

inline uint64_t mixed(uint64_t value) {
    value ^= value >> 33U;
    value *= 0xFF51AFD7ED558CCDULL;
    value ^= value >> 33U;
    value *= 0xC4CEB9FE1A85EC53ULL;
    return value ^ (value >> 33U);
}

inline uint64_t hash_of(std::span<const int32_t> context) {
    uint64_t hash = 1469598103934665603ULL;
    for (const int32_t token : context) hash = mixed(hash ^ static_cast<uint64_t>(token + 1));
    return hash;
}

inline float number_from(uint64_t hash, uint64_t index) {
    return static_cast<float>(mixed(hash + 0x9E3779B97F4A7C15ULL * (index + 1)) >> 40U) / static_cast<float>(1 << 20) -
           8.0F;
}

inline void hashed_logits(std::span<const int32_t> context, std::span<float> logits) {
    const uint64_t hash = hash_of(context);
    for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = number_from(hash, i);
    logits[kEndToken] = -20.0F;  // answers end by length unless a test says otherwise
}

class ScriptedExecutor final : public edgellm::Executor {
public:
    ScriptedExecutor(std::shared_ptr<Script> script, const edgellm::EngineLimits& limits)
        : script_(std::move(script)), slots_(static_cast<std::size_t>(limits.kv_page_count * limits.kv_page_tokens)) {
        info_.name = "scripted";
        info_.vocab_size = kVocabSize;
        info_.hidden_size = kHiddenSize;
        info_.kv_page_tokens = limits.kv_page_tokens;
        info_.kv_page_count = limits.kv_page_count;
        info_.max_rows = limits.max_step_rows();
    }

    const edgellm::ExecutorInfo& info() const noexcept override { return info_; }

    void step(std::span<const edgellm::RowGroup> groups, edgellm::OutputKind kind, std::span<float> out,
              const edgellm::Meanwhile& meanwhile) override {
        if (meanwhile) meanwhile();
        if (script_->before_step) script_->before_step();
        if (script_->steps++ == script_->fail_at_step) throw edgellm::ExecutorError("scripted failure");
        const auto width = static_cast<std::size_t>(kind == edgellm::OutputKind::kLogits ? kVocabSize : kHiddenSize);
        std::size_t written = 0;
        int64_t rows = 0;
        std::set<int32_t> written_pages;
        for (const edgellm::RowGroup& group : groups) {
            must(!group.tokens.empty(), "empty group");
            const auto end = static_cast<std::size_t>(group.first_position) + group.tokens.size();
            must(group.pages.size() * page_tokens() >= end, "pages do not cover the rows");
            rows += static_cast<int64_t>(group.tokens.size());
            std::set<int32_t> own;
            for (std::size_t i = 0; i < group.tokens.size(); ++i) {
                const std::size_t position = static_cast<std::size_t>(group.first_position) + i;
                own.insert(group.pages[position / page_tokens()]);
                slot(group, position) = {static_cast<int32_t>(position), group.tokens[i]};
            }
            for (const int32_t page : own) must(written_pages.insert(page).second, "two groups write one page");
            if (group.wanted == edgellm::RowsWanted::kNone) continue;
            const bool all = group.wanted == edgellm::RowsWanted::kAll;
            for (std::size_t row = all ? static_cast<std::size_t>(group.first_position) : end - 1; row < end; ++row) {
                compute(context(group, row + 1), kind, out.subspan(written, width));
                written += width;
            }
        }
        must(written == out.size(), "wrong size of out");
        must(rows <= info_.max_rows, "too many rows");
        script_->rows += rows;
        raise(script_->most_rows, rows);
        raise(script_->most_groups, static_cast<int64_t>(groups.size()));
    }

    void copy_kv(int32_t from_page, int32_t to_page, int32_t token_count) override {
        ++script_->copies;
        must(from_page != to_page && token_count > 0, "senseless copy");
        for (std::size_t i = 0; i < static_cast<std::size_t>(token_count); ++i) at(to_page, i) = at(from_page, i);
    }

    void idle(std::span<const int32_t> free_pages) override {
        ++script_->idle_calls;
        for (const int32_t page : free_pages) {
            for (std::size_t i = 0; i < page_tokens(); ++i) at(page, i) = {};
        }
    }

private:
    struct Slot {
        int32_t position = -1;
        int32_t token = -1;
    };

    static void must(bool condition, const char* what) {
        if (!condition) throw edgellm::ExecutorError(std::string("engine misuse: ") + what);
    }
    static void raise(std::atomic<int64_t>& most, int64_t value) {
        if (value > most) most = value;  // one thread steps
    }
    std::size_t page_tokens() const { return static_cast<std::size_t>(info_.kv_page_tokens); }
    Slot& at(int32_t page, std::size_t offset) {
        return slots_.at(static_cast<std::size_t>(page) * page_tokens() + offset);
    }
    Slot& slot(const edgellm::RowGroup& group, std::size_t position) {
        return at(group.pages[position / page_tokens()], position % page_tokens());
    }
    std::vector<int32_t> context(const edgellm::RowGroup& group, std::size_t size) {
        std::vector<int32_t> tokens(size);
        for (std::size_t position = 0; position < size; ++position) {
            const Slot& read = slot(group, position);
            must(read.position == static_cast<int32_t>(position), "a position is read that was never written there");
            tokens[position] = read.token;
        }
        return tokens;
    }
    void compute(const std::vector<int32_t>& tokens, edgellm::OutputKind kind, std::span<float> out) const {
        if (kind == edgellm::OutputKind::kHidden) {
            const uint64_t hash = hash_of(tokens);
            for (std::size_t i = 0; i < out.size(); ++i) out[i] = number_from(hash, i);
        } else if (script_->logits) {
            script_->logits(tokens, out);
        } else {
            hashed_logits(tokens, out);
        }
    }

    std::shared_ptr<Script> script_;
    edgellm::ExecutorInfo info_;
    std::vector<Slot> slots_;
};

// Byte tokens, two specials, and words that carry several bytes.
inline std::shared_ptr<const edgellm::VocabSpec> make_vocab() {
    auto vocab = std::make_shared<edgellm::VocabSpec>();
    vocab->token_bytes.resize(kVocabSize);
    vocab->special_text.resize(kVocabSize);
    vocab->is_special.resize(kVocabSize);
    for (int32_t byte = 0; byte < 256; ++byte) {
        vocab->token_bytes[static_cast<std::size_t>(byte)] = std::string(1, static_cast<char>(byte));
    }
    vocab->special_text[kEndToken] = "<end>";
    vocab->is_special[kEndToken] = true;
    vocab->special_text[kSpecialToken] = "<tool>";
    vocab->is_special[kSpecialToken] = true;
    for (int32_t word = kFirstWord; word < kVocabSize; ++word) {
        vocab->token_bytes[static_cast<std::size_t>(word)] = " word" + std::to_string(word - kFirstWord);
    }
    vocab->end_token_ids = {kEndToken};
    return vocab;
}

struct PartsWanted {
    int32_t max_batch_size = 4;
    int64_t max_input_tokens = 0;
    int64_t max_kv_tokens = 256;
    int32_t kv_page_tokens = 8;
    int32_t prefill_chunk_tokens = 32;
    int64_t context_cache_tokens = -1;
    bool cache = true;
    int64_t max_records = 1024;
};

inline edgellm::EngineParts make_parts(std::shared_ptr<Script> script, const PartsWanted& wanted = {}) {
    edgellm::RuntimeOptions options;
    options.max_input_tokens = wanted.max_input_tokens;
    options.max_kv_tokens = wanted.max_kv_tokens;
    options.kv_page_tokens = wanted.kv_page_tokens;
    options.prefill_chunk_tokens = wanted.prefill_chunk_tokens;
    options.context_cache_tokens = wanted.context_cache_tokens;
    edgellm::EngineParts parts;
    parts.cache.enabled = wanted.cache;
    parts.cache.max_records = wanted.max_records;
    parts.vocab = make_vocab();
    parts.limits = edgellm::resolve_engine_limits(options, parts.cache, wanted.max_batch_size, 4096, kVocabSize);
    parts.executor = std::make_unique<ScriptedExecutor>(std::move(script), parts.limits);
    return parts;
}

// A request of one sequence; greedy unless changed.
inline edgellm::LLMGenerationRequest make_request(std::vector<int32_t> prompt, int64_t max_new_tokens) {
    edgellm::LLMGenerationRequest request;
    request.top_p = 1.0F;
    request.max_generate_length = max_new_tokens;
    request.requests.resize(1);
    request.requests[0].extensions.token_ids = std::move(prompt);
    return request;
}

inline std::vector<int32_t> make_prompt(int32_t seed, int32_t size) {
    std::vector<int32_t> prompt;
    for (int32_t i = 0; i < size; ++i) {
        prompt.push_back(static_cast<int32_t>(mixed(static_cast<uint64_t>(seed * 10007 + i)) % 250U));
    }
    return prompt;
}

// Logits that make the given token all but certain.
inline void only(int32_t token, std::span<float> logits) {
    for (float& logit : logits) logit = -10.0F;
    logits[static_cast<std::size_t>(token)] = 10.0F;
}

// Every answer spells tokens, then ends; prompts have prompt_size tokens.
inline std::function<void(std::span<const int32_t>, std::span<float>)> spelling(std::vector<int32_t> tokens,
                                                                                std::size_t prompt_size) {
    return [tokens = std::move(tokens), prompt_size](std::span<const int32_t> context, std::span<float> logits) {
        const std::size_t index = context.size() - prompt_size;
        only(index < tokens.size() ? tokens[index] : kEndToken, logits);
    };
}

inline std::vector<int32_t> bytes_of(const std::string& text) {
    std::vector<int32_t> tokens;
    for (const char character : text) tokens.push_back(static_cast<unsigned char>(character));
    return tokens;
}

}  // namespace scripted
