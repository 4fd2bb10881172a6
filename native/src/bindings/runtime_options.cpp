#include "bindings/runtime_options.hpp"

#include <pybind11/typing.h>

#include "bindings/bindings.hpp"
#include "bindings/live_fields.hpp"

namespace edgellm::bindings {

namespace {

using Encoder = py::typing::Callable<py::typing::List<py::int_>(LLMGenerationRequest, py::int_)>;
using EncoderOrNone = py::typing::Optional<Encoder>;

template <class Class, class Value>
void def_value(Class& bound, const char* name, Value RuntimeOptions::* field) {
    bound.def_property(
        name, [field](const BoundRuntimeOptions& self) { return self.values.*field; },
        [field](BoundRuntimeOptions& self, Value value) { self.values.*field = std::move(value); });
}

}  // namespace

void bind_runtime_options(py::module_& module) {
    py::class_<ContextCacheConfig> cache(module, "ContextCacheConfig", "Whether and how much of past prompts is kept.");
    cache.def(py::init<>())
        .def_readwrite("enabled", &ContextCacheConfig::enabled)
        .def_readwrite("recurrent_snapshot_pool_bytes", &ContextCacheConfig::recurrent_snapshot_pool_bytes)
        .def_readwrite("partial_kv_snapshot_pool_bytes", &ContextCacheConfig::partial_kv_snapshot_pool_bytes);
    def_int32(cache, "max_records", &ContextCacheConfig::max_records);

    py::class_<BoundRuntimeOptions> options(module, "RuntimeOptions",
                                            "Extension: how the runtime uses the machine, and what encodes prompts.",
                                            collected_by_python<BoundRuntimeOptions>());
    options.def(py::init<>());
    def_value(options, "executor", &RuntimeOptions::executor);
    def_value(options, "threads", &RuntimeOptions::threads);
    def_value(options, "max_batch_size", &RuntimeOptions::max_batch_size);
    def_value(options, "max_input_tokens", &RuntimeOptions::max_input_tokens);
    def_value(options, "max_kv_tokens", &RuntimeOptions::max_kv_tokens);
    def_value(options, "context_cache_tokens", &RuntimeOptions::context_cache_tokens);
    def_value(options, "kv_page_tokens", &RuntimeOptions::kv_page_tokens);
    def_value(options, "prefill_chunk_tokens", &RuntimeOptions::prefill_chunk_tokens);
    def_value(options, "kv_type", &RuntimeOptions::kv_type);
    def_value(options, "portable_attention", &RuntimeOptions::portable_attention);
    def_value(options, "guidance_library", &RuntimeOptions::guidance_library);
    options.def_property(
        "prompt_encoder", [](const BoundRuntimeOptions& self) -> EncoderOrNone { return self.prompt_encoder.get(); },
        [](BoundRuntimeOptions& self, const EncoderOrNone& encoder) {
            if (!encoder.is_none() && PyCallable_Check(encoder.ptr()) == 0) {
                throw py::type_error("prompt_encoder must be callable(request, index) -> list[int], or None");
            }
            self.prompt_encoder = PythonReference(encoder);
        });
    options.def_property(
        "image_processor", [](const BoundRuntimeOptions& self) -> py::object { return self.image_processor.get(); },
        [](BoundRuntimeOptions& self, const py::object& processor) {
            for (const char* method : {"expand", "digest", "tiles"}) {
                if (!processor.is_none() && !py::hasattr(processor, method)) {
                    throw py::type_error("image_processor must have the methods expand, digest and tiles, or be None");
                }
            }
            self.image_processor = PythonReference(processor);
        });
}

}  // namespace edgellm::bindings
