// edgellm._native: the runtime contract of NVIDIA's _edgellm_runtime over this runtime.
// Names, defaults and behaviours are compared with NVIDIA's published module in tests/contract; what is added
// here is listed there, file by file. The ONNX engine builders are not provided.
#include <pybind11/pybind11.h>

#include "bindings/bindings.hpp"

PYBIND11_MODULE(_native, module) {
    using namespace edgellm::bindings;
    module.doc() = "The native runtime of edgellm, behind NVIDIA's runtime contract.";
    // The tensor library this module was built against; the loader compares it with the one it preloads.
    module.attr("ggml_version") = EDGELLM_GGML_VERSION;
    bind_errors(module);
    bind_enums(module);
    bind_messages(module);
    bind_media(module);
    bind_guided(module);
    bind_stream_channel(module);
    bind_requests(module);
    bind_metrics(module);
    bind_runtime_options(module);
    bind_speech(module);
    bind_llm_runtime(module);
    bind_request_engine(module);
    bind_profiling(module);
}
