#include "contract/stream_signal.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace edgellm {

std::shared_ptr<StreamSignal> StreamSignal::create() {
    const int descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "no descriptor for a StreamSignal");
    return std::shared_ptr<StreamSignal>(new StreamSignal(descriptor));
}

StreamSignal::~StreamSignal() { close(descriptor_); }

void StreamSignal::raise() {
    if (raised_.exchange(true)) return;
    const uint64_t one = 1;
    // It can only fail with a counter that is full, and then the descriptor is readable.
    [[maybe_unused]] const ssize_t written = write(descriptor_, &one, sizeof one);
}

void StreamSignal::clear() {
    // In this order. The other way round, a raise in between would be read away and leave the signal raised for ever.
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t taken = read(descriptor_, &count, sizeof count);
    raised_.exchange(false);
}

}  // namespace edgellm
