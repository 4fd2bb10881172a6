// SequenceOutput: what a sequence has produced: the whole for its response, and chunks for its channel.
// Exactly one terminal chunk is pushed; a cancelled channel takes none.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "contract/stream_channel.hpp"
#include "contract/types.hpp"
#include "engine/sampler.hpp"
#include "engine/text_stream.hpp"

namespace edgellm {

// One column of an LLMGenerationResponse, or the error that took its place.
struct SequenceResult {
    std::vector<int32_t> output_ids;
    std::string text;
    std::vector<TokenLogprobs> logprobs;
    FinishReason reason = FinishReason::kNotFinished;
    int32_t prompt_token_count = 0;
    int32_t reused_token_count = 0;
    int32_t matched_stop = -1;
    std::vector<float> embedding;
    std::exception_ptr error;   // set with kError and kCancelled
};

class SequenceOutput {
public:
    // vocab outlives the output; channel may be null.
    SequenceOutput(const VocabSpec& vocab, TextStream text, std::shared_ptr<StreamChannel> channel,
                   int32_t prompt_token_count);

    void set_reused_token_count(int32_t count) { result_.reused_token_count = count; }
    void set_embedding(std::vector<float> embedding) { result_.embedding = std::move(embedding); }

    // True when the token completed a stop string. Chunks go out as the channel's interval says.
    bool append(const SampledToken& sampled, bool is_end_token);
    void flush_if_due();
    // The reason becomes kStopWords when the text that was still held completes a stop string.
    void finish(FinishReason reason, std::exception_ptr error);

    int32_t token_count() const { return static_cast<int32_t>(result_.output_ids.size()); }
    SequenceResult take_result() { return std::move(result_); }

private:
    void push(bool finished);
    TokenLogprobs entries(const SampledToken& sampled) const;

    const VocabSpec& vocab_;
    TextStream text_;
    std::shared_ptr<StreamChannel> channel_;
    SequenceResult result_;
    std::size_t pushed_tokens_ = 0;
    std::size_t pushed_text_bytes_ = 0;
};

// Adds one column to a response, at the end.
void add_to_response(SequenceResult result, LLMGenerationResponse& response);

}  // namespace edgellm
