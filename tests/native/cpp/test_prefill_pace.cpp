// The piece of a prompt beside decoding sequences follows what steps cost, within bounds.
#include "check.hpp"
#include "engine/prefill_pace.hpp"

using edgellm::PrefillPace;

namespace {

constexpr double kStep_seconds = 0.008;

PrefillPace measured(double prompt_row_seconds) {
    PrefillPace pace;
    for (int i = 0; i < 20; ++i) {
        pace.record(4, 0, kStep_seconds);
        pace.record(3, 16, kStep_seconds + 16 * prompt_row_seconds);
    }
    return pace;
}

}  // namespace

TEST(unmeasured_pieces_are_as_large_as_allowed) {
    PrefillPace pace;
    CHECK(pace.rows(32) == 32);
    pace.record(0, 128, 0.1);
    CHECK(pace.rows(32) == 32);
}

TEST(a_piece_takes_what_the_factor_leaves_beside_a_decode_step) {
    const double row_seconds = kStep_seconds / 8.0;
    const int32_t rows = measured(row_seconds).rows(1000);
    CHECK(rows >= 15 && rows <= 16);
    CHECK(kStep_seconds + rows * row_seconds <= PrefillPace::kStepFactor * kStep_seconds + 1e-9);
}

TEST(cheap_prompt_rows_fill_the_piece_and_dear_ones_never_starve_a_prompt) {
    CHECK(measured(kStep_seconds / 1e6).rows(32) == 32);
    CHECK(measured(kStep_seconds * 10.0).rows(32) == PrefillPace::kFewestRows);
    CHECK(measured(kStep_seconds * 10.0).rows(3) == 3);
}

TEST(a_step_that_was_put_aside_changes_nothing) {
    PrefillPace pace = measured(kStep_seconds / 8.0);
    const int32_t before = pace.rows(1000);
    pace.record(4, 0, 5.0);
    pace.record(4, 16, 7.0);
    CHECK(pace.rows(1000) == before);
}

TEST(steps_of_prompts_alone_tell_the_cost_of_a_row) {
    PrefillPace pace;
    for (int i = 0; i < 9; ++i) {
        pace.record(1, 0, kStep_seconds);
        pace.record(0, 128, 128 * kStep_seconds / 10.0);
    }
    const int32_t rows = pace.rows(1000);
    CHECK(rows >= 19 && rows <= 20);
}

CHECK_MAIN()
