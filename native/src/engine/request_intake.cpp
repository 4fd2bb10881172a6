#include "engine/request_intake.hpp"

#include <utility>

#include "engine/value_checks.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

RequestIntake::RequestIntake(std::shared_ptr<const VocabSpec> vocab, const EngineLimits& limits,
                             std::unique_ptr<GuideCompiler> guides, PromptEncoder prompt_encoder)
    : vocab_(std::move(vocab)),
      limits_(limits),
      guides_(std::move(guides)),
      prompt_encoder_(std::move(prompt_encoder)) {}

std::unique_ptr<Sequence> RequestIntake::make_sequence(LLMGenerationRequest& request, std::size_t index,
                                                       std::shared_ptr<const std::atomic<bool>> cancelled) const {
    if (!request.stream_channels.empty() && request.stream_channels.size() != request.requests.size()) {
        refuse_value("stream_channels", "must be empty or hold one channel for each request");
    }
    Request& one = request.requests[index];
    std::vector<int32_t> prompt;
    if (one.extensions.token_ids) {
        prompt = std::move(*one.extensions.token_ids);
    } else if (prompt_encoder_) {
        prompt = prompt_encoder_(request, index);
    } else {
        refuse_value("extensions.token_ids", "must be set: this runtime was made without a prompt encoder");
    }
    SequenceSpec spec = make_sequence_spec(request, index, std::move(prompt), limits_);
    std::unique_ptr<TokenGuide> guide;
    if (one.guided_decoding) {
        if (spec.embeddings) refuse_value("guided_decoding", "must be unset when embeddings are asked for");
        if (guides_ == nullptr) {
            throw InvalidRequest(std::string(kBadGuide) +
                                 ": guided_decoding needs a guidance library, and none is loaded");
        }
        guide = guides_->compile(*one.guided_decoding);
    }
    return std::make_unique<Sequence>(std::move(spec), *vocab_, std::move(guide), std::move(cancelled));
}

}  // namespace edgellm
