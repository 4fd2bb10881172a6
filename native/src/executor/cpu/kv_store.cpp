#include "executor/cpu/kv_store.hpp"

#include <cstring>
#include <limits>
#include <string>

#include "contract/errors.hpp"

namespace edgellm {
namespace {

constexpr int32_t kLargestHeadSize = 1024;

std::size_t store_bytes(const KvLayout& layout, int32_t page_count) {
    const std::size_t page_bytes = layout.page_bytes();
    const auto pages = static_cast<std::size_t>(page_count);
    if (page_bytes > static_cast<std::size_t>(std::numeric_limits<int64_t>::max()) / pages)
        throw ExecutorError("a KV store of " + std::to_string(page_count) + " pages is too large; use fewer pages");
    return page_bytes * pages;
}

}  // namespace

KvStore::KvStore(const KvLayout& layout, int32_t page_count)
    : layout_(layout),
      memory_(store_bytes(layout, page_count), "the KV store"),
      in_use_(static_cast<std::size_t>(page_count)) {}

void KvStore::write_key(int32_t page, int32_t position_in_page, int32_t layer, int32_t head, const float* key,
                        ToHalf to_half) noexcept {
    const int32_t size = layout_.head_size;
    std::byte* const keys = memory_.data() + layout_.keys_offset(page, layer, head);
    const std::size_t first = layout_.key_index(position_in_page, 0);
    if (layout_.type == KvType::kF16) {
        uint16_t halves[kLargestHeadSize];
        to_half(key, size, halves);
        auto* const to = reinterpret_cast<uint16_t*>(keys) + first;
        for (int32_t d = 0; d < size; ++d) to[d * kKeyTile] = halves[d];
    } else {
        auto* const to = reinterpret_cast<float*>(keys) + first;
        for (int32_t d = 0; d < size; ++d) to[d * kKeyTile] = key[d];
    }
}

void KvStore::write_value(int32_t page, int32_t position_in_page, int32_t layer, int32_t head, const float* value,
                          ToHalf to_half) noexcept {
    const int32_t size = layout_.head_size;
    std::byte* const values = memory_.data() + layout_.values_offset(page, layer, head);
    const std::size_t first = layout_.value_index(position_in_page, 0);
    if (layout_.type == KvType::kF16) {
        to_half(value, size, reinterpret_cast<uint16_t*>(values) + first);
    } else {
        std::memcpy(reinterpret_cast<float*>(values) + first, value, static_cast<std::size_t>(size) * sizeof(float));
    }
}

template <typename Stored>
void KvStore::copy_values(int32_t from_page, int32_t to_page, int32_t token_count) noexcept {
    const int32_t size = layout_.head_size;
    for (int32_t layer = 0; layer < layout_.layer_count; ++layer) {
        for (int32_t head = 0; head < layout_.kv_head_count; ++head) {
            const auto at = [&](std::size_t offset) { return reinterpret_cast<Stored*>(memory_.data() + offset); };
            const Stored* keys = at(layout_.keys_offset(from_page, layer, head));
            Stored* to_keys = at(layout_.keys_offset(to_page, layer, head));
            const int32_t whole = token_count / kKeyTile * kKeyTile;
            std::memcpy(to_keys, keys, layout_.key_index(whole, 0) * sizeof(Stored));
            for (int32_t position = whole; position < token_count; ++position) {
                for (int32_t d = 0; d < size; ++d)
                    to_keys[layout_.key_index(position, d)] = keys[layout_.key_index(position, d)];
            }
            std::memcpy(at(layout_.values_offset(to_page, layer, head)),
                        at(layout_.values_offset(from_page, layer, head)),
                        layout_.value_index(token_count, 0) * sizeof(Stored));
        }
    }
}

void KvStore::copy(int32_t from_page, int32_t to_page, int32_t token_count) noexcept {
    if (from_page == to_page || token_count == 0) return;
    mark_written(to_page);
    if (layout_.type == KvType::kF16) {
        copy_values<uint16_t>(from_page, to_page, token_count);
    } else {
        copy_values<float>(from_page, to_page, token_count);
    }
}

void KvStore::give_back(std::span<const int32_t> pages) noexcept {
    for (const int32_t page : pages) {
        if (page < 0 || static_cast<std::size_t>(page) >= in_use_.size() || !in_use_[static_cast<std::size_t>(page)])
            continue;
        memory_.give_back(static_cast<std::size_t>(page) * layout_.page_bytes(), layout_.page_bytes());
        in_use_[static_cast<std::size_t>(page)] = false;
    }
}

}  // namespace edgellm
