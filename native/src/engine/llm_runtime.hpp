// LLMRuntime: the blocking runtime of the contract, over the same engine core. One call at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "contract/stream_channel.hpp"
#include "contract/types.hpp"
#include "engine/image_encoder.hpp"
#include "engine/runtime_options.hpp"
#include "executor/executor.hpp"

namespace edgellm {

class LLMRuntime {
public:
    // engine_dir holds llm.gguf, multimodal_engine_dir visual/visual.gguf ("": text alone).
    static std::unique_ptr<LLMRuntime> create(const std::string& engine_dir, const std::string& multimodal_engine_dir,
                                              const ContextCacheConfig& cache, const RuntimeOptions& options);
    virtual ~LLMRuntime() = default;

    // Every request has extensions.token_ids set. stream_channels is empty or has one channel a request;
    // a cancelled channel ends its sequence within one step with kCancelled.
    virtual LLMGenerationResponse handle_request(const LLMGenerationRequest& request) = 0;
    virtual LLMPrefillMetrics prefill_metrics() const = 0;
    virtual LLMGenerationMetrics generation_metrics() const = 0;
    virtual std::optional<ContextCacheMetrics> context_cache_metrics() const = 0;  // nullopt when off

    // Extensions. images() is thread-safe beside the other calls, and null for a model that takes text alone.
    virtual ImageEncoder* images() const = 0;
    virtual ExecutorInfo executor_info() const = 0;
    // Teacher forcing: logits of every position of token_ids, row-major [tokens × vocab].
    virtual std::vector<float> score(const std::vector<int32_t>& token_ids) = 0;
};

}  // namespace edgellm
