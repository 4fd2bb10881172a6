// RequestIntake: turns one request of a batch into a sequence on the caller's thread: tokenises it when the front
// end has not, checks every value, compiles its grammar. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "contract/types.hpp"
#include "engine/engine_limits.hpp"
#include "engine/runtime_options.hpp"
#include "engine/sequence.hpp"
#include "engine/token_guide.hpp"

namespace edgellm {

class RequestIntake {
public:
    // guides may be null: guided decoding is then refused.
    RequestIntake(std::shared_ptr<const VocabSpec> vocab, const EngineLimits& limits,
                  std::unique_ptr<GuideCompiler> guides, PromptEncoder prompt_encoder);

    // Throws InvalidRequest. Takes the token ids out of the request.
    std::unique_ptr<Sequence> make_sequence(LLMGenerationRequest& request, std::size_t index,
                                            std::shared_ptr<const std::atomic<bool>> cancelled) const;

    const EngineLimits& limits() const { return limits_; }

private:
    std::shared_ptr<const VocabSpec> vocab_;
    EngineLimits limits_;
    std::unique_ptr<GuideCompiler> guides_;
    PromptEncoder prompt_encoder_;
};

}  // namespace edgellm
