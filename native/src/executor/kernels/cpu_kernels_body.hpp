// The kernels of CpuKernels, written once over eight-float vectors. A translation unit defines a vector type V with
// internal linkage (so that instantiations stay inside it, whatever its compiler flags) and takes make_cpu_kernels<V>.
//
// V: static zero(), set(float), load(const float*), load_half(const uint16_t*); store(float*), store_half(uint16_t*);
//    a + b, a * b, multiply_add(a, b, c) = a * b + c, max(a, b), exp(a), divide(a, b); sum() and largest() over lanes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "executor/kernels/cpu_kernels.hpp"

namespace edgellm::kernel_body {

inline constexpr int64_t kLanes = 8;

template <typename V>
void rms_norm(const float* values, const float* weight, int64_t size, float epsilon, float* out) noexcept {
    V squares = V::zero();
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes)
        squares = V::multiply_add(V::load(values + i), V::load(values + i), squares);
    float total = squares.sum();
    for (int64_t tail = i; tail < size; ++tail) total += values[tail] * values[tail];
    const float scale = 1.0F / __builtin_sqrtf(total / static_cast<float>(size) + epsilon);
    for (i = 0; i + kLanes <= size; i += kLanes)
        (V::load(values + i) * V::set(scale) * V::load(weight + i)).store(out + i);
    for (; i < size; ++i) out[i] = values[i] * scale * weight[i];
}

template <typename V>
void add(const float* values, int64_t size, float* to) noexcept {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) (V::load(to + i) + V::load(values + i)).store(to + i);
    for (; i < size; ++i) to[i] += values[i];
}

template <typename V>
void silu_multiply(const float* gate, const float* up, int64_t size, float* out) noexcept {
    const auto one = [](V g, V u) { return V::divide(g, V::set(1.0F) + V::exp(g * V::set(-1.0F))) * u; };
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) one(V::load(gate + i), V::load(up + i)).store(out + i);
    if (i == size) return;
    float rest_gate[kLanes] = {};
    float rest_up[kLanes] = {};
    const auto bytes = static_cast<std::size_t>(size - i) * sizeof(float);
    std::memcpy(rest_gate, gate + i, bytes);
    std::memcpy(rest_up, up + i, bytes);
    one(V::load(rest_gate), V::load(rest_up)).store(rest_gate);
    std::memcpy(out + i, rest_gate, bytes);
}

template <typename V>
void to_half(const float* values, int64_t size, uint16_t* out) noexcept {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) V::load(values + i).store_half(out + i);
    if (i == size) return;
    float rest[kLanes] = {};
    uint16_t halves[kLanes];
    std::memcpy(rest, values + i, static_cast<std::size_t>(size - i) * sizeof(float));
    V::load(rest).store_half(halves);
    std::memcpy(out + i, halves, static_cast<std::size_t>(size - i) * sizeof(uint16_t));
}

template <typename V>
inline V load_stored(const float* from) {
    return V::load(from);
}
template <typename V>
inline V load_stored(const uint16_t* from) {
    return V::load_half(from);
}

// The state of one call: scratch is scores [query][block], then mixed values and scaled queries [query][padded head].
struct AttentionScratch {
    float* scores;
    float* mixed;
    float* queries;
    int32_t padded_head;
};

// Eight sums in flight hide the latency of multiply_add: few queries take more tiles, or more dimensions, at once.
template <int kQueries>
inline constexpr int kSumsPerQuery = kQueries >= 3 ? 2 : 8 / kQueries;

// scores[q][position] of kTiles tiles of eight positions from tile on, for kQueries queries from first_query.
template <typename V, int kQueries, int kTiles, typename Stored>
inline void score_tiles(const AttentionScratch& scratch, int32_t first_query, int32_t head_size,
                        const Stored* const* keys, int32_t tile) noexcept {
    V sums[kQueries][kTiles];
    for (int q = 0; q < kQueries; ++q) {
        for (int t = 0; t < kTiles; ++t) sums[q][t] = V::zero();
    }
    const float* queries =
        scratch.queries + static_cast<std::size_t>(first_query) * static_cast<std::size_t>(scratch.padded_head);
    for (int32_t d = 0; d < head_size; ++d) {
        V key[kTiles];
        for (int t = 0; t < kTiles; ++t)
            key[t] = load_stored<V>(keys[tile + t] + static_cast<std::size_t>(d) * kKeyTile);
        for (int q = 0; q < kQueries; ++q) {
            const V query = V::set(queries[q * scratch.padded_head + d]);
            for (int t = 0; t < kTiles; ++t) sums[q][t] = V::multiply_add(query, key[t], sums[q][t]);
        }
    }
    for (int q = 0; q < kQueries; ++q) {
        for (int t = 0; t < kTiles; ++t)
            sums[q][t].store(scratch.scores + (first_query + q) * kAttentionBlock + (tile + t) * kKeyTile);
    }
}

// Where the keys and values of one block lie, tile by tile.
template <typename Stored>
struct BlockRows {
    const Stored* keys[kAttentionBlock / kKeyTile];
    const Stored* values[kAttentionBlock / kKeyTile];
    int32_t tile_count = 0;
};

template <typename Stored>
inline BlockRows<Stored> find_rows(const AttentionTask& task, int32_t start, int32_t length) noexcept {
    const KvLayout& layout = *task.layout;
    BlockRows<Stored> rows{};
    for (int32_t position = start; position < length && position < start + kAttentionBlock; position += kKeyTile) {
        const int32_t page = task.pages[position / layout.page_tokens];
        const int32_t in_page = position % layout.page_tokens;
        const std::byte* keys = task.store + layout.keys_offset(page, task.layer, task.kv_head);
        const std::byte* values = task.store + layout.values_offset(page, task.layer, task.kv_head);
        rows.keys[rows.tile_count] = reinterpret_cast<const Stored*>(keys) + layout.key_index(in_page, 0);
        rows.values[rows.tile_count] = reinterpret_cast<const Stored*>(values) + layout.value_index(in_page, 0);
        ++rows.tile_count;
    }
    return rows;
}

// Pages lie far apart, so the hardware does not foresee the next block.
template <typename Stored>
inline void prefetch_tile(const Stored* tile, int32_t head_size) noexcept {
    constexpr std::size_t kCacheLine_bytes = 64;
    const auto* bytes = reinterpret_cast<const std::byte*>(tile);
    const std::size_t size = static_cast<std::size_t>(head_size) * kKeyTile * sizeof(Stored);
    for (std::size_t at = 0; at < size; at += kCacheLine_bytes) __builtin_prefetch(bytes + at);
}

template <typename Stored>
inline void prefetch_values(const BlockRows<Stored>& rows, int32_t head_size) noexcept {
    for (int32_t tile = 0; tile < rows.tile_count; ++tile) prefetch_tile(rows.values[tile], head_size);
}

template <typename V, int kQueries, typename Stored>
inline void score_block(const AttentionScratch& scratch, int32_t first_query, int32_t head_size,
                        const BlockRows<Stored>& rows, const BlockRows<Stored>& next) noexcept {
    constexpr int kTiles = kSumsPerQuery<kQueries>;
    for (int32_t tile = 0; tile < rows.tile_count;) {
        const int32_t count = tile + kTiles <= rows.tile_count ? kTiles : 1;
        for (int32_t ahead = tile; ahead < tile + count && ahead < next.tile_count; ++ahead)
            prefetch_tile(next.keys[ahead], head_size);
        if (count == kTiles) {
            score_tiles<V, kQueries, kTiles>(scratch, first_query, head_size, rows.keys, tile);
        } else {
            score_tiles<V, kQueries, 1>(scratch, first_query, head_size, rows.keys, tile);
        }
        tile += count;
    }
}

// mixed[q][d .. d + 8 * kVectors) = mixed * factor + sum over positions of weight × value.
template <typename V, int kQueries, int kVectors, typename Stored>
inline void mix_values(const AttentionScratch& scratch, const float* factors, int32_t first_query, int32_t head_size,
                       int32_t d, const Stored* const* rows, int32_t from, int32_t to) noexcept {
    V sums[kQueries][kVectors];
    float* mixed =
        scratch.mixed + static_cast<std::size_t>(first_query) * static_cast<std::size_t>(scratch.padded_head) + d;
    for (int q = 0; q < kQueries; ++q) {
        for (int v = 0; v < kVectors; ++v)
            sums[q][v] = V::load(mixed + q * scratch.padded_head + v * kLanes) * V::set(factors[first_query + q]);
    }
    const float* weights = scratch.scores + first_query * kAttentionBlock;
    for (int32_t position = from; position < to; ++position) {
        const Stored* row = rows[position / kKeyTile] +
                            static_cast<std::size_t>(position % kKeyTile) * static_cast<std::size_t>(head_size) + d;
        V values[kVectors];
        for (int v = 0; v < kVectors; ++v) values[v] = load_stored<V>(row + v * kLanes);
        for (int q = 0; q < kQueries; ++q) {
            const V weight = V::set(weights[q * kAttentionBlock + position]);
            for (int v = 0; v < kVectors; ++v) sums[q][v] = V::multiply_add(weight, values[v], sums[q][v]);
        }
    }
    for (int q = 0; q < kQueries; ++q) {
        for (int v = 0; v < kVectors; ++v) sums[q][v].store(mixed + q * scratch.padded_head + v * kLanes);
    }
}

template <typename V, int kQueries, typename Stored>
inline void mix_head(const AttentionScratch& scratch, const float* factors, int32_t first_query, int32_t head_size,
                     const Stored* const* rows, int32_t from, int32_t to) noexcept {
    constexpr int kVectors = kSumsPerQuery<kQueries>;
    int32_t d = 0;
    for (; d + kVectors * kLanes <= head_size; d += kVectors * kLanes)
        mix_values<V, kQueries, kVectors>(scratch, factors, first_query, head_size, d, rows, from, to);
    for (; d + kLanes <= head_size; d += kLanes)
        mix_values<V, kQueries, 1>(scratch, factors, first_query, head_size, d, rows, from, to);
    // A head size that is no multiple of eight: the rest one by one.
    for (; d < head_size; ++d) {
        for (int q = first_query; q < first_query + kQueries; ++q) {
            float sum = scratch.mixed[q * scratch.padded_head + d] * factors[q];
            for (int32_t position = from; position < to; ++position) {
                float one[kLanes] = {};
                Stored stored[kLanes] = {};
                stored[0] = rows[position / kKeyTile]
                                [static_cast<std::size_t>(position % kKeyTile) * static_cast<std::size_t>(head_size) +
                                 static_cast<std::size_t>(d)];
                load_stored<V>(stored).store(one);
                sum += scratch.scores[q * kAttentionBlock + position] * one[0];
            }
            scratch.mixed[q * scratch.padded_head + d] = sum;
        }
    }
}

// Calls step<n>(first) for groups of four queries and then one of the rest.
template <typename Step>
inline void for_query_groups(int32_t count, Step step) noexcept {
    int32_t q = 0;
    for (; q + 4 <= count; q += 4) step.template operator()<4>(q);
    switch (count - q) {
        case 3: step.template operator()<3>(q); break;
        case 2: step.template operator()<2>(q); break;
        case 1: step.template operator()<1>(q); break;
        default: break;
    }
}

template <typename V, typename Stored>
void attend_stored(const AttentionTask& task) noexcept {
    const KvLayout& layout = *task.layout;
    const int32_t head_size = layout.head_size;
    const int32_t padded_head = (head_size + 15) / 16 * 16;
    const int32_t count = task.query_count;
    const AttentionScratch scratch{task.scratch, task.scratch + kAttentionQueries * kAttentionBlock,
                                   task.scratch + kAttentionQueries * (kAttentionBlock + padded_head), padded_head};
    float largest[kAttentionQueries];
    float totals[kAttentionQueries];
    float factors[kAttentionQueries];
    int32_t visible[kAttentionQueries];
    int32_t length = 0;
    for (int32_t q = 0; q < count; ++q) {
        for (int32_t d = 0; d < head_size; ++d) scratch.queries[q * padded_head + d] = task.queries[q][d] * task.scale;
        for (int32_t d = 0; d < padded_head; ++d) scratch.mixed[q * padded_head + d] = 0.0F;
        largest[q] = -__builtin_inff();
        totals[q] = 0.0F;
        length = task.positions[q] + 1 > length ? task.positions[q] + 1 : length;
    }

    BlockRows<Stored> rows = find_rows<Stored>(task, 0, length);
    for (int32_t start = 0; start < length; start += kAttentionBlock) {
        const int32_t end = length < start + kAttentionBlock ? length : start + kAttentionBlock;
        const BlockRows<Stored> next = find_rows<Stored>(task, start + kAttentionBlock, length);
        for_query_groups(count, [&]<int kQueries>(int32_t q) {
            score_block<V, kQueries>(scratch, q, head_size, rows, q == 0 ? next : BlockRows<Stored>{});
        });

        int32_t shared = kAttentionBlock;
        for (int32_t q = 0; q < count; ++q) {
            const int32_t seen = task.positions[q] + 1 - start;
            visible[q] = seen < 0 ? 0 : seen < end - start ? seen : end - start;
            shared = visible[q] < shared ? visible[q] : shared;
            factors[q] = 1.0F;
            if (visible[q] == 0) continue;
            // Whole vectors below; what the query may not see weighs exactly nothing.
            float* scores = scratch.scores + q * kAttentionBlock;
            const int32_t padded = (visible[q] + static_cast<int32_t>(kLanes) - 1) / static_cast<int32_t>(kLanes) *
                                   static_cast<int32_t>(kLanes);
            for (int32_t i = visible[q]; i < padded; ++i) scores[i] = -__builtin_inff();
            V top = V::set(largest[q]);
            for (int32_t i = 0; i < padded; i += static_cast<int32_t>(kLanes)) top = V::max(top, V::load(scores + i));
            const float new_largest = top.largest();
            float change[kLanes];
            V::exp(V::set(largest[q]) + V::set(-new_largest)).store(change);
            factors[q] = change[0];
            V sum = V::zero();
            for (int32_t i = 0; i < padded; i += static_cast<int32_t>(kLanes)) {
                const V weight = V::exp(V::load(scores + i) + V::set(-new_largest));
                weight.store(scores + i);
                sum = sum + weight;
            }
            totals[q] = totals[q] * factors[q] + sum.sum();
            largest[q] = new_largest;
        }

        // Positions that all see are mixed together, each query's last ones alone: a value that a query may not see
        // never touches it, not even times zero.
        prefetch_values(next, head_size);
        for_query_groups(count, [&]<int kQueries>(int32_t q) {
            mix_head<V, kQueries>(scratch, factors, q, head_size, rows.values, 0, shared);
        });
        for (int32_t q = 0; q < count; ++q) {
            factors[q] = 1.0F;
            if (visible[q] > shared) mix_head<V, 1>(scratch, factors, q, head_size, rows.values, shared, visible[q]);
        }
        rows = next;
    }
    for (int32_t q = 0; q < count; ++q) {
        const float inverse = 1.0F / totals[q];
        for (int32_t d = 0; d < head_size; ++d) task.out[q][d] = scratch.mixed[q * padded_head + d] * inverse;
    }
}

template <typename V>
void attend(const AttentionTask& task) noexcept {
    if (task.layout->type == KvType::kF16) {
        attend_stored<V, uint16_t>(task);
    } else {
        attend_stored<V, float>(task);
    }
}

template <typename V>
constexpr CpuKernels make_cpu_kernels(const char* name) noexcept {
    return {name, rms_norm<V>, add<V>, silu_multiply<V>, to_half<V>, attend<V>};
}

}  // namespace edgellm::kernel_body
