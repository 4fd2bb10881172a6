#include "engine/request_engine.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>

#include "engine/engine_core.hpp"
#include "engine/engine_parts.hpp"
#include "engine/request_intake.hpp"
#include "engine/request_ticket.hpp"
#include "engine/value_checks.hpp"

namespace edgellm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kMaxPendingRequests = 1 << 20;
// Memory of free KV pages is worth keeping for requests that follow each other.
constexpr std::chrono::seconds kReturnMemoryAfter{5};

struct Waiting {
    std::unique_ptr<Sequence> sequence;
    std::shared_ptr<RequestTicket> ticket;
    Clock::time_point submitted_at;
    bool stalled = false;
};

class ActorEngine final : public RequestEngine {
public:
    ActorEngine(EngineParts parts, int32_t max_pending_requests, int32_t command_queue_capacity)
        : max_pending_requests_(check_range("max_pending_requests", max_pending_requests, 1, kMaxPendingRequests)),
          command_queue_capacity_(
              check_range("command_queue_capacity", command_queue_capacity, 1, kMaxPendingRequests)),
          executor_info_(parts.executor->info()),
          images_(std::move(parts.images)),
          intake_(parts.vocab, parts.limits, std::move(parts.guides), std::move(parts.prompt_encoder)),
          core_(std::move(parts.executor), parts.vocab, parts.limits, parts.cache) {
        take_snapshots();
        actor_ = std::thread([this] { run(); });
    }

    ~ActorEngine() override {
        shutdown(ShutdownMode::kCancel);
        actor_.join();
    }

    std::shared_ptr<RequestHandle> submit(LLMGenerationRequest request) override;
    void cancel(uint64_t request_id) override;
    void shutdown(ShutdownMode mode) override;

    EngineMetrics metrics() const override { return read(metrics_); }
    int64_t queued() const override { return read(queued_); }
    int64_t resident() const override { return read(resident_); }
    bool running() const override {
        const std::lock_guard<std::mutex> lock(mutex_);
        return !ended_ && failure_.empty();
    }
    ContextCacheMetrics context_cache_metrics() const override { return read(cache_metrics_); }
    LLMPrefillMetrics prefill_metrics() const override { return read(prefill_metrics_); }
    LLMGenerationMetrics generation_metrics() const override { return read(generation_metrics_); }
    ImageEncoder* images() const override { return images_.get(); }
    ExecutorInfo executor_info() const override { return executor_info_; }
    uint64_t steps_completed() const override { return read(steps_completed_); }

private:
    template <typename T>
    T read(const T& value) const {
        const std::lock_guard<std::mutex> lock(mutex_);
        return value;
    }
    std::shared_ptr<RequestHandle> enqueue(LLMGenerationRequest request);
    void refuse_unless_accepting() const;  // under the lock

    // Actor thread only.
    void run();
    bool wait_for_work();
    void wait_while_idle(std::unique_lock<std::mutex>& lock);
    bool has_news() const { return !commands_.empty() || stopping_; }
    void end_cancelled_waiting();
    void admit();
    void step();
    void fail_everything(const std::string& text);
    void settle(std::unique_ptr<Sequence> sequence, const std::shared_ptr<RequestTicket>& ticket);
    void take_snapshots();

    const int32_t max_pending_requests_;
    const int32_t command_queue_capacity_;
    const ExecutorInfo executor_info_;
    const std::shared_ptr<ImageEncoder> images_;
    const RequestIntake intake_;

    mutable std::mutex mutex_;
    std::condition_variable news_;  // for the actor
    std::condition_variable ended_changed_;
    std::deque<Waiting> commands_;
    std::unordered_map<uint64_t, std::shared_ptr<RequestTicket>> tickets_;  // of all unfinished requests
    bool stopping_ = false;
    bool cancel_all_ = false;
    bool ended_ = false;
    std::string failure_;  // not empty once a step failed
    uint64_t next_id_ = 1;
    int64_t queued_ = 0;
    int64_t resident_ = 0;
    uint64_t steps_completed_ = 0;
    EngineMetrics metrics_;
    ContextCacheMetrics cache_metrics_;
    LLMPrefillMetrics prefill_metrics_;
    LLMGenerationMetrics generation_metrics_;

    EngineCore core_;  // the actor's own from here
    std::deque<Waiting> waiting_;
    std::unordered_map<uint64_t, std::shared_ptr<RequestTicket>> running_;
    std::thread actor_;
};

std::shared_ptr<RequestHandle> ActorEngine::submit(LLMGenerationRequest request) {
    try {
        return enqueue(std::move(request));
    } catch (const Error&) {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++metrics_.refused;
        throw;
    }
}

std::shared_ptr<RequestHandle> ActorEngine::enqueue(LLMGenerationRequest request) {
    if (request.requests.size() != 1) {
        throw SubmitRefused("a request must hold exactly one sequence, not " + std::to_string(request.requests.size()));
    }
    {
        // Before tokenising and compiling, which a refusal would waste.
        const std::lock_guard<std::mutex> lock(mutex_);
        refuse_unless_accepting();
    }
    if (request.stream_channels.empty()) request.stream_channels.push_back(StreamChannel::create());
    if (request.stream_channels.front() == nullptr) refuse_value("stream_channels[0]", "must be a channel");
    const auto ticket = std::make_shared<RequestTicket>(request.stream_channels.front());
    Waiting waiting{intake_.make_sequence(request, 0, ticket->cancelled()), ticket, Clock::now()};
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        refuse_unless_accepting();
        const uint64_t id = next_id_++;
        ticket->set_id(id);
        waiting.sequence->owner_id = id;
        tickets_.emplace(id, ticket);
        commands_.push_back(std::move(waiting));
        ++queued_;
        ++metrics_.submitted;
    }
    news_.notify_one();
    return ticket;
}

void ActorEngine::refuse_unless_accepting() const {
    if (!failure_.empty()) throw SubmitRefused(failure_);
    if (stopping_) throw SubmitRefused("the engine is shutting down");
    if (commands_.size() >= static_cast<std::size_t>(command_queue_capacity_)) {
        throw SubmitRefused("the command queue is full; try again later");
    }
    if (tickets_.size() >= static_cast<std::size_t>(max_pending_requests_)) {
        throw SubmitRefused("too many requests in flight; try again later");
    }
}

void ActorEngine::cancel(uint64_t request_id) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = tickets_.find(request_id);
    if (found != tickets_.end()) found->second->cancel();
}

void ActorEngine::shutdown(ShutdownMode mode) {
    std::unique_lock<std::mutex> lock(mutex_);
    stopping_ = true;
    if (mode == ShutdownMode::kCancel) cancel_all_ = true;
    news_.notify_one();
    ended_changed_.wait(lock, [this] { return ended_; });
}

void ActorEngine::run() {
    try {
        while (wait_for_work()) {
            end_cancelled_waiting();
            admit();
            step();
        }
    } catch (const std::exception& error) {
        // Whatever it was, the KV store and the sequences can no longer be trusted.
        fail_everything(std::string("the engine has a failed worker and must be replaced: ") + error.what());
    }
    // Notified under the lock: the engine may be destroyed as soon as it is released.
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    ended_changed_.notify_all();
}

// Blocks while there is nothing to do; false when there will be nothing more.
bool ActorEngine::wait_for_work() {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto has_work = [this] { return !waiting_.empty() || core_.resident() > 0; };
    if (!has_work() && !has_news()) wait_while_idle(lock);
    std::move(commands_.begin(), commands_.end(), std::back_inserter(waiting_));
    commands_.clear();
    if (cancel_all_) {
        for (const auto& [id, ticket] : tickets_) ticket->cancel();
    }
    return has_work();
}

void ActorEngine::wait_while_idle(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    core_.idle(false);
    lock.lock();
    if (news_.wait_for(lock, kReturnMemoryAfter, [this] { return has_news(); })) return;
    lock.unlock();
    core_.idle(true);
    lock.lock();
    news_.wait(lock, [this] { return has_news(); });
}

void ActorEngine::end_cancelled_waiting() {
    for (Waiting& one : waiting_) {
        if (!one.sequence->cancel_requested()) continue;
        one.sequence->output.finish(FinishReason::kCancelled,
                                    std::make_exception_ptr(Error("the request was cancelled")));
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            --queued_;
        }
        settle(std::move(one.sequence), one.ticket);
    }
    std::erase_if(waiting_, [](const Waiting& one) { return one.sequence == nullptr; });
}

void ActorEngine::admit() {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool mid_flight = core_.resident() > 0;
    while (!waiting_.empty() && core_.has_room()) {
        Waiting one = std::move(waiting_.front());
        waiting_.pop_front();
        const int64_t waited_us =
            std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - one.submitted_at).count();
        metrics_.queue_latency_total_us += waited_us;
        metrics_.queue_latency_max_us = std::max(metrics_.queue_latency_max_us, waited_us);
        ++metrics_.queue_latency_count;
        if (mid_flight) ++metrics_.admitted_mid_flight;
        --queued_;
        ++resident_;
        running_.emplace(one.sequence->owner_id, std::move(one.ticket));
        core_.add(std::move(one.sequence));
    }
    for (Waiting& one : waiting_) {
        if (!std::exchange(one.stalled, true)) ++metrics_.stalls_no_capacity;
    }
}

void ActorEngine::step() {
    if (core_.resident() == 0) return;
    std::vector<std::unique_ptr<Sequence>> finished = core_.step();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        ++steps_completed_;
        take_snapshots();
        resident_ -= static_cast<int64_t>(finished.size());
    }
    for (auto& sequence : finished) {
        const auto ticket = running_.extract(sequence->owner_id).mapped();
        settle(std::move(sequence), ticket);
    }
}

void ActorEngine::fail_everything(const std::string& text) {
    const std::exception_ptr error = std::make_exception_ptr(ExecutorError(text));
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        failure_ = text;
        std::move(commands_.begin(), commands_.end(), std::back_inserter(waiting_));
        commands_.clear();
        queued_ = 0;
        resident_ = 0;
    }
    for (auto& sequence : core_.abandon(error)) {
        const auto ticket = running_.extract(sequence->owner_id).mapped();
        settle(std::move(sequence), ticket);
    }
    for (Waiting& one : waiting_) {
        one.sequence->output.finish(FinishReason::kError, error);
        settle(std::move(one.sequence), one.ticket);
    }
    waiting_.clear();
}

// Counters first: who sees a request ready also sees it counted.
void ActorEngine::settle(std::unique_ptr<Sequence> sequence, const std::shared_ptr<RequestTicket>& ticket) {
    SequenceResult result = sequence->output.take_result();
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        tickets_.erase(sequence->owner_id);
        switch (result.reason) {
            case FinishReason::kCancelled: ++metrics_.cancelled; break;
            case FinishReason::kError: ++metrics_.failed; break;
            default: ++metrics_.completed; break;
        }
    }
    sequence.reset();
    if (result.error != nullptr) {
        ticket->fail(result.error);
        return;
    }
    LLMGenerationResponse response;
    add_to_response(std::move(result), response);
    ticket->complete(std::move(response));
}

void ActorEngine::take_snapshots() {
    cache_metrics_ = core_.context_cache_metrics();
    prefill_metrics_ = core_.prefill_metrics();
    generation_metrics_ = core_.generation_metrics();
}

}  // namespace

std::unique_ptr<RequestEngine> make_request_engine(EngineParts parts, int32_t max_pending_requests,
                                                   int32_t command_queue_capacity) {
    return std::make_unique<ActorEngine>(std::move(parts), max_pending_requests, command_queue_capacity);
}

}  // namespace edgellm
