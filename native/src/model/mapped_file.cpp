#include "model/mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <system_error>

#include "contract/errors.hpp"

namespace edgellm {
namespace {

class Descriptor {
public:
    explicit Descriptor(int value) : value_(value) {}
    ~Descriptor() {
        if (value_ >= 0) ::close(value_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const noexcept { return value_; }

private:
    int value_;
};

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& what) {
    throw ModelFileError("model file '" + path.string() + "' " + what);
}

std::uintptr_t page_bytes() noexcept { return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)); }

std::string reason(int error_number) { return std::generic_category().message(error_number); }

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
    // O_NONBLOCK: opening a FIFO by mistake must not hang.
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0) {
        const int error = errno;
        if (error == ENOENT || error == ENOTDIR) refuse(path, "does not exist; check the path");
        refuse(path, "cannot be opened: " + reason(error));
    }
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) refuse(path, "cannot be examined: " + reason(errno));
    if (S_ISDIR(status.st_mode)) refuse(path, "is a directory; name the .gguf file inside it");
    if (!S_ISREG(status.st_mode)) refuse(path, "is not a regular file; name a .gguf file");
    if (status.st_size <= 0) refuse(path, "is empty; download or convert the model again");

    const auto size = static_cast<std::size_t>(status.st_size);
    void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (address == MAP_FAILED) refuse(path, "cannot be mapped into memory: " + reason(errno));
    bytes_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
    if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void load_pages(std::span<const std::byte> part) noexcept {
    const std::uintptr_t page = page_bytes();
    const auto start = reinterpret_cast<std::uintptr_t>(part.data());
    const std::uintptr_t first = start / page * page;
    const std::size_t size = start + part.size() - first;
#if defined(MADV_POPULATE_READ)
    if (::madvise(reinterpret_cast<void*>(first), size, MADV_POPULATE_READ) == 0) return;
#endif
    ::madvise(reinterpret_cast<void*>(first), size, MADV_WILLNEED);
}

void prefer_large_pages(std::span<const std::byte> mapping) noexcept {
    (void)::madvise(const_cast<std::byte*>(mapping.data()), mapping.size(), MADV_HUGEPAGE);
}

void drop_pages(std::span<const std::byte> part) noexcept {
    const std::uintptr_t page = page_bytes();
    const auto start = reinterpret_cast<std::uintptr_t>(part.data());
    const std::uintptr_t first = (start + page - 1) / page * page;
    const std::uintptr_t last = (start + part.size()) / page * page;
    if (first < last) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace edgellm
