#include "engine/engine_limits.hpp"

#include <algorithm>

#include "engine/value_checks.hpp"

namespace edgellm {
namespace {

constexpr int32_t kMaxBatchSize = 256;
constexpr int32_t kMaxPageTokens = 1024;
constexpr int32_t kPageTokensUnit = 8;
constexpr int32_t kMaxPrefillChunkTokens = 8192;
constexpr int64_t kMaxKvPages = 1 << 24;
constexpr int64_t kMaxCacheTokens = int64_t{1} << 31;
constexpr int64_t kMaxCacheRecords = 1 << 20;

int64_t pages_for(int64_t tokens, int64_t page_tokens) { return (tokens + page_tokens - 1) / page_tokens; }

// 0 = as much as the model was made for; more than that is the model's limit.
int32_t tokens_or_all(const char* field, int64_t tokens, int32_t all) {
    check_range<int64_t>(field, tokens, 0, INT64_MAX);
    return tokens == 0 ? all : static_cast<int32_t>(std::min<int64_t>(tokens, all));
}

}  // namespace

EngineLimits resolve_engine_limits(const RuntimeOptions& options, const ContextCacheConfig& cache,
                                   int32_t max_batch_size, int32_t context_length, int32_t vocab_size) {
    EngineLimits limits;
    limits.vocab_size = vocab_size;
    limits.max_batch_size = check_range("max_batch_size", max_batch_size, 1, kMaxBatchSize);
    limits.kv_page_tokens = check_range("kv_page_tokens", options.kv_page_tokens, kPageTokensUnit, kMaxPageTokens);
    if (limits.kv_page_tokens % kPageTokensUnit != 0) refuse_value("kv_page_tokens", "must be a multiple of 8");
    limits.prefill_chunk_tokens =
        check_range("prefill_chunk_tokens", options.prefill_chunk_tokens, 1, kMaxPrefillChunkTokens);
    limits.max_kv_tokens = tokens_or_all("max_kv_tokens", options.max_kv_tokens, context_length);
    limits.max_input_tokens =
        std::min(tokens_or_all("max_input_tokens", options.max_input_tokens, context_length), limits.max_kv_tokens);

    const int64_t sequence_pages = pages_for(limits.max_kv_tokens, limits.kv_page_tokens);
    int64_t cache_pages = 0;
    if (cache.enabled) {
        check_range<int64_t>("context_cache_config.max_records", cache.max_records, 1, kMaxCacheRecords);
        check_range<int64_t>("context_cache_config.recurrent_snapshot_pool_bytes", cache.recurrent_snapshot_pool_bytes,
                             0, INT64_MAX);
        check_range<int64_t>("context_cache_config.partial_kv_snapshot_pool_bytes",
                             cache.partial_kv_snapshot_pool_bytes, 0, INT64_MAX);
        check_range<int64_t>("context_cache_tokens", options.context_cache_tokens, -1, kMaxCacheTokens);
        cache_pages = options.context_cache_tokens < 0 ? sequence_pages
                                                       : pages_for(options.context_cache_tokens, limits.kv_page_tokens);
    }
    const int64_t page_count = sequence_pages * limits.max_batch_size + cache_pages;
    if (page_count > kMaxKvPages) {
        refuse_value("max_kv_tokens", "times max_batch_size asks for more than " + std::to_string(kMaxKvPages) +
                                          " pages of KV store: lower one of them or context_cache_tokens");
    }
    limits.kv_page_count = static_cast<int32_t>(page_count);
    limits.cache_page_count = static_cast<int32_t>(cache_pages);
    return limits;
}

}  // namespace edgellm
