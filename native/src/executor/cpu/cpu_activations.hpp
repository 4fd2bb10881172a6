// CpuActivations: the buffers of one step, sized for the most rows a step may carry and touched only as far as used.
#pragma once

#include <cstdint>
#include <vector>

#include "executor/cpu/anonymous_memory.hpp"
#include "executor/cpu/cpu_weights.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

struct CpuActivations {
    CpuActivations(const ModelSpec& spec, const CpuWeights& weights, int32_t threads, int32_t max_rows);

    // Row-major, one row for each row of the step.
    float* rows = nullptr;  // the residual stream
    float* normed = nullptr;
    float* queries = nullptr;
    float* keys = nullptr;
    float* values = nullptr;
    float* attended = nullptr;
    float* projected = nullptr;  // what is about to be added to the residual stream
    float* gate = nullptr;
    float* up = nullptr;
    float* angles = nullptr;                // of the rotary embedding, by row
    std::vector<std::byte*> prepared;       // rows laid out for kernels, by activation format
    std::vector<float*> attention_scratch;  // by worker

private:
    std::size_t carve(std::byte* base, const ModelSpec& spec, const CpuWeights& weights, int32_t threads,
                      int32_t max_rows);

    AnonymousMemory memory_;
};

}  // namespace edgellm
