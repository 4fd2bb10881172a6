#include "executor/kernels/weight_panels.hpp"

#include <cstring>

namespace edgellm {
namespace {

constexpr std::size_t kHalf_bytes = 2;

// A block in the file: scale, then a minimum where there is one, then quants.
struct BlockLayout {
    std::size_t quant_bytes;
    bool has_minimum;

    std::size_t header_bytes() const noexcept { return has_minimum ? 2 * kHalf_bytes : kHalf_bytes; }
    std::size_t block_bytes() const noexcept { return header_bytes() + quant_bytes; }
};

BlockLayout block_layout(TensorType type) noexcept {
    switch (type) {
        case TensorType::kQ4_0: return {16, false};
        case TensorType::kQ4_1: return {16, true};
        default: return {32, false};
    }
}

}  // namespace

bool has_panels(TensorType type) noexcept {
    return type == TensorType::kQ8_0 || type == TensorType::kQ4_0 || type == TensorType::kQ4_1;
}

void pack_panels(TensorType type, const std::byte* rows, std::size_t row_bytes, int64_t row_count,
                 std::byte* panels) noexcept {
    const BlockLayout layout = block_layout(type);
    constexpr auto word_bytes = static_cast<std::size_t>(kPanelWord_bytes);
    constexpr auto lanes = static_cast<std::size_t>(kPanelRows);
    const std::size_t blocks = row_bytes / layout.block_bytes();
    const std::size_t words = layout.quant_bytes / word_bytes;
    for (int64_t first = 0; first < row_count; first += kPanelRows, panels += panel_bytes(row_bytes)) {
        const int64_t left = row_count - first;
        const auto count = static_cast<std::size_t>(left < kPanelRows ? left : kPanelRows);
        if (count < lanes) std::memset(panels, 0, panel_bytes(row_bytes));
        std::byte* const scales = panels + blocks * lanes * layout.quant_bytes;
        std::byte* const minimums = scales + blocks * lanes * kHalf_bytes;
        for (std::size_t r = 0; r < count; ++r) {
            const std::byte* block = rows + (static_cast<std::size_t>(first) + r) * row_bytes;
            for (std::size_t b = 0; b < blocks; ++b, block += layout.block_bytes()) {
                std::memcpy(scales + (b * lanes + r) * kHalf_bytes, block, kHalf_bytes);
                if (layout.has_minimum)
                    std::memcpy(minimums + (b * lanes + r) * kHalf_bytes, block + kHalf_bytes, kHalf_bytes);
                const std::byte* from = block + layout.header_bytes();
                std::byte* to = panels + (b * words * lanes + r) * word_bytes;
                for (std::size_t w = 0; w < words; ++w)
                    std::memcpy(to + w * lanes * word_bytes, from + w * word_bytes, word_bytes);
            }
        }
    }
}

}  // namespace edgellm
