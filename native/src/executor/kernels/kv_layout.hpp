// KvLayout: where a key or value of (page, layer, head, position) lies. A page is contiguous, so that it can be
// copied, or given back to the system, as one piece.
//
// page:   layer 0 | layer 1 | ...
// layer:  keys of head 0 | keys of head 1 | ... | values of head 0 | ...
// keys:   tiles of 8 positions, in a tile [dimension][position], so that scores of 8 positions need no lane sums
// values: [position][dimension]
#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/executor.hpp"

namespace edgellm {

inline constexpr int32_t kKeyTile = 8;  // positions

struct KvLayout {
    KvType type = KvType::kF16;
    int32_t layer_count = 0;
    int32_t kv_head_count = 0;
    int32_t head_size = 0;
    int32_t page_tokens = 0;  // a multiple of kKeyTile

    std::size_t value_bytes() const noexcept { return type == KvType::kF16 ? 2 : 4; }
    std::size_t head_bytes() const noexcept {  // keys, or values, of one head in one page
        return static_cast<std::size_t>(page_tokens) * static_cast<std::size_t>(head_size) * value_bytes();
    }
    std::size_t layer_bytes() const noexcept { return 2 * static_cast<std::size_t>(kv_head_count) * head_bytes(); }
    std::size_t page_bytes() const noexcept { return static_cast<std::size_t>(layer_count) * layer_bytes(); }

    std::size_t keys_offset(int32_t page, int32_t layer, int32_t head) const noexcept {
        return static_cast<std::size_t>(page) * page_bytes() + static_cast<std::size_t>(layer) * layer_bytes() +
               static_cast<std::size_t>(head) * head_bytes();
    }
    std::size_t values_offset(int32_t page, int32_t layer, int32_t head) const noexcept {
        return keys_offset(page, layer, head) + static_cast<std::size_t>(kv_head_count) * head_bytes();
    }
    // Indices of values (not bytes) inside keys or values of one head.
    std::size_t key_index(int32_t position_in_page, int32_t dimension) const noexcept {
        const int32_t tile = position_in_page / kKeyTile;
        return (static_cast<std::size_t>(tile) * static_cast<std::size_t>(head_size) +
                static_cast<std::size_t>(dimension)) *
                   kKeyTile +
               static_cast<std::size_t>(position_in_page % kKeyTile);
    }
    std::size_t value_index(int32_t position_in_page, int32_t dimension) const noexcept {
        return static_cast<std::size_t>(position_in_page) * static_cast<std::size_t>(head_size) +
               static_cast<std::size_t>(dimension);
    }
};

}  // namespace edgellm
