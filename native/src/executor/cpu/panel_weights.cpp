#include "executor/cpu/panel_weights.hpp"

#include <algorithm>

#include "executor/cpu/panel_file.hpp"
#include "executor/kernels/weight_panels.hpp"
#include "model/tensor_types.hpp"

namespace edgellm {
namespace {

std::vector<const TensorView*> without_repetition(const std::vector<const TensorView*>& tensors) {
    std::vector<const TensorView*> once;
    for (const TensorView* tensor : tensors) {
        if (std::find(once.begin(), once.end(), tensor) == once.end()) once.push_back(tensor);
    }
    return once;
}

}  // namespace

PanelWeights::PanelWeights(const GgufFile& file, const std::vector<const TensorView*>& named,
                           const std::filesystem::path& folder) {
    const std::vector<const TensorView*> tensors = without_repetition(named);
    if (tensors.empty()) return;
    const PanelPlaces places = place_panels(tensors);
    const auto pack_all = [&](std::byte* to) {
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            const TensorView& tensor = *tensors[i];
            load_pages(tensor.data);
            pack_panels(tensor.type, tensor.data.data(), static_cast<std::size_t>(row_bytes(tensor)), tensor.shape[1],
                        to + places.offsets[i]);
            drop_pages(tensor.data);  // only an embedding's rows are read again
        }
    };

    if (!folder.empty()) {
        const PanelFileHeader header = panel_file_header(file, tensors);
        file_ = open_panel_file(folder, header, places.total_bytes);
        if (file_ == nullptr && write_panel_file(folder, header, places.total_bytes, pack_all))
            file_ = open_panel_file(folder, header, places.total_bytes);
    }
    const std::byte* panels = nullptr;
    if (file_ != nullptr) {
        prefer_large_pages(file_->bytes());
        load_pages(file_->bytes());
        panels = file_->bytes().data() + kPanelFileHeader_bytes;
    } else {
        memory_ = std::make_unique<AnonymousMemory>(places.total_bytes, "weight panels");
        pack_all(memory_->data());
        panels = memory_->data();
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) panels_.emplace(tensors[i], panels + places.offsets[i]);
}

const std::byte* PanelWeights::find(const TensorView& tensor) const noexcept {
    const auto found = panels_.find(&tensor);
    return found == panels_.end() ? nullptr : found->second;
}

}  // namespace edgellm
