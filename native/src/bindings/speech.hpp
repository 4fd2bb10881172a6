// Speech types of the contract. They exist so that callers run unchanged; nothing of this runtime makes speech yet.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace edgellm::bindings {

struct AudioChunk {
    std::string pcm16;  // little-endian 16-bit mono samples
    bool is_final = false;
    int64_t num_frames = 0;
};

// Has readers and no producer: it waits, and it can be cancelled.
class AudioStreamChannel {
public:
    std::optional<AudioChunk> try_pop() { return std::nullopt; }

    std::optional<AudioChunk> wait_pop(int64_t timeout_ms) {
        std::unique_lock lock(mutex_);
        readable_.wait_until(lock, deadline(timeout_ms), [this] { return cancelled_; });
        return std::nullopt;
    }

    bool is_finished() const { return false; }

    bool is_cancelled() const {
        const std::lock_guard lock(mutex_);
        return cancelled_;
    }

    void cancel() {
        {
            const std::lock_guard lock(mutex_);
            cancelled_ = true;
        }
        readable_.notify_all();
    }

private:
    static std::chrono::steady_clock::time_point deadline(int64_t timeout_ms) {
        constexpr int64_t kLongestWaitMs = int64_t{1000} * 60 * 60 * 24 * 365;  // keeps the clock from overflowing
        const int64_t bounded_ms = timeout_ms < 0 ? 0 : timeout_ms > kLongestWaitMs ? kLongestWaitMs : timeout_ms;
        return std::chrono::steady_clock::now() + std::chrono::milliseconds(bounded_ms);
    }

    mutable std::mutex mutex_;
    std::condition_variable readable_;
    bool cancelled_ = false;
};

struct OmniAudioParams {
    float talker_temperature = 0.9F;
    int32_t talker_top_k = 50;
    float talker_top_p = 1.0F;
    float repetition_penalty = 1.05F;
    int32_t max_audio_length = 4096;        // codec frames
    std::string speaker_name;
    int32_t codec_chunk_frames = 10;        // codec frames
    int32_t talker_prefill_threshold = 4;   // tokens
};

}  // namespace edgellm::bindings
