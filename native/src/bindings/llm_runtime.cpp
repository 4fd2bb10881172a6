// LLMRuntime: the blocking runtime. One call at a time; a second caller waits without the GIL.
#include "engine/llm_runtime.hpp"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bindings/bindings.hpp"
#include "bindings/metrics.hpp"
#include "bindings/prompt_tokens.hpp"
#include "bindings/runtime_options.hpp"
#include "bindings/speech.hpp"
#include "bindings/unsupported.hpp"

namespace edgellm::bindings {

namespace {

class BoundLLMRuntime {
public:
    BoundLLMRuntime(const std::string& engine_dir, const std::string& multimodal_engine_dir,
                  const ContextCacheConfig& cache, const BoundRuntimeOptions& options)
        : encoder_(options.prompt_encoder), image_processor_(options.image_processor) {
        const RuntimeOptions values = options.values;
        const py::gil_scoped_release without_gil;  // Construct: maps the model and fills memory.
        runtime_ = LLMRuntime::create(engine_dir, multimodal_engine_dir, cache, values);
    }

    ~BoundLLMRuntime() {
        const py::gil_scoped_release without_gil;  // Destroy: joins worker threads, returns memory.
        runtime_.reset();
    }

    BoundLLMRuntime(const BoundLLMRuntime&) = delete;
    BoundLLMRuntime& operator=(const BoundLLMRuntime&) = delete;

    PythonReferences python_references() { return {&encoder_, &image_processor_}; }
    PromptSources prompt_sources() const { return {encoder_, image_processor_, runtime_->images()}; }

    // Beside a running call: images are encoded before it.
    MultimodalMetrics multimodal_metrics() const {
        const ImageEncoder* images = runtime_->images();
        return images == nullptr ? MultimodalMetrics() : images->metrics();
    }

    // Runs one call of the core, which takes one caller at a time. Never with the GIL: the holder may wait for it.
    template <class Call>
    auto exclusively(Call call) {
        const std::lock_guard lock(one_caller_);
        return call(*runtime_);
    }

private:
    std::unique_ptr<LLMRuntime> runtime_;
    std::mutex one_caller_;
    PythonReference encoder_;
    PythonReference image_processor_;
};

std::unique_ptr<BoundLLMRuntime> make(const std::string& engine_dir, const std::string& multimodal_engine_dir,
                                      const std::map<std::string, std::string>& lora_weights_map,
                                      const std::string& /*checkpoint_dir*/, const ContextCacheConfig& cache,
                                      const std::optional<BoundRuntimeOptions>& options) {
    refuse_unsupported_arguments(lora_weights_map);
    return std::make_unique<BoundLLMRuntime>(engine_dir, multimodal_engine_dir, cache,
                                             options.value_or(BoundRuntimeOptions()));
}

std::unique_ptr<BoundLLMRuntime> make_speculative(const std::string&, const std::string&,
                                                  const std::map<std::string, std::string>&, int32_t, int32_t,
                                                  int32_t, const std::string&, const std::string&,
                                                  const ContextCacheConfig&, int32_t) {
    throw std::runtime_error("LLMRuntime(draft_top_k, draft_step, ...): the native runtime has no speculative decoding "
                             "yet; leave the draft arguments out");
}

LLMGenerationResponse handle_request(BoundLLMRuntime& self, const LLMGenerationRequest& request) {
    const LLMGenerationRequest prepared = with_prompt_tokens(request, self.prompt_sources());
    const py::gil_scoped_release without_gil;  // Generates.
    return self.exclusively([&](LLMRuntime& runtime) { return runtime.handle_request(prepared); });
}

py::array_t<float> score(BoundLLMRuntime& self, const std::vector<int32_t>& token_ids) {
    auto logits = std::make_unique<std::vector<float>>();
    {
        const py::gil_scoped_release without_gil;  // Computes.
        *logits = self.exclusively([&](LLMRuntime& runtime) { return runtime.score(token_ids); });
    }
    const auto rows = static_cast<py::ssize_t>(token_ids.size());
    const py::ssize_t columns = rows == 0 ? 0 : static_cast<py::ssize_t>(logits->size()) / rows;
    const float* data = logits->data();
    py::capsule owner(logits.get(), [](void* pointer) { delete static_cast<std::vector<float>*>(pointer); });
    logits.release();
    return py::array_t<float>({rows, columns}, data, owner);
}

void bind_counters(py::class_<BoundLLMRuntime>& bound) {
    // Each waits for a running call: the GIL is released.
    bound
        .def(
            "get_prefill_metrics",
            [](BoundLLMRuntime& self) {
                return self.exclusively([](const LLMRuntime& runtime) { return runtime.prefill_metrics(); });
            },
            py::call_guard<py::gil_scoped_release>())
        .def(
            "get_generation_metrics",
            [](BoundLLMRuntime& self) {
                return self.exclusively([](const LLMRuntime& runtime) { return runtime.generation_metrics(); });
            },
            py::call_guard<py::gil_scoped_release>())
        .def("get_spec_decode_generation_metrics",
             [](const BoundLLMRuntime&) { return SpecDecodeGenerationMetrics(); })
        .def("get_eagle_generation_metrics", [](const BoundLLMRuntime&) { return SpecDecodeGenerationMetrics(); })
        .def("get_multimodal_metrics", [](const BoundLLMRuntime& self) { return self.multimodal_metrics(); })
        .def(
            "get_context_cache_metrics",
            [](BoundLLMRuntime& self) {
                return self.exclusively([](const LLMRuntime& runtime) { return runtime.context_cache_metrics(); });
            },
            py::call_guard<py::gil_scoped_release>(), "None when the context cache is off.")
        .def(
            "executor_info",
            [](BoundLLMRuntime& self) {
                return self.exclusively([](const LLMRuntime& runtime) { return runtime.executor_info(); });
            },
            py::call_guard<py::gil_scoped_release>(), "Extension: what runs the model, and its sizes.");
}

void bind_speech_output(py::class_<BoundLLMRuntime>& bound) {
    bound
        .def(
            "load_omni",
            [](BoundLLMRuntime&, const std::string&, const std::string&, const std::string&, const std::string&,
               const std::string&) { refuse_speech("load_omni"); },
            py::arg("talker_engine_dir"), py::arg("code_predictor_engine_dir"), py::arg("code2wav_engine_dir"),
            py::arg("tokenizer_dir"), py::arg("checkpoint_dir") = "")
        .def(
            "handle_request_streaming_audio",
            [](BoundLLMRuntime&, const LLMGenerationRequest&, AudioStreamChannel&,
               const OmniAudioParams&) -> LLMGenerationResponse { refuse_speech("handle_request_streaming_audio"); },
            py::arg("request"), py::arg("audio_channel"), py::arg("params"))
        .def(
            "handle_request_tts",
            [](BoundLLMRuntime&, const std::string&, const OmniAudioParams&, AudioStreamChannel&) -> int32_t {
                refuse_speech("handle_request_tts");
            },
            py::arg("text"), py::arg("params"), py::arg("audio_channel"))
        .def("get_speaker_names", [](const BoundLLMRuntime&) { return std::vector<std::string>(); });
}

}  // namespace

void bind_llm_runtime(py::module_& module) {
    py::class_<BoundLLMRuntime> bound(module, "LLMRuntime", "Runs one batch at a time and returns when it is done.",
                                      collected_by_python<BoundLLMRuntime>());
    bound
        .def(py::init(&make), py::arg("engine_dir"), py::arg("multimodal_engine_dir") = "",
             py::arg("lora_weights_map") = std::map<std::string, std::string>{}, py::arg("checkpoint_dir") = "",
             py::arg("context_cache_config") = ContextCacheConfig{}, py::arg("options") = std::nullopt,
             "checkpoint_dir is taken and not needed: a bundle holds its weights.")
        .def(py::init(&make_speculative), py::arg("engine_dir"), py::arg("multimodal_engine_dir"),
             py::arg("lora_weights_map"), py::arg("draft_top_k"), py::arg("draft_step"), py::arg("verify_tree_size"),
             py::arg("checkpoint_dir") = "", py::arg("draft_checkpoint_dir") = "",
             py::arg("context_cache_config") = ContextCacheConfig{}, py::arg("dflash_block_size") = 0,
             "Refused: this runtime has no speculative decoding yet.")
        .def("handle_request", &handle_request, py::arg("request"), "Generate, and return the response.")
        .def(
            "count_prompt_tokens",
            [](BoundLLMRuntime& self, const LLMGenerationRequest& request) {
                return count_prompt_tokens(request, self.prompt_sources());
            },
            py::arg("request"), "Tokens of each prompt, without generating.")
        .def(
            "capture_decoding_cuda_graph", [](const BoundLLMRuntime&) { return false; },
            "False: this runtime has no CUDA graphs to capture.")
        .def(
            "save_system_prompt_kv_cache",
            [](BoundLLMRuntime&, const std::string&, const std::string&) -> bool {
                throw std::runtime_error("save_system_prompt_kv_cache: the native runtime keeps prefixes by itself; "
                                         "set context_cache_config.enabled");
            },
            py::arg("prompt"), py::arg("lora_weights_name") = "")
        .def("has_draft_model", [](const BoundLLMRuntime&) { return false; })
        .def("score", &score, py::arg("token_ids"),
             "Extension: logits of every position of a given sequence, [tokens, vocabulary].");
    bind_counters(bound);
    bind_speech_output(bound);
}

}  // namespace edgellm::bindings
