// Panels: quantised weight rows regrouped so that one vector of a kernel holds values of as many rows as it has lanes,
// and sums over a row need no adding up of lanes. The same for every instruction set.
//
// A panel is 16 rows, its blocks of 32 values in order:
//   quants of all blocks | scales of all blocks | minimums of all blocks (Q4_1)
//   quants of a block:   words of four bytes, [word of the block][row]; bytes as in the file, so that for four bits
//                        word w has values 4w to 4w+3 in the low halves and 16+4w to 16+4w+3 in the high ones
//   scales, minimums:    half precision, [block][row]
// Without padding inside, so that panels take as many bytes as their rows do in the file. Rows that are missing from
// the last panel are zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/gguf_file.hpp"

namespace edgellm {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kPanelBlock = 32;                // values that share a scale
inline constexpr int64_t kPanelWord_bytes = 4;
inline constexpr std::size_t kPanelAlignment_bytes = 64;  // of the first panel of a matrix

bool has_panels(TensorType type) noexcept;  // Q8_0, Q4_0 and Q4_1

constexpr int64_t panel_count(int64_t rows) noexcept { return (rows + kPanelRows - 1) / kPanelRows; }

// row_bytes are those of the file's rows.
constexpr std::size_t panel_bytes(std::size_t row_bytes) noexcept {
    return static_cast<std::size_t>(kPanelRows) * row_bytes;
}

// Regroups row_count rows, one after another, into panel_count(row_count) panels.
void pack_panels(TensorType type, const std::byte* rows, std::size_t row_bytes, int64_t row_count,
                 std::byte* panels) noexcept;

}  // namespace edgellm
