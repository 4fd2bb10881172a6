#include "executor/cpu/cpu_step.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "executor/kernels/weight_panels.hpp"

namespace edgellm {
namespace {

enum LayerPhase : int32_t {
    kAttentionNorm,
    kProjectQkv,  // keys and values into the store, too
    kAttend,
    kPrepareAttended,
    kProjectAttended,
    kFeedForwardNorm,
    kGateUp,
    kPrepareGated,
    kDown,
    kLayerPhaseCount,
};

constexpr int32_t kEmbedPhase = 0;
constexpr int32_t kFirstLayerPhase = 1;

// Matrix rows of a chunk: whole kernel tiles and several chunks per thread. Weights that many tokens pass over stay in
// the first caches; those of few are read as long streams.
constexpr int64_t kRowGranule = kPanelRows;
constexpr int64_t kMostRows = 128;
constexpr int64_t kMostRowsOfPrompt = 32;
constexpr int64_t kMostRowsOfHead = 256;
constexpr int32_t kFewTokens = 8;  // up to here weights are streamed, above they are reused
constexpr int32_t kChunksPerThread = 4;

constexpr int64_t divide_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

}  // namespace

CpuStep::CpuStep(const ModelSpec& spec, const CpuWeights& weights, KvStore& store, const CpuKernels& kernels,
                 int32_t threads, int32_t max_rows)
    : spec_(spec),
      weights_(weights),
      store_(store),
      kernels_(kernels),
      rotary_(spec.rope),
      buffers_(spec, weights, threads, max_rows),
      threads_(threads),
      query_width_(int64_t{spec.head_count} * spec.head_size),
      kv_width_(int64_t{spec.kv_head_count} * spec.head_size),
      heads_per_kv_head_(spec.head_count / spec.kv_head_count),
      head_chunk_outputs_(std::lcm(int64_t{spec.head_size}, kRowGranule)),
      laid_out_(static_cast<std::size_t>(threads)) {}

Chunking CpuStep::cut_rows(int32_t row_count) const noexcept {
    return {row_count, std::max<int64_t>(1, divide_up(row_count, int64_t{threads_} * kChunksPerThread))};
}

Chunking CpuStep::cut_outputs(const CpuMatrix& matrix, int32_t token_count, int64_t most) const noexcept {
    const int64_t limit = token_count > kFewTokens ? kMostRowsOfPrompt : most;
    const int64_t wished = divide_up(matrix.outputs, int64_t{threads_} * kChunksPerThread);
    int64_t rows = std::clamp(divide_up(wished, kRowGranule) * kRowGranule, kRowGranule, limit);
    while (divide_up(matrix.outputs, rows) > PhaseRunner::kMaxChunks) rows *= 2;
    return {matrix.outputs, rows};
}

Chunking CpuStep::cut_heads(const CpuMatrix& matrix) const noexcept { return {matrix.outputs, head_chunk_outputs_}; }

std::span<const int32_t> CpuStep::plan(const StepLayout& layout, OutputKind kind, std::span<float> out) {
    layout_ = &layout;
    kind_ = kind;
    out_ = out.data();
    row_chunks_ = cut_rows(layout.row_count());
    wanted_chunks_ = cut_rows(layout.wanted_count());
    head_chunks_ = cut_outputs(weights_.output(), layout.wanted_count(), kMostRowsOfHead);
    own_rows_ = layout.row_count() <= kOwnRows;
    for (LaidOut& worker : laid_out_) worker.phase = kNoPhase;
    plan_attention();

    chunk_counts_.clear();
    chunk_counts_.push_back(row_chunks_.chunk_count());
    for (const CpuLayer& layer : weights_.layers()) plan_layer(layer);
    if (layout.wanted_count() == 0) {
        // Nothing reads the last layer's result: its keys and values are the end of the step.
        const auto end = chunk_counts_.end() - kLayerPhaseCount;
        std::fill(end + kAttend, chunk_counts_.end(), 0);
    }
    const bool logits = kind == OutputKind::kLogits;
    chunk_counts_.push_back(logits && own_rows_ ? 0 : wanted_chunks_.chunk_count());
    chunk_counts_.push_back(logits && layout.wanted_count() > 0 ? head_chunks_.chunk_count() : 0);
    return chunk_counts_;
}

void CpuStep::plan_layer(const CpuLayer& layer) {
    const int32_t rows = layout_->row_count();
    const int32_t row_chunks = own_rows_ ? 0 : row_chunks_.chunk_count();
    const auto output_chunks = [&](const CpuMatrix& matrix) {
        return cut_outputs(matrix, rows, kMostRows).chunk_count();
    };
    std::array<int32_t, kLayerPhaseCount> counts{};
    counts[kAttentionNorm] = row_chunks;
    counts[kProjectQkv] =
        output_chunks(layer.query) + cut_heads(layer.key).chunk_count() + cut_heads(layer.value).chunk_count();
    counts[kAttend] = attention_chunks_.chunk_count();
    counts[kPrepareAttended] = row_chunks;
    counts[kProjectAttended] = output_chunks(layer.attention_output);
    counts[kFeedForwardNorm] = row_chunks;
    counts[kGateUp] = output_chunks(layer.gate);
    counts[kPrepareGated] = row_chunks;
    counts[kDown] = output_chunks(layer.down);
    chunk_counts_.insert(chunk_counts_.end(), counts.begin(), counts.end());
}

// A task takes as many heads of one KV head as fit, so that they share its loads, unless that leaves threads idle;
// then as many rows as fit.
void CpuStep::plan_attention() {
    const auto tasks_of = [&](int32_t heads) {
        const int32_t rows_per_tile = std::max(1, kAttentionQueries / heads);
        int64_t tiles = 0;
        for (const StepGroup& group : layout_->groups) tiles += divide_up(group.row_count, rows_per_tile);
        return tiles * spec_.kv_head_count * divide_up(heads_per_kv_head_, heads);
    };
    heads_per_task_ = std::min(heads_per_kv_head_, kAttentionQueries);
    while (heads_per_task_ > 1 && tasks_of(heads_per_task_) < int64_t{threads_} * 3)
        heads_per_task_ = (heads_per_task_ + 1) / 2;
    tasks_per_kv_head_ = static_cast<int32_t>(divide_up(heads_per_kv_head_, heads_per_task_));

    const int32_t rows_per_tile = std::max(1, kAttentionQueries / heads_per_task_);
    attention_tiles_.clear();
    for (const StepGroup& group : layout_->groups) {
        for (int32_t row = 0; row < group.row_count; row += rows_per_tile)
            attention_tiles_.push_back({&group, row, std::min(rows_per_tile, group.row_count - row)});
    }
    const auto tasks = static_cast<int64_t>(attention_tiles_.size()) * spec_.kv_head_count * tasks_per_kv_head_;
    attention_chunks_ = {tasks, std::max<int64_t>(1, divide_up(tasks, PhaseRunner::kMaxChunks))};
}

void CpuStep::run_chunk(int32_t worker, int32_t phase, int32_t chunk) noexcept {
    const auto layer_count = static_cast<int32_t>(weights_.layers().size());
    const int32_t final_phase = kFirstLayerPhase + layer_count * kLayerPhaseCount;
    if (phase == kEmbedPhase) {
        for_items(row_chunks_, chunk, [&](int32_t row) { embed(row); });
    } else if (phase < final_phase) {
        const int32_t within = phase - kFirstLayerPhase;
        run_layer_chunk(worker, within / kLayerPhaseCount, within % kLayerPhaseCount, chunk);
    } else if (phase == final_phase) {
        for_items(wanted_chunks_, chunk, [&](int32_t wanted) { finish(worker, wanted); });
    } else {
        const auto outputs = head_chunks_.range(chunk);
        lay_out_once(worker, phase, layout_->wanted_count(), [&](int32_t wanted) { finish(worker, wanted); });
        multiply(worker, weights_.output(), outputs, layout_->wanted_count(), out_, spec_.vocab_size);
    }
}

void CpuStep::run_layer_chunk(int32_t worker, int32_t layer_index, int32_t phase, int32_t chunk) noexcept {
    const CpuLayer& layer = weights_.layers()[static_cast<std::size_t>(layer_index)];
    const int32_t rows = layout_->row_count();
    const auto read = [&](int32_t layer_phase) {  // what the phase before laid out
        lay_out_once(worker, kFirstLayerPhase + layer_index * kLayerPhaseCount + phase, rows,
                     [&](int32_t row) { lay_out_for_layer(worker, layer_index, layer_phase, row); });
    };
    const auto outputs = [&](const CpuMatrix& matrix) { return cut_outputs(matrix, rows, kMostRows).range(chunk); };
    switch (phase) {
        case kProjectQkv:
            read(kAttentionNorm);
            project_qkv(worker, layer_index, chunk);
            break;
        case kAttend:
            for_items(attention_chunks_, chunk, [&](int32_t task) { attend(layer_index, worker, task); });
            break;
        case kProjectAttended:
            read(kPrepareAttended);
            project_onto_rows(worker, layer.attention_output, outputs(layer.attention_output));
            break;
        case kGateUp:
            read(kFeedForwardNorm);
            gate_up(worker, layer, outputs(layer.gate));
            break;
        case kDown:
            read(kPrepareGated);
            project_onto_rows(worker, layer.down, outputs(layer.down));
            break;
        default:
            for_items(row_chunks_, chunk,
                      [&](int32_t row) { lay_out_for_layer(worker, layer_index, phase, row); });
            break;
    }
}

void CpuStep::lay_out_for_layer(int32_t worker, int32_t layer_index, int32_t phase, int32_t row) noexcept {
    const CpuLayer& layer = weights_.layers()[static_cast<std::size_t>(layer_index)];
    if (phase == kAttentionNorm) {
        normalise(worker, row, layer.attention_norm, {&layer.query, &layer.key, &layer.value});
    } else if (phase == kPrepareAttended) {
        prepare(worker, buffers_.attended + row * query_width_, row, {&layer.attention_output});
    } else if (phase == kFeedForwardNorm) {
        normalise(worker, row, layer.feed_forward_norm, {&layer.gate, &layer.up});
    } else {
        prepare(worker, buffers_.gate + int64_t{row} * spec_.intermediate_size, row, {&layer.down});
    }
}

template <typename RowFunction>
void CpuStep::lay_out_once(int32_t worker, int32_t phase, int32_t count, RowFunction row_function) noexcept {
    int32_t& laid_out = laid_out_[static_cast<std::size_t>(worker)].phase;
    if (!own_rows_ || laid_out == phase) return;
    for (int32_t row = 0; row < count; ++row) row_function(row);
    laid_out = phase;
}

template <typename ItemFunction>
void CpuStep::for_items(const Chunking& chunking, int32_t chunk, ItemFunction item_function) noexcept {
    const auto range = chunking.range(chunk);
    for (int64_t item = range.first; item < range.first + range.count; ++item)
        item_function(static_cast<int32_t>(item));
}

void CpuStep::embed(int32_t row) noexcept {
    const auto index = static_cast<std::size_t>(row);
    float* const values = buffers_.rows + int64_t{row} * spec_.hidden_size;
    if (const float* const given = layout_->embedded[index]) {
        std::copy_n(given, spec_.hidden_size, values);
    } else {
        weights_.embed(layout_->tokens[index], values);
    }
    rotary_.angles(layout_->positions[index], buffers_.angles + int64_t{row} * spec_.rope.dimensions);
}

void CpuStep::normalise(int32_t worker, int32_t row, const float* weight,
                        std::initializer_list<const CpuMatrix*> readers) noexcept {
    float* const normed = buffers_.normed[static_cast<std::size_t>(worker)];
    kernels_.rms_norm(buffers_.rows + int64_t{row} * spec_.hidden_size, weight, spec_.hidden_size, spec_.norm_epsilon,
                      normed);
    prepare(worker, normed, row, readers);
}

std::byte* CpuStep::prepared(int32_t worker, std::size_t format) const noexcept {
    return own_rows_ ? buffers_.own_prepared[static_cast<std::size_t>(worker)][format] : buffers_.prepared[format];
}

void CpuStep::prepare(int32_t worker, const float* values, int32_t slot,
                      std::initializer_list<const CpuMatrix*> readers) noexcept {
    for (const CpuMatrix* const* reader = readers.begin(); reader != readers.end(); ++reader) {
        const CpuMatrix& matrix = **reader;
        const bool done =
            std::any_of(readers.begin(), reader, [&](const CpuMatrix* one) { return one->format == matrix.format; });
        if (done) continue;
        const ActivationFormat& format = *weights_.formats()[matrix.format].format;
        format.prepare(
            values, matrix.inputs,
            prepared(worker, matrix.format) + static_cast<std::size_t>(slot) * format.row_bytes(matrix.inputs));
    }
}

void CpuStep::multiply(int32_t worker, const CpuMatrix& matrix, Chunking::Range outputs, int32_t token_count,
                       float* out, int64_t out_stride) noexcept {
    MatmulTask task;
    task.weights = matrix.rows + static_cast<std::size_t>(outputs.first) * matrix.row_bytes;
    task.weight_row_bytes = matrix.row_bytes;
    task.input_size = matrix.inputs;
    task.row_count = outputs.count;
    task.activations = prepared(worker, matrix.format);
    task.activation_row_bytes = weights_.formats()[matrix.format].format->row_bytes(matrix.inputs);
    task.token_count = token_count;
    task.out = out + outputs.first;
    task.out_stride = out_stride;
    matrix.kernel->multiply(task);
}

// In the order in which the matrices lie in memory.
void CpuStep::project_qkv(int32_t worker, int32_t layer_index, int32_t chunk) noexcept {
    const CpuLayer& layer = weights_.layers()[static_cast<std::size_t>(layer_index)];
    const int32_t rows = layout_->row_count();
    const Chunking queries = cut_outputs(layer.query, rows, kMostRows);
    const Chunking keys = cut_heads(layer.key);
    const int32_t key_chunk = chunk - queries.chunk_count();
    const int32_t value_chunk = key_chunk - keys.chunk_count();
    if (key_chunk < 0) {
        multiply(worker, layer.query, queries.range(chunk), rows, buffers_.queries, query_width_);
    } else if (value_chunk < 0) {
        multiply(worker, layer.key, keys.range(key_chunk), rows, buffers_.keys, kv_width_);
        store_keys(layer_index, keys.range(key_chunk));
    } else {
        const Chunking::Range values = cut_heads(layer.value).range(value_chunk);
        multiply(worker, layer.value, values, rows, buffers_.values, kv_width_);
        store_values(layer_index, values);
    }
}

template <typename RowFunction>
void CpuStep::for_rows_of_store(RowFunction row_function) noexcept {
    const int32_t page_tokens = store_.layout().page_tokens;
    for (const StepGroup& group : layout_->groups) {
        for (int32_t row = group.first_row; row < group.first_row + group.row_count; ++row) {
            const int32_t position = layout_->positions[static_cast<std::size_t>(row)];
            row_function(row, group.pages[static_cast<std::size_t>(position / page_tokens)], position % page_tokens);
        }
    }
}

void CpuStep::store_keys(int32_t layer_index, Chunking::Range outputs) noexcept {
    const CpuLayer& layer = weights_.layers()[static_cast<std::size_t>(layer_index)];
    for_rows_of_store([&](int32_t row, int32_t page, int32_t position_in_page) {
        for (int64_t first = outputs.first; first < outputs.first + outputs.count; first += spec_.head_size) {
            float* const key = buffers_.keys + row * kv_width_ + first;
            rotate(key, row, layer.key_bias == nullptr ? nullptr : layer.key_bias + first, layer.key_norm);
            store_.write_key(page, position_in_page, layer_index, static_cast<int32_t>(first / spec_.head_size), key,
                             kernels_.to_half);
        }
    });
}

void CpuStep::store_values(int32_t layer_index, Chunking::Range outputs) noexcept {
    const CpuLayer& layer = weights_.layers()[static_cast<std::size_t>(layer_index)];
    for_rows_of_store([&](int32_t row, int32_t page, int32_t position_in_page) {
        for (int64_t first = outputs.first; first < outputs.first + outputs.count; first += spec_.head_size) {
            float* const value = buffers_.values + row * kv_width_ + first;
            if (layer.value_bias != nullptr) kernels_.add(layer.value_bias + first, spec_.head_size, value);
            store_.write_value(page, position_in_page, layer_index, static_cast<int32_t>(first / spec_.head_size),
                               value, kernels_.to_half);
        }
    });
}

// A projected head becomes a query or key of its row's position.
void CpuStep::rotate(float* head, int32_t row, const float* bias, const float* norm) noexcept {
    if (bias != nullptr) kernels_.add(bias, spec_.head_size, head);
    if (norm != nullptr) kernels_.rms_norm(head, norm, spec_.head_size, spec_.norm_epsilon, head);
    rotary_.rotate(buffers_.angles + int64_t{row} * spec_.rope.dimensions, head);
}

void CpuStep::attend(int32_t layer_index, int32_t worker, int32_t task_index) noexcept {
    const int32_t tasks_per_tile = spec_.kv_head_count * tasks_per_kv_head_;
    const AttentionTile& tile = attention_tiles_[static_cast<std::size_t>(task_index / tasks_per_tile)];
    const int32_t within = task_index % tasks_per_tile;
    const int32_t kv_head = within / tasks_per_kv_head_;
    const int32_t first_head = kv_head * heads_per_kv_head_ + within % tasks_per_kv_head_ * heads_per_task_;
    const int32_t end_head = std::min(first_head + heads_per_task_, (kv_head + 1) * heads_per_kv_head_);

    const CpuLayer& layer = weights_.layers()[static_cast<std::size_t>(layer_index)];
    AttentionTask task;
    task.store = store_.data();
    task.layout = &store_.layout();
    task.layer = layer_index;
    task.kv_head = kv_head;
    task.pages = tile.group->pages.data();
    task.scale = 1.0F / std::sqrt(static_cast<float>(spec_.head_size));
    task.scratch = buffers_.attention_scratch[static_cast<std::size_t>(worker)];
    for (int32_t row = 0; row < tile.row_count; ++row) {
        const int32_t step_row = tile.group->first_row + tile.first_row + row;
        for (int32_t head = first_head; head < end_head; ++head) {
            const int64_t within_row = int64_t{head} * spec_.head_size;
            float* const values = buffers_.queries + step_row * query_width_ + within_row;
            rotate(values, step_row, layer.query_bias == nullptr ? nullptr : layer.query_bias + within_row,
                   layer.query_norm);
            const auto query = static_cast<std::size_t>(task.query_count++);
            task.queries[query] = values;
            task.out[query] = buffers_.attended + step_row * query_width_ + within_row;
            task.positions[query] = tile.group->first_position + tile.first_row + row;
        }
    }
    kernels_.attend(task);
}

void CpuStep::project_onto_rows(int32_t worker, const CpuMatrix& matrix, Chunking::Range outputs) noexcept {
    const int32_t rows = layout_->row_count();
    multiply(worker, matrix, outputs, rows, buffers_.projected, spec_.hidden_size);
    for (int32_t row = 0; row < rows; ++row) {
        const int64_t offset = int64_t{row} * spec_.hidden_size + outputs.first;
        kernels_.add(buffers_.projected + offset, outputs.count, buffers_.rows + offset);
    }
}

void CpuStep::gate_up(int32_t worker, const CpuLayer& layer, Chunking::Range outputs) noexcept {
    const int32_t rows = layout_->row_count();
    multiply(worker, layer.gate, outputs, rows, buffers_.gate, spec_.intermediate_size);
    multiply(worker, layer.up, outputs, rows, buffers_.up, spec_.intermediate_size);
    for (int32_t row = 0; row < rows; ++row) {
        float* const gate = buffers_.gate + int64_t{row} * spec_.intermediate_size + outputs.first;
        const float* const up = buffers_.up + int64_t{row} * spec_.intermediate_size + outputs.first;
        kernels_.silu_multiply(gate, up, outputs.count, gate);
    }
}

void CpuStep::finish(int32_t worker, int32_t wanted) noexcept {
    const int64_t row = layout_->wanted_rows[static_cast<std::size_t>(wanted)];
    const bool hidden = kind_ == OutputKind::kHidden;
    float* const to = hidden ? out_ + int64_t{wanted} * spec_.hidden_size
                             : buffers_.normed[static_cast<std::size_t>(worker)];
    kernels_.rms_norm(buffers_.rows + row * spec_.hidden_size, weights_.output_norm(), spec_.hidden_size,
                      spec_.norm_epsilon, to);
    if (!hidden) prepare(worker, to, wanted, {&weights_.output()});
}

}  // namespace edgellm
