// SequenceSpec: one request of a batch after every value was checked: the engine trusts it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "contract/encoded_image.hpp"
#include "contract/stream_channel.hpp"
#include "contract/types.hpp"
#include "engine/engine_limits.hpp"
#include "engine/sampler.hpp"

namespace edgellm {

struct SequenceSpec {
    std::vector<int32_t> prompt;              // an image's key, below zero, where a row of it stands for a token
    std::vector<const float*> embedded_rows;  // by position of the prompt, null for tokens; empty without images
    std::vector<std::shared_ptr<const EncodedImage>> images;  // what embedded_rows point into
    SamplingSpec sampling;
    int32_t max_new_tokens = 0;               // clamped to the room left in the KV store
    std::vector<std::string> stop_strings;
    bool ends_at_end_token = true;
    bool skip_special_tokens = true;
    bool embeddings = false;
    std::string cache_domain;
    ContextCacheLookupPolicy cache_lookup = ContextCacheLookupPolicy::kUseCache;
    ContextCacheCommitPolicy cache_commit = ContextCacheCommitPolicy::kIncludingGeneratedTokens;
    int32_t recompute_tail_tokens = 1;
    std::shared_ptr<StreamChannel> channel;   // may be null
};

// Checks request.requests[index] with the batch-wide fields. Throws InvalidRequest that names the field.
SequenceSpec make_sequence_spec(const LLMGenerationRequest& request, std::size_t index, std::vector<int32_t> prompt,
                                const EngineLimits& limits);

}  // namespace edgellm
