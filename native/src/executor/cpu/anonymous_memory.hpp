// AnonymousMemory: zeroed memory that costs nothing until it is touched, and can be given back in parts.
#pragma once

#include <cstddef>
#include <cstdint>

namespace edgellm {

class AnonymousMemory {
public:
    // Throws ExecutorError naming what it was for.
    AnonymousMemory(std::size_t size_bytes, const char* purpose);
    ~AnonymousMemory();
    AnonymousMemory(const AnonymousMemory&) = delete;
    AnonymousMemory& operator=(const AnonymousMemory&) = delete;

    std::byte* data() const noexcept { return data_; }
    std::size_t size_bytes() const noexcept { return size_bytes_; }

    // Returns the whole system pages inside the range; they read as zeros afterwards.
    void give_back(std::size_t offset_bytes, std::size_t size_bytes) noexcept;

private:
    std::byte* data_ = nullptr;
    std::size_t size_bytes_ = 0;
};

}  // namespace edgellm
