// CharacterSet: code points as ranges, for questions about grammars. It may grow too coarse, never too small.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace edgellm {

inline constexpr uint32_t kLastCodePoint = 0x10FFFF;

class CharacterSet {
public:
    void add(uint32_t first, uint32_t last) {
        ranges_.emplace_back(first, last);
        normalise();
    }
    void add(const CharacterSet& other) {
        ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
        normalise();
    }
    bool intersects(const CharacterSet& other) const {
        auto left = ranges_.begin();
        auto right = other.ranges_.begin();
        while (left != ranges_.end() && right != other.ranges_.end()) {
            if (left->second < right->first) {
                ++left;
            } else if (right->second < left->first) {
                ++right;
            } else {
                return true;
            }
        }
        return false;
    }
    CharacterSet complement() const {
        CharacterSet result;
        uint32_t next = 0;
        for (const auto& [first, last] : ranges_) {
            if (first > next) result.ranges_.emplace_back(next, first - 1);
            next = last + 1;
        }
        if (next <= kLastCodePoint) result.ranges_.emplace_back(next, kLastCodePoint);
        return result;
    }

private:
    static constexpr std::size_t kMaxRanges = 256;  // beyond it the set is taken for its hull

    void normalise() {
        std::sort(ranges_.begin(), ranges_.end());
        std::vector<std::pair<uint32_t, uint32_t>> merged;
        for (const auto& range : ranges_) {
            if (!merged.empty() && range.first <= merged.back().second + 1) {
                merged.back().second = std::max(merged.back().second, range.second);
            } else {
                merged.push_back(range);
            }
        }
        if (merged.size() > kMaxRanges) merged = {{merged.front().first, merged.back().second}};
        ranges_ = std::move(merged);
    }

    std::vector<std::pair<uint32_t, uint32_t>> ranges_;
};

}  // namespace edgellm
