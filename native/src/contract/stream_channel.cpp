#include "contract/stream_channel.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace edgellm {
namespace {

// A wait longer than a day is a wait for ever; the bound keeps clock arithmetic from overflowing.
constexpr int64_t kLongestWaitMs = 24LL * 60 * 60 * 1000;

}  // namespace

std::shared_ptr<StreamChannel> StreamChannel::create() {
    return std::shared_ptr<StreamChannel>(new StreamChannel());
}

std::optional<StreamChunk> StreamChannel::try_pop() { return wait_pop(0); }

std::optional<StreamChunk> StreamChannel::wait_pop(int64_t timeout_ms) {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto can_return = [this] { return cancelled_.load() || finished_ || !chunks_.empty(); };
    if (timeout_ms > 0) {
        readable_.wait_for(lock, std::chrono::milliseconds(std::min(timeout_ms, kLongestWaitMs)), can_return);
    }
    if (cancelled_.load() || chunks_.empty()) return std::nullopt;
    StreamChunk chunk = std::move(chunks_.front());
    chunks_.pop_front();
    return chunk;
}

bool StreamChannel::is_finished() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return finished_;
}

FinishReason StreamChannel::get_reason() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return reason_;
}

bool StreamChannel::is_cancelled() const { return cancelled_.load(); }

void StreamChannel::cancel() {
    std::deque<StreamChunk> dropped;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        cancelled_.store(true);
        dropped.swap(chunks_);
    }
    readable_.notify_all();
}

void StreamChannel::set_stream_interval(int64_t n) { stream_interval_.store(std::max<int64_t>(n, 1)); }

int64_t StreamChannel::get_stream_interval() const { return stream_interval_.load(); }

void StreamChannel::set_skip_special_tokens(bool skip) { skip_special_tokens_.store(skip); }

bool StreamChannel::get_skip_special_tokens() const { return skip_special_tokens_.load(); }

bool StreamChannel::push(StreamChunk chunk) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (cancelled_.load() || finished_) return false;
        if (forwarding_ && frames_->send(chunk)) return true;
        forwarding_ = false;
        if (chunk.finished) {
            finished_ = true;
            reason_ = chunk.reason;
        }
        chunks_.push_back(std::move(chunk));
    }
    readable_.notify_all();
    raise_signal();
    return true;
}

void StreamChannel::set_signal(std::shared_ptr<StreamSignal> signal) {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        signal_ = std::move(signal);
    }
    raise_signal();
}

void StreamChannel::forward_to(std::shared_ptr<DeltaFrames> frames) {
    const std::lock_guard<std::mutex> lock(mutex_);
    frames_ = std::move(frames);
    forwarding_ = false;
}

void StreamChannel::resume_forwarding() {
    const std::lock_guard<std::mutex> lock(mutex_);
    // What waits for the reader goes first; the signal for it has been raised.
    forwarding_ = frames_ != nullptr && chunks_.empty();
}

void StreamChannel::raise_signal() const {
    std::shared_ptr<StreamSignal> signal;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        signal = signal_;
    }
    if (signal != nullptr) signal->raise();
}

}  // namespace edgellm
