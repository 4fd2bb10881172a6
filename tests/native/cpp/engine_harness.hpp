// A blocking runtime over the scripted executor, and what its arithmetic says without any engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "scripted_executor.hpp"

namespace scripted {

struct Runtime {
    explicit Runtime(const PartsWanted& wanted = {}, std::shared_ptr<Script> with = std::make_shared<Script>())
        : script(std::move(with)), runtime(edgellm::make_llm_runtime(make_parts(script, wanted))) {}
    edgellm::LLMGenerationResponse run(const edgellm::LLMGenerationRequest& request) {
        return runtime->handle_request(request);
    }

    std::shared_ptr<Script> script;
    std::unique_ptr<edgellm::LLMRuntime> runtime;
};

inline PartsWanted cold() {
    PartsWanted wanted;
    wanted.cache = false;
    return wanted;
}

// What the arithmetic itself says, without any engine.
inline std::vector<int32_t> greedy_by_hand(std::vector<int32_t> context, int count) {
    std::vector<int32_t> answer;
    std::vector<float> logits(scripted::kVocabSize);
    for (int i = 0; i < count; ++i) {
        scripted::hashed_logits(context, logits);
        const auto best = std::max_element(logits.begin(), logits.end());
        answer.push_back(static_cast<int32_t>(best - logits.begin()));
        context.push_back(answer.back());
    }
    return answer;
}

inline std::vector<edgellm::StreamChunk> drain(edgellm::StreamChannel& channel) {
    std::vector<edgellm::StreamChunk> chunks;
    while (auto chunk = channel.try_pop()) chunks.push_back(std::move(*chunk));
    return chunks;
}

inline edgellm::LLMGenerationRequest joined(const std::vector<edgellm::LLMGenerationRequest>& singles) {
    edgellm::LLMGenerationRequest all = singles.front();
    all.requests.clear();
    for (const edgellm::LLMGenerationRequest& one : singles) {
        all.requests.push_back(one.requests[0]);
        all.requests.back().extensions.max_generate_length = one.max_generate_length;
    }
    return all;
}

}  // namespace scripted
