#include "bindings/prompt_tokens.hpp"

#include <pybind11/stl.h>

#include <string>

#include "bindings/prompt_images.hpp"
#include "contract/errors.hpp"

namespace edgellm::bindings {

namespace {

std::string field(std::size_t index, const char* name) {
    return "requests[" + std::to_string(index) + "]" + name;
}

std::vector<int32_t> encode(const LLMGenerationRequest& request, std::size_t index, const PythonReference& encoder) {
    if (!encoder.is_callable()) {
        throw InvalidRequest(std::string(kBadValue) + ": " + field(index, ".extensions.token_ids") +
                             " is not set, and the runtime was made without options.prompt_encoder");
    }
    // By reference: the encoder sees the object that the caller passed, not a copy.
    const py::object ids = encoder.get()(py::cast(request, py::return_value_policy::reference), index);
    try {
        return ids.cast<std::vector<int32_t>>();
    } catch (const py::cast_error&) {
        throw py::type_error("options.prompt_encoder must return a list of token ids");
    }
}

void refuse_media(const LLMGenerationRequest& request, bool takes_images) {
    for (std::size_t index = 0; index < request.requests.size(); ++index) {
        if (!takes_images && !request.requests[index].image_buffers.empty()) {
            throw InvalidRequest(std::string(kBadValue) + ": " + field(index, ".image_buffers") +
                                 ": this model takes no images");
        }
        if (!request.requests[index].audio_buffers.empty()) {
            throw InvalidRequest(std::string(kBadValue) + ": " + field(index, ".audio_buffers") +
                                 ": the native runtime has no audio models yet");
        }
    }
}

std::vector<PromptImages> prompts_of(const LLMGenerationRequest& request, const PromptSources& sources) {
    refuse_media(request, sources.images != nullptr);
    std::vector<PromptImages> prompts;
    // The encoder is Python and may change the request: nothing of it is held across a call.
    for (std::size_t index = 0; index < request.requests.size(); ++index) {
        PromptImages prompt;
        prompt.images = request.requests[index].image_buffers;
        const auto& given = request.requests[index].extensions.token_ids;
        prompt.token_ids = given ? *given : encode(request, index, sources.encoder);
        if (sources.images != nullptr) expand_images(prompt, sources.image_processor, field(index, ".image_buffers"));
        prompts.push_back(std::move(prompt));
    }
    if (prompts.size() != request.requests.size()) {
        throw InvalidRequest(std::string(kBadValue) + ": requests were removed while prompts were encoded");
    }
    return prompts;
}

}  // namespace

LLMGenerationRequest with_prompt_tokens(const LLMGenerationRequest& request, const PromptSources& sources) {
    std::vector<PromptImages> prompts = prompts_of(request, sources);
    for (std::size_t index = 0; index < request.stream_channels.size(); ++index) {
        if (!request.stream_channels[index]) {
            throw InvalidRequest(std::string(kBadValue) + ": stream_channels[" + std::to_string(index) + "] is None");
        }
    }
    LLMGenerationRequest copy = request;
    for (std::size_t index = 0; index < prompts.size(); ++index) {
        Request& one = copy.requests[index];
        one.image_buffers.clear();  // their pixels are needed no longer than the encoding takes
        if (!prompts[index].images.empty()) {
            const auto channel = index < copy.stream_channels.size() ? copy.stream_channels[index] : nullptr;
            one.encoded_images = encode_images(prompts[index], sources.image_processor, *sources.images, channel);
        }
        one.extensions.token_ids = std::move(prompts[index].token_ids);
    }
    return copy;
}

std::vector<int64_t> count_prompt_tokens(const LLMGenerationRequest& request, const PromptSources& sources) {
    std::vector<int64_t> counts;
    for (const PromptImages& prompt : prompts_of(request, sources)) {
        counts.push_back(static_cast<int64_t>(prompt.token_ids.size()));
    }
    return counts;
}

}  // namespace edgellm::bindings
