#include "engine/prefill_pace.hpp"

#include <algorithm>

namespace edgellm {

int32_t PrefillPace::rows(int32_t most_rows) const noexcept {
    const double step_seconds = decode_step_seconds_.median();
    const double row_seconds = prompt_row_seconds_.median();
    const int32_t fewest = std::min(kFewestRows, most_rows);
    if (step_seconds <= 0.0 || row_seconds <= 0.0) return most_rows;
    const double rows = (kStepFactor - 1.0) * step_seconds / row_seconds;
    return rows >= static_cast<double>(most_rows) ? most_rows : std::max(fewest, static_cast<int32_t>(rows));
}

void PrefillPace::record(int32_t decode_rows, int32_t prompt_rows, double seconds) noexcept {
    if (prompt_rows == 0) {
        if (decode_rows > 0) decode_step_seconds_.add(seconds);
        return;
    }
    const double rest_seconds = seconds - (decode_rows > 0 ? decode_step_seconds_.median() : 0.0);
    if (rest_seconds > 0.0) prompt_row_seconds_.add(rest_seconds / prompt_rows);
}

void PrefillPace::Recent::add(double value) noexcept {
    values_[next_] = value;
    next_ = (next_ + 1) % kKept;
    count_ = std::min(count_ + 1, kKept);
}

double PrefillPace::Recent::median() const noexcept {
    if (count_ == 0) return 0.0;
    std::array<double, kKept> sorted = values_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(count_ / 2);
    std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count_));
    return *middle;
}

}  // namespace edgellm
