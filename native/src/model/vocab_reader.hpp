// Reads the vocabulary part of a GGUF file: exact bytes of every token, special tokens, end tokens.
#pragma once

#include <cstdint>

#include "model/model_spec.hpp"

namespace edgellm {

class GgufFile;

// Throws ModelFileError unless there is exactly one token for each of the embedding's vocab_size rows.
VocabSpec read_vocab(const GgufFile& file, int32_t vocab_size);

}  // namespace edgellm
