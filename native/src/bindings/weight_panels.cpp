#include "bindings/bindings.hpp"
#include "engine/engine_panels.hpp"

namespace edgellm::bindings {

void bind_weight_panels(py::module_& module) {
    py::class_<PanelKind>(module, "PanelKind", "Extension: which CPUs and versions weight panels are for.")
        .def_readonly("kernel_set", &PanelKind::kernel_set)
        .def_readonly("layout_version", &PanelKind::layout_version);
    module.def("panel_kind", &panel_kind, "Extension: the kind of weight panels that this CPU's kernels read.");
    module.def("write_engine_panels", &write_engine_panels, py::arg("engine_dir"), py::arg("to"),
               py::call_guard<py::gil_scoped_release>(),
               "Extension: writes an engine's weight panels for this CPU to a new file; False when it reads none.");
}

}  // namespace edgellm::bindings
