// RequestEngine: in-flight batching behind NVIDIA's names. One actor thread steps all resident sequences;
// submit, cancel and metrics are thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "contract/stream_channel.hpp"
#include "contract/types.hpp"
#include "engine/image_encoder.hpp"
#include "engine/runtime_options.hpp"
#include "executor/executor.hpp"

namespace edgellm {

class RequestHandle {
public:
    virtual ~RequestHandle() = default;
    virtual uint64_t id() const = 0;
    virtual std::shared_ptr<StreamChannel> stream() const = 0;
    virtual LLMGenerationResponse get() = 0;  // blocks; throws the request's error, also when cancelled
    virtual bool ready() const = 0;
    virtual void cancel() = 0;
    virtual bool valid() const = 0;
};

class RequestEngine {
public:
    // engine_dir holds llm.gguf, multimodal_engine_dir visual/visual.gguf ("": text alone).
    // Throws ModelFileError or InvalidRequest.
    static std::unique_ptr<RequestEngine> create(const std::string& engine_dir,
                                                 const std::string& multimodal_engine_dir,
                                                 const ContextCacheConfig& cache, int32_t max_batch_size,
                                                 int32_t max_pending_requests, int32_t command_queue_capacity,
                                                 const RuntimeOptions& options);
    virtual ~RequestEngine() = default;

    // Takes a request of exactly one sequence whose extensions.token_ids are set. Throws SubmitRefused
    // (queue, shutdown, several sequences) or InvalidRequest (values, length).
    virtual std::shared_ptr<RequestHandle> submit(LLMGenerationRequest request) = 0;
    virtual void cancel(uint64_t request_id) = 0;
    virtual void shutdown(ShutdownMode mode) = 0;  // idempotent; returns when the actor thread has ended
    virtual EngineMetrics metrics() const = 0;
    virtual int64_t queued() const = 0;
    virtual int64_t resident() const = 0;
    virtual bool running() const = 0;

    // Extensions.
    virtual ContextCacheMetrics context_cache_metrics() const = 0;
    virtual LLMPrefillMetrics prefill_metrics() const = 0;
    virtual LLMGenerationMetrics generation_metrics() const = 0;
    virtual ImageEncoder* images() const = 0;  // null: the model takes text alone
    virtual ExecutorInfo executor_info() const = 0;
    virtual uint64_t steps_completed() const = 0;  // advances while work is resident: a stuck engine shows
};

}  // namespace edgellm
