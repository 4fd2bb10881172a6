#include "engine/engine_core.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "contract/errors.hpp"
#include "model/model_spec.hpp"

namespace edgellm {
namespace {

// While others decode, a step reads at most this part of the usual prompt rows, so that their tokens keep coming.
constexpr int32_t kBusyPrefillDivisor = 4;

std::size_t shared_prefix(std::span<const int32_t> left, std::span<const int32_t> right) {
    const auto end = std::mismatch(left.begin(), left.end(), right.begin(), right.end()).first;
    return static_cast<std::size_t>(end - left.begin());
}

}  // namespace

EngineCore::EngineCore(std::unique_ptr<Executor> executor, std::shared_ptr<const VocabSpec> vocab,
                       const EngineLimits& limits, const ContextCacheConfig& cache)
    : executor_(std::move(executor)),
      vocab_(std::move(vocab)),
      limits_(limits),
      pool_(limits.kv_page_count, limits.kv_page_tokens),
      cache_(pool_, cache),
      mask_((static_cast<std::size_t>(limits.vocab_size) + 31) / 32) {}

std::vector<std::unique_ptr<Sequence>> EngineCore::step() {
    end_cancelled();
    const std::vector<Scheduled> scheduled = schedule();
    std::vector<Scheduled> for_logits;
    std::vector<Scheduled> for_hidden;
    for (const Scheduled& one : scheduled) (one.sequence->spec.embeddings ? for_hidden : for_logits).push_back(one);
    if (!for_logits.empty()) run(for_logits, OutputKind::kLogits);
    if (!for_hidden.empty()) run(for_hidden, OutputKind::kHidden);
    return remove_finished();
}

std::vector<std::unique_ptr<Sequence>> EngineCore::abandon(const std::exception_ptr& error) {
    for (const auto& sequence : resident_) {
        if (!sequence->finished) end(*sequence, FinishReason::kError, error);
    }
    return remove_finished();
}

std::vector<float> EngineCore::score(std::span<const int32_t> tokens) {
    const auto width = static_cast<std::size_t>(limits_.vocab_size);
    std::vector<float> logits(tokens.size() * width);
    PageList pages(pool_);
    cover_positions(pages, static_cast<int32_t>(tokens.size()));
    const auto chunk_rows = static_cast<std::size_t>(limits_.prefill_chunk_tokens);
    for (std::size_t first = 0; first < tokens.size(); first += chunk_rows) {
        const std::size_t rows = std::min(chunk_rows, tokens.size() - first);
        const RowGroup group{tokens.subspan(first, rows), static_cast<int32_t>(first), pages.pages(), RowsWanted::kAll};
        executor_->step({&group, 1}, OutputKind::kLogits, std::span(logits).subspan(first * width, rows * width));
    }
    return logits;
}

void EngineCore::idle(bool return_memory) {
    executor_->idle(return_memory ? pool_.free_pages() : std::span<const int32_t>());
}

void EngineCore::end_cancelled() {
    for (const auto& sequence : resident_) {
        if (!sequence->finished && sequence->cancel_requested()) end(*sequence, FinishReason::kCancelled);
    }
}

// Decoding sequences always get their row. Prompt rows are shared out evenly, and what a short prompt leaves
// goes to the longer ones, so that no prompt waits for the whole of another.
std::vector<EngineCore::Scheduled> EngineCore::schedule() {
    std::vector<Scheduled> scheduled;
    std::vector<Sequence*> readers;
    for (const auto& sequence : resident_) {
        if (sequence->finished) continue;
        if (sequence->in_prefill()) {
            readers.push_back(sequence.get());
        } else {
            scheduled.push_back({sequence.get(), 1});
        }
    }
    int32_t rows_left = limits_.prefill_chunk_tokens;
    if (!scheduled.empty()) {
        const int32_t most = std::max(rows_left / kBusyPrefillDivisor, 2 * PrefillPace::kFewestRows);
        rows_left = pace_.rows(std::min(rows_left, most));
    }

    std::vector<Scheduled> reading;
    for (Sequence* sequence : readers) {
        if (!sequence->planned) {
            if (waits_for_same_prefix(*sequence, reading)) continue;
            take_over_cached_prefix(*sequence);
        }
        reading.push_back({sequence, sequence->rows_to_compute()});
    }
    std::stable_sort(reading.begin(), reading.end(),
                     [](const Scheduled& a, const Scheduled& b) { return a.rows < b.rows; });
    for (std::size_t i = 0; i < reading.size() && rows_left > 0; ++i) {
        const auto sharers = static_cast<int32_t>(reading.size() - i);
        const int32_t share = std::min(reading[i].rows, (rows_left + sharers - 1) / sharers);
        rows_left -= share;
        scheduled.push_back({reading[i].sequence, share});
    }
    for (const Scheduled& one : scheduled) cover_positions(one.sequence->pages, one.sequence->computed + one.rows);
    return scheduled;
}

// A prompt whose beginning is being computed for another one, beyond what the cache had, takes it over when it is
// there.
bool EngineCore::waits_for_same_prefix(const Sequence& sequence, const std::vector<Scheduled>& reading) const {
    if (!cache_.enabled() || sequence.spec.cache_lookup == ContextCacheLookupPolicy::kBypass) return false;
    return std::any_of(reading.begin(), reading.end(), [&](const Scheduled& other) {
        return other.sequence->spec.cache_domain == sequence.spec.cache_domain &&
               shared_prefix(other.sequence->spec.prompt, sequence.spec.prompt) >=
                   static_cast<std::size_t>(other.sequence->reused + limits_.kv_page_tokens);
    });
}

void EngineCore::take_over_cached_prefix(Sequence& sequence) {
    CachePlan plan = cache_.plan(sequence.spec.cache_domain, sequence.spec.prompt, sequence.spec.recompute_tail_tokens,
                                 sequence.spec.cache_lookup);
    sequence.planned = true;
    sequence.reused = plan.reused_tokens;
    sequence.pages = std::move(plan.shared_pages);
    if (plan.copy_tokens > 0) {
        const int32_t page = take_page();
        sequence.pages.adopt(page);
        executor_->copy_kv(plan.copy_source.pages().front(), page, plan.copy_tokens);
    }
    sequence.computed = plan.reused_tokens;
    sequence.output.set_reused_token_count(plan.reused_tokens);
    prefill_metrics_.reused_tokens += plan.reused_tokens;
}

void EngineCore::run(std::span<const Scheduled> scheduled, OutputKind kind) {
    const ExecutorInfo& info = executor_->info();
    const auto width = static_cast<std::size_t>(kind == OutputKind::kLogits ? info.vocab_size : info.hidden_size);
    std::vector<RowGroup> groups;
    groups.reserve(scheduled.size());
    std::size_t wanted = 0;
    for (const auto& [sequence, rows] : scheduled) {
        const bool last = rows == sequence->rows_to_compute();
        wanted += last ? 1 : 0;
        const auto first = static_cast<std::size_t>(sequence->computed);
        const auto count = static_cast<std::size_t>(rows);
        groups.push_back({std::span(sequence->tokens).subspan(first, count), sequence->computed,
                          sequence->pages.pages(), last ? RowsWanted::kLast : RowsWanted::kNone,
                          sequence->embedded_rows(first, count)});
    }
    rows_.resize(wanted * width);
    const auto start = std::chrono::steady_clock::now();
    // Sending the last tokens may put this thread aside for as long as their reader works: others compute meanwhile.
    const auto send_last_tokens = [&scheduled] {
        for (const Scheduled& one : scheduled) one.sequence->output.flush_if_due();
    };
    executor_->step(groups, kind, rows_, send_last_tokens);
    record_pace(scheduled, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    std::size_t row = 0;
    for (std::size_t i = 0; i < scheduled.size(); ++i) {
        const bool last = groups[i].wanted == RowsWanted::kLast;
        after_rows(*scheduled[i].sequence, scheduled[i].rows,
                   last ? std::span(rows_).subspan(width * row++, width) : std::span<float>());
    }
}

void EngineCore::record_pace(std::span<const Scheduled> scheduled, double seconds) {
    int32_t decode_rows = 0;
    int32_t prompt_rows = 0;
    for (const auto& [sequence, rows] : scheduled) (sequence->in_prefill() ? prompt_rows : decode_rows) += rows;
    pace_.record(decode_rows, prompt_rows, seconds);
}

void EngineCore::after_rows(Sequence& sequence, int32_t rows, std::span<float> row) {
    const bool was_reading = sequence.in_prefill();
    sequence.computed += rows;
    if (was_reading) prefill_metrics_.computed_tokens += rows;
    if (row.empty()) return;
    if (was_reading) {
        ++prefill_metrics_.runs;
        cache_.publish(sequence.spec.cache_domain, sequence.spec.prompt, sequence.pages.pages());
    }
    try {
        if (sequence.spec.embeddings) {
            take_embedding(sequence, row);
        } else if (sequence.spec.max_new_tokens == 0) {
            end(sequence, FinishReason::kLength);
        } else {
            take_token(sequence, row);
        }
    } catch (const Error&) {
        // Bad logits or a grammar at its limits: the others go on.
        end(sequence, FinishReason::kError, std::current_exception());
    }
}

void EngineCore::take_embedding(Sequence& sequence, std::span<const float> hidden) {
    double squares = 0.0;
    for (const float value : hidden) squares += static_cast<double>(value) * static_cast<double>(value);
    if (!std::isfinite(squares) || squares <= 0.0) throw SamplingError("the model gave no usable hidden state");
    const double scale = 1.0 / std::sqrt(squares);
    std::vector<float> unit(hidden.size());
    std::transform(hidden.begin(), hidden.end(), unit.begin(),
                   [scale](float value) { return static_cast<float>(static_cast<double>(value) * scale); });
    sequence.output.set_embedding(std::move(unit));
    end(sequence, FinishReason::kEndId);
}

void EngineCore::take_token(Sequence& sequence, std::span<float> logits) {
    std::span<uint32_t> mask;
    if (sequence.guide != nullptr) {
        std::fill(mask_.begin(), mask_.end(), 0U);
        sequence.guide->allowed(mask_);
        mask = mask_;
    }
    const SampledToken sampled = sequence.sampler.sample(logits, mask, scratch_);
    const bool is_end = sequence.spec.ends_at_end_token && is_end_token(sampled.token);
    if (!is_end && sequence.guide != nullptr && !sequence.guide->accept(sampled.token)) {
        throw SamplingError("the grammar refused a token that it had allowed");
    }
    if (sequence.output.token_count() == 0) ++generation_metrics_.runs;
    ++generation_metrics_.generated_tokens;
    sequence.tokens.push_back(sampled.token);
    if (sequence.output.append(sampled, is_end)) {
        end(sequence, FinishReason::kStopWords);
    } else if (is_end || (sequence.guide != nullptr && sequence.guide->complete())) {
        end(sequence, FinishReason::kEndId);
    } else if (sequence.output.token_count() >= sequence.spec.max_new_tokens) {
        end(sequence, FinishReason::kLength);
    }
}

void EngineCore::cover_positions(PageList& pages, int32_t positions) {
    const auto wanted = static_cast<std::size_t>((positions + limits_.kv_page_tokens - 1) / limits_.kv_page_tokens);
    while (pages.size() < wanted) pages.adopt(take_page());
}

// The store has room for every running sequence at full length, so a page can always be had from the cache.
int32_t EngineCore::take_page() {
    do {
        if (const std::optional<int32_t> page = pool_.take()) return *page;
    } while (cache_.reclaim_page());
    throw ExecutorError("the KV store has no page left");
}

void EngineCore::end(Sequence& sequence, FinishReason reason, std::exception_ptr error) {
    if (reason == FinishReason::kCancelled) error = std::make_exception_ptr(Error("the request was cancelled"));
    if (reason != FinishReason::kError) {
        const bool with_answer = sequence.spec.cache_commit == ContextCacheCommitPolicy::kIncludingGeneratedTokens;
        const int32_t kept = with_answer ? sequence.computed : std::min(sequence.computed, sequence.prompt_size());
        cache_.publish(sequence.spec.cache_domain, std::span(sequence.tokens).first(static_cast<std::size_t>(kept)),
                       sequence.pages.pages());
    }
    sequence.pages.clear();
    cache_.trim(limits_.cache_page_count);
    sequence.finished = true;
    sequence.output.finish(reason, std::move(error));
}

bool EngineCore::is_end_token(int32_t token) const {
    const std::vector<int32_t>& ends = vocab_->end_token_ids;
    return std::find(ends.begin(), ends.end(), token) != ends.end();
}

std::vector<std::unique_ptr<Sequence>> EngineCore::remove_finished() {
    std::vector<std::unique_ptr<Sequence>> finished;
    for (auto& sequence : resident_) {
        if (sequence->finished) finished.push_back(std::move(sequence));
    }
    std::erase(resident_, nullptr);
    return finished;
}

}  // namespace edgellm
