// The profiling switch of the contract. Counters of this runtime are always on, so the switch only remembers itself.
#include <atomic>

#include "bindings/bindings.hpp"

namespace edgellm::bindings {

namespace {

std::atomic<bool> profiling_enabled{false};

}  // namespace

void bind_profiling(py::module_& module) {
    module.def("set_profiling_enabled", [](bool enabled) { profiling_enabled = enabled; }, py::arg("enabled"));
    module.def("get_profiling_enabled", [] { return profiling_enabled.load(); });
}

}  // namespace edgellm::bindings
