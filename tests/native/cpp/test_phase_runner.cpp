// PhaseRunner runs every chunk once, phase after phase, and leaves its threads asleep in between.
#include <atomic>
#include <chrono>
#include <ctime>
#include <stdexcept>
#include <thread>
#include <vector>

#include "check.hpp"
#include "executor/phase_runner.hpp"

using edgellm::PhaseRunner;
using edgellm::PhaseWork;

namespace {

// Plain counters: a sanitizer reports any chunk that runs beside one of another phase.
struct Recorder final : PhaseWork {
    explicit Recorder(std::vector<int32_t> chunk_counts) : counts(std::move(chunk_counts)), runs(counts.size()) {
        for (std::size_t phase = 0; phase < counts.size(); ++phase)
            runs[phase].resize(static_cast<std::size_t>(counts[phase]));
    }

    void run_chunk(int32_t worker, int32_t phase, int32_t chunk) noexcept override {
        const auto at = static_cast<std::size_t>(phase);
        for (std::size_t before = 0; before < at; ++before) {
            for (const int count : runs[before]) wrong_order = wrong_order || count != round;
        }
        ++runs[at][static_cast<std::size_t>(chunk)];
        most_workers.store(std::max(most_workers.load(), worker + 1));
    }

    std::vector<int32_t> counts;
    std::vector<std::vector<int>> runs;
    int round = 1;
    std::atomic<bool> wrong_order{false};
    std::atomic<int32_t> most_workers{0};
};

double process_cpu_seconds() {
    timespec time{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

TEST(every_chunk_runs_once_and_in_order) {
    for (const int32_t threads : {1, 2, 5}) {
        PhaseRunner runner(threads);
        CHECK(runner.threads() == threads);
        Recorder work({3, 0, 1, 40, 0, 0, 7, 2, 0});
        for (work.round = 1; work.round <= 300; ++work.round) {
            runner.run(work.counts, work);
            for (const auto& phase : work.runs) {
                for (const int count : phase) CHECK(count == work.round);
            }
        }
        CHECK(!work.wrong_order);
        CHECK(work.most_workers <= threads);
    }
}

TEST(the_caller_does_something_else_once_while_others_compute) {
    PhaseRunner runner(2);
    Recorder work({1, 5});
    std::atomic<int32_t> begun{0};
    // Only the other thread can compute before this returns.
    runner.run(work.counts, work, [&] {
        while (work.most_workers.load() < 2) std::this_thread::yield();
        ++begun;
    });
    CHECK(begun == 1);
    for (const auto& phase : work.runs) {
        for (const int count : phase) CHECK(count == 1);
    }
}

TEST(a_thread_takes_neighbouring_chunks_and_then_the_last_ones_of_others) {
    struct Order final : PhaseWork {
        void run_chunk(int32_t worker, int32_t, int32_t chunk) noexcept override {
            if (worker == 1) {
                held = chunk;
                while (by_caller_count.load() < 9) std::this_thread::yield();
                return;
            }
            by_caller.push_back(chunk);
            ++by_caller_count;
        }
        std::vector<int32_t> by_caller;
        std::atomic<int32_t> by_caller_count{0};
        std::atomic<int32_t> held{-1};
    };
    PhaseRunner runner(2);
    Order order;
    const std::vector<int32_t> counts{10};
    runner.run(counts, order, [&] {
        while (order.held.load() < 0) std::this_thread::yield();
    });
    CHECK(order.held == 5);
    CHECK((order.by_caller == std::vector<int32_t>{0, 1, 2, 3, 4, 9, 8, 7, 6}));
}

TEST(what_the_caller_throws_meanwhile_comes_when_the_work_is_done) {
    for (const int32_t threads : {1, 3}) {
        PhaseRunner runner(threads);
        Recorder work({4, 20});
        CHECK_THROWS(runner.run(work.counts, work, [] { throw std::runtime_error("not sent"); }), std::runtime_error,
                     "not sent");
        for (const auto& phase : work.runs) {
            for (const int count : phase) CHECK(count == 1);
        }
        ++work.round;
        runner.run(work.counts, work);
        CHECK(!work.wrong_order);
    }
}

TEST(steps_without_chunks_end) {
    PhaseRunner runner(3);
    Recorder work({0, 0, 0});
    runner.run(work.counts, work);
    runner.run({}, work);
    Recorder some({0, 1});
    runner.run(some.counts, some);
    CHECK(some.runs[1][0] == 1);
}

TEST(works_of_different_shapes_follow_each_other) {
    PhaseRunner runner(4);
    for (int32_t round = 0; round < 500; ++round) {
        Recorder work({round % 5, round % 3, 1 + round % 17});
        runner.run(work.counts, work);
        for (const auto& phase : work.runs) {
            for (const int count : phase) CHECK(count == 1);
        }
    }
}

TEST(the_largest_step_fits) {
    PhaseRunner runner(2);
    Recorder many({PhaseRunner::kMaxChunks});
    runner.run(many.counts, many);
    for (const int count : many.runs[0]) CHECK(count == 1);
    struct Counter final : PhaseWork {
        void run_chunk(int32_t, int32_t, int32_t) noexcept override { ++count; }
        std::atomic<int> count{0};
    } counter;
    const std::vector<int32_t> phases(PhaseRunner::kMaxPhases, 1);
    runner.run(phases, counter);
    CHECK(counter.count == PhaseRunner::kMaxPhases);
}

TEST(other_threads_take_part_when_chunks_are_long) {
    PhaseRunner runner(2);
    struct Slow final : PhaseWork {
        void run_chunk(int32_t worker, int32_t, int32_t) noexcept override {
            helped = helped || worker == 1;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
        std::atomic<bool> helped{false};
    } slow;
    const std::vector<int32_t> counts = {200};
    runner.run(counts, slow);
    CHECK(slow.helped);
}

TEST(idle_threads_use_no_cpu) {
    PhaseRunner runner(4);
    Recorder work({8, 8});
    runner.run(work.counts, work);
    const double before = process_cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    CHECK(process_cpu_seconds() - before < 0.1);  // three spinning threads would take over a second
}

CHECK_MAIN()
