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

// Tells the system that all of a mapping is about to be read, so that it may fetch ahead.
void advise_will_need(std::span<const std::byte> mapping) noexcept;

}  // namespace edgellm
