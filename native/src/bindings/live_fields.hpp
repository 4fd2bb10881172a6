// Live fields: how Python sees the parts of a value type.
// A list getter gives a new list whose elements are references into the owner: appending to the list is lost,
// setting a field of an element sticks. Assigning a whole field never leaves such a reference dangling: parts that
// Python still refers to are moved aside, unchanged, and live as long as the references do.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace edgellm::bindings {

namespace py = pybind11;

namespace detail {

template <class T>
py::handle wrapper_of(const T& object) {
    return py::detail::get_object_handle(&object, py::detail::get_type_info(typeid(T)));
}

// Ties the life of an object to a Python wrapper that points into it.
template <class T>
void keep_for(py::handle wrapper, std::shared_ptr<T> object) {
    auto holder = std::make_unique<std::shared_ptr<T>>(std::move(object));
    py::capsule owner(holder.get(), [](void* pointer) { delete static_cast<std::shared_ptr<T>*>(pointer); });
    holder.release();
    py::detail::keep_alive_impl(wrapper, owner);
}

template <class T>
void set_aside(std::vector<T>& elements) {
    std::vector<py::handle> wrappers;
    for (const T& element : elements) {
        if (const py::handle wrapper = wrapper_of(element)) {
            wrappers.push_back(wrapper);
        }
    }
    if (wrappers.empty()) {
        return;
    }
    // Moving a vector keeps its elements where they are, so the wrappers stay right.
    const auto kept = std::make_shared<std::vector<T>>(std::move(elements));
    for (const py::handle wrapper : wrappers) {
        keep_for(wrapper, kept);
    }
}

template <class T>
void set_aside(std::optional<T>& slot) {
    const py::handle wrapper = slot ? wrapper_of(*slot) : py::handle();
    if (!wrapper) {
        return;
    }
    // The value leaves its slot, so its wrapper has to follow it.
    const auto* type = py::detail::get_type_info(typeid(T));
    auto* instance = reinterpret_cast<py::detail::instance*>(wrapper.ptr());
    py::detail::value_and_holder held = instance->get_value_and_holder(type);
    const auto kept = std::make_shared<T>(std::move(*slot));
    py::detail::deregister_instance(instance, held.value_ptr(), type);
    held.value_ptr() = kept.get();
    py::detail::register_instance(instance, kept.get(), type);
    keep_for(wrapper, kept);
}

}  // namespace detail

template <class Class, class Owner, class Element>
void def_live_list(Class& bound, const char* name, std::vector<Element> Owner::* field) {
    bound.def_property(
        name, [field](Owner& self) -> std::vector<Element>& { return self.*field; },
        [field](Owner& self, std::vector<Element> elements) {
            detail::set_aside(self.*field);
            self.*field = std::move(elements);
        });
}

template <class Class, class Owner, class Value>
void def_live_optional(Class& bound, const char* name, std::optional<Value> Owner::* field) {
    bound.def_property(
        name, [field](Owner& self) -> std::optional<Value>& { return self.*field; },
        [field](Owner& self, std::optional<Value> value) {
            if (!value) {
                detail::set_aside(self.*field);
            }
            self.*field = std::move(value);
        });
}

// A field that is wider in C++ than the contract allows: larger numbers are a TypeError as there.
template <class Class, class Owner>
void def_int32(Class& bound, const char* name, int64_t Owner::* field) {
    bound.def_property(
        name, [field](const Owner& self) { return self.*field; },
        [field](Owner& self, int32_t value) { self.*field = value; });
}

}  // namespace edgellm::bindings
