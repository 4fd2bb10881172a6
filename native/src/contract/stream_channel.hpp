// StreamChannel: the bounded-latency hand-over from the engine to one reader, and the cancel handle of a request.
// One producer (the engine), any number of readers; every method is thread-safe and takes no GIL.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "contract/delta_frames.hpp"
#include "contract/stream_signal.hpp"
#include "contract/types.hpp"

namespace edgellm {

class StreamChannel {
public:
    static std::shared_ptr<StreamChannel> create();

    StreamChannel(const StreamChannel&) = delete;
    StreamChannel& operator=(const StreamChannel&) = delete;

    // Reader side. wait_pop returns at once when cancelled; nullopt on timeout, cancel, or finished and drained.
    std::optional<StreamChunk> try_pop();
    std::optional<StreamChunk> wait_pop(int64_t timeout_ms);
    bool is_finished() const;        // true after the terminal chunk was pushed, unless cancelled
    FinishReason get_reason() const; // kNotFinished until the terminal chunk was pushed
    bool is_cancelled() const;
    void cancel();                   // wakes waiting readers; the engine drops the request at its next step

    void set_stream_interval(int64_t n);  // tokens per chunk; values below 1 act as 1
    int64_t get_stream_interval() const;
    void set_skip_special_tokens(bool skip);
    bool get_skip_special_tokens() const;

    // Producer side. push returns false when the channel is cancelled: the chunk is dropped.
    bool push(StreamChunk chunk);

    // Extension. From now on the signal is raised with each chunk and when the engine has let go of the request, and
    // once at once, for what came before.
    void set_signal(std::shared_ptr<StreamSignal> signal);
    void raise_signal() const;

    // Extension. Chunks that these frames take go their way instead of the reader's, without a signal, from
    // resume_forwarding() on until one comes that they do not take: it and those behind it wait for the reader, who
    // sends them and resumes. So the order holds whoever sends.
    void forward_to(std::shared_ptr<DeltaFrames> frames);
    void resume_forwarding();

private:
    StreamChannel() = default;

    mutable std::mutex mutex_;
    std::condition_variable readable_;
    std::deque<StreamChunk> chunks_;
    std::shared_ptr<StreamSignal> signal_;
    std::shared_ptr<DeltaFrames> frames_;
    bool forwarding_ = false;
    FinishReason reason_ = FinishReason::kNotFinished;
    bool finished_ = false;
    std::atomic<bool> cancelled_{false};
    std::atomic<int64_t> stream_interval_{1};
    std::atomic<bool> skip_special_tokens_{true};
};

}  // namespace edgellm
