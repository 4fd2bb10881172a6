// Prompt tokens: makes the request that the core gets out of the one that Python holds.
#pragma once

#include <cstdint>
#include <vector>

#include "bindings/python_reference.hpp"
#include "contract/types.hpp"
#include "engine/image_encoder.hpp"

namespace edgellm::bindings {

// What makes token ids of a request. images is null for a model that takes text alone.
struct PromptSources {
    const PythonReference& encoder;
    const PythonReference& image_processor;
    ImageEncoder* images;
};

// A copy of the request in which every sequence has token ids: its own, or those of the encoder, which is called here,
// with the GIL held; and in which images are encoded, without the GIL. Python may go on changing its request; the copy
// is the core's alone.
// Throws InvalidRequest for what no model of this runtime takes, and whatever the encoder raises.
LLMGenerationRequest with_prompt_tokens(const LLMGenerationRequest& request, const PromptSources& sources);

// Tokens of each prompt, by the same path, but for the encoding of images. Needs the GIL.
std::vector<int64_t> count_prompt_tokens(const LLMGenerationRequest& request, const PromptSources& sources);

}  // namespace edgellm::bindings
