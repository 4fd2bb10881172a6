// GraphExecutor: steps as graphs of the tensor library's own operators, on any device it offers.
// Results agree with other executors within rounding; a row's rounding may depend on the shape of the step.
#pragma once

#include <memory>
#include <string>

#include "executor/executor.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

std::unique_ptr<Executor> make_graph_executor(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                              const ExecutorOptions& options, std::string reason);

}  // namespace edgellm
