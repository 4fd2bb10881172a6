#include "executor/step_layout.hpp"

#include <limits>
#include <string>

#include "contract/errors.hpp"

namespace edgellm {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw ExecutorError("step refused: " + what); }

}  // namespace

StepPlanner::StepPlanner(const ExecutorInfo& info)
    : info_(info), written_in_step_(static_cast<std::size_t>(info.kv_page_count), 0) {}

const StepLayout& StepPlanner::plan(std::span<const RowGroup> groups, OutputKind kind, std::size_t out_size) {
    layout_.tokens.clear();
    layout_.embedded.clear();
    layout_.positions.clear();
    layout_.group_of_row.clear();
    layout_.wanted_rows.clear();
    layout_.groups.clear();
    ++step_number_;
    for (const RowGroup& group : groups) add_group(group);

    const int32_t width = kind == OutputKind::kLogits ? info_.vocab_size : info_.hidden_size;
    const std::size_t expected = static_cast<std::size_t>(layout_.wanted_count()) * static_cast<std::size_t>(width);
    if (out_size != expected)
        refuse("output holds " + std::to_string(out_size) + " values, the wanted rows need " +
               std::to_string(expected));
    return layout_;
}

void StepPlanner::add_group(const RowGroup& group) {
    const auto count = group.tokens.size();
    const auto room = static_cast<std::size_t>(info_.max_rows - layout_.row_count());
    if (count == 0) refuse("a group has no tokens");
    if (count > room) refuse("more than " + std::to_string(info_.max_rows) + " rows");
    if (group.first_position < 0 ||
        group.first_position > std::numeric_limits<int32_t>::max() - static_cast<int32_t>(count))
        refuse("position " + std::to_string(group.first_position) + " is out of range");
    const auto end_position = static_cast<std::size_t>(group.first_position) + count;
    const auto page_tokens = static_cast<std::size_t>(info_.kv_page_tokens);
    if (group.pages.size() < (end_position + page_tokens - 1) / page_tokens)
        refuse(std::to_string(group.pages.size()) + " pages do not cover " + std::to_string(end_position) +
               " positions");
    for (const int32_t page : group.pages) {
        if (page < 0 || page >= info_.kv_page_count) refuse("page " + std::to_string(page) + " is outside the store");
    }
    if (!group.embedded.empty() && group.embedded.size() != count) refuse("not every row says whether it is embedded");
    const auto embedded = [&](std::size_t row) { return group.embedded.empty() ? nullptr : group.embedded[row]; };
    for (std::size_t row = 0; row < count; ++row) {
        const int32_t token = group.tokens[row];
        if (embedded(row) == nullptr && (token < 0 || token >= info_.vocab_size))
            refuse("token id " + std::to_string(token) + " is outside the vocabulary");
    }
    claim_written_pages(group);

    const auto group_index = static_cast<int32_t>(layout_.groups.size());
    const int32_t first_row = layout_.row_count();
    const auto row_count = static_cast<int32_t>(count);
    layout_.groups.push_back({first_row, row_count, group.first_position, group.pages});
    for (int32_t i = 0; i < row_count; ++i) {
        layout_.tokens.push_back(group.tokens[static_cast<std::size_t>(i)]);
        layout_.embedded.push_back(embedded(static_cast<std::size_t>(i)));
        layout_.positions.push_back(group.first_position + i);
        layout_.group_of_row.push_back(group_index);
        const bool wanted =
            group.wanted == RowsWanted::kAll || (group.wanted == RowsWanted::kLast && i == row_count - 1);
        if (wanted) layout_.wanted_rows.push_back(first_row + i);
    }
}

void StepPlanner::claim_written_pages(const RowGroup& group) {
    const auto page_tokens = static_cast<std::size_t>(info_.kv_page_tokens);
    const auto first = static_cast<std::size_t>(group.first_position) / page_tokens;
    const auto last = (static_cast<std::size_t>(group.first_position) + group.tokens.size() - 1) / page_tokens;
    for (std::size_t i = first; i <= last; ++i) {
        uint64_t& step = written_in_step_[static_cast<std::size_t>(group.pages[i])];
        if (step == step_number_) refuse("page " + std::to_string(group.pages[i]) + " would be written twice");
        step = step_number_;
    }
}

void check_copy_kv(const ExecutorInfo& info, int32_t from_page, int32_t to_page, int32_t token_count) {
    for (const int32_t page : {from_page, to_page}) {
        if (page < 0 || page >= info.kv_page_count)
            throw ExecutorError("copy refused: page " + std::to_string(page) + " is outside the store");
    }
    if (token_count < 0 || token_count > info.kv_page_tokens)
        throw ExecutorError("copy refused: " + std::to_string(token_count) + " positions do not fit a page");
}

}  // namespace edgellm
