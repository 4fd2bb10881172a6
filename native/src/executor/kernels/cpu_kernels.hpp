// The arithmetic of a decoder step that is not a matmul, as a table of kernels: one for AVX2, one portable.
// Every result depends on its own row alone and is computed in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "executor/executor.hpp"
#include "executor/kernels/kv_layout.hpp"

namespace edgellm {

inline constexpr int32_t kAttentionQueries = 12;  // query heads × rows that one call may share K and V loads among
inline constexpr int32_t kAttentionBlock = 64;    // positions between two updates of the running softmax

// Queries of several rows and heads that read the same KV head of one sequence.
struct AttentionTask {
    const std::byte* store = nullptr;  // the KV store; pages of kv_layout
    const KvLayout* layout = nullptr;
    int32_t layer = 0;
    int32_t kv_head = 0;
    const int32_t* pages = nullptr;
    int32_t query_count = 0;                       // at most kAttentionQueries
    const float* queries[kAttentionQueries] = {};  // head_size values each
    float* out[kAttentionQueries] = {};
    int32_t positions[kAttentionQueries] = {};  // of each query; it sees positions 0 to its own
    float scale = 1.0F;
    float* scratch = nullptr;  // attention_scratch_floats(head_size), 64-byte aligned
};

constexpr std::size_t attention_scratch_floats(int32_t head_size) noexcept {
    return static_cast<std::size_t>(kAttentionQueries) *
           static_cast<std::size_t>(kAttentionBlock + 2 * ((head_size + 15) / 16 * 16));
}

struct CpuKernels {
    const char* name;
    void (*rms_norm)(const float* values, const float* weight, int64_t size, float epsilon, float* out) noexcept;
    void (*add)(const float* values, int64_t size, float* to) noexcept;  // to += values
    void (*silu_multiply)(const float* gate, const float* up, int64_t size, float* out) noexcept;
    void (*to_half)(const float* values, int64_t size, uint16_t* out) noexcept;  // round to nearest even
    void (*attend)(const AttentionTask& task) noexcept;
};

// The portable table works on every CPU; the other needs AVX2, FMA and F16C, and is nullptr where not built.
const CpuKernels& portable_cpu_kernels() noexcept;
const CpuKernels* avx2_cpu_kernels() noexcept;

}  // namespace edgellm
