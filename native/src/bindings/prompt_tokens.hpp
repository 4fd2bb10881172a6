// Prompt tokens: makes the request that the core gets out of the one that Python holds.
#pragma once

#include <cstdint>
#include <vector>

#include "bindings/python_reference.hpp"
#include "contract/types.hpp"

namespace edgellm::bindings {

// A copy of the request in which every sequence has token ids: its own, or those of the encoder, which is called
// here, with the GIL held. Python may go on changing its request; the copy is the core's alone.
// Throws InvalidRequest for what no model of this runtime takes, and whatever the encoder raises.
LLMGenerationRequest with_prompt_tokens(const LLMGenerationRequest& request, const PythonReference& encoder);

// Tokens of each prompt, by the same path. Needs the GIL.
std::vector<int64_t> count_prompt_tokens(const LLMGenerationRequest& request, const PythonReference& encoder);

}  // namespace edgellm::bindings
