// KvPagePool: which pages of the executor's KV store are free, and how many holders each of the others has.
// PageList: the pages of one sequence in position order; it gives them back when it goes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace edgellm {

// Not thread-safe: one engine thread owns it.
class KvPagePool {
public:
    KvPagePool(int32_t page_count, int32_t page_tokens);

    std::optional<int32_t> take();         // one holder; nullopt when none is free
    void share(int32_t page);              // one holder more
    bool release(int32_t page);            // one holder less; true when that was the last
    int32_t holders(int32_t page) const { return holders_[static_cast<std::size_t>(page)]; }

    // The context cache's way of sharing and releasing: pages that only it holds are counted.
    void keep(int32_t page);
    bool drop(int32_t page);
    int32_t kept_alone() const { return kept_alone_; }

    std::span<const int32_t> free_pages() const { return free_; }
    int32_t capacity() const { return static_cast<int32_t>(holders_.size()); }
    int32_t page_tokens() const { return page_tokens_; }

private:
    bool is_kept_alone(std::size_t page) const { return keeps_[page] > 0 && keeps_[page] == holders_[page]; }
    void change(int32_t page, int32_t holders, int32_t keeps);

    std::vector<int32_t> holders_;
    std::vector<int32_t> keeps_;           // how many of them are the context cache
    int32_t kept_alone_ = 0;
    std::vector<int32_t> free_;            // last in, first out: memory already touched is used again
    int32_t page_tokens_;
};

class PageList {
public:
    PageList() = default;
    explicit PageList(KvPagePool& pool) : pool_(&pool) {}
    PageList(PageList&& other) noexcept { *this = static_cast<PageList&&>(other); }
    PageList& operator=(PageList&& other) noexcept;
    PageList(const PageList&) = delete;
    PageList& operator=(const PageList&) = delete;
    ~PageList() { clear(); }

    void adopt(int32_t page) { pages_.push_back(page); }  // takes over one holding
    void share(int32_t page);
    void clear();

    std::span<const int32_t> pages() const { return pages_; }
    std::size_t size() const { return pages_.size(); }

private:
    KvPagePool* pool_ = nullptr;
    std::vector<int32_t> pages_;
};

}  // namespace edgellm
