// Metrics of the contract that belong to features this runtime does not have yet.
#pragma once

#include <cstdint>

namespace edgellm::bindings {

struct SpecDecodeGenerationMetrics {
    int64_t runs = 0;
    int64_t total_iterations = 0;
    int64_t total_generated_tokens = 0;
    int64_t total_accepted_draft_tokens = 0;
    int64_t total_proposed_draft_tokens = 0;
};

}  // namespace edgellm::bindings
