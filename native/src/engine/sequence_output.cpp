#include "engine/sequence_output.hpp"

#include <algorithm>
#include <utility>

namespace edgellm {

SequenceOutput::SequenceOutput(const VocabSpec& vocab, TextStream text, std::shared_ptr<StreamChannel> channel,
                               int32_t prompt_token_count)
    : vocab_(vocab), text_(std::move(text)), channel_(std::move(channel)) {
    result_.prompt_token_count = prompt_token_count;
}

bool SequenceOutput::append(const SampledToken& sampled, bool is_end_token) {
    result_.output_ids.push_back(sampled.token);
    if (!sampled.logprobs.empty()) result_.logprobs.push_back(entries(sampled));
    if (is_end_token) return false;  // counted, but no text
    const bool stopped = text_.append(sampled.token, result_.text);
    result_.matched_stop = text_.matched_stop();
    return stopped;
}

void SequenceOutput::flush_if_due() {
    if (channel_ == nullptr) return;
    const auto interval = static_cast<std::size_t>(std::max<int64_t>(channel_->get_stream_interval(), 1));
    if (result_.output_ids.size() - pushed_tokens_ >= interval) push(false);
}

void SequenceOutput::finish(FinishReason reason, std::exception_ptr error) {
    result_.error = std::move(error);
    if (reason != FinishReason::kStopWords && text_.finish(reason != FinishReason::kEndId, result_.text)) {
        result_.matched_stop = text_.matched_stop();
        if (reason == FinishReason::kEndId || reason == FinishReason::kLength) reason = FinishReason::kStopWords;
    }
    result_.reason = reason;
    if (channel_ != nullptr) push(true);
}

void SequenceOutput::push(bool finished) {
    StreamChunk chunk;
    chunk.token_ids.assign(result_.output_ids.begin() + static_cast<std::ptrdiff_t>(pushed_tokens_),
                           result_.output_ids.end());
    chunk.text = result_.text.substr(pushed_text_bytes_);
    if (!result_.logprobs.empty()) {
        chunk.logprobs.assign(result_.logprobs.begin() + static_cast<std::ptrdiff_t>(pushed_tokens_),
                              result_.logprobs.end());
    }
    chunk.prompt_token_count = result_.prompt_token_count;
    chunk.reused_token_count = result_.reused_token_count;
    chunk.finished = finished;
    chunk.reason = result_.reason;
    if (finished) chunk.matched_stop = result_.matched_stop;
    pushed_tokens_ = result_.output_ids.size();
    pushed_text_bytes_ = result_.text.size();
    channel_->push(std::move(chunk));
}

TokenLogprobs SequenceOutput::entries(const SampledToken& sampled) const {
    TokenLogprobs entries;
    entries.reserve(sampled.logprobs.size());
    for (const TokenLogprob& one : sampled.logprobs) {
        entries.push_back({one.token, one.logprob, std::string(token_piece(vocab_, one.token))});
    }
    return entries;
}

void add_to_response(SequenceResult result, LLMGenerationResponse& response) {
    response.output_ids.push_back(std::move(result.output_ids));
    response.output_texts.push_back(std::move(result.text));
    response.logprobs.push_back(std::move(result.logprobs));
    response.finish_reasons.push_back(result.reason);
    response.prompt_token_counts.push_back(result.prompt_token_count);
    response.reused_token_counts.push_back(result.reused_token_count);
    response.matched_stops.push_back(result.matched_stop);
    if (!result.embedding.empty()) {
        response.embeddings.resize(response.output_ids.size());
        response.embeddings.back() = std::move(result.embedding);
    }
}

}  // namespace edgellm
