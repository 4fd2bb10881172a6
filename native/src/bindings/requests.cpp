// The request and the response of the contract, with the extensions of this runtime.
#include <pybind11/stl.h>

#include "bindings/bindings.hpp"
#include "bindings/live_fields.hpp"
#include "contract/stream_channel.hpp"
#include "contract/types.hpp"

namespace edgellm::bindings {

namespace {

void bind_request(py::module_& module) {
    py::class_<RequestExtensions>(module, "RequestExtensions",
                                  "Extension: what the contract's Request cannot say; unset means the batch's value.")
        .def(py::init<>())
        .def_readwrite("token_ids", &RequestExtensions::token_ids)
        .def_readwrite("temperature", &RequestExtensions::temperature)
        .def_readwrite("top_p", &RequestExtensions::top_p)
        .def_readwrite("top_k", &RequestExtensions::top_k)
        .def_readwrite("max_generate_length", &RequestExtensions::max_generate_length)
        .def_readwrite("num_logprobs", &RequestExtensions::num_logprobs)
        .def_readwrite("min_p", &RequestExtensions::min_p)
        .def_readwrite("frequency_penalty", &RequestExtensions::frequency_penalty)
        .def_readwrite("presence_penalty", &RequestExtensions::presence_penalty)
        .def_readwrite("repetition_penalty", &RequestExtensions::repetition_penalty)
        .def_readwrite("ignore_eos", &RequestExtensions::ignore_eos)
        .def_readwrite("embeddings", &RequestExtensions::embeddings)
        .def_readwrite("cache_domain", &RequestExtensions::cache_domain);

    py::class_<Request> request(module, "Request", "One sequence of a batch.");
    request.def(py::init<>())
        .def(py::init([](std::vector<Message> messages) {
                 Request made;
                 made.messages = std::move(messages);
                 return made;
             }),
             py::arg("messages"))
        .def_readwrite("stop_strings", &Request::stop_strings)
        .def_readwrite("logit_bias", &Request::logit_bias)
        .def_readwrite("sampling_seed", &Request::sampling_seed)
        .def_readwrite("extensions", &Request::extensions);
    def_live_list(request, "messages", &Request::messages);
    def_live_list(request, "image_buffers", &Request::image_buffers);
    def_live_list(request, "audio_buffers", &Request::audio_buffers);
    def_live_optional(request, "guided_decoding", &Request::guided_decoding);

    py::class_<FormattedRequest>(module, "FormattedRequest", "A prompt after its template.")
        .def(py::init<>())
        .def_readwrite("formatted_system_prompt", &FormattedRequest::formatted_system_prompt)
        .def_readwrite("formatted_complete_request", &FormattedRequest::formatted_complete_request);

    py::class_<LLMGenerationRequest> batch(module, "LLMGenerationRequest",
                                           "A batch of sequences and how they are sampled.");
    batch.def(py::init<>())
        .def_readwrite("temperature", &LLMGenerationRequest::temperature)
        .def_readwrite("top_p", &LLMGenerationRequest::top_p)
        .def_readwrite("top_k", &LLMGenerationRequest::top_k)
        .def_readwrite("sampling_seed", &LLMGenerationRequest::sampling_seed)
        .def_readwrite("spec_proposal_sampling", &LLMGenerationRequest::spec_proposal_sampling)
        .def_readwrite("max_generate_length", &LLMGenerationRequest::max_generate_length)
        .def_readwrite("lora_weights_name", &LLMGenerationRequest::lora_weights_name)
        .def_readwrite("save_system_prompt_kv_cache", &LLMGenerationRequest::save_system_prompt_kv_cache)
        .def_readwrite("apply_chat_template", &LLMGenerationRequest::apply_chat_template)
        .def_readwrite("add_generation_prompt", &LLMGenerationRequest::add_generation_prompt)
        .def_readwrite("enable_thinking", &LLMGenerationRequest::enable_thinking)
        .def_readwrite("reasoning_effort", &LLMGenerationRequest::reasoning_effort)
        .def_readwrite("tool_choice", &LLMGenerationRequest::tool_choice)
        .def_readwrite("parallel_tool_calls", &LLMGenerationRequest::parallel_tool_calls)
        .def_readwrite("disable_spec_decode", &LLMGenerationRequest::disable_spec_decode)
        .def_readwrite("skip_special_tokens", &LLMGenerationRequest::skip_special_tokens)
        .def_readwrite("stream_channels", &LLMGenerationRequest::stream_channels)
        .def_readwrite("num_logprobs", &LLMGenerationRequest::num_logprobs)
        .def_readwrite("context_cache_lookup_policy", &LLMGenerationRequest::context_cache_lookup_policy)
        .def_readwrite("context_cache_commit_policy", &LLMGenerationRequest::context_cache_commit_policy);
    def_live_list(batch, "requests", &LLMGenerationRequest::requests);
    def_live_list(batch, "formatted_requests", &LLMGenerationRequest::formatted_requests);
    def_live_list(batch, "tools", &LLMGenerationRequest::tools);
    def_int32(batch, "recurrent_capture_interval", &LLMGenerationRequest::recurrent_capture_interval);
    def_int32(batch, "context_cache_replay_tail_length", &LLMGenerationRequest::context_cache_replay_tail_length);
}

void bind_response(py::module_& module) {
    py::class_<LLMGenerationResponse>(module, "LLMGenerationResponse", "What a batch generated, one entry a sequence.")
        .def(py::init<>())
        .def_readwrite("output_ids", &LLMGenerationResponse::output_ids)
        .def_readwrite("output_texts", &LLMGenerationResponse::output_texts)
        // By copy: entries cannot be changed, and a reference could outlive an assignment to the field.
        .def_property(
            "logprobs", [](const LLMGenerationResponse& self) { return self.logprobs; },
            [](LLMGenerationResponse& self, std::vector<std::vector<TokenLogprobs>> logprobs) {
                self.logprobs = std::move(logprobs);
            })
        .def_readonly("finish_reasons", &LLMGenerationResponse::finish_reasons)
        .def_readonly("prompt_token_counts", &LLMGenerationResponse::prompt_token_counts)
        .def_readonly("reused_token_counts", &LLMGenerationResponse::reused_token_counts)
        .def_readonly("matched_stops", &LLMGenerationResponse::matched_stops)
        .def_readonly("embeddings", &LLMGenerationResponse::embeddings);
}

LLMGenerationRequest create_generation_request(std::vector<std::vector<Message>> batch_messages, float temperature,
                                               float top_p, int64_t top_k, int64_t max_generate_length,
                                               bool apply_chat_template, bool add_generation_prompt,
                                               bool enable_thinking, std::string lora_weights_name,
                                               bool save_system_prompt_kv_cache, bool disable_spec_decode,
                                               const std::map<int32_t, float>& logit_bias, int32_t num_logprobs,
                                               const std::optional<GuidedDecodingParams>& guided_decoding) {
    LLMGenerationRequest batch;
    for (std::vector<Message>& messages : batch_messages) {
        Request request;
        request.messages = std::move(messages);
        request.logit_bias = logit_bias;
        request.guided_decoding = guided_decoding;
        batch.requests.push_back(std::move(request));
    }
    batch.temperature = temperature;
    batch.top_p = top_p;
    batch.top_k = top_k;
    batch.max_generate_length = max_generate_length;
    batch.apply_chat_template = apply_chat_template;
    batch.add_generation_prompt = add_generation_prompt;
    batch.enable_thinking = enable_thinking;
    batch.lora_weights_name = std::move(lora_weights_name);
    batch.save_system_prompt_kv_cache = save_system_prompt_kv_cache;
    batch.disable_spec_decode = disable_spec_decode;
    batch.num_logprobs = num_logprobs;
    return batch;
}

}  // namespace

void bind_requests(py::module_& module) {
    bind_request(module);
    bind_response(module);
    module.def("create_generation_request", &create_generation_request, py::arg("batch_messages"),
               py::arg("temperature") = 1.0F, py::arg("top_p") = 0.8F, py::arg("top_k") = 50,
               py::arg("max_generate_length") = 256, py::arg("apply_chat_template") = true,
               py::arg("add_generation_prompt") = true, py::arg("enable_thinking") = false,
               py::arg("lora_weights_name") = "", py::arg("save_system_prompt_kv_cache") = false,
               py::arg("disable_spec_decode") = false, py::arg("logit_bias") = std::map<int32_t, float>{},
               py::arg("num_logprobs") = 0, py::arg("guided_decoding") = std::nullopt,
               "Make a batch of one sequence a message list, all sampled alike.");
}

}  // namespace edgellm::bindings
