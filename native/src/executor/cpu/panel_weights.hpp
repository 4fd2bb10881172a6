// PanelWeights: the matrices that kernels read as panels. They are derived from the model file once and kept beside it
// as a file that is mapped, so that neither loading nor memory doubles; without a folder for it, in memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <vector>

#include "executor/cpu/anonymous_memory.hpp"
#include "model/gguf_file.hpp"
#include "model/mapped_file.hpp"

namespace edgellm {

class PanelWeights {
public:
    // tensors of the file, each of a type that has panels. folder: where the file of panels is or may be made; "" for
    // none. A file that does not belong to this model file, or that cannot be written, costs the packing anew, no more.
    // Throws ExecutorError where there is no memory.
    PanelWeights(const GgufFile& file, const std::vector<const TensorView*>& tensors,
                 const std::filesystem::path& folder);

    bool empty() const noexcept { return panels_.empty(); }
    bool is_mapped() const noexcept { return file_ != nullptr; }

    // nullptr for a tensor that was not named.
    const std::byte* find(const TensorView& tensor) const noexcept;

private:
    std::map<const TensorView*, const std::byte*> panels_;
    std::unique_ptr<const MappedFile> file_;
    std::unique_ptr<AnonymousMemory> memory_;
};

}  // namespace edgellm
