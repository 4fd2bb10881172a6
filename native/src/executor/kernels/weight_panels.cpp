#include "executor/kernels/weight_panels.hpp"

#include <algorithm>
#include <cstring>

namespace edgellm {
namespace {

constexpr int64_t kHalf_bytes = 2;
constexpr int64_t kGroup_bytes = 4;  // of one row in a run

struct BlockShape {
    int64_t header_halves;  // scale, and for some a minimum
    int64_t run_count;
    std::byte flipped;      // what is added to each byte of quants, as a change of its sign bit

    int64_t file_bytes() const noexcept { return header_halves * kHalf_bytes + run_count * kGroup_bytes; }
};

BlockShape shape_of(TensorType type) noexcept {
    switch (type) {
        case TensorType::kQ8_0: return {1, 8, std::byte{0x80}};
        case TensorType::kQ4_1: return {2, 4, std::byte{0}};
        default: return {1, 4, std::byte{0}};
    }
}

void pack_block(const BlockShape& shape, const std::byte* block, int64_t row, std::byte* to) noexcept {
    for (int64_t h = 0; h < shape.header_halves; ++h)
        std::memcpy(to + (h * kPanelRows + row) * kHalf_bytes, block + h * kHalf_bytes, kHalf_bytes);
    const std::byte* quants = block + shape.header_halves * kHalf_bytes;
    std::byte* runs = to + shape.header_halves * kPanelRows * kHalf_bytes + row * kGroup_bytes;
    for (int64_t run = 0; run < shape.run_count; ++run) {
        for (int64_t i = 0; i < kGroup_bytes; ++i)
            runs[run * kPanelRun_bytes + i] = quants[run * kGroup_bytes + i] ^ shape.flipped;
    }
}

}  // namespace

bool has_panel_layout(TensorType type) noexcept {
    return type == TensorType::kQ8_0 || type == TensorType::kQ4_0 || type == TensorType::kQ4_1;
}

void pack_panels(TensorType type, const std::byte* rows, std::size_t row_bytes, int64_t row_count, int64_t columns,
                 std::byte* panels) noexcept {
    const BlockShape shape = shape_of(type);
    const int64_t blocks = columns / kPanelBlock;
    for (int64_t first = 0; first < row_count; first += kPanelRows) {
        std::byte* const panel = panels + static_cast<std::size_t>(first) * row_bytes;
        const int64_t count = std::min(kPanelRows, row_count - first);
        if (count < kPanelRows) std::memset(panel, 0, static_cast<std::size_t>(kPanelRows) * row_bytes);
        for (int64_t b = 0; b < blocks; ++b) {
            for (int64_t row = 0; row < count; ++row) {
                pack_block(shape,
                           rows + static_cast<std::size_t>(first + row) * row_bytes +
                               static_cast<std::size_t>(b * shape.file_bytes()),
                           row, panel + b * kPanelRows * shape.file_bytes());
            }
        }
    }
}

}  // namespace edgellm
