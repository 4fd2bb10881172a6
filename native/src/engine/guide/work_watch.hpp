// WorkWatch: stops work that takes more CPU time than it may. CPU time, so that a busy machine ends nothing early.
#pragma once

#include <ctime>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace edgellm {

using CpuTime = std::chrono::nanoseconds;

// One piece of work that is done in turns, by one thread at a time. Made by WorkWatch.
class WatchedWork {
public:
    // stop makes a running turn end early; it is called on the watch's thread, at most once.
    explicit WatchedWork(std::function<void()> stop) : stop_(std::move(stop)) {}

    // Runs work on this thread and gives the CPU time that it took.
    CpuTime run(CpuTime limit, const std::function<void()>& work);
    bool stopped() const;
    // stop will not be called any more.
    void forget();

private:
    friend class WorkWatch;
    void check();

    mutable std::mutex mutex_;
    std::function<void()> stop_;
    bool running_ = false;
    bool stopped_ = false;
    clockid_t clock_{};  // CPU time of the thread that runs it
    CpuTime started_{};
    CpuTime limit_{};
};

// Owns the thread that looks; it sleeps while there is nothing to watch. Thread-safe.
class WorkWatch {
public:
    WorkWatch();
    ~WorkWatch();
    WorkWatch(const WorkWatch&) = delete;
    WorkWatch& operator=(const WorkWatch&) = delete;

    // Watched for as long as the caller keeps it.
    std::shared_ptr<WatchedWork> add(std::function<void()> stop);

private:
    void run();

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<std::weak_ptr<WatchedWork>> watched_;
    bool closing_ = false;
    std::thread thread_;
};

}  // namespace edgellm
