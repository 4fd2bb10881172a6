// Bindings: each function puts one family of classes of the runtime contract into the module.
// Order matters only where a default argument needs a class that was bound before.
#pragma once

#include <pybind11/pybind11.h>

namespace edgellm::bindings {

namespace py = pybind11;

void bind_errors(py::module_& module);
void bind_enums(py::module_& module);
void bind_messages(py::module_& module);
void bind_media(py::module_& module);
void bind_guided(py::module_& module);
void bind_stream_channel(py::module_& module);
void bind_requests(py::module_& module);
void bind_metrics(py::module_& module);
void bind_runtime_options(py::module_& module);
void bind_speech(py::module_& module);
void bind_llm_runtime(py::module_& module);
void bind_request_engine(py::module_& module);
void bind_profiling(py::module_& module);

}  // namespace edgellm::bindings
