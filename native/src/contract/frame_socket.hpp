// FrameSocket: the sending end of a worker's socket, shared by its event loop and the engine's thread. Extension of the
// contract.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

namespace edgellm {

class FrameSocket {
public:
    // Duplicates the descriptor of a connected stream socket, so that an event loop can watch this one for writing
    // while it reads the other.
    static std::shared_ptr<FrameSocket> create(int descriptor);
    ~FrameSocket();

    FrameSocket(const FrameSocket&) = delete;
    FrameSocket& operator=(const FrameSocket&) = delete;

    int descriptor() const { return descriptor_; }

    // Whole frames in the order of the calls, from any thread. Never waits: what the kernel does not take is kept.
    void send(std::string_view frame);
    // The same for a frame that may go another way: false, and nothing is sent, where it would have to be kept.
    bool try_send(std::string_view frame);
    // Sends what was kept. False while something is left.
    bool flush();
    size_t kept_bytes() const;

private:
    explicit FrameSocket(int descriptor) : descriptor_(descriptor) {}

    size_t write_some(std::string_view bytes);

    const int descriptor_;
    mutable std::mutex mutex_;
    std::string kept_;
    bool peer_is_gone_ = false;  // nothing is kept for it
};

}  // namespace edgellm
