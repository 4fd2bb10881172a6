// CpuStep: one step of a decoder as phases of independent chunks, for PhaseRunner.
// Each chunk computes whole rows of its phase, so neither the number of threads nor the other rows of the step change
// any result.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "executor/cpu/cpu_activations.hpp"
#include "executor/cpu/cpu_weights.hpp"
#include "executor/cpu/kv_store.hpp"
#include "executor/cpu/rotary.hpp"
#include "executor/kernels/cpu_kernels.hpp"
#include "executor/phase_runner.hpp"
#include "executor/step_layout.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

inline constexpr int32_t kNoPhase = -1;

// How the items of a phase are cut into chunks.
struct Chunking {
    int64_t items = 0;
    int64_t items_per_chunk = 1;

    struct Range {
        int64_t first;
        int64_t count;
    };

    int32_t chunk_count() const noexcept {
        return static_cast<int32_t>((items + items_per_chunk - 1) / items_per_chunk);
    }
    Range range(int32_t chunk) const noexcept {
        const int64_t first = chunk * items_per_chunk;
        return {first, items - first < items_per_chunk ? items - first : items_per_chunk};
    }
};

class CpuStep final : public PhaseWork {
public:
    // All references must outlive the step.
    CpuStep(const ModelSpec& spec, const CpuWeights& weights, KvStore& store, const CpuKernels& kernels,
            int32_t threads, int32_t max_rows);

    // Chunk counts of the phases that compute this layout's wanted rows into out; valid until the next call.
    std::span<const int32_t> plan(const StepLayout& layout, OutputKind kind, std::span<float> out);

    void run_chunk(int32_t worker, int32_t phase, int32_t chunk) noexcept override;

private:
    // Rows of one sequence whose attention one task computes.
    struct AttentionTile {
        const StepGroup* group;
        int32_t first_row;
        int32_t row_count;
    };

    Chunking cut_rows(int32_t row_count) const noexcept;
    Chunking cut_outputs(const CpuMatrix& matrix, int32_t token_count, int64_t most) const noexcept;
    Chunking cut_heads(const CpuMatrix& matrix) const noexcept;
    void plan_attention();
    void plan_layer(const CpuLayer& layer);

    void run_layer_chunk(int32_t worker, int32_t layer, int32_t phase, int32_t chunk) noexcept;
    void embed(int32_t row) noexcept;
    void project_qkv(int32_t worker, int32_t layer_index, int32_t chunk) noexcept;
    void store_keys(int32_t layer_index, Chunking::Range outputs) noexcept;
    void store_values(int32_t layer_index, Chunking::Range outputs) noexcept;
    void rotate(float* head, int32_t row, const float* bias, const float* norm) noexcept;
    void attend(int32_t layer_index, int32_t worker, int32_t task_index) noexcept;
    void project_onto_rows(int32_t worker, const CpuMatrix& matrix, Chunking::Range outputs) noexcept;
    void gate_up(int32_t worker, const CpuLayer& layer, Chunking::Range outputs) noexcept;
    void finish(int32_t worker, int32_t wanted) noexcept;

    template <typename ItemFunction>
    void for_items(const Chunking& chunking, int32_t chunk, ItemFunction item_function) noexcept;
    // What a phase of readers reads, laid out: row by row in a phase of its own, or, of few rows, by each worker for
    // itself before its first chunk of the readers' phase. That is the same work for each worker, and one wait less.
    template <typename RowFunction>
    void lay_out_once(int32_t worker, int32_t phase, int32_t count, RowFunction row_function) noexcept;
    void lay_out_for_layer(int32_t worker, int32_t layer_index, int32_t phase, int32_t row) noexcept;
    // Normalises a row and lays it out for the readers.
    void normalise(int32_t worker, int32_t row, const float* weight,
                   std::initializer_list<const CpuMatrix*> readers) noexcept;
    // Lays values out as prepared row `slot`, once for each format among the readers.
    void prepare(int32_t worker, const float* values, int32_t slot,
                 std::initializer_list<const CpuMatrix*> readers) noexcept;
    std::byte* prepared(int32_t worker, std::size_t format) const noexcept;
    void multiply(int32_t worker, const CpuMatrix& matrix, Chunking::Range outputs, int32_t token_count, float* out,
                  int64_t out_stride) noexcept;
    // Calls row_function(row, page, position in the page) for each row of the step.
    template <typename RowFunction>
    void for_rows_of_store(RowFunction row_function) noexcept;

    const ModelSpec& spec_;
    const CpuWeights& weights_;
    KvStore& store_;
    const CpuKernels& kernels_;
    Rotary rotary_;
    CpuActivations buffers_;
    int32_t threads_;
    int64_t query_width_;
    int64_t kv_width_;
    int32_t heads_per_kv_head_;
    int64_t head_chunk_outputs_;  // of keys and values: whole heads and whole kernel tiles

    // The step being run.
    const StepLayout* layout_ = nullptr;
    OutputKind kind_ = OutputKind::kLogits;
    float* out_ = nullptr;
    std::vector<int32_t> chunk_counts_;
    Chunking row_chunks_;
    Chunking wanted_chunks_;
    Chunking head_chunks_;
    Chunking attention_chunks_;
    std::vector<AttentionTile> attention_tiles_;
    int32_t heads_per_task_ = 1;
    int32_t tasks_per_kv_head_ = 1;
    bool own_rows_ = false;  // each worker lays out rows for itself
    struct alignas(kCacheLine_bytes) LaidOut {
        int32_t phase = kNoPhase;
    };
    std::vector<LaidOut> laid_out_;  // by worker: the phase whose rows it laid out last
};

}  // namespace edgellm
