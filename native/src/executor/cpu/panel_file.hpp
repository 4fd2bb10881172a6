// The file of weight panels that are derived from a model file: a header that says what it was made from, then the
// panels of each tensor. It is taken when its header is, byte for byte, what the model file at hand asks for.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "model/gguf_file.hpp"
#include "model/mapped_file.hpp"

namespace edgellm {

inline constexpr std::size_t kPanelFileHeader_bytes = 64;
using PanelFileHeader = std::array<std::byte, kPanelFileHeader_bytes>;

// Where each tensor's panels lie in the order given, and how much they take together.
struct PanelPlaces {
    std::vector<std::size_t> offsets;  // from the first panel
    std::size_t total_bytes = 0;
};

PanelPlaces place_panels(std::span<const TensorView* const> tensors);

// Layout version, the model file's size, and a digest of the tensors' names, types, shapes and places and of samples of
// their data.
PanelFileHeader panel_file_header(const GgufFile& file, std::span<const TensorView* const> tensors);

// The file in the folder; nullptr when there is none with this header and size.
std::unique_ptr<const MappedFile> open_panel_file(const std::filesystem::path& folder, const PanelFileHeader& header,
                                                  std::size_t panel_bytes);

// Makes the file, whole or not at all: fill writes the panels. False where that cannot be: no right to write there, or
// no room beyond what is kept free for others.
bool write_panel_file(const std::filesystem::path& folder, const PanelFileHeader& header, std::size_t panel_bytes,
                      const std::function<void(std::byte*)>& fill);

}  // namespace edgellm
