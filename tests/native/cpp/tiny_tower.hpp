// A tiny random vision tower: written as a GGUF file, and computed by plain loops in double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "gguf_writer.hpp"

namespace tiny {

struct TowerShape {
    uint32_t image = 24;  // pixels on a side
    uint32_t patch = 4;
    uint32_t hidden = 36;
    uint32_t intermediate = 52;
    uint32_t layers = 2;
    uint32_t heads = 3;
    uint32_t scale = 3;
    uint32_t projection = 40;
    float epsilon = 1e-6F;
    uint32_t seed = 1;

    uint32_t side() const { return image / patch; }
};

class Tower {
public:
    explicit Tower(const TowerShape& shape) : shape_(shape), random_(shape.seed) {
        writer.string("general.architecture", "clip").string("clip.projector_type", "idefics3");
        const std::string v = "clip.vision.";
        writer.u32(v + "image_size", shape.image).u32(v + "patch_size", shape.patch);
        writer.u32(v + "embedding_length", shape.hidden).u32(v + "feed_forward_length", shape.intermediate);
        writer.u32(v + "block_count", shape.layers).u32(v + "attention.head_count", shape.heads);
        writer.u32(v + "projector.scale_factor", shape.scale).u32(v + "projection_dim", shape.projection);
        writer.f32(v + "attention.layer_norm_epsilon", shape.epsilon).f32(v + "rescale_factor", 1.0F / 255.0F);
        colours(v + "image_mean", {0.5F, 0.4F, 0.6F});
        colours(v + "image_std", {0.5F, 0.25F, 0.3F});
        add("v.patch_embd.weight", {shape.patch, shape.patch, 3, shape.hidden}, shape.patch * shape.patch * 3);
        vector("v.patch_embd.bias", shape.hidden, 0.0F);
        add("v.position_embd.weight", {shape.hidden, shape.side() * shape.side()}, 1);
        for (uint32_t layer = 0; layer < shape.layers; ++layer) {
            const std::string p = "v.blk." + std::to_string(layer) + ".";
            norm(p + "ln1");
            for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_out"})
                linear(p + name, shape.hidden, shape.hidden);
            norm(p + "ln2");
            linear(p + "ffn_up", shape.hidden, shape.intermediate);
            linear(p + "ffn_down", shape.intermediate, shape.hidden);
        }
        norm("v.post_ln");
        const uint32_t shuffled = shape.hidden * shape.scale * shape.scale;
        add("mm.model.fc.weight", {shuffled, shape.projection}, shuffled);
    }

    // [row][projection]
    std::vector<float> reference(std::span<const uint8_t> pixels) const {
        std::vector<Row> rows = embedded(pixels);
        for (uint32_t layer = 0; layer < shape_.layers; ++layer)
            run_layer("v.blk." + std::to_string(layer) + ".", rows);
        for (Row& row : rows) row = normalise(row, "v.post_ln");
        std::vector<float> out;
        const uint32_t blocks = shape_.side() / shape_.scale;
        for (uint32_t block = 0; block < blocks * blocks; ++block) {
            Row shuffled;
            for (uint32_t y = 0; y < shape_.scale; ++y) {
                for (uint32_t x = 0; x < shape_.scale; ++x) {
                    const uint32_t line = block / blocks * shape_.scale + y;
                    const Row& row = rows[line * shape_.side() + block % blocks * shape_.scale + x];
                    shuffled.insert(shuffled.end(), row.begin(), row.end());
                }
            }
            for (const double value : multiply(weights_.at("mm.model.fc.weight"), shuffled))
                out.push_back(static_cast<float>(value));
        }
        return out;
    }

    gguf_test::GgufWriter writer;  // may be changed before bytes() are taken

private:
    using Row = std::vector<double>;

    void colours(const std::string& key, const std::vector<float>& values) {
        gguf_test::Bytes bytes;
        bytes.put(gguf_test::GgufWriter::kFloat32).put<uint64_t>(values.size());
        for (const float value : values) bytes.put(value);
        writer.raw(key, gguf_test::GgufWriter::kArray, bytes.text);
        colours_.push_back(values);
    }
    std::vector<float> noise(std::size_t count, float mean, float spread) {
        std::normal_distribution<float> normal(mean, spread);
        std::vector<float> values(count);
        for (float& value : values) value = normal(random_);
        return values;
    }
    void add(const std::string& name, const std::vector<uint64_t>& shape, uint32_t inputs) {
        std::size_t count = 1;
        for (const uint64_t extent : shape) count *= extent;
        weights_[name] = noise(count, 0.0F, 1.5F / std::sqrt(static_cast<float>(inputs)));
        writer.floats(name, shape, weights_[name]);
    }
    void vector(const std::string& name, uint32_t size, float mean) {
        weights_[name] = noise(size, mean, 0.2F);
        writer.floats(name, {size}, weights_[name]);
    }
    void linear(const std::string& name, uint32_t inputs, uint32_t outputs) {
        add(name + ".weight", {inputs, outputs}, inputs);
        vector(name + ".bias", outputs, 0.0F);
    }
    void norm(const std::string& name) {
        vector(name + ".weight", shape_.hidden, 1.0F);
        vector(name + ".bias", shape_.hidden, 0.0F);
    }

    static Row multiply(const std::vector<float>& matrix, const Row& x) {
        Row out(matrix.size() / x.size());
        for (std::size_t r = 0; r < out.size(); ++r) {
            for (std::size_t i = 0; i < x.size(); ++i) out[r] += static_cast<double>(matrix[r * x.size() + i]) * x[i];
        }
        return out;
    }
    Row project(const std::string& name, const Row& x) const {
        Row out = multiply(weights_.at(name + ".weight"), x);
        for (std::size_t i = 0; i < out.size(); ++i) out[i] += static_cast<double>(weights_.at(name + ".bias")[i]);
        return out;
    }
    Row normalise(const Row& x, const std::string& name) const {
        const auto size = static_cast<double>(x.size());
        double mean = 0.0;
        for (const double value : x) mean += value / size;
        double variance = 0.0;
        for (const double value : x) variance += (value - mean) * (value - mean) / size;
        Row out(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) {
            out[i] = (x[i] - mean) / std::sqrt(variance + static_cast<double>(shape_.epsilon));
            out[i] = out[i] * static_cast<double>(weights_.at(name + ".weight")[i]) +
                     static_cast<double>(weights_.at(name + ".bias")[i]);
        }
        return out;
    }
    std::vector<Row> embedded(std::span<const uint8_t> pixels) const {
        std::vector<Row> rows;
        for (uint32_t index = 0; index < shape_.side() * shape_.side(); ++index) {
            Row values;
            for (uint32_t colour = 0; colour < 3; ++colour) {
                for (uint32_t y = 0; y < shape_.patch; ++y) {
                    for (uint32_t x = 0; x < shape_.patch; ++x) {
                        const uint32_t line = index / shape_.side() * shape_.patch + y;
                        const uint32_t column = index % shape_.side() * shape_.patch + x;
                        const double value = pixels[(line * shape_.image + column) * 3 + colour] / 255.0;
                        values.push_back((value - static_cast<double>(colours_[0][colour])) /
                                         static_cast<double>(colours_[1][colour]));
                    }
                }
            }
            Row row = project("v.patch_embd", values);
            for (std::size_t i = 0; i < row.size(); ++i)
                row[i] += static_cast<double>(weights_.at("v.position_embd.weight")[index * row.size() + i]);
            rows.push_back(std::move(row));
        }
        return rows;
    }
    void run_layer(const std::string& p, std::vector<Row>& rows) const {
        std::vector<Row> queries;
        std::vector<Row> keys;
        std::vector<Row> values;
        for (const Row& row : rows) {
            const Row x = normalise(row, p + "ln1");
            queries.push_back(project(p + "attn_q", x));
            keys.push_back(project(p + "attn_k", x));
            values.push_back(project(p + "attn_v", x));
        }
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Row mixed = project(p + "attn_out", attend(queries[i], keys, values));
            for (std::size_t d = 0; d < mixed.size(); ++d) rows[i][d] += mixed[d];
        }
        for (Row& row : rows) {
            Row inner = project(p + "ffn_up", normalise(row, p + "ln2"));
            for (double& x : inner)
                x = 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
            const Row down = project(p + "ffn_down", inner);
            for (std::size_t d = 0; d < down.size(); ++d) row[d] += down[d];
        }
    }
    Row attend(const Row& query, const std::vector<Row>& keys, const std::vector<Row>& values) const {
        const std::size_t size = shape_.hidden / shape_.heads;
        Row out(query.size());
        for (std::size_t first = 0; first < query.size(); first += size) {
            Row weights;
            double total = 0.0;
            for (const Row& key : keys) {
                double score = 0.0;
                for (std::size_t d = first; d < first + size; ++d) score += query[d] * key[d];
                weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
                total += weights.back();
            }
            for (std::size_t k = 0; k < keys.size(); ++k) {
                for (std::size_t d = first; d < first + size; ++d) out[d] += weights[k] / total * values[k][d];
            }
        }
        return out;
    }

    TowerShape shape_;
    std::mt19937 random_;
    std::map<std::string, std::vector<float>> weights_;
    std::vector<std::vector<float>> colours_;
};

inline std::vector<uint8_t> random_pixels(std::size_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> pixels(count);
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random() & 255U);
    return pixels;
}

}  // namespace tiny
