// The exception tree in Python. SubmitError stands apart, directly under Exception, as the contract has it.
#include "contract/errors.hpp"

#include "bindings/bindings.hpp"

namespace edgellm::bindings {

void bind_errors(py::module_& module) {
    // Translators run last-registered first, so the base comes first.
    const auto& error = py::register_exception<Error>(module, "Error", PyExc_RuntimeError);
    py::register_exception<ModelFileError>(module, "ModelFileError", error);
    py::register_exception<InvalidRequest>(module, "InvalidRequest", error);
    py::register_exception<ExecutorError>(module, "ExecutorError", error);
    py::register_exception<SubmitRefused>(module, "SubmitError", PyExc_Exception);
}

}  // namespace edgellm::bindings
