// What other bindings need of decoded media.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include "contract/types.hpp"

namespace edgellm::bindings {

namespace py = pybind11;

// The pixels as a read-only array that keeps them alive. Needs the GIL.
py::array pixel_view(const ImageData& image);

}  // namespace edgellm::bindings
