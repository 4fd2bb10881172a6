#include "executor/cpu/anonymous_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "contract/errors.hpp"

namespace edgellm {

AnonymousMemory::AnonymousMemory(std::size_t size_bytes, const char* purpose) : size_bytes_(size_bytes) {
    if (size_bytes == 0) return;
    void* const address =
        ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
        throw ExecutorError("no memory for " + std::string(purpose) + " (" + std::to_string(size_bytes >> 20) +
                            " MiB); use fewer sequences, a shorter context or fewer rows a step");
    }
    // Advice only: fewer address translations for what is read in full at every step.
    (void)::madvise(address, size_bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(address);
}

AnonymousMemory::~AnonymousMemory() {
    if (data_ != nullptr) ::munmap(data_, size_bytes_);
}

void AnonymousMemory::give_back(std::size_t offset_bytes, std::size_t size_bytes) noexcept {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t first = (offset_bytes + page - 1) / page * page;
    const std::size_t last = (offset_bytes + size_bytes) / page * page;
    if (first < last) ::madvise(data_ + first, last - first, MADV_DONTNEED);
}

}  // namespace edgellm
