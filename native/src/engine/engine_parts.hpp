// EngineParts: what a runtime is made of, so that it can be made over any executor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "contract/types.hpp"
#include "engine/engine_limits.hpp"
#include "engine/image_encoder.hpp"
#include "engine/llm_runtime.hpp"
#include "engine/request_engine.hpp"
#include "engine/runtime_options.hpp"
#include "engine/token_guide.hpp"
#include "executor/executor.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

struct EngineParts {
    std::unique_ptr<Executor> executor;
    std::shared_ptr<const VocabSpec> vocab;
    EngineLimits limits;
    ContextCacheConfig cache;
    std::unique_ptr<GuideCompiler> guides;   // null = guided decoding is refused
    std::shared_ptr<ImageEncoder> images;    // null = the model takes text alone
    PromptEncoder prompt_encoder;            // empty = requests must bring token_ids
};

// Opens llm.gguf in engine_dir, and visual/visual.gguf in multimodal_engine_dir unless that is "".
// Throws ModelFileError or InvalidRequest.
EngineParts load_engine_parts(const std::string& engine_dir, const std::string& multimodal_engine_dir,
                              const ContextCacheConfig& cache, int32_t max_batch_size, const RuntimeOptions& options);

std::unique_ptr<RequestEngine> make_request_engine(EngineParts parts, int32_t max_pending_requests,
                                                   int32_t command_queue_capacity);
std::unique_ptr<LLMRuntime> make_llm_runtime(EngineParts parts);

}  // namespace edgellm
