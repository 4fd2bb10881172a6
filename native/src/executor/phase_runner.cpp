#include "executor/phase_runner.hpp"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <csignal>
#include <exception>
#include <string>
#include <system_error>

#include "contract/errors.hpp"

namespace edgellm {
namespace {

constexpr std::chrono::microseconds kSpinTime{40};  // about what a sleep and a wake-up cost
constexpr int kPausesPerClockRead = 32;

void pause_cpu() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");
#endif
}

// Signals are for the threads of the host program, never for workers started inside a library.
class BlockedSignals {
public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;
    BlockedSignals& operator=(const BlockedSignals&) = delete;

private:
    sigset_t before_{};
};

}  // namespace

// One word, so that the right to a chunk is taken with one compare-and-swap that fails for anybody late: step (20 bits),
// phase (14), number of chunks (15), how many of them were taken (15). Number 0 marks the end of a step.
struct PhaseRunner::Ticket {
    uint64_t word;

    static Ticket make(uint64_t step, int32_t phase, int32_t count) noexcept {
        return {(step << 44) | (static_cast<uint64_t>(phase) << 30) | (static_cast<uint64_t>(count) << 15)};
    }
    uint64_t step() const noexcept { return word >> 44; }
    int32_t phase() const noexcept { return static_cast<int32_t>((word >> 30) & 0x3FFF); }
    int32_t count() const noexcept { return static_cast<int32_t>((word >> 15) & 0x7FFF); }
    int32_t taken() const noexcept { return static_cast<int32_t>(word & 0x7FFF); }
    bool ended() const noexcept { return count() == 0; }
    bool has_chunk() const noexcept { return taken() < count(); }
};

PhaseRunner::PhaseRunner(int32_t threads)
    : shares_(std::make_unique<Share[]>(static_cast<std::size_t>(std::max(threads, 1)))), ticket_(Ticket::make(0, 0, 0).word) {
    const BlockedSignals blocked;
    try {
        for (int32_t worker = 1; worker < threads; ++worker) {
            workers_.emplace_back([this, worker] { worker_loop(worker); });
            pthread_setname_np(workers_.back().native_handle(), "edgellm-step");
        }
    } catch (const std::system_error& error) {
        stop();
        throw ExecutorError("cannot start " + std::to_string(threads) + " threads: " + error.what());
    }
}

PhaseRunner::~PhaseRunner() { stop(); }

void PhaseRunner::stop() noexcept {
    stopping_.store(true);
    wake_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
}

void PhaseRunner::run(std::span<const int32_t> chunk_counts, PhaseWork& work, const std::function<void()>& meanwhile) {
    chunk_counts_ = chunk_counts;
    work_ = &work;
    step_ = (step_ + 1) & 0xFFFFF;
    publish(step_, 0);
    std::exception_ptr failure;
    if (meanwhile) {
        try {
            meanwhile();
        } catch (...) {  // others are at work on what this call refers to
            failure = std::current_exception();
        }
    }
    for (;;) {
        const uint32_t version = version_.load();
        if (run_available_chunk(0)) continue;
        const Ticket ticket{ticket_.load()};
        if (ticket.ended()) break;
        // Otherwise others hold the last chunks of this phase.
        if (!ticket.has_chunk() && !spin_while(ticket.word)) sleep_while(version);
    }
    if (failure) std::rethrow_exception(failure);
}

void PhaseRunner::worker_loop(int32_t worker) noexcept {
    for (;;) {
        // Read before the ticket: whatever is published after it changes the version, so no wake-up is lost.
        const uint32_t version = version_.load();
        if (stopping_.load()) return;
        if (run_available_chunk(worker)) continue;
        const Ticket ticket{ticket_.load()};
        if (ticket.has_chunk()) continue;
        if (!ticket.ended() && spin_while(ticket.word)) continue;
        sleep_while(version);
    }
}

bool PhaseRunner::run_available_chunk(int32_t worker) noexcept {
    Ticket ticket{ticket_.load()};
    if (!ticket.has_chunk()) return false;
    // On failure somebody took this chunk, or the phase is over: the caller looks again.
    if (!ticket_.compare_exchange_strong(ticket.word, ticket.word + 1)) return true;
    work_->run_chunk(worker, ticket.phase(), pick_chunk(worker));
    if (chunks_done_.fetch_add(1) + 1 == ticket.count()) publish(ticket.step(), ticket.phase() + 1);
    return true;
}

// For a thread that has the right to a chunk of this phase: there is one in some share.
int32_t PhaseRunner::pick_chunk(int32_t worker) noexcept {
    for (int32_t share = worker;; share = share + 1 == threads() ? 0 : share + 1) {
        std::atomic<uint64_t>& left = shares_[static_cast<std::size_t>(share)].left;
        uint64_t seen = left.load();
        for (;;) {
            const uint64_t first = seen >> 32;
            const uint64_t end = seen & UINT32_MAX;
            if (first == end) break;
            const bool own = share == worker;
            const uint64_t rest = own ? (first + 1) << 32 | end : first << 32 | (end - 1);
            if (left.compare_exchange_weak(seen, rest)) return static_cast<int32_t>(own ? first : end - 1);
        }
    }
}

// Called by the thread that ended the phase before, while nobody holds a chunk.
void PhaseRunner::publish(uint64_t step, int32_t phase) noexcept {
    const auto phases = static_cast<int32_t>(chunk_counts_.size());
    while (phase < phases && chunk_counts_[static_cast<std::size_t>(phase)] == 0) ++phase;
    const int32_t count = phase == phases ? 0 : chunk_counts_[static_cast<std::size_t>(phase)];
    const auto worker_count = static_cast<uint64_t>(threads());
    for (uint64_t worker = 0; worker < worker_count; ++worker) {
        const auto chunks = static_cast<uint64_t>(count);
        shares_[worker].left.store((chunks * worker / worker_count) << 32 | chunks * (worker + 1) / worker_count);
    }
    chunks_done_.store(0);
    ticket_.store(Ticket::make(step, count == 0 ? 0 : phase, count).word);
    wake_all();
}

// True when the ticket changed within the spin time.
bool PhaseRunner::spin_while(uint64_t ticket) const noexcept {
    const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
    do {
        for (int i = 0; i < kPausesPerClockRead; ++i) {
            if (ticket_.load(std::memory_order_relaxed) != ticket) return true;
            pause_cpu();
        }
    } while (std::chrono::steady_clock::now() < deadline);
    return false;
}

// A futex by hand: a sleeper first counts itself, then looks at the version; a waker first changes the version, then
// looks at the count. In sequentially consistent order one of them sees the other, and a step wakes nobody for nothing.
void PhaseRunner::sleep_while(uint32_t version) noexcept {
    static_assert(sizeof(version_) == sizeof(uint32_t) && std::atomic<uint32_t>::is_always_lock_free);
    sleepers_.fetch_add(1);
    if (version_.load() == version) ::syscall(SYS_futex, &version_, FUTEX_WAIT_PRIVATE, version, nullptr, nullptr, 0);
    sleepers_.fetch_sub(1);
}

void PhaseRunner::wake_all() noexcept {
    version_.fetch_add(1);
    if (sleepers_.load() > 0) ::syscall(SYS_futex, &version_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace edgellm
