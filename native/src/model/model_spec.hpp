// ModelSpec: what a decoder is (family, shapes, rope, vocabulary), read once from GGUF metadata and checked
// against the tensors that the family needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace edgellm {

class GgufFile;

enum class Family : uint8_t { kLlama, kQwen2, kQwen3 };
enum class RopeLayout : uint8_t { kAdjacentPairs, kHalfSplit };

struct RopeSpec {
    RopeLayout layout = RopeLayout::kHalfSplit;
    int32_t dimensions = 0;
    float freq_base = 10000.0F;
    float freq_scale = 1.0F;              // 1 / linear scaling factor
    std::vector<float> freq_factors;      // per pair divisor (Llama 3 scaling); empty = all 1
};

struct VocabSpec {
    std::vector<std::string> token_bytes; // exact bytes each token contributes to text; empty for special tokens
    std::vector<std::string> special_text;// the literal text of special tokens, "" for ordinary ones
    std::vector<bool> is_special;         // left out of text when special tokens are skipped
    std::vector<int32_t> end_token_ids;   // any of them ends a sequence
    bool strip_leading_space = false;     // SentencePiece models: text of an answer starts without the added space
};

struct ModelSpec {
    Family family = Family::kLlama;
    std::string architecture;             // as the file names it
    std::string name;
    int32_t layer_count = 0;
    int32_t hidden_size = 0;
    int32_t intermediate_size = 0;
    int32_t head_count = 0;
    int32_t kv_head_count = 0;
    int32_t head_size = 0;
    int32_t vocab_size = 0;
    int32_t context_length = 0;           // tokens the model was made for
    float norm_epsilon = 1e-5F;
    bool tied_embeddings = false;
    RopeSpec rope;
    VocabSpec vocab;
};

// Throws ModelFileError. An unknown architecture lists the supported ones.
ModelSpec read_model_spec(const GgufFile& file);

}  // namespace edgellm
