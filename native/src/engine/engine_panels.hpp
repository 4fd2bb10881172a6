// Weight panels of an engine: what its bundle may carry beside the model for one kind of CPU.
#pragma once

#include <cstdint>
#include <string>

namespace edgellm {

// Panels that were written under one kind serve only CPUs and versions of the same.
struct PanelKind {
    std::string kernel_set;  // "" where no kernel of this CPU reads panels
    int64_t layout_version = 0;
};

PanelKind panel_kind();

// Writes the panels of llm.gguf in engine_dir to a file that must not exist; false, and no file, when the kernels of
// this CPU read none of its weights as panels. Throws ModelFileError.
bool write_engine_panels(const std::string& engine_dir, const std::string& to);

}  // namespace edgellm
