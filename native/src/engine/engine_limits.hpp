// EngineLimits: RuntimeOptions once they were checked and zeros were resolved against the model.
#pragma once

#include <cstdint>

#include "contract/types.hpp"
#include "engine/runtime_options.hpp"

namespace edgellm {

struct EngineLimits {
    int32_t max_batch_size = 1;        // sequences that run together
    int32_t max_input_tokens = 0;      // longest prompt
    int32_t max_kv_tokens = 0;         // prompt and answer of one sequence
    int32_t kv_page_tokens = 32;
    int32_t kv_page_count = 0;         // for all running sequences at full length, and the context cache
    int32_t cache_page_count = 0;      // pages that the context cache may hold by itself
    int32_t prefill_chunk_tokens = 128;
    int32_t vocab_size = 0;

    int32_t max_step_rows() const { return prefill_chunk_tokens + max_batch_size; }
};

// Throws InvalidRequest (kBadValue) that names the option.
EngineLimits resolve_engine_limits(const RuntimeOptions& options, const ContextCacheConfig& cache,
                                   int32_t max_batch_size, int32_t context_length, int32_t vocab_size);

}  // namespace edgellm
