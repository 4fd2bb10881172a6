// The part of llguidance's C interface that is used, declared here because its library comes without headers.
// Its structures carry no size, so the library's version is compared exactly before anything else is called.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgellm::llg {

inline constexpr const char* kVersion = "llguidance@1.9.1";

struct Tokenizer;
struct Matcher;
struct CancellationHandle;

struct ParserLimits {
    std::size_t max_items_in_row;
    uint64_t initial_lexer_fuel;
    uint64_t step_lexer_fuel;
    std::size_t step_max_items;
    std::size_t max_lexer_states;
    std::size_t max_grammar_size;
    bool precompute_large_lexemes;
    bool verbose_errors;
};

struct ConstraintInit {
    const Tokenizer* tokenizer;
    uint32_t log_buffer_level;
    uint32_t log_stderr_level;
    bool ff_tokens_ok;
    bool backtrack_ok;
    ParserLimits limits;
};

using TokenizeFunction = std::size_t (*)(const void* user_data, const uint8_t* bytes, std::size_t byte_count,
                                         uint32_t* tokens, std::size_t token_capacity);

struct TokenizerInit {
    std::size_t struct_size;
    uint32_t vocab_size;
    uint32_t end_token;
    const uint32_t* token_lengths;
    const uint8_t* token_bytes;
    const char* tokenizer_json;
    bool tokenize_assumes_string;
    TokenizeFunction tokenize;
    bool use_approximate_greedy_tokenize;
    const void* tokenize_user_data;
    const char* const* slices;
    const uint32_t* extra_end_tokens;
    uint32_t extra_end_token_count;
};

inline constexpr uint32_t kNoToken = UINT32_MAX;
// Tokens whose bytes begin with this are matched by reference only, never by text.
inline constexpr char kSpecialTokenMark = static_cast<char>(0xFF);

// Function pointers of one loaded library.
struct Interface {
    const char* (*get_version)();
    Tokenizer* (*new_tokenizer)(const TokenizerInit*, char* error, std::size_t error_size);
    void (*free_tokenizer)(Tokenizer*);
    void (*set_defaults)(ConstraintInit*, const Tokenizer*);
    Matcher* (*new_matcher)(const ConstraintInit*, const char* kind, const char* data);
    Matcher* (*clone_matcher)(const Matcher*);
    void (*free_matcher)(Matcher*);
    const char* (*get_error)(Matcher*);
    std::size_t (*get_mask_byte_size)(const Matcher*);
    int32_t (*compute_mask_into)(Matcher*, uint32_t* mask, std::size_t byte_size);
    int32_t (*consume_token)(Matcher*, uint32_t token);
    bool (*is_stopped)(const Matcher*);
    bool (*is_error)(const Matcher*);
    // Makes a matcher stoppable; cancel may be called by any thread at any time, and is for good.
    CancellationHandle* (*get_cancellation_handle)(Matcher*);
    void (*cancel)(const CancellationHandle*);
    void (*free_cancellation_handle)(CancellationHandle*);
};

}  // namespace edgellm::llg
