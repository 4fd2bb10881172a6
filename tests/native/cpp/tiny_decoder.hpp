// Tiny random decoders of every family: written as GGUF files, and computed by plain loops in double precision.
#pragma once

#include <ggml.h>

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gguf_writer.hpp"
#include "model/gguf_file.hpp"
#include "model/tensor_types.hpp"

namespace tiny {

using edgellm::TensorType;

struct Shape {
    std::string architecture = "llama";
    uint32_t layers = 2;
    uint32_t hidden = 64;
    uint32_t heads = 4;
    uint32_t kv_heads = 2;
    uint32_t head_size = 16;
    uint32_t intermediate = 96;
    uint32_t vocab = 101;
    bool tied = true;
    TensorType type = TensorType::kF32;
    float rope_base = 10000.0F;
    float rope_factor = 1.0F;              // of linear scaling
    std::vector<float> rope_freq_factors;  // head_size / 2 of them, or none
    float epsilon = 1e-5F;
    uint32_t seed = 1;

    bool adjacent_pairs() const { return architecture == "llama"; }
    bool has_bias() const { return architecture == "qwen2"; }
    bool has_head_norm() const { return architecture == "qwen3"; }
};

class Decoder {
public:
    explicit Decoder(const Shape& shape) : shape_(shape), random_(shape.seed) {
        const uint32_t query_width = shape.heads * shape.head_size;
        const uint32_t kv_width = shape.kv_heads * shape.head_size;
        add_metadata();
        matrix("token_embd.weight", shape.hidden, shape.vocab);
        vector("output_norm.weight", shape.hidden, 1.0F, 0.2F);
        if (!shape.tied) matrix("output.weight", shape.hidden, shape.vocab);
        if (!shape.rope_freq_factors.empty()) {
            writer.floats("rope_freqs.weight", {shape.rope_freq_factors.size()}, shape.rope_freq_factors);
        }
        for (uint32_t layer = 0; layer < shape.layers; ++layer) {
            const std::string p = "blk." + std::to_string(layer) + ".";
            vector(p + "attn_norm.weight", shape.hidden, 1.0F, 0.2F);
            vector(p + "ffn_norm.weight", shape.hidden, 1.0F, 0.2F);
            matrix(p + "attn_q.weight", shape.hidden, query_width);
            matrix(p + "attn_k.weight", shape.hidden, kv_width);
            matrix(p + "attn_v.weight", shape.hidden, kv_width);
            matrix(p + "attn_output.weight", query_width, shape.hidden);
            matrix(p + "ffn_gate.weight", shape.hidden, shape.intermediate);
            matrix(p + "ffn_up.weight", shape.hidden, shape.intermediate);
            matrix(p + "ffn_down.weight", shape.intermediate, shape.hidden);
            if (shape.has_bias()) {
                vector(p + "attn_q.bias", query_width, 0.0F, 0.3F);
                vector(p + "attn_k.bias", kv_width, 0.0F, 0.3F);
                vector(p + "attn_v.bias", kv_width, 0.0F, 0.3F);
            }
            if (shape.has_head_norm()) {
                vector(p + "attn_q_norm.weight", shape.head_size, 1.0F, 0.2F);
                vector(p + "attn_k_norm.weight", shape.head_size, 1.0F, 0.2F);
            }
        }
    }

    const Shape& shape() const { return shape_; }

    struct Result {
        std::vector<float> logits;  // [token][vocab]
        std::vector<float> hidden;  // [token][hidden], after the final norm
    };

    Result reference(const std::vector<int32_t>& tokens) const {
        const std::size_t count = tokens.size();
        std::vector<std::vector<double>> rows(count);
        const auto& embedding = weights_.at("token_embd.weight");
        for (std::size_t i = 0; i < count; ++i) {
            const auto first = embedding.begin() + static_cast<std::ptrdiff_t>(tokens[i]) * shape_.hidden;
            rows[i].assign(first, first + shape_.hidden);
        }
        for (uint32_t layer = 0; layer < shape_.layers; ++layer) run_layer("blk." + std::to_string(layer) + ".", rows);
        Result result;
        const auto& head = weights_.at(shape_.tied ? "token_embd.weight" : "output.weight");
        for (const auto& row : rows) {
            const auto normed = normalise(row, weights_.at("output_norm.weight"));
            for (const double value : normed) result.hidden.push_back(static_cast<float>(value));
            for (const double value : multiply(head, normed)) result.logits.push_back(static_cast<float>(value));
        }
        return result;
    }

    gguf_test::GgufWriter writer;  // may be changed before bytes() are taken

private:
    using Row = std::vector<double>;

    void add_metadata() {
        const std::string& a = shape_.architecture;
        writer.string("general.architecture", a).string("general.name", "tiny");
        writer.u32(a + ".block_count", shape_.layers).u32(a + ".context_length", 4096);
        writer.u32(a + ".embedding_length", shape_.hidden).u32(a + ".feed_forward_length", shape_.intermediate);
        writer.u32(a + ".attention.head_count", shape_.heads).u32(a + ".attention.head_count_kv", shape_.kv_heads);
        writer.u32(a + ".attention.key_length", shape_.head_size).u32(a + ".attention.value_length", shape_.head_size);
        writer.f32(a + ".attention.layer_norm_rms_epsilon", shape_.epsilon)
            .f32(a + ".rope.freq_base", shape_.rope_base);
        if (shape_.rope_factor != 1.0F) {
            writer.string(a + ".rope.scaling.type", "linear").f32(a + ".rope.scaling.factor", shape_.rope_factor);
        }
        writer.string("tokenizer.ggml.model", "gpt2");
        std::vector<std::string> tokens;
        for (uint32_t i = 0; i < shape_.vocab; ++i) tokens.push_back("t" + std::to_string(i));
        writer.strings("tokenizer.ggml.tokens", tokens).u32("tokenizer.ggml.eos_token_id", 2);
    }

    std::vector<float> noise(std::size_t count, float mean, float spread) {
        std::normal_distribution<float> normal(mean, spread);
        std::vector<float> values(count);
        for (float& value : values) value = normal(random_);
        return values;
    }

    void vector(const std::string& name, uint32_t size, float mean, float spread) {
        const auto values = noise(size, mean, spread);
        weights_[name] = values;
        writer.floats(name, {size}, values);
    }

    void matrix(const std::string& name, uint32_t inputs, uint32_t outputs) {
        const auto values = noise(std::size_t{inputs} * outputs, 0.0F, 1.5F / std::sqrt(static_cast<float>(inputs)));
        const auto type = static_cast<ggml_type>(static_cast<uint32_t>(shape_.type));
        std::string data(ggml_row_size(type, inputs) * outputs, '\0');
        ggml_quantize_chunk(type, values.data(), data.data(), 0, outputs, inputs, nullptr);
        writer.tensor(name, shape_.type, {inputs, outputs}, data);
        // The reference sees what the file holds, not what was quantised away.
        std::vector<float>& stored = weights_[name];
        stored = values;
        if (shape_.type != TensorType::kF32)
            ggml_get_type_traits(type)->to_float(data.data(), stored.data(), static_cast<int64_t>(stored.size()));
    }

    static Row multiply(const std::vector<float>& matrix, const Row& x) {
        Row out(matrix.size() / x.size());
        for (std::size_t r = 0; r < out.size(); ++r) {
            for (std::size_t i = 0; i < x.size(); ++i) out[r] += static_cast<double>(matrix[r * x.size() + i]) * x[i];
        }
        return out;
    }

    Row normalise(const Row& x, const std::vector<float>& weight) const {
        double squares = 0.0;
        for (const double value : x) squares += value * value;
        const double scale =
            1.0 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(shape_.epsilon));
        Row out(x.size());
        for (std::size_t i = 0; i < x.size(); ++i) out[i] = x[i] * scale * static_cast<double>(weight[i]);
        return out;
    }

    void shape_heads(Row& heads, std::size_t position, const std::vector<float>* norm) const {
        const std::size_t size = shape_.head_size;
        for (std::size_t first = 0; first < heads.size(); first += size) {
            Row head(heads.begin() + static_cast<std::ptrdiff_t>(first),
                     heads.begin() + static_cast<std::ptrdiff_t>(first + size));
            if (norm != nullptr) head = normalise(head, *norm);
            for (std::size_t pair = 0; pair < size / 2; ++pair) {
                const double factor =
                    shape_.rope_freq_factors.empty() ? 1.0 : static_cast<double>(shape_.rope_freq_factors[pair]);
                const double base = static_cast<double>(shape_.rope_base);
                const double angle = static_cast<double>(position) / static_cast<double>(shape_.rope_factor) / factor *
                                     std::pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(size));
                const std::size_t a = shape_.adjacent_pairs() ? 2 * pair : pair;
                const std::size_t b = shape_.adjacent_pairs() ? 2 * pair + 1 : pair + size / 2;
                const double x = head[a];
                const double y = head[b];
                head[a] = x * std::cos(angle) - y * std::sin(angle);
                head[b] = x * std::sin(angle) + y * std::cos(angle);
            }
            std::copy(head.begin(), head.end(), heads.begin() + static_cast<std::ptrdiff_t>(first));
        }
    }

    const std::vector<float>* find(const std::string& name) const {
        const auto found = weights_.find(name);
        return found == weights_.end() ? nullptr : &found->second;
    }

    Row project(const std::string& name, const Row& x) const {
        Row out = multiply(weights_.at(name + ".weight"), x);
        if (const auto* bias = find(name + ".bias")) {
            for (std::size_t i = 0; i < out.size(); ++i) out[i] += static_cast<double>((*bias)[i]);
        }
        return out;
    }

    void run_layer(const std::string& p, std::vector<Row>& rows) const {
        std::vector<Row> keys;
        std::vector<Row> values;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Row x = normalise(rows[i], weights_.at(p + "attn_norm.weight"));
            Row query = project(p + "attn_q", x);
            keys.push_back(project(p + "attn_k", x));
            values.push_back(project(p + "attn_v", x));
            shape_heads(query, i, find(p + "attn_q_norm.weight"));
            shape_heads(keys.back(), i, find(p + "attn_k_norm.weight"));
            const Row mixed = multiply(weights_.at(p + "attn_output.weight"), attend(query, keys, values));
            for (std::size_t d = 0; d < mixed.size(); ++d) rows[i][d] += mixed[d];
        }
        for (Row& row : rows) {
            const Row x = normalise(row, weights_.at(p + "ffn_norm.weight"));
            Row gate = multiply(weights_.at(p + "ffn_gate.weight"), x);
            const Row up = multiply(weights_.at(p + "ffn_up.weight"), x);
            for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1.0 + std::exp(-gate[i])) * up[i];
            const Row down = multiply(weights_.at(p + "ffn_down.weight"), gate);
            for (std::size_t d = 0; d < down.size(); ++d) row[d] += down[d];
        }
    }

    Row attend(const Row& query, const std::vector<Row>& keys, const std::vector<Row>& values) const {
        const std::size_t size = shape_.head_size;
        Row out(query.size());
        for (std::size_t head = 0; head < shape_.heads; ++head) {
            const std::size_t kv = head / (shape_.heads / shape_.kv_heads) * size;
            Row scores;
            double largest = -1e300;
            for (const Row& key : keys) {
                double score = 0.0;
                for (std::size_t d = 0; d < size; ++d) score += query[head * size + d] * key[kv + d];
                scores.push_back(score / std::sqrt(static_cast<double>(size)));
                largest = std::max(largest, scores.back());
            }
            double total = 0.0;
            for (double& score : scores) total += score = std::exp(score - largest);
            for (std::size_t p = 0; p < scores.size(); ++p) {
                for (std::size_t d = 0; d < size; ++d) out[head * size + d] += scores[p] / total * values[p][kv + d];
            }
        }
        return out;
    }

    Shape shape_;
    std::mt19937 random_;
    std::map<std::string, std::vector<float>> weights_;
};

inline std::vector<int32_t> random_tokens(std::size_t count, uint32_t vocab, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random() % vocab);
    return tokens;
}

}  // namespace tiny
