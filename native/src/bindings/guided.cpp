// Guides, and the check that refuses one early.
#include <string>
#include <utility>

#include "bindings/bindings.hpp"
#include "contract/guide_validation.hpp"
#include "contract/types.hpp"

namespace edgellm::bindings {

void bind_guided(py::module_& module) {
    py::class_<GuidedDecodingParams>(module, "GuidedDecodingParams", "What constrains one sequence.")
        .def(py::init<>())
        .def(py::init([](GuideType type, std::string guide) { return GuidedDecodingParams{type, std::move(guide)}; }),
             py::arg("type"), py::arg("guide") = "")
        .def_readwrite("type", &GuidedDecodingParams::type)
        .def_readwrite("guide", &GuidedDecodingParams::guide);

    module.def(
        "validate_guided_decoding_params",
        [](const GuidedDecodingParams& params) {
            std::string reason = refused_guide_reason(params);
            return std::make_pair(reason.empty(), std::move(reason));
        },
        py::arg("params"), "Whether a guide may be submitted, and why not.");
}

}  // namespace edgellm::bindings
