// StreamSignal: one descriptor that any number of channels raise, so that an event loop waits for all of them at once
// and no thread has to wait for each. Extension of the contract.
#pragma once

#include <atomic>
#include <memory>

namespace edgellm {

class StreamSignal {
public:
    static std::shared_ptr<StreamSignal> create();
    ~StreamSignal();

    StreamSignal(const StreamSignal&) = delete;
    StreamSignal& operator=(const StreamSignal&) = delete;

    // Readable from raise() to clear(). It is closed with the last channel that may still raise it.
    int descriptor() const { return descriptor_; }
    // Any thread; the descriptor is written once until it is cleared.
    void raise();
    // The one reader calls it before it looks at its channels: whatever is said later raises it again.
    void clear();

private:
    explicit StreamSignal(int descriptor) : descriptor_(descriptor) {}

    const int descriptor_;
    std::atomic<bool> raised_{false};
};

}  // namespace edgellm
