// CpuExecutor: steps on the CPU with kernels of its own where they exist and the tensor library's dot products for
// every other encoding. A row's result is bit for bit the same whatever the other rows of the step, the number of
// threads, the size of the pages, and the chunks in which its prompt came.
#pragma once

#include <memory>
#include <string>

#include "executor/executor.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

std::unique_ptr<Executor> make_cpu_executor(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                            const ExecutorOptions& options, bool portable_kernels,
                                            std::string reason = "");

}  // namespace edgellm
