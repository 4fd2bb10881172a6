#include "executor/cpu/panel_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "contract/errors.hpp"
#include "executor/kernels/weight_panels.hpp"
#include "model/tensor_types.hpp"

namespace edgellm {
namespace {

constexpr std::string_view kMagic = "EDGEPANL";
constexpr uint64_t kLayoutVersion = 1;  // of weight_panels.hpp and of this file
constexpr const char* kFileName = "llm.panels";
constexpr uint64_t kSpareDisk_bytes = uint64_t{64} << 20;  // kept free: this file only saves time and memory
constexpr std::size_t kSample_bytes = 256;
constexpr std::size_t kSamplesPerTensor = 16;

// FNV-1a of 64 bits. It tells files apart that were exchanged by mistake; it is no protection against forgery.
class Digest {
public:
    void add(std::span<const std::byte> bytes) noexcept {
        for (const std::byte byte : bytes) value_ = (value_ ^ static_cast<uint64_t>(byte)) * 0x100000001B3U;
    }
    void add(uint64_t number) noexcept { add(std::as_bytes(std::span(&number, 1))); }
    uint64_t value() const noexcept { return value_; }

private:
    uint64_t value_ = 0xCBF29CE484222325U;
};

void add_samples(Digest& digest, std::span<const std::byte> data) {
    for (std::size_t i = 0; i < kSamplesPerTensor; ++i) {
        const std::size_t start = data.size() / kSamplesPerTensor * i;
        digest.add(data.subspan(start, std::min(kSample_bytes, data.size() - start)));
    }
    digest.add(data.last(std::min(kSample_bytes, data.size())));
}

class Descriptor {
public:
    explicit Descriptor(int value) noexcept : value_(value) {}
    ~Descriptor() {
        if (value_ >= 0) ::close(value_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const noexcept { return value_; }

private:
    int value_;
};

// A name for a file that is being written; removed unless it became the real one.
class TemporaryName {
public:
    explicit TemporaryName(const std::filesystem::path& folder) : name_((folder / ".panels.XXXXXX").string()) {}
    ~TemporaryName() {
        if (created_) ::unlink(name_.c_str());
    }
    TemporaryName(const TemporaryName&) = delete;
    TemporaryName& operator=(const TemporaryName&) = delete;

    int create() noexcept {
        const int descriptor = ::mkostemp(name_.data(), O_CLOEXEC);
        created_ = descriptor >= 0;
        return descriptor;
    }
    bool rename_to(const std::filesystem::path& target) noexcept {
        if (::rename(name_.c_str(), target.c_str()) != 0) return false;
        created_ = false;
        return true;
    }

private:
    std::string name_;
    bool created_ = false;
};

void sync_folder(const std::filesystem::path& folder) noexcept {
    const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened.get() >= 0) ::fsync(opened.get());
}

}  // namespace

PanelPlaces place_panels(std::span<const TensorView* const> tensors) {
    PanelPlaces places;
    for (const TensorView* tensor : tensors) {
        places.offsets.push_back(places.total_bytes);
        const std::size_t bytes = static_cast<std::size_t>(panel_count(tensor->shape[1])) *
                                  panel_bytes(static_cast<std::size_t>(row_bytes(*tensor)));
        places.total_bytes += (bytes + kPanelAlignment_bytes - 1) / kPanelAlignment_bytes * kPanelAlignment_bytes;
    }
    return places;
}

PanelFileHeader panel_file_header(const GgufFile& file, std::span<const TensorView* const> tensors) {
    Digest digest;
    for (const TensorView* tensor : tensors) {
        digest.add(std::as_bytes(std::span(tensor->name)));
        digest.add(static_cast<uint64_t>(tensor->type));
        for (const int64_t extent : tensor->shape) digest.add(static_cast<uint64_t>(extent));
        digest.add(static_cast<uint64_t>(tensor->data.data() - file.mapping().data()));
        add_samples(digest, tensor->data);
        drop_pages(tensor->data);  // the system brings many pages for each that is read
    }
    const uint64_t numbers[] = {kLayoutVersion, file.mapping().size(), tensors.size(), digest.value()};
    PanelFileHeader header{};
    std::memcpy(header.data(), kMagic.data(), kMagic.size());
    std::memcpy(header.data() + kMagic.size(), numbers, sizeof numbers);
    return header;
}

std::unique_ptr<const MappedFile> open_panel_file(const std::filesystem::path& folder, const PanelFileHeader& header,
                                                  std::size_t panel_bytes) {
    std::unique_ptr<const MappedFile> file;
    try {
        file = std::make_unique<const MappedFile>(folder / kFileName);
    } catch (const ModelFileError&) {
        return nullptr;
    }
    const auto bytes = file->bytes();
    if (bytes.size() != header.size() + panel_bytes) return nullptr;
    return std::equal(header.begin(), header.end(), bytes.begin()) ? std::move(file) : nullptr;
}

bool write_panel_file(const std::filesystem::path& folder, const PanelFileHeader& header, std::size_t panel_bytes,
                      const std::function<void(std::byte*)>& fill) {
    std::error_code failed;
    std::filesystem::create_directories(folder, failed);
    const std::size_t size = header.size() + panel_bytes;
    const std::filesystem::space_info space = std::filesystem::space(folder, failed);
    if (failed || space.available < size + kSpareDisk_bytes) return false;
    TemporaryName temporary(folder);
    const Descriptor file(temporary.create());
    if (file.get() < 0) return false;
    // Its blocks are taken now: a full disk is no reason to die while writing to the mapping.
    if (::posix_fallocate(file.get(), 0, static_cast<off_t>(size)) != 0) return false;
    void* const mapping = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (mapping == MAP_FAILED) return false;
    auto* const bytes = static_cast<std::byte*>(mapping);
    std::copy(header.begin(), header.end(), bytes);
    fill(bytes + header.size());
    ::munmap(mapping, size);
    constexpr mode_t kReadable = 0644;
    if (::fchmod(file.get(), kReadable) != 0 || ::fsync(file.get()) != 0) return false;
    // Written page by page, it lies in the system's cache in small pages; read again, in as large ones as it can.
    (void)::posix_fadvise(file.get(), 0, 0, POSIX_FADV_DONTNEED);
    if (!temporary.rename_to(folder / kFileName)) return false;
    sync_folder(folder);
    return true;
}

}  // namespace edgellm
