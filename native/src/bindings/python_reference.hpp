// PythonReference: a Python object owned by a bound C++ object, visible to Python's cycle collector.
// A callable held by an engine often refers back to the engine; without this, such a ring would never be freed.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <utility>

namespace edgellm::bindings {

namespace py = pybind11;

class PythonReference {
public:
    PythonReference() = default;
    explicit PythonReference(py::object object) : object_(std::move(object)) {}

    py::object get() const { return object_ ? object_ : py::none(); }
    bool is_callable() const { return object_ && PyCallable_Check(object_.ptr()) == 1; }
    int traverse(visitproc visit, void* arg) const {
        Py_VISIT(object_.ptr());
        return 0;
    }
    void clear() { object_ = py::object(); }

private:
    py::object object_;
};

// What the bound objects of this module refer to.
using PythonReferences = std::array<PythonReference*, 2>;

// For py::class_<Bound>: Bound has a member function `PythonReferences python_references()`.
template <class Bound>
py::custom_type_setup collected_by_python() {
    return py::custom_type_setup([](PyHeapTypeObject* heap_type) {
        PyTypeObject* type = &heap_type->ht_type;
        type->tp_flags |= Py_TPFLAGS_HAVE_GC;
        type->tp_traverse = [](PyObject* self, visitproc visit, void* arg) {
            Py_VISIT(Py_TYPE(self));
            if (!py::detail::is_holder_constructed(self)) {
                return 0;
            }
            for (const PythonReference* reference : py::cast<Bound&>(py::handle(self)).python_references()) {
                if (const int result = reference->traverse(visit, arg)) return result;
            }
            return 0;
        };
        type->tp_clear = [](PyObject* self) {
            if (py::detail::is_holder_constructed(self)) {
                for (PythonReference* one : py::cast<Bound&>(py::handle(self)).python_references()) one->clear();
            }
            return 0;
        };
    });
}

}  // namespace edgellm::bindings
