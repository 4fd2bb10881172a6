// Runs work on a thread of its own with a deep stack: grammar compilers recurse as deeply as their input nests,
// and an overflow would end the process.
#pragma once

#include <functional>

namespace edgellm {

// Returns when the work has; throws what it threw. Memory is used only as far as the work recursed.
void run_on_deep_stack(const std::function<void()>& work);

}  // namespace edgellm
