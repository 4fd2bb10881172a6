// CpuActivations: the buffers of one step, sized for the most rows a step may carry and touched only as far as used.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/cpu/anonymous_memory.hpp"
#include "executor/cpu/cpu_weights.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

inline constexpr int32_t kOwnRows = 4;  // the most rows that each worker lays out for itself

struct CpuActivations {
    CpuActivations(const ModelSpec& spec, const CpuWeights& weights, int32_t threads, int32_t max_rows);

    // Row-major, one row for each row of the step.
    float* rows = nullptr;  // the residual stream
    float* queries = nullptr;
    float* keys = nullptr;
    float* values = nullptr;
    float* attended = nullptr;
    float* projected = nullptr;  // what is about to be added to the residual stream
    float* gate = nullptr;
    float* up = nullptr;
    float* angles = nullptr;                // of the rotary embedding, by row
    std::vector<std::byte*> prepared;       // rows laid out for kernels, by activation format
    std::vector<float*> normed;             // one row, by worker
    std::vector<float*> attention_scratch;  // by worker

    // Rows laid out by a worker for itself, by worker, then by activation format.
    std::vector<std::vector<std::byte*>> own_prepared;

private:
    std::size_t carve(std::byte* base, const ModelSpec& spec, const CpuWeights& weights, int32_t threads,
                      int32_t max_rows);

    AnonymousMemory memory_;
};

}  // namespace edgellm
