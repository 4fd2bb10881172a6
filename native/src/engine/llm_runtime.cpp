#include "engine/llm_runtime.hpp"

#include <deque>
#include <mutex>
#include <utility>

#include "engine/engine_core.hpp"
#include "engine/engine_parts.hpp"
#include "engine/request_intake.hpp"
#include "engine/value_checks.hpp"

namespace edgellm {
namespace {

constexpr std::size_t kMaxRequestsPerCall = 1024;
constexpr std::size_t kMaxScoreBytes = std::size_t{4} << 30U;

class BlockingRuntime final : public LLMRuntime {
public:
    explicit BlockingRuntime(EngineParts parts)
        : intake_(parts.vocab, parts.limits, std::move(parts.guides), std::move(parts.prompt_encoder)),
          cache_enabled_(parts.cache.enabled),
          images_(std::move(parts.images)),
          core_(std::move(parts.executor), parts.vocab, parts.limits, parts.cache) {}

    LLMGenerationResponse handle_request(const LLMGenerationRequest& request) override;
    std::vector<float> score(const std::vector<int32_t>& token_ids) override;

    LLMPrefillMetrics prefill_metrics() const override {
        const std::lock_guard<std::mutex> lock(mutex_);
        return core_.prefill_metrics();
    }
    LLMGenerationMetrics generation_metrics() const override {
        const std::lock_guard<std::mutex> lock(mutex_);
        return core_.generation_metrics();
    }
    std::optional<ContextCacheMetrics> context_cache_metrics() const override {
        if (!cache_enabled_) return std::nullopt;
        const std::lock_guard<std::mutex> lock(mutex_);
        return core_.context_cache_metrics();
    }
    ImageEncoder* images() const override { return images_.get(); }
    ExecutorInfo executor_info() const override { return core_.executor_info(); }

private:
    void run_all(std::deque<std::unique_ptr<Sequence>>& waiting, std::vector<SequenceResult>& results);
    void refuse_if_failed() const {
        if (!failure_.empty()) throw ExecutorError(failure_);
    }
    [[noreturn]] void fail(const std::exception& error, std::deque<std::unique_ptr<Sequence>>& waiting);

    const RequestIntake intake_;
    const bool cache_enabled_;
    const std::shared_ptr<ImageEncoder> images_;
    mutable std::mutex mutex_;  // one call at a time
    EngineCore core_;
    std::string failure_;  // not empty once a step failed
};

LLMGenerationResponse BlockingRuntime::handle_request(const LLMGenerationRequest& request) {
    const std::lock_guard<std::mutex> lock(mutex_);
    refuse_if_failed();
    if (request.requests.empty() || request.requests.size() > kMaxRequestsPerCall) {
        refuse_value("requests", "must hold between 1 and " + std::to_string(kMaxRequestsPerCall) + " sequences");
    }
    LLMGenerationRequest own = request;
    std::deque<std::unique_ptr<Sequence>> waiting;
    for (std::size_t i = 0; i < own.requests.size(); ++i) {
        waiting.push_back(intake_.make_sequence(own, i, nullptr));
        waiting.back()->owner_id = i;
    }
    std::vector<SequenceResult> results(own.requests.size());
    try {
        run_all(waiting, results);
    } catch (const std::exception& error) {
        // Whatever it was, the KV store and the sequences can no longer be trusted.
        fail(error, waiting);
    }
    LLMGenerationResponse response;
    for (SequenceResult& result : results) add_to_response(std::move(result), response);
    return response;
}

std::vector<float> BlockingRuntime::score(const std::vector<int32_t>& token_ids) {
    const std::lock_guard<std::mutex> lock(mutex_);
    refuse_if_failed();
    const EngineLimits& limits = intake_.limits();
    if (token_ids.empty() || token_ids.size() > static_cast<std::size_t>(limits.max_kv_tokens)) {
        refuse_value("token_ids", "must hold between 1 and " + std::to_string(limits.max_kv_tokens) + " tokens");
    }
    for (const int32_t token : token_ids) check_range("token_ids", token, 0, limits.vocab_size - 1);
    if (token_ids.size() * static_cast<std::size_t>(limits.vocab_size) > kMaxScoreBytes / sizeof(float)) {
        refuse_value("token_ids", "has more tokens than fit into 4 GiB of logits: score it in parts");
    }
    try {
        std::vector<float> logits = core_.score(token_ids);
        core_.idle(false);
        return logits;
    } catch (const std::exception& error) {
        std::deque<std::unique_ptr<Sequence>> none;
        fail(error, none);
    }
}

void BlockingRuntime::run_all(std::deque<std::unique_ptr<Sequence>>& waiting, std::vector<SequenceResult>& results) {
    while (!waiting.empty() || core_.resident() > 0) {
        while (!waiting.empty() && core_.has_room()) {
            core_.add(std::move(waiting.front()));
            waiting.pop_front();
        }
        for (const auto& sequence : core_.step()) results[sequence->owner_id] = sequence->output.take_result();
    }
    core_.idle(false);
}

void BlockingRuntime::fail(const std::exception& error, std::deque<std::unique_ptr<Sequence>>& waiting) {
    failure_ = std::string("the runtime has a failed worker and must be replaced: ") + error.what();
    const std::exception_ptr failure = std::make_exception_ptr(ExecutorError(failure_));
    core_.abandon(failure);
    for (const auto& sequence : waiting) sequence->output.finish(FinishReason::kError, failure);
    std::rethrow_exception(failure);
}

}  // namespace

std::unique_ptr<LLMRuntime> make_llm_runtime(EngineParts parts) {
    return std::make_unique<BlockingRuntime>(std::move(parts));
}

}  // namespace edgellm
