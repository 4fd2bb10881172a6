// RuntimeOptions as Python sees them: the values of the core, and the prompt encoder as a Python callable.
// The callable stays on this side: the core never holds it, so that no thread of the core ever needs the GIL.
#pragma once

#include "bindings/python_reference.hpp"
#include "engine/runtime_options.hpp"

namespace edgellm::bindings {

struct BoundRuntimeOptions {
    RuntimeOptions values;          // prompt_encoder stays empty
    PythonReference prompt_encoder; // callable(request, index) -> list[int], or None
    PythonReference image_processor;  // see prompt_images.hpp, or None

    PythonReferences python_references() { return {&prompt_encoder, &image_processor}; }
};

}  // namespace edgellm::bindings
