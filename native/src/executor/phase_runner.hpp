// PhaseRunner: threads of its own that run a step as phases of chunks. A phase ends when its chunks are done, not when
// threads arrive: one that the system has put aside holds nobody up unless it holds a chunk. Waiting spins briefly,
// then sleeps; between steps every thread but the caller's sleeps.
//
// A thread takes neighbouring chunks, one after another, as long as there are some in its share of the phase, and then
// the last one of another share: what it asked for ahead of itself is what it reads next.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

namespace edgellm {

inline constexpr std::size_t kCacheLine_bytes = 64;

class PhaseWork {
public:
    virtual ~PhaseWork() = default;
    virtual void run_chunk(int32_t worker, int32_t phase, int32_t chunk) noexcept = 0;
};

class PhaseRunner {
public:
    static constexpr int32_t kMaxPhases = (1 << 14) - 1;
    static constexpr int32_t kMaxChunks = (1 << 15) - 1;

    // The caller of run() is worker 0; threads - 1 more are started. Throws ExecutorError when they cannot be.
    explicit PhaseRunner(int32_t threads);
    ~PhaseRunner();
    PhaseRunner(const PhaseRunner&) = delete;
    PhaseRunner& operator=(const PhaseRunner&) = delete;

    int32_t threads() const noexcept { return static_cast<int32_t>(workers_.size()) + 1; }

    // Runs chunks 0 to chunk_counts[phase] - 1 of each phase, phase after phase; a phase may have none.
    // meanwhile, where there is one, is called by the caller's thread before it takes a chunk itself; what it throws is
    // thrown when the work is done. All effects are visible to the caller on return. One caller at a time.
    void run(std::span<const int32_t> chunk_counts, PhaseWork& work, const std::function<void()>& meanwhile = {});

private:
    struct Ticket;

    // The chunks of a phase that are left in one worker's share: first (upper half) to end (lower half).
    struct alignas(kCacheLine_bytes) Share {
        std::atomic<uint64_t> left;
    };

    void worker_loop(int32_t worker) noexcept;
    bool run_available_chunk(int32_t worker) noexcept;
    int32_t pick_chunk(int32_t worker) noexcept;
    void publish(uint64_t step, int32_t phase) noexcept;
    bool spin_while(uint64_t ticket) const noexcept;
    void sleep_while(uint32_t version) noexcept;
    void wake_all() noexcept;
    void stop() noexcept;

    std::vector<std::thread> workers_;
    std::unique_ptr<Share[]> shares_;      // by worker
    std::atomic<uint64_t> ticket_;         // step, phase, number of chunks, chunks that were taken
    std::atomic<int32_t> chunks_done_{0};  // of the current phase
    std::atomic<uint32_t> version_{0};     // changes with every published phase; sleepers wait on it
    std::atomic<int32_t> sleepers_{0};
    std::atomic<bool> stopping_{false};
    uint64_t step_ = 0;
    // Read by a thread only while it holds a chunk of the step they belong to.
    std::span<const int32_t> chunk_counts_;
    PhaseWork* work_ = nullptr;
};

}  // namespace edgellm
