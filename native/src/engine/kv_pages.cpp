#include "engine/kv_pages.hpp"

#include <utility>

namespace edgellm {

KvPagePool::KvPagePool(int32_t page_count, int32_t page_tokens)
    : holders_(static_cast<std::size_t>(page_count), 0), keeps_(holders_.size(), 0), page_tokens_(page_tokens) {
    free_.reserve(holders_.size());
    for (int32_t page = page_count - 1; page >= 0; --page) free_.push_back(page);
}

std::optional<int32_t> KvPagePool::take() {
    if (free_.empty()) return std::nullopt;
    const int32_t page = free_.back();
    free_.pop_back();
    holders_[static_cast<std::size_t>(page)] = 1;
    return page;
}

void KvPagePool::share(int32_t page) { change(page, 1, 0); }

bool KvPagePool::release(int32_t page) {
    change(page, -1, 0);
    if (holders(page) > 0) return false;
    free_.push_back(page);
    return true;
}

void KvPagePool::keep(int32_t page) { change(page, 1, 1); }

bool KvPagePool::drop(int32_t page) {
    change(page, 0, -1);
    return release(page);
}

void KvPagePool::change(int32_t page, int32_t holders, int32_t keeps) {
    const auto index = static_cast<std::size_t>(page);
    kept_alone_ -= is_kept_alone(index) ? 1 : 0;
    holders_[index] += holders;
    keeps_[index] += keeps;
    kept_alone_ += is_kept_alone(index) ? 1 : 0;
}

PageList& PageList::operator=(PageList&& other) noexcept {
    if (this != &other) {
        clear();
        pool_ = std::exchange(other.pool_, nullptr);
        pages_ = std::move(other.pages_);
        other.pages_.clear();
    }
    return *this;
}

void PageList::share(int32_t page) {
    pages_.push_back(page);
    pool_->share(page);
}

void PageList::clear() {
    for (auto page = pages_.rbegin(); page != pages_.rend(); ++page) pool_->release(*page);
    pages_.clear();
}

}  // namespace edgellm
