// RuntimeOptions (extension): what NVIDIA's constructors take from an engine's config or cannot express.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "contract/types.hpp"

namespace edgellm {

// Renders and tokenises one request of the batch on the submitting thread.
using PromptEncoder = std::function<std::vector<int32_t>(const LLMGenerationRequest&, std::size_t index)>;

struct RuntimeOptions {
    std::string executor = "auto";
    int32_t threads = 0;                  // 0 = chosen from the CPUs this process may use
    int32_t max_batch_size = 4;           // LLMRuntime only: sequences that run together
    int64_t max_input_tokens = 0;         // longest prompt; 0 = the model's context length
    int64_t max_kv_tokens = 0;            // prompt and answer of one sequence; 0 = the model's context length
    int64_t context_cache_tokens = -1;    // KV positions kept beyond the running sequences; -1 = as many as one sequence
    int32_t kv_page_tokens = 32;
    int32_t prefill_chunk_tokens = 128;   // prompt rows per step, all sequences together
    std::string kv_type = "f16";          // "f16" | "f32"
    bool portable_attention = false;
    std::string guidance_library;         // path of llguidance's shared library; "" = guided decoding is refused
    PromptEncoder prompt_encoder;         // empty = requests must bring token_ids
};

}  // namespace edgellm
