// RequestEngine and RequestHandle. The bound engine keeps the prompt encoder; the core gets token ids.
#include "engine/request_engine.hpp"

#include <pybind11/stl.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "bindings/bindings.hpp"
#include "bindings/prompt_tokens.hpp"
#include "bindings/runtime_options.hpp"
#include "bindings/unsupported.hpp"

namespace edgellm::bindings {

namespace {

class BoundRequestEngine {
public:
    BoundRequestEngine(const std::string& engine_dir, const std::string& multimodal_engine_dir,
                  const ContextCacheConfig& cache, int32_t max_batch_size,
                       int32_t max_pending_requests, int32_t command_queue_capacity,
                       const BoundRuntimeOptions& options)
        : encoder_(options.prompt_encoder), image_processor_(options.image_processor), caches_context_(cache.enabled) {
        const RuntimeOptions values = options.values;
        const py::gil_scoped_release without_gil;  // Construct: maps the model and fills memory.
        engine_ = RequestEngine::create(engine_dir, multimodal_engine_dir, cache, max_batch_size,
                                        max_pending_requests, command_queue_capacity, values);
    }

    ~BoundRequestEngine() {
        const py::gil_scoped_release without_gil;  // Destroy: joins the actor thread.
        engine_.reset();
    }

    BoundRequestEngine(const BoundRequestEngine&) = delete;
    BoundRequestEngine& operator=(const BoundRequestEngine&) = delete;

    RequestEngine& engine() const { return *engine_; }
    PythonReferences python_references() { return {&encoder_, &image_processor_}; }
    PromptSources prompt_sources() const { return {encoder_, image_processor_, engine_->images()}; }
    bool caches_context() const { return caches_context_; }

private:
    std::unique_ptr<RequestEngine> engine_;
    PythonReference encoder_;
    PythonReference image_processor_;
    bool caches_context_;
};

std::unique_ptr<BoundRequestEngine> make(const std::string& engine_dir, const std::string& multimodal_engine_dir,
                                         const std::map<std::string, std::string>& lora_weights_map,
                                         const std::string& /*checkpoint_dir*/, const ContextCacheConfig& cache,
                                         int32_t max_batch_size, int32_t max_pending_requests,
                                         int32_t command_queue_capacity, bool /*capture_cuda_graph*/,
                                         const std::optional<BoundRuntimeOptions>& options) {
    refuse_unsupported_arguments(lora_weights_map);
    return std::make_unique<BoundRequestEngine>(engine_dir, multimodal_engine_dir, cache, max_batch_size,
                                                max_pending_requests, command_queue_capacity,
                                                options.value_or(BoundRuntimeOptions()));
}

std::shared_ptr<RequestHandle> submit(BoundRequestEngine& self, const LLMGenerationRequest& request) {
    // Nothing is encoded for several sequences: the engine refuses them.
    const bool is_single = request.requests.size() == 1;
    LLMGenerationRequest prepared = is_single ? with_prompt_tokens(request, self.prompt_sources()) : request;
    const py::gil_scoped_release without_gil;  // Submit: takes the engine's queue.
    return self.engine().submit(std::move(prepared));
}

void bind_handle(py::module_& module) {
    py::class_<RequestHandle, std::shared_ptr<RequestHandle>>(module, "RequestHandle",
                                                              "One submitted request; for one consumer.")
        .def_property_readonly("id", &RequestHandle::id)
        .def("stream", &RequestHandle::stream)
        // Waits: the GIL is released.
        .def("get", &RequestHandle::get, py::call_guard<py::gil_scoped_release>())
        .def("ready", &RequestHandle::ready)
        .def("cancel", &RequestHandle::cancel, py::call_guard<py::gil_scoped_release>())
        .def("valid", &RequestHandle::valid);
}

}  // namespace

void bind_request_engine(py::module_& module) {
    bind_handle(module);
    py::class_<BoundRequestEngine>(module, "RequestEngine",
                                   "Runs many requests together on its own thread; every method is thread-safe.",
                                   collected_by_python<BoundRequestEngine>())
        .def(py::init(&make), py::arg("engine_dir"), py::arg("multimodal_engine_dir") = "",
             py::arg("lora_weights_map") = std::map<std::string, std::string>{}, py::arg("checkpoint_dir") = "",
             py::arg("context_cache_config") = ContextCacheConfig{}, py::arg("max_batch_size") = 1,
             py::arg("max_pending_requests") = 256, py::arg("command_queue_capacity") = 64,
             py::arg("capture_cuda_graph") = true, py::arg("options") = std::nullopt,
             "checkpoint_dir and capture_cuda_graph are taken and not needed: a bundle holds its weights.")
        .def("submit", &submit, py::arg("request"), "Queue a request of one sequence, or raise SubmitError.")
        .def(
            "cancel", [](BoundRequestEngine& self, uint64_t id) { self.engine().cancel(id); }, py::arg("request_id"),
            py::call_guard<py::gil_scoped_release>(), "End a request within one step.")
        .def(
            "shutdown", [](BoundRequestEngine& self, ShutdownMode mode) { self.engine().shutdown(mode); },
            py::arg("mode") = ShutdownMode::kDrain,
            py::call_guard<py::gil_scoped_release>(),  // Waits for the actor thread.
            "Take no more requests, finish or cancel those there are, and end the thread.")
        .def(
            "count_prompt_tokens",
            [](BoundRequestEngine& self, const LLMGenerationRequest& request) {
                return count_prompt_tokens(request, self.prompt_sources());
            },
            py::arg("request"), "Tokens of each prompt, without generating.")
        .def(
            "metrics", [](const BoundRequestEngine& self) { return self.engine().metrics(); },
            py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("queued", [](const BoundRequestEngine& self) { return self.engine().queued(); })
        .def_property_readonly("resident", [](const BoundRequestEngine& self) { return self.engine().resident(); })
        .def_property_readonly("running", [](const BoundRequestEngine& self) { return self.engine().running(); })
        .def(
            "get_context_cache_metrics",
            [](const BoundRequestEngine& self) -> std::optional<ContextCacheMetrics> {
                if (!self.caches_context()) {
                    return std::nullopt;
                }
                return self.engine().context_cache_metrics();
            },
            py::call_guard<py::gil_scoped_release>(), "Extension. None when the context cache is off.")
        .def(
            "get_prefill_metrics", [](const BoundRequestEngine& self) { return self.engine().prefill_metrics(); },
            py::call_guard<py::gil_scoped_release>(), "Extension.")
        .def(
            "get_generation_metrics",
            [](const BoundRequestEngine& self) { return self.engine().generation_metrics(); },
            py::call_guard<py::gil_scoped_release>(), "Extension.")
        .def(
            "get_multimodal_metrics",
            [](const BoundRequestEngine& self) {
                const ImageEncoder* images = self.engine().images();
                return images == nullptr ? MultimodalMetrics() : images->metrics();
            },
            "Extension.")
        .def(
            "executor_info", [](const BoundRequestEngine& self) { return self.engine().executor_info(); },
            "Extension: what runs the model, and its sizes.")
        .def_property_readonly(
            "steps_completed", [](const BoundRequestEngine& self) { return self.engine().steps_completed(); },
            "Extension: advances while work is resident; one that stands still shows a stuck engine.");
}

}  // namespace edgellm::bindings
