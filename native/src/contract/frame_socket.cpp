#include "contract/frame_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace edgellm {

std::shared_ptr<FrameSocket> FrameSocket::create(int descriptor) {
    const int duplicate = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (duplicate < 0) throw std::system_error(errno, std::generic_category(), "no descriptor for a FrameSocket");
    return std::shared_ptr<FrameSocket>(new FrameSocket(duplicate));
}

FrameSocket::~FrameSocket() { close(descriptor_); }

void FrameSocket::send(std::string_view frame) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (kept_.empty()) frame.remove_prefix(write_some(frame));
    if (!peer_is_gone_) kept_.append(frame);
}

bool FrameSocket::try_send(std::string_view frame) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!kept_.empty()) return false;
    const size_t written = write_some(frame);
    if (written == 0) return false;
    // A part of it is under way: the rest has to follow before anything else does.
    if (!peer_is_gone_) kept_.append(frame.substr(written));
    return true;
}

bool FrameSocket::flush() {
    const std::lock_guard<std::mutex> lock(mutex_);
    kept_.erase(0, write_some(kept_));
    if (peer_is_gone_) kept_.clear();
    return kept_.empty();
}

size_t FrameSocket::kept_bytes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return kept_.size();
}

// How many bytes the kernel took. The end of the other side is its reader's to notice: here it only ends the sending.
size_t FrameSocket::write_some(std::string_view bytes) {
    size_t written = 0;
    while (written < bytes.size() && !peer_is_gone_) {
        const ssize_t count =
            ::send(descriptor_, bytes.data() + written, bytes.size() - written, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (count >= 0) {
            written += static_cast<size_t>(count);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            break;
        } else if (errno != EINTR) {
            peer_is_gone_ = true;
        }
    }
    return written;
}

}  // namespace edgellm
