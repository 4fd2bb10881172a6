// Weight panels: the weights of sixteen rows interleaved, so that one vector instruction multiplies eight rows at once.
//
// A panel holds its blocks of 32 columns one after the other. A block is
//     16 scales as halves, one a row; for Q4_1 then 16 minimums
//     quants in runs of 64 bytes, four columns of each row: for Q8_0 eight runs, of quants plus 128 as unsigned bytes;
//     for Q4_0 and Q4_1 four runs, columns 4i to 4i + 3 in the low halves of the bytes, 16 + 4i and so on in the high
// which is as many bytes as the rows take in the file. Rows beyond the last are zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/gguf_file.hpp"

namespace edgellm {

inline constexpr int64_t kPanelRows = 16;
inline constexpr int64_t kPanelBlock = 32;  // columns that share a scale
inline constexpr int64_t kPanelRun_bytes = 64;

// Changes with the layout above: panels that were stored under another version are made anew.
inline constexpr uint32_t kPanelLayoutVersion = 1;

bool has_panel_layout(TensorType type) noexcept;

// Of a whole matrix with that many rows of row_bytes each in the file.
constexpr std::size_t panels_bytes(std::size_t row_bytes, int64_t row_count) noexcept {
    return row_bytes * static_cast<std::size_t>((row_count + kPanelRows - 1) / kPanelRows * kPanelRows);
}

// Fills panels_bytes(row_bytes, row_count) bytes from rows as they are in a file; has_panel_layout(type) holds.
void pack_panels(TensorType type, const std::byte* rows, std::size_t row_bytes, int64_t row_count, int64_t columns,
                 std::byte* panels) noexcept;

}  // namespace edgellm
