// StepLayout: one step's row groups, checked and flattened into rows; every executor starts from it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/executor.hpp"

namespace edgellm {

struct StepGroup {
    int32_t first_row = 0;
    int32_t row_count = 0;
    int32_t first_position = 0;
    std::span<const int32_t> pages;

    int32_t end_position() const noexcept { return first_position + row_count; }
};

struct StepLayout {
    std::vector<int32_t> tokens;     // by row
    std::vector<const float*> embedded;  // by row: null where the token says what it enters the model with
    std::vector<int32_t> positions;  // by row
    std::vector<int32_t> group_of_row;
    std::vector<int32_t> wanted_rows;  // rows whose result is asked for, ascending
    std::vector<StepGroup> groups;

    int32_t row_count() const noexcept { return static_cast<int32_t>(tokens.size()); }
    int32_t wanted_count() const noexcept { return static_cast<int32_t>(wanted_rows.size()); }
};

// Reuses its memory from step to step; throws ExecutorError when the groups break the contract of Executor::step.
class StepPlanner {
public:
    explicit StepPlanner(const ExecutorInfo& info);

    const StepLayout& plan(std::span<const RowGroup> groups, OutputKind kind, std::size_t out_size);

private:
    void add_group(const RowGroup& group);
    void claim_written_pages(const RowGroup& group);

    const ExecutorInfo& info_;
    StepLayout layout_;
    std::vector<uint64_t> written_in_step_;  // by page: the last step that wrote it
    uint64_t step_number_ = 0;
};

// Throws ExecutorError unless both pages and the count are inside the store.
void check_copy_kv(const ExecutorInfo& info, int32_t from_page, int32_t to_page, int32_t token_count);

}  // namespace edgellm
