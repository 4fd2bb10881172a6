#include "executor/cpu/weight_panel_file.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <optional>

#include "contract/errors.hpp"
#include "executor/kernels/weight_panels.hpp"
#include "model/tensor_types.hpp"

namespace edgellm {
namespace {

constexpr std::size_t kAlignment_bytes = 64;
constexpr char kMagic[8] = {'e', 'd', 'g', 'e', 'p', 'n', 'l', 's'};

// The file is this, then the panels of each tensor at its offset.
struct Header {
    char magic[8];
    uint64_t layout_version;
    uint64_t tensors_hash;  // of names, types and shapes, in order
    uint64_t file_bytes;
    char unused[32];
};
static_assert(sizeof(Header) == kAlignment_bytes);

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment_bytes - 1) / kAlignment_bytes * kAlignment_bytes; }

std::size_t size_of(const TensorView& tensor) {
    return aligned(panels_bytes(static_cast<std::size_t>(row_bytes(tensor)), tensor.shape[1]));
}

// FNV-1a: tells files of different models apart; who could forge it could write the weights.
class Hash {
public:
    void add(const void* data, std::size_t size) noexcept {
        for (std::size_t i = 0; i < size; ++i)
            value_ = (value_ ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001B3ULL;
    }
    uint64_t value() const noexcept { return value_; }

private:
    uint64_t value_ = 0xCBF29CE484222325ULL;
};

Header header_of(std::span<const TensorView* const> tensors) {
    Header header{};
    std::memcpy(header.magic, kMagic, sizeof kMagic);
    header.layout_version = kPanelLayoutVersion;
    header.file_bytes = sizeof(Header);
    Hash hash;
    for (const TensorView* tensor : tensors) {
        hash.add(tensor->name.data(), tensor->name.size() + 1);
        hash.add(&tensor->type, sizeof tensor->type);
        hash.add(tensor->shape.data(), tensor->shape.size() * sizeof(int64_t));
        header.file_bytes += size_of(*tensor);
    }
    header.tensors_hash = hash.value();
    return header;
}

void pack(const TensorView& tensor, std::byte* to) {
    pack_panels(tensor.type, tensor.data.data(), static_cast<std::size_t>(row_bytes(tensor)), tensor.shape[1],
                tensor.shape[0], to);
}

// Why a stored file cannot be used; nothing when it can.
std::optional<std::string> misfit(std::span<const std::byte> bytes, const Header& expected) {
    Header found{};
    if (bytes.size() < sizeof found) return "is too short";
    std::memcpy(&found, bytes.data(), sizeof found);
    if (std::memcmp(found.magic, expected.magic, sizeof found.magic) != 0) return "holds no weight panels";
    if (found.layout_version != expected.layout_version) return "has another layout";
    if (found.tensors_hash != expected.tensors_hash || found.file_bytes != expected.file_bytes)
        return "is of other weights";
    if (bytes.size() != expected.file_bytes) return "is not whole";
    return std::nullopt;
}

}  // namespace

WeightPanels::WeightPanels(std::span<const TensorView* const> tensors, const std::filesystem::path& stored) {
    if (tensors.empty()) {
        origin_ = "rows of the model file";
        return;
    }
    std::size_t offset = sizeof(Header);
    for (const TensorView* tensor : tensors) {
        places_.push_back({tensor, offset});
        offset += size_of(*tensor);
    }
    std::string why = "the engine has none for this CPU";
    if (!stored.empty()) {
        try {
            auto file = std::make_unique<const MappedFile>(stored);
            const std::optional<std::string> problem = misfit(file->bytes(), header_of(tensors));
            if (!problem) {
                load_mapping(file->bytes());
                file_ = std::move(file);
                data_ = file_->bytes().data();
                origin_ = "panels mapped from the engine";
                return;
            }
            why = "'" + stored.string() + "' " + *problem;
        } catch (const ModelFileError& error) {
            why = error.what();
        }
    }
    memory_ = std::make_unique<AnonymousMemory>(offset, "packed weights");
    data_ = memory_->data();
    for (const Place& place : places_) {
        pack(*place.tensor, memory_->data() + place.offset_bytes);
        forget_mapping(place.tensor->data);
    }
    origin_ = "panels packed in memory: " + why;
}

const std::byte* WeightPanels::find(const TensorView& tensor) const noexcept {
    const auto found =
        std::find_if(places_.begin(), places_.end(), [&](const Place& place) { return place.tensor == &tensor; });
    return found == places_.end() ? nullptr : data_ + found->offset_bytes;
}

void write_weight_panels(std::span<const TensorView* const> tensors, const std::filesystem::path& to) {
    const auto fail = [&](const char* what) { throw ModelFileError("weight panels '" + to.string() + "' " + what); };
    if (std::filesystem::exists(std::filesystem::symlink_status(to))) fail("exist already");
    std::ofstream file(to, std::ios::binary | std::ios::trunc);
    if (!file) fail("cannot be created");
    const Header header = header_of(tensors);
    file.write(reinterpret_cast<const char*>(&header), sizeof header);
    for (const TensorView* tensor : tensors) {
        std::vector<std::byte> panels(size_of(*tensor));
        pack(*tensor, panels.data());
        forget_mapping(tensor->data);
        file.write(reinterpret_cast<const char*>(panels.data()), static_cast<std::streamsize>(panels.size()));
    }
    file.close();
    if (!file) fail("cannot be written: is the disk full?");
}

}  // namespace edgellm
