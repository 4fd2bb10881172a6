#include "executor/cpu/cpu_step.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "executor/kernels/weight_panels.hpp"

namespace edgellm {
namespace {

enum LayerPhase : int32_t {
    kAttentionNorm,
    kProjectQkv,
    kRotateAndStore,
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

// Matrix rows of a chunk: whole kernel tiles, several chunks per thread, and few enough that weights stay in the first
// caches while many tokens pass over them.
constexpr int64_t kRowGranule = kPanelRows;
constexpr int64_t kMostRows = 64;
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
      heads_per_kv_head_(spec.head_count / spec.kv_head_count) {}

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

std::span<const int32_t> CpuStep::plan(const StepLayout& layout, OutputKind kind, std::span<float> out) {
    layout_ = &layout;
    kind_ = kind;
    out_ = out.data();
    row_chunks_ = cut_rows(layout.row_count());
    wanted_chunks_ = cut_rows(layout.wanted_count());
    head_chunks_ = cut_outputs(weights_.output(), layout.wanted_count(), kMostRowsOfHead);
    plan_attention();

    chunk_counts_.clear();
    chunk_counts_.push_back(row_chunks_.chunk_count());
    for (const CpuLayer& layer : weights_.layers()) plan_layer(layer);
    if (layout.wanted_count() == 0) {
        // Nothing reads the last layer's result: its keys and values are the end of the step.
        const auto end = chunk_counts_.end() - kLayerPhaseCount;
        std::fill(end + kAttend, chunk_counts_.end(), 0);
    }
    chunk_counts_.push_back(wanted_chunks_.chunk_count());
    chunk_counts_.push_back(kind == OutputKind::kLogits && layout.wanted_count() > 0 ? head_chunks_.chunk_count() : 0);
    return chunk_counts_;
}

void CpuStep::plan_layer(const CpuLayer& layer) {
    const int32_t rows = layout_->row_count();
    const int32_t row_chunks = row_chunks_.chunk_count();
    const auto output_chunks = [&](const CpuMatrix& matrix) {
        return cut_outputs(matrix, rows, kMostRows).chunk_count();
    };
    std::array<int32_t, kLayerPhaseCount> counts{};
    counts[kAttentionNorm] = row_chunks;
    counts[kProjectQkv] = output_chunks(layer.query) + output_chunks(layer.key) + output_chunks(layer.value);
    counts[kRotateAndStore] = row_chunks;
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
        for_items(wanted_chunks_, chunk, [&](int32_t wanted) { finish(wanted); });
    } else {
        const auto outputs = head_chunks_.range(chunk);
        multiply(weights_.output(), outputs, layout_->wanted_count(), out_, spec_.vocab_size);
    }
}

void CpuStep::run_layer_chunk(int32_t worker, int32_t layer_index, int32_t phase, int32_t chunk) noexcept {
    const CpuLayer& layer = weights_.layers()[static_cast<std::size_t>(layer_index)];
    const int32_t rows = layout_->row_count();
    switch (phase) {
        case kAttentionNorm:
            for_items(row_chunks_, chunk, [&](int32_t row) {
                normalise(row, layer.attention_norm, {&layer.query, &layer.key, &layer.value});
            });
            break;
        case kProjectQkv: project_qkv(layer, chunk); break;
        case kRotateAndStore:
            for_items(row_chunks_, chunk, [&](int32_t row) { rotate_and_store(layer, layer_index, row); });
            break;
        case kAttend:
            for_items(attention_chunks_, chunk, [&](int32_t task) { attend(layer_index, worker, task); });
            break;
        case kPrepareAttended:
            for_items(row_chunks_, chunk, [&](int32_t row) {
                prepare(buffers_.attended + row * query_width_, row, {&layer.attention_output});
            });
            break;
        case kProjectAttended:
            project_onto_rows(layer.attention_output,
                              cut_outputs(layer.attention_output, rows, kMostRows).range(chunk));
            break;
        case kFeedForwardNorm:
            for_items(row_chunks_, chunk,
                      [&](int32_t row) { normalise(row, layer.feed_forward_norm, {&layer.gate, &layer.up}); });
            break;
        case kGateUp: gate_up(layer, cut_outputs(layer.gate, rows, kMostRows).range(chunk)); break;
        case kPrepareGated:
            for_items(row_chunks_, chunk, [&](int32_t row) {
                prepare(buffers_.gate + int64_t{row} * spec_.intermediate_size, row, {&layer.down});
            });
            break;
        default: project_onto_rows(layer.down, cut_outputs(layer.down, rows, kMostRows).range(chunk)); break;
    }
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

void CpuStep::normalise(int32_t row, const float* weight, std::initializer_list<const CpuMatrix*> readers) noexcept {
    const int64_t offset = int64_t{row} * spec_.hidden_size;
    kernels_.rms_norm(buffers_.rows + offset, weight, spec_.hidden_size, spec_.norm_epsilon, buffers_.normed + offset);
    prepare(buffers_.normed + offset, row, readers);
}

void CpuStep::prepare(const float* values, int32_t slot, std::initializer_list<const CpuMatrix*> readers) noexcept {
    for (const CpuMatrix* const* reader = readers.begin(); reader != readers.end(); ++reader) {
        const CpuMatrix& matrix = **reader;
        const bool done =
            std::any_of(readers.begin(), reader, [&](const CpuMatrix* one) { return one->format == matrix.format; });
        if (done) continue;
        const ActivationFormat& format = *weights_.formats()[matrix.format].format;
        format.prepare(
            values, matrix.inputs,
            buffers_.prepared[matrix.format] + static_cast<std::size_t>(slot) * format.row_bytes(matrix.inputs));
    }
}

void CpuStep::multiply(const CpuMatrix& matrix, Chunking::Range outputs, int32_t token_count, float* out,
                       int64_t out_stride) noexcept {
    MatmulTask task;
    task.weights = matrix.rows + static_cast<std::size_t>(outputs.first) * matrix.row_bytes;
    task.weight_row_bytes = matrix.row_bytes;
    task.input_size = matrix.inputs;
    task.row_count = outputs.count;
    task.activations = buffers_.prepared[matrix.format];
    task.activation_row_bytes = weights_.formats()[matrix.format].format->row_bytes(matrix.inputs);
    task.token_count = token_count;
    task.out = out + outputs.first;
    task.out_stride = out_stride;
    matrix.kernel->multiply(task);
}

void CpuStep::project_qkv(const CpuLayer& layer, int32_t chunk) noexcept {
    const int32_t rows = layout_->row_count();
    const auto take = [&](const CpuMatrix& matrix, float* out) {
        const Chunking chunking = cut_outputs(matrix, rows, kMostRows);
        if (chunk < chunking.chunk_count()) {
            multiply(matrix, chunking.range(chunk), rows, out, matrix.outputs);
            return true;
        }
        chunk -= chunking.chunk_count();
        return false;
    };
    take(layer.query, buffers_.queries) || take(layer.key, buffers_.keys) || take(layer.value, buffers_.values);
}

void CpuStep::rotate_and_store(const CpuLayer& layer, int32_t layer_index, int32_t row) noexcept {
    const int32_t head_size = spec_.head_size;
    float* const queries = buffers_.queries + row * query_width_;
    float* const keys = buffers_.keys + row * kv_width_;
    float* const values = buffers_.values + row * kv_width_;
    if (layer.query_bias != nullptr) kernels_.add(layer.query_bias, query_width_, queries);
    if (layer.key_bias != nullptr) kernels_.add(layer.key_bias, kv_width_, keys);
    if (layer.value_bias != nullptr) kernels_.add(layer.value_bias, kv_width_, values);

    const float* const angles = buffers_.angles + int64_t{row} * spec_.rope.dimensions;
    const auto turn = [&](float* head, const float* norm) {
        if (norm != nullptr) kernels_.rms_norm(head, norm, head_size, spec_.norm_epsilon, head);
        rotary_.rotate(angles, head);
    };
    for (int32_t head = 0; head < spec_.head_count; ++head) turn(queries + head * head_size, layer.query_norm);
    for (int32_t head = 0; head < spec_.kv_head_count; ++head) turn(keys + head * head_size, layer.key_norm);

    const auto index = static_cast<std::size_t>(row);
    const StepGroup& group = layout_->groups[static_cast<std::size_t>(layout_->group_of_row[index])];
    const int32_t page_tokens = store_.layout().page_tokens;
    const int32_t position = layout_->positions[index];
    const int32_t page = group.pages[static_cast<std::size_t>(position / page_tokens)];
    for (int32_t head = 0; head < spec_.kv_head_count; ++head) {
        store_.write(page, position % page_tokens, layer_index, head, keys + head * head_size,
                     values + head * head_size, kernels_.to_half);
    }
}

void CpuStep::attend(int32_t layer_index, int32_t worker, int32_t task_index) noexcept {
    const int32_t tasks_per_tile = spec_.kv_head_count * tasks_per_kv_head_;
    const AttentionTile& tile = attention_tiles_[static_cast<std::size_t>(task_index / tasks_per_tile)];
    const int32_t within = task_index % tasks_per_tile;
    const int32_t kv_head = within / tasks_per_kv_head_;
    const int32_t first_head = kv_head * heads_per_kv_head_ + within % tasks_per_kv_head_ * heads_per_task_;
    const int32_t end_head = std::min(first_head + heads_per_task_, (kv_head + 1) * heads_per_kv_head_);

    AttentionTask task;
    task.store = store_.data();
    task.layout = &store_.layout();
    task.layer = layer_index;
    task.kv_head = kv_head;
    task.pages = tile.group->pages.data();
    task.scale = 1.0F / std::sqrt(static_cast<float>(spec_.head_size));
    task.scratch = buffers_.attention_scratch[static_cast<std::size_t>(worker)];
    for (int32_t row = 0; row < tile.row_count; ++row) {
        const int64_t offset = (tile.group->first_row + tile.first_row + row) * query_width_;
        for (int32_t head = first_head; head < end_head; ++head) {
            const auto query = static_cast<std::size_t>(task.query_count++);
            task.queries[query] = buffers_.queries + offset + int64_t{head} * spec_.head_size;
            task.out[query] = buffers_.attended + offset + int64_t{head} * spec_.head_size;
            task.positions[query] = tile.group->first_position + tile.first_row + row;
        }
    }
    kernels_.attend(task);
}

void CpuStep::project_onto_rows(const CpuMatrix& matrix, Chunking::Range outputs) noexcept {
    const int32_t rows = layout_->row_count();
    multiply(matrix, outputs, rows, buffers_.projected, spec_.hidden_size);
    for (int32_t row = 0; row < rows; ++row) {
        const int64_t offset = int64_t{row} * spec_.hidden_size + outputs.first;
        kernels_.add(buffers_.projected + offset, outputs.count, buffers_.rows + offset);
    }
}

void CpuStep::gate_up(const CpuLayer& layer, Chunking::Range outputs) noexcept {
    const int32_t rows = layout_->row_count();
    multiply(layer.gate, outputs, rows, buffers_.gate, spec_.intermediate_size);
    multiply(layer.up, outputs, rows, buffers_.up, spec_.intermediate_size);
    for (int32_t row = 0; row < rows; ++row) {
        float* const gate = buffers_.gate + int64_t{row} * spec_.intermediate_size + outputs.first;
        const float* const up = buffers_.up + int64_t{row} * spec_.intermediate_size + outputs.first;
        kernels_.silu_multiply(gate, up, outputs.count, gate);
    }
}

void CpuStep::finish(int32_t wanted) noexcept {
    const int64_t row = layout_->wanted_rows[static_cast<std::size_t>(wanted)];
    const bool hidden = kind_ == OutputKind::kHidden;
    float* const to = (hidden ? out_ : buffers_.normed) + int64_t{wanted} * spec_.hidden_size;
    kernels_.rms_norm(buffers_.rows + row * spec_.hidden_size, weights_.output_norm(), spec_.hidden_size,
                      spec_.norm_epsilon, to);
    if (!hidden) prepare(to, wanted, {&weights_.output()});
}

}  // namespace edgellm
