// Drives an Executor in tests: models from tiny decoders, pages handed out by hand, results compared.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <vector>

#include "check.hpp"
#include "executor/executor.hpp"
#include "gguf_writer.hpp"
#include "model/gguf_file.hpp"
#include "model/model_spec.hpp"
#include "tiny_decoder.hpp"

namespace harness {

using edgellm::Executor;
using edgellm::ExecutorOptions;
using edgellm::KvType;
using edgellm::OutputKind;
using edgellm::RowGroup;
using edgellm::RowsWanted;

struct Model {
    explicit Model(const tiny::Decoder& decoder)
        : on_disk(decoder.writer.bytes()),
          file(edgellm::GgufFile::open(on_disk.path())),
          spec(edgellm::read_model_spec(*file)) {}

    std::unique_ptr<Executor> executor(const ExecutorOptions& options) const {
        return edgellm::make_executor(file, spec, options);
    }

    gguf_test::TemporaryFile on_disk;
    std::shared_ptr<const edgellm::GgufFile> file;
    edgellm::ModelSpec spec;
};

inline ExecutorOptions small_options(KvType kv_type = KvType::kF32) {
    ExecutorOptions options;
    options.threads = 2;
    options.kv_page_tokens = 8;
    options.kv_page_count = 96;
    options.max_rows = 256;
    options.kv_type = kv_type;
    return options;
}

// One sequence of a test: its tokens, its pages, and how far it has come.
struct Sequence {
    std::vector<int32_t> tokens;
    std::vector<int32_t> pages;
    std::size_t done = 0;

    RowGroup next(std::size_t count, RowsWanted wanted) {
        const RowGroup group{std::span(tokens).subspan(done, count), static_cast<int32_t>(done), pages, wanted};
        done += count;
        return group;
    }
    void rewind() { done = 0; }
};

// Pages first, first + step, ... enough for all tokens.
inline Sequence sequence(std::vector<int32_t> tokens, int32_t page_tokens, int32_t first_page, int32_t page_step = 1) {
    Sequence made;
    const auto count = (static_cast<int32_t>(tokens.size()) + page_tokens - 1) / page_tokens;
    for (int32_t i = 0; i < count; ++i) made.pages.push_back(first_page + i * page_step);
    made.tokens = std::move(tokens);
    return made;
}

inline std::vector<float> step(Executor& executor, const std::vector<RowGroup>& groups,
                               OutputKind kind = OutputKind::kLogits) {
    std::size_t rows = 0;
    for (const RowGroup& group : groups)
        rows += group.wanted == RowsWanted::kAll ? group.tokens.size() : group.wanted == RowsWanted::kLast ? 1 : 0;
    const auto width = kind == OutputKind::kLogits ? executor.info().vocab_size : executor.info().hidden_size;
    std::vector<float> out(rows * static_cast<std::size_t>(width), NAN);
    executor.step(groups, kind, out);
    return out;
}

// Logits of every position, the whole sequence in one step.
inline std::vector<float> run_whole(Executor& executor, Sequence& one) {
    one.rewind();
    return step(executor, {one.next(one.tokens.size(), RowsWanted::kAll)});
}

inline double largest_difference(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size()) return INFINITY;
    double largest = 0.0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
        if (!(difference <= largest)) largest = std::isnan(difference) ? INFINITY : difference;
    }
    return largest;
}

inline bool identical(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

inline std::span<const float> row(const std::vector<float>& rows, std::size_t index, int32_t width) {
    return std::span(rows).subspan(index * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
}

}  // namespace harness
