// GgufFile: a memory-mapped GGUF file, version 2 or 3, whose every offset, length and count was checked.
// Opening never trusts the file: any inconsistency is a ModelFileError that names file and key or tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace edgellm {

// Numeric values are those of the GGUF format.
enum class TensorType : uint32_t {
    kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8,
    kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kQ8_K = 15, kBF16 = 30,
};

struct TensorView {
    std::string name;
    TensorType type = TensorType::kF32;
    std::vector<int64_t> shape;           // innermost (contiguous) dimension first, as in the file
    std::span<const std::byte> data;      // inside the mapping, exactly the tensor's bytes
};

using GgufScalar = std::variant<bool, int64_t, uint64_t, double, std::string_view>;
using GgufArray = std::variant<std::vector<bool>, std::vector<int64_t>, std::vector<double>, std::vector<std::string_view>>;
using GgufValue = std::variant<GgufScalar, GgufArray>;

class GgufFile {
public:
    static std::shared_ptr<const GgufFile> open(const std::filesystem::path& path);
    virtual ~GgufFile() = default;

    virtual const std::filesystem::path& path() const noexcept = 0;
    virtual const GgufValue* find(std::string_view key) const noexcept = 0;
    virtual const TensorView* tensor(std::string_view name) const noexcept = 0;
    virtual std::span<const TensorView> tensors() const noexcept = 0;
    virtual std::span<const std::byte> mapping() const noexcept = 0;

    // Typed access; a missing or ill-typed required key is a ModelFileError.
    std::string_view require_string(std::string_view key) const;
    int64_t require_int(std::string_view key, int64_t lowest, int64_t highest) const;
    double require_float(std::string_view key) const;
    std::optional<int64_t> optional_int(std::string_view key, int64_t lowest, int64_t highest) const;
    std::optional<double> optional_float(std::string_view key) const;
    std::optional<bool> optional_bool(std::string_view key) const;
    std::optional<std::string_view> optional_string(std::string_view key) const;
};

}  // namespace edgellm
