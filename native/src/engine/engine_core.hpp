// EngineCore: steps all resident sequences together. Each step computes one row of every decoding sequence and
// a bounded piece of the prompts that are being read, then samples. Sequences join and leave between steps.
// Not thread-safe: the thread that steps it owns it.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "contract/types.hpp"
#include "engine/context_cache.hpp"
#include "engine/engine_limits.hpp"
#include "engine/kv_pages.hpp"
#include "engine/prefill_pace.hpp"
#include "engine/sequence.hpp"
#include "executor/executor.hpp"

namespace edgellm {

class EngineCore {
public:
    EngineCore(std::unique_ptr<Executor> executor, std::shared_ptr<const VocabSpec> vocab, const EngineLimits& limits,
               const ContextCacheConfig& cache);

    bool has_room() const { return resident_.size() < static_cast<std::size_t>(limits_.max_batch_size); }
    std::size_t resident() const { return resident_.size(); }
    void add(std::unique_ptr<Sequence> sequence) { resident_.push_back(std::move(sequence)); }

    // One step; the sequences that ended in it are returned with their output finished.
    // Throws ExecutorError (any resident sequence is then lost; see abandon).
    std::vector<std::unique_ptr<Sequence>> step();

    // Ends every resident sequence with kError and this error.
    std::vector<std::unique_ptr<Sequence>> abandon(const std::exception_ptr& error);

    // Logits of every position, row-major; nothing may be resident.
    std::vector<float> score(std::span<const int32_t> tokens);

    void idle(bool return_memory);

    const ExecutorInfo& executor_info() const { return executor_->info(); }
    ContextCacheMetrics context_cache_metrics() const { return cache_.metrics(); }
    const LLMPrefillMetrics& prefill_metrics() const { return prefill_metrics_; }
    const LLMGenerationMetrics& generation_metrics() const { return generation_metrics_; }

private:
    struct Scheduled {
        Sequence* sequence;
        int32_t rows;
    };

    void end_cancelled();
    std::vector<Scheduled> schedule();
    bool waits_for_same_prefix(const Sequence& sequence, const std::vector<Scheduled>& reading) const;
    void take_over_cached_prefix(Sequence& sequence);
    void run(std::span<const Scheduled> scheduled, OutputKind kind);
    void record_pace(std::span<const Scheduled> scheduled, double seconds);
    void after_rows(Sequence& sequence, int32_t rows, std::span<float> row);
    void take_embedding(Sequence& sequence, std::span<const float> hidden);
    void take_token(Sequence& sequence, std::span<float> logits);
    void cover_positions(PageList& pages, int32_t positions);
    int32_t take_page();
    void end(Sequence& sequence, FinishReason reason, std::exception_ptr error = nullptr);
    bool is_end_token(int32_t token) const;
    std::vector<std::unique_ptr<Sequence>> remove_finished();

    std::unique_ptr<Executor> executor_;
    std::shared_ptr<const VocabSpec> vocab_;
    EngineLimits limits_;
    KvPagePool pool_;
    ContextCache cache_;
    PrefillPace pace_;
    std::vector<std::unique_ptr<Sequence>> resident_;  // in order of arrival; destroyed before the pool
    std::vector<float> rows_;
    std::vector<uint32_t> mask_;
    SamplerScratch scratch_;
    LLMPrefillMetrics prefill_metrics_;
    LLMGenerationMetrics generation_metrics_;
};

}  // namespace edgellm
