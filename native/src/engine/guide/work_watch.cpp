#include "engine/guide/work_watch.hpp"

#include <pthread.h>

#include <utility>

namespace edgellm {
namespace {

// Work may run over its limit by so much.
constexpr std::chrono::milliseconds kLookEvery{20};

CpuTime cpu_time(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return std::chrono::seconds(time.tv_sec) + CpuTime(time.tv_nsec);
}

}  // namespace

CpuTime WatchedWork::run(CpuTime limit, const std::function<void()>& work) {
    const CpuTime started = cpu_time(CLOCK_THREAD_CPUTIME_ID);
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        pthread_getcpuclockid(pthread_self(), &clock_);
        started_ = started;
        limit_ = limit;
        running_ = true;
    }
    const auto end = [this] {
        // Under the lock: afterwards nobody asks for the clock of this thread, which may go away.
        const std::lock_guard<std::mutex> lock(mutex_);
        running_ = false;
    };
    try {
        work();
    } catch (...) {
        end();
        throw;
    }
    end();
    return cpu_time(CLOCK_THREAD_CPUTIME_ID) - started;
}

bool WatchedWork::stopped() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return stopped_;
}

void WatchedWork::forget() {
    const std::lock_guard<std::mutex> lock(mutex_);
    stop_ = nullptr;
}

void WatchedWork::check() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!running_ || stopped_ || stop_ == nullptr || cpu_time(clock_) - started_ < limit_) return;
    stopped_ = true;
    stop_();
}

WorkWatch::WorkWatch() : thread_([this] { run(); }) {}

WorkWatch::~WorkWatch() {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        closing_ = true;
    }
    changed_.notify_one();
    thread_.join();
}

std::shared_ptr<WatchedWork> WorkWatch::add(std::function<void()> stop) {
    auto work = std::make_shared<WatchedWork>(std::move(stop));
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        watched_.push_back(work);
    }
    changed_.notify_one();
    return work;
}

void WorkWatch::run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!closing_) {
        if (watched_.empty()) {
            changed_.wait(lock, [this] { return closing_ || !watched_.empty(); });
            continue;
        }
        changed_.wait_for(lock, kLookEvery, [this] { return closing_; });
        std::erase_if(watched_, [](const std::weak_ptr<WatchedWork>& one) {
            const std::shared_ptr<WatchedWork> work = one.lock();
            if (work != nullptr) work->check();
            return work == nullptr;
        });
    }
}

}  // namespace edgellm
