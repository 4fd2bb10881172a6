// KvStore: the paged keys and values of the CPU executor; memory is used only for pages that were written.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/cpu/anonymous_memory.hpp"
#include "executor/kernels/kv_layout.hpp"

namespace edgellm {

class KvStore {
public:
    KvStore(const KvLayout& layout, int32_t page_count);

    const KvLayout& layout() const noexcept { return layout_; }
    const std::byte* data() const noexcept { return memory_.data(); }

    // Writes one head's key, or value, of a position. Threads may write different positions or heads at once.
    using ToHalf = void (*)(const float*, int64_t, uint16_t*) noexcept;
    void write_key(int32_t page, int32_t position_in_page, int32_t layer, int32_t head, const float* key,
                   ToHalf to_half) noexcept;
    void write_value(int32_t page, int32_t position_in_page, int32_t layer, int32_t head, const float* value,
                     ToHalf to_half) noexcept;

    void mark_written(int32_t page) noexcept { in_use_[static_cast<std::size_t>(page)] = true; }
    void copy(int32_t from_page, int32_t to_page, int32_t token_count) noexcept;
    void give_back(std::span<const int32_t> pages) noexcept;

private:
    template <typename Stored>
    void copy_values(int32_t from_page, int32_t to_page, int32_t token_count) noexcept;

    KvLayout layout_;
    AnonymousMemory memory_;
    std::vector<bool> in_use_;  // by page: holds memory
};

}  // namespace edgellm
