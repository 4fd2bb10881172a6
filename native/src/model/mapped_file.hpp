// MappedFile: a regular file mapped read-only for its whole life; opening fails with a ModelFileError that says why.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace edgellm {

class MappedFile {
public:
    explicit MappedFile(const std::filesystem::path& path);
    ~MappedFile();
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

    std::span<const std::byte> bytes() const noexcept { return bytes_; }

private:
    std::span<const std::byte> bytes_;
};

// Brings part of a mapping into memory at once, where the system can; otherwise asks it to fetch ahead. The first use
// then does not pay for it page by page.
void load_pages(std::span<const std::byte> part) noexcept;

// Asks for large pages in a mapping before it is loaded: fewer address translations for what is read in full at every
// step. Systems whose files cannot have them change nothing.
void prefer_large_pages(std::span<const std::byte> mapping) noexcept;

// Takes part of a mapping out of this process's memory; it comes back when it is read.
void drop_pages(std::span<const std::byte> part) noexcept;

}  // namespace edgellm
