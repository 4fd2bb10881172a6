#include "contract/delta_frames.hpp"

#include <cstddef>
#include <initializer_list>

namespace edgellm {
namespace {

constexpr uint8_t kDeltaTag = 24;
constexpr uint32_t kDeltaFields = 4;
constexpr size_t kLengthBytes = 4;

void append_big_endian(std::string& out, uint64_t value, unsigned byte_count) {
    for (unsigned left = byte_count; left > 0; --left) {
        out.push_back(static_cast<char>((value >> (8 * (left - 1))) & 0xff));
    }
}

// What starts a value of msgpack: its marker, and a number as wide as it has to be.
struct Width {
    uint64_t below;
    uint8_t marker;
    unsigned byte_count;
};

void append_marked(std::string& out, uint64_t value, std::initializer_list<Width> widths) {
    for (const Width& width : widths) {
        if (value < width.below || width.byte_count == 8) {
            out.push_back(static_cast<char>(width.marker));
            append_big_endian(out, value, width.byte_count);
            return;
        }
    }
}

void append_unsigned(std::string& out, uint64_t value) {
    if (value < 0x80) {
        out.push_back(static_cast<char>(value));
        return;
    }
    append_marked(out, value,
                  {{uint64_t{1} << 8, 0xcc, 1}, {uint64_t{1} << 16, 0xcd, 2}, {uint64_t{1} << 32, 0xce, 4}, {0, 0xcf, 8}});
}

void append_integer(std::string& out, int32_t value) {
    if (value >= 0) {
        append_unsigned(out, static_cast<uint64_t>(value));
        return;
    }
    out.push_back(static_cast<char>(0xd2));
    append_big_endian(out, static_cast<uint32_t>(value), 4);
}

void append_text(std::string& out, const std::string& text) {
    if (text.size() < 32) {
        out.push_back(static_cast<char>(0xa0 | text.size()));
    } else {
        append_marked(out, text.size(),
                      {{uint64_t{1} << 8, 0xd9, 1}, {uint64_t{1} << 16, 0xda, 2}, {uint64_t{1} << 32, 0xdb, 4}});
    }
    out.append(text);
}

void append_array_start(std::string& out, size_t count) {
    if (count < 16) {
        out.push_back(static_cast<char>(0x90 | count));
        return;
    }
    append_marked(out, count, {{uint64_t{1} << 16, 0xdc, 2}, {uint64_t{1} << 32, 0xdd, 4}});
}

}  // namespace

std::string delta_frame(uint64_t stream, const StreamChunk& chunk) {
    std::string frame(kLengthBytes, '\0');
    append_array_start(frame, kDeltaFields);
    append_unsigned(frame, kDeltaTag);
    append_unsigned(frame, stream);
    append_text(frame, chunk.text);
    append_array_start(frame, chunk.token_ids.size());
    for (const int32_t token_id : chunk.token_ids) append_integer(frame, token_id);
    const size_t payload_bytes = frame.size() - kLengthBytes;
    for (size_t index = 0; index < kLengthBytes; ++index) {
        frame[index] = static_cast<char>((payload_bytes >> (8 * index)) & 0xff);
    }
    return frame;
}

bool DeltaFrames::send(const StreamChunk& chunk) {
    // A chunk is a few tokens; one that is not may need a frame of more than the other side takes.
    constexpr size_t kTextBytesMax = 1 << 16;
    constexpr size_t kTokensMax = 1 << 12;
    if (chunk.finished || !chunk.logprobs.empty()) return false;
    if (chunk.text.size() > kTextBytesMax || chunk.token_ids.size() > kTokensMax) return false;
    if (!take_credit()) return false;
    if (socket_->try_send(delta_frame(stream_, chunk))) return true;
    add_credit(1);
    return false;
}

bool DeltaFrames::take_credit() {
    int64_t left = credit_.load();
    while (left > 0) {
        if (credit_.compare_exchange_weak(left, left - 1)) return true;
    }
    return false;
}

}  // namespace edgellm
