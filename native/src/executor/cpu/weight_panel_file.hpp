// Weight panels of a model: mapped from a file that was made of the same model earlier, or packed in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/cpu/anonymous_memory.hpp"
#include "model/gguf_file.hpp"
#include "model/mapped_file.hpp"

namespace edgellm {

class WeightPanels {
public:
    // Of tensors of two dimensions whose types have a panel layout. `stored` may be empty. A stored file that is not
    // there, or is not of these tensors and this layout, is left alone: the panels are then packed in memory.
    WeightPanels(std::span<const TensorView* const> tensors, const std::filesystem::path& stored);

    const std::byte* find(const TensorView& tensor) const noexcept;  // nullptr: not among the tensors
    bool mapped() const noexcept { return file_ != nullptr; }
    const std::string& origin() const noexcept { return origin_; }  // where they are from and why, for people

private:
    struct Place {
        const TensorView* tensor;
        std::size_t offset_bytes;
    };

    std::vector<Place> places_;
    std::unique_ptr<const MappedFile> file_;
    std::unique_ptr<AnonymousMemory> memory_;
    const std::byte* data_ = nullptr;
    std::string origin_;
};

// Writes what WeightPanels maps, to a file that must not exist. Throws ModelFileError.
void write_weight_panels(std::span<const TensorView* const> tensors, const std::filesystem::path& to);

}  // namespace edgellm
