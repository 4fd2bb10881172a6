// PrefillPace: how many prompt rows a step may carry beside decoding sequences, so that their next tokens do not come
// much later than from a step without a prompt. It goes by the measured time of steps, whatever device runs them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace edgellm {

class PrefillPace {
public:
    // A step with prompt rows may take this many times a step without them.
    static constexpr double kStepFactor = 3.0;
    // However slow prompts are: a prompt is never starved.
    static constexpr int32_t kFewestRows = 8;

    // Rows for the next step, between kFewestRows and most_rows; most_rows while too little is measured.
    int32_t rows(int32_t most_rows) const noexcept;

    // Records a step. Steps of nothing but prompts tell what a prompt row costs too.
    void record(int32_t decode_rows, int32_t prompt_rows, double seconds) noexcept;

private:
    // The median of the last few values: a step that the system put aside does not count.
    class Recent {
    public:
        void add(double value) noexcept;
        double median() const noexcept;  // 0 while empty

    private:
        static constexpr std::size_t kKept = 9;
        std::array<double, kKept> values_{};
        std::size_t count_ = 0;
        std::size_t next_ = 0;
    };

    Recent decode_step_seconds_;
    Recent prompt_row_seconds_;
};

}  // namespace edgellm
