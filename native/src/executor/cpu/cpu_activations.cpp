#include "executor/cpu/cpu_activations.hpp"

#include "executor/kernels/cpu_kernels.hpp"

namespace edgellm {
namespace {

// Hands out aligned parts of one block; with no block it only measures.
class Carver {
public:
    explicit Carver(std::byte* base) : base_(base) {}

    std::byte* bytes(std::size_t size) {
        std::byte* const part = base_ == nullptr ? nullptr : base_ + used_;
        used_ += (size + kActivationAlignment_bytes - 1) / kActivationAlignment_bytes * kActivationAlignment_bytes;
        return part;
    }
    float* floats(int64_t count) {
        return reinterpret_cast<float*>(bytes(static_cast<std::size_t>(count) * sizeof(float)));
    }
    std::size_t used() const noexcept { return used_; }

private:
    std::byte* base_;
    std::size_t used_ = 0;
};

}  // namespace

CpuActivations::CpuActivations(const ModelSpec& spec, const CpuWeights& weights, int32_t threads, int32_t max_rows)
    : memory_(carve(nullptr, spec, weights, threads, max_rows), "activations") {
    prepared.clear();
    normed.clear();
    attention_scratch.clear();
    own_prepared.clear();
    carve(memory_.data(), spec, weights, threads, max_rows);
}

std::size_t CpuActivations::carve(std::byte* base, const ModelSpec& spec, const CpuWeights& weights, int32_t threads,
                                  int32_t max_rows) {
    Carver carver(base);
    const int64_t row_count = max_rows;
    const int64_t query_width = int64_t{spec.head_count} * spec.head_size;
    const int64_t kv_width = int64_t{spec.kv_head_count} * spec.head_size;
    rows = carver.floats(row_count * spec.hidden_size);
    queries = carver.floats(row_count * query_width);
    keys = carver.floats(row_count * kv_width);
    values = carver.floats(row_count * kv_width);
    attended = carver.floats(row_count * query_width);
    projected = carver.floats(row_count * spec.hidden_size);
    gate = carver.floats(row_count * spec.intermediate_size);
    up = carver.floats(row_count * spec.intermediate_size);
    angles = carver.floats(row_count * spec.rope.dimensions);
    const auto prepared_rows = [&](int64_t count) {
        std::vector<std::byte*> by_format;
        for (const UsedFormat& used : weights.formats())
            by_format.push_back(
                carver.bytes(static_cast<std::size_t>(count) * used.format->row_bytes(used.widest_input)));
        return by_format;
    };
    prepared = prepared_rows(row_count);
    for (int32_t worker = 0; worker < threads; ++worker) {
        normed.push_back(carver.floats(spec.hidden_size));
        attention_scratch.push_back(carver.floats(static_cast<int64_t>(attention_scratch_floats(spec.head_size))));
        own_prepared.push_back(prepared_rows(kOwnRows));
    }
    return carver.used();
}

}  // namespace edgellm
