// DeltaFrames: one stream's chunks as the frames that a worker's event loop would send for them, written by the thread
// that makes them. Extension of the contract.
//
// A frame is its payload's length (4 bytes, little endian) and a msgpack array: the tag of a delta, the stream's
// number, the text, the token ids. daemon/edgellm/serving/worker/messages.py defines it; a test decodes these with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "contract/frame_socket.hpp"
#include "contract/types.hpp"

namespace edgellm {

class DeltaFrames {
public:
    // `credit` is how many deltas may be under way until the other side has taken some.
    DeltaFrames(std::shared_ptr<FrameSocket> socket, uint64_t stream, int64_t credit)
        : socket_(std::move(socket)), stream_(stream), credit_(credit) {}

    // False, and nothing is sent: the chunk says more than text, no credit is left, or the socket is full.
    bool send(const StreamChunk& chunk);

    // Credit is shared with whoever sends the chunks that this does not. Both from any thread.
    bool take_credit();
    void add_credit(int64_t deltas) { credit_.fetch_add(deltas); }

private:
    const std::shared_ptr<FrameSocket> socket_;
    const uint64_t stream_;
    std::atomic<int64_t> credit_;
};

// The bytes of that frame.
std::string delta_frame(uint64_t stream, const StreamChunk& chunk);

}  // namespace edgellm
