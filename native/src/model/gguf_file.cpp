#include "model/gguf_file.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <unordered_map>
#include <utility>

#include "contract/errors.hpp"
#include "model/mapped_file.hpp"
#include "model/printable.hpp"
#include "model/tensor_types.hpp"

namespace edgellm {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little-endian");

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kOldestVersion = 2;
constexpr uint32_t kNewestVersion = 3;
constexpr uint64_t kMaxKeyBytes = 65535;
constexpr uint64_t kMaxTensorNameBytes = 64;
constexpr uint64_t kMaxStringBytes = uint64_t{64} << 20;
constexpr uint32_t kMaxDimensions = 4;
constexpr uint64_t kDefaultAlignment_bytes = 32;
constexpr uint64_t kLeastAlignment_bytes = 8;
constexpr uint64_t kMostAlignment_bytes = uint64_t{1} << 20;
constexpr std::string_view kAlignmentKey = "general.alignment";
constexpr const char* kRemedy = "; the file is damaged or incomplete: download or convert it again";

// Least bytes an entry can take; they bound the declared counts before anything is allocated.
constexpr uint64_t kLeastKeyValue_bytes = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensorInfo_bytes = 8 + 1 + 4 + 8 + 4 + 8;

enum class ValueType : uint32_t {
    kUint8 = 0,
    kInt8,
    kUint16,
    kInt16,
    kUint32,
    kInt32,
    kFloat32,
    kBool,
    kString,
    kArray,
    kUint64,
    kInt64,
    kFloat64,
};

uint64_t least_value_bytes(ValueType type) {
    switch (type) {
        case ValueType::kUint8:
        case ValueType::kInt8:
        case ValueType::kBool: return 1;
        case ValueType::kUint16:
        case ValueType::kInt16: return 2;
        case ValueType::kUint32:
        case ValueType::kInt32:
        case ValueType::kFloat32: return 4;
        default: return 8;  // 64-bit numbers, and the length of a string
    }
}

class Cursor {
public:
    Cursor(std::span<const std::byte> bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

    void set_place(std::string place) { place_ = std::move(place); }
    uint64_t offset() const noexcept { return at_; }
    uint64_t remaining() const noexcept { return bytes_.size() - at_; }

    [[noreturn]] void refuse(const std::string& what, const char* remedy = kRemedy) const {
        throw ModelFileError("model file '" + path_.string() + "': " + place_ + " " + what + remedy);
    }

    template <typename T>
    T number() {
        static_assert(std::is_trivially_copyable_v<T>);
        if (remaining() < sizeof(T)) refuse("is cut off at byte " + std::to_string(bytes_.size()));
        T value;
        std::memcpy(&value, bytes_.data() + at_, sizeof(T));
        at_ += sizeof(T);
        return value;
    }

    std::string_view string(uint64_t max_bytes) {
        const auto length = number<uint64_t>();
        if (length > remaining())
            refuse("has a text of " + std::to_string(length) + " bytes that passes the end of the file");
        if (length > max_bytes)
            refuse("has a text of " + std::to_string(length) + " bytes, more than " + std::to_string(max_bytes));
        const auto* text = reinterpret_cast<const char*>(bytes_.data() + at_);
        at_ += length;
        return {text, static_cast<std::size_t>(length)};
    }

    bool boolean() {
        const auto value = number<uint8_t>();
        if (value > 1) refuse("has the boolean value " + std::to_string(value) + ", not 0 or 1");
        return value == 1;
    }

private:
    std::span<const std::byte> bytes_;
    const std::filesystem::path& path_;
    std::string place_ = "the header";
    uint64_t at_ = 0;
};

GgufScalar read_scalar(Cursor& cursor, ValueType type) {
    switch (type) {
        case ValueType::kUint8: return uint64_t{cursor.number<uint8_t>()};
        case ValueType::kInt8: return int64_t{cursor.number<int8_t>()};
        case ValueType::kUint16: return uint64_t{cursor.number<uint16_t>()};
        case ValueType::kInt16: return int64_t{cursor.number<int16_t>()};
        case ValueType::kUint32: return uint64_t{cursor.number<uint32_t>()};
        case ValueType::kInt32: return int64_t{cursor.number<int32_t>()};
        case ValueType::kFloat32: return double{cursor.number<float>()};
        case ValueType::kBool: return cursor.boolean();
        case ValueType::kString: return cursor.string(kMaxStringBytes);
        case ValueType::kUint64: return cursor.number<uint64_t>();
        case ValueType::kInt64: return cursor.number<int64_t>();
        case ValueType::kFloat64: return cursor.number<double>();
        case ValueType::kArray: break;
    }
    cursor.refuse("has value type " + std::to_string(static_cast<uint32_t>(type)) + ", which GGUF does not define");
}

int64_t array_integer(Cursor& cursor, ValueType type) {
    const GgufScalar value = read_scalar(cursor, type);
    if (const auto* number = std::get_if<int64_t>(&value)) return *number;
    const uint64_t number = std::get<uint64_t>(value);
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
        cursor.refuse("has an array value above 2^63");
    return static_cast<int64_t>(number);
}

GgufArray read_array(Cursor& cursor) {
    const auto type = static_cast<ValueType>(cursor.number<uint32_t>());
    const auto count = cursor.number<uint64_t>();
    if (type == ValueType::kArray) cursor.refuse("is an array of arrays, which is not supported", "");
    if (type > ValueType::kFloat64)
        cursor.refuse("has array type " + std::to_string(static_cast<uint32_t>(type)) + ", which GGUF does not define");
    if (count > cursor.remaining() / least_value_bytes(type))
        cursor.refuse("is an array of " + std::to_string(count) + " values that passes the end of the file");
    const auto size = static_cast<std::size_t>(count);

    const auto fill = [&]<typename T>(std::vector<T> values, auto read_one) -> GgufArray {
        values.reserve(size);
        for (std::size_t i = 0; i < size; ++i) values.push_back(read_one());
        return values;
    };
    switch (type) {
        case ValueType::kString:
            return fill(std::vector<std::string_view>{}, [&] { return cursor.string(kMaxStringBytes); });
        case ValueType::kBool: return fill(std::vector<bool>{}, [&] { return cursor.boolean(); });
        case ValueType::kFloat32:
        case ValueType::kFloat64:
            return fill(std::vector<double>{}, [&] { return std::get<double>(read_scalar(cursor, type)); });
        default: return fill(std::vector<int64_t>{}, [&] { return array_integer(cursor, type); });
    }
}

struct TensorPlace {
    uint64_t offset_bytes;  // from the start of the tensor data
    uint64_t size_bytes;
};

class MappedGguf final : public GgufFile {
public:
    explicit MappedGguf(const std::filesystem::path& path) : path_(path), file_(path) { parse(); }

    const std::filesystem::path& path() const noexcept override { return path_; }

    const GgufValue* find(std::string_view key) const noexcept override {
        const auto found = values_.find(key);
        return found == values_.end() ? nullptr : &found->second;
    }

    const TensorView* tensor(std::string_view name) const noexcept override {
        const auto found = tensor_index_.find(name);
        return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
    }

    std::span<const TensorView> tensors() const noexcept override { return tensors_; }
    std::span<const std::byte> mapping() const noexcept override { return file_.bytes(); }

private:
    void parse() {
        Cursor cursor(file_.bytes(), path_);
        const auto [value_count, tensor_count] = read_header(cursor);
        read_values(cursor, value_count);
        const uint64_t alignment = read_alignment(cursor);
        const std::vector<TensorPlace> places = read_tensor_infos(cursor, tensor_count, alignment);
        place_tensors(cursor, places, alignment);
    }

    std::pair<uint64_t, uint64_t> read_header(Cursor& cursor) {
        const auto bytes = file_.bytes();
        if (bytes.size() < kMagic.size() || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
            cursor.refuse("does not start with 'GGUF'", "; this is not a GGUF model file");
        (void)cursor.number<uint32_t>();
        const auto version = cursor.number<uint32_t>();
        if ((version & 0xFFFFU) == 0) cursor.refuse("is big-endian", "; convert the model for little-endian machines");
        if (version < kOldestVersion || version > kNewestVersion) {
            cursor.refuse("has GGUF version " + std::to_string(version) + "; versions 2 and 3 are supported",
                          ": convert the model again with a current tool");
        }
        const auto tensor_count = cursor.number<uint64_t>();
        const auto value_count = cursor.number<uint64_t>();
        if (value_count > cursor.remaining() / kLeastKeyValue_bytes)
            cursor.refuse("declares " + std::to_string(value_count) + " keys, more than the file can hold");
        if (tensor_count > cursor.remaining() / kLeastTensorInfo_bytes)
            cursor.refuse("declares " + std::to_string(tensor_count) + " tensors, more than the file can hold");
        return {value_count, tensor_count};
    }

    void read_values(Cursor& cursor, uint64_t count) {
        for (uint64_t i = 0; i < count; ++i) {
            cursor.set_place("key number " + std::to_string(i + 1));
            const std::string_view key = cursor.string(kMaxKeyBytes);
            if (key.empty()) cursor.refuse("has no name");
            cursor.set_place("key '" + printable(key) + "'");
            const auto type = static_cast<ValueType>(cursor.number<uint32_t>());
            GgufValue value =
                type == ValueType::kArray ? GgufValue(read_array(cursor)) : GgufValue(read_scalar(cursor, type));
            if (!values_.emplace(key, std::move(value)).second) cursor.refuse("appears twice");
        }
    }

    uint64_t read_alignment(Cursor& cursor) const {
        cursor.set_place("key '" + std::string(kAlignmentKey) + "'");
        const GgufValue* value = find(kAlignmentKey);
        if (value == nullptr) return kDefaultAlignment_bytes;
        const auto* scalar = std::get_if<GgufScalar>(value);
        const auto* number = scalar == nullptr ? nullptr : std::get_if<uint64_t>(scalar);
        if (number == nullptr) cursor.refuse("is not an unsigned integer");
        if (!std::has_single_bit(*number) || *number < kLeastAlignment_bytes || *number > kMostAlignment_bytes)
            cursor.refuse("is " + std::to_string(*number) + ", not a power of two from 8 to 1048576");
        return *number;
    }

    std::vector<TensorPlace> read_tensor_infos(Cursor& cursor, uint64_t count, uint64_t alignment) {
        std::vector<TensorPlace> places;
        for (uint64_t i = 0; i < count; ++i) {
            cursor.set_place("tensor number " + std::to_string(i + 1));
            TensorView view;
            view.name = std::string(cursor.string(kMaxTensorNameBytes));
            if (view.name.empty()) cursor.refuse("has no name");
            cursor.set_place("tensor '" + printable(view.name) + "'");

            uint64_t element_count = 1;
            const auto dimension_count = cursor.number<uint32_t>();
            if (dimension_count < 1 || dimension_count > kMaxDimensions)
                cursor.refuse("has " + std::to_string(dimension_count) + " dimensions, not 1 to 4");
            for (uint32_t d = 0; d < dimension_count; ++d) {
                const auto extent = cursor.number<uint64_t>();
                // Elements bounded by 2^48 keep every byte count below 2^51: no later product overflows.
                if (extent == 0 || extent > (uint64_t{1} << 48) / element_count)
                    cursor.refuse("has an impossible dimension of " + std::to_string(extent));
                element_count *= extent;
                view.shape.push_back(static_cast<int64_t>(extent));
            }
            const auto raw_type = cursor.number<uint32_t>();
            const TensorTypeTraits* traits = find_tensor_type(raw_type);
            if (traits == nullptr) {
                cursor.refuse("has type number " + std::to_string(raw_type) + ", which is not supported",
                              ("; quantise the model to one of " + supported_tensor_types()).c_str());
            }
            view.type = traits->type;
            if (view.shape[0] % traits->block_elements != 0) {
                cursor.refuse("has rows of " + std::to_string(view.shape[0]) + " values, not a multiple of the " +
                              std::to_string(traits->block_elements) + " that " + traits->name + " needs");
            }
            const auto offset = cursor.number<uint64_t>();
            if (offset % alignment != 0)
                cursor.refuse("starts at offset " + std::to_string(offset) + ", not a multiple of " +
                              std::to_string(alignment));
            const uint64_t size = element_count / static_cast<uint64_t>(traits->block_elements) *
                                  static_cast<uint64_t>(traits->block_bytes);
            places.push_back({offset, size});
            tensors_.push_back(std::move(view));
        }
        return places;
    }

    void place_tensors(Cursor& cursor, const std::vector<TensorPlace>& places, uint64_t alignment) {
        const auto bytes = file_.bytes();
        const uint64_t data_start = (cursor.offset() + alignment - 1) / alignment * alignment;
        const uint64_t data_bytes = data_start < bytes.size() ? bytes.size() - data_start : 0;
        for (std::size_t i = 0; i < tensors_.size(); ++i) {
            TensorView& view = tensors_[i];
            const TensorPlace& place = places[i];
            cursor.set_place("tensor '" + printable(view.name) + "'");
            if (place.size_bytes > data_bytes || place.offset_bytes > data_bytes - place.size_bytes)
                cursor.refuse("passes the end of the file at byte " + std::to_string(bytes.size()));
            view.data = bytes.subspan(static_cast<std::size_t>(data_start + place.offset_bytes),
                                      static_cast<std::size_t>(place.size_bytes));
            if (!tensor_index_.emplace(view.name, i).second) cursor.refuse("appears twice");
        }
        refuse_overlaps(cursor, places);
    }

    void refuse_overlaps(Cursor& cursor, const std::vector<TensorPlace>& places) const {
        std::vector<std::size_t> order(places.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::sort(order.begin(), order.end(),
                  [&](std::size_t a, std::size_t b) { return places[a].offset_bytes < places[b].offset_bytes; });
        for (std::size_t i = 1; i < order.size(); ++i) {
            const TensorPlace& before = places[order[i - 1]];
            if (before.offset_bytes + before.size_bytes <= places[order[i]].offset_bytes) continue;
            cursor.set_place("tensor '" + printable(tensors_[order[i]].name) + "'");
            cursor.refuse("overlaps tensor '" + printable(tensors_[order[i - 1]].name) + "'");
        }
    }

    std::filesystem::path path_;
    MappedFile file_;
    std::unordered_map<std::string_view, GgufValue> values_;
    std::vector<TensorView> tensors_;
    std::unordered_map<std::string_view, std::size_t> tensor_index_;
};

[[noreturn]] void refuse_key(const GgufFile& file, std::string_view key, const std::string& what) {
    throw ModelFileError("model file '" + file.path().string() + "': key '" + std::string(key) + "' " + what +
                         "; convert the model again with a current tool");
}

const GgufScalar* find_scalar(const GgufFile& file, std::string_view key, const char* expected) {
    const GgufValue* value = file.find(key);
    if (value == nullptr) return nullptr;
    const auto* scalar = std::get_if<GgufScalar>(value);
    if (scalar == nullptr) refuse_key(file, key, std::string("is an array, not ") + expected);
    return scalar;
}

template <typename T>
T present(const GgufFile& file, std::string_view key, const std::optional<T>& value) {
    if (!value) refuse_key(file, key, "is missing");
    return *value;
}

}  // namespace

std::shared_ptr<const GgufFile> GgufFile::open(const std::filesystem::path& path) {
    return std::make_shared<const MappedGguf>(path);
}

std::optional<int64_t> GgufFile::optional_int(std::string_view key, int64_t lowest, int64_t highest) const {
    const GgufScalar* scalar = find_scalar(*this, key, "an integer");
    if (scalar == nullptr) return std::nullopt;
    std::string shown;
    if (const auto* number = std::get_if<int64_t>(scalar)) {
        if (*number >= lowest && *number <= highest) return *number;
        shown = std::to_string(*number);
    } else if (const auto* positive = std::get_if<uint64_t>(scalar)) {
        if (std::cmp_greater_equal(*positive, lowest) && std::cmp_less_equal(*positive, highest))
            return static_cast<int64_t>(*positive);
        shown = std::to_string(*positive);
    } else {
        refuse_key(*this, key, "is not an integer");
    }
    refuse_key(*this, key, "is " + shown + ", not from " + std::to_string(lowest) + " to " + std::to_string(highest));
}

std::optional<double> GgufFile::optional_float(std::string_view key) const {
    const GgufScalar* scalar = find_scalar(*this, key, "a number");
    if (scalar == nullptr) return std::nullopt;
    if (const auto* number = std::get_if<double>(scalar)) {
        if (!std::isfinite(*number)) refuse_key(*this, key, "is not a finite number");
        return *number;
    }
    if (const auto* integer = std::get_if<int64_t>(scalar)) return static_cast<double>(*integer);
    if (const auto* positive = std::get_if<uint64_t>(scalar)) return static_cast<double>(*positive);
    refuse_key(*this, key, "is not a number");
}

std::optional<bool> GgufFile::optional_bool(std::string_view key) const {
    const GgufScalar* scalar = find_scalar(*this, key, "a boolean");
    if (scalar == nullptr) return std::nullopt;
    if (const auto* value = std::get_if<bool>(scalar)) return *value;
    refuse_key(*this, key, "is not a boolean");
}

std::optional<std::string_view> GgufFile::optional_string(std::string_view key) const {
    const GgufScalar* scalar = find_scalar(*this, key, "a text");
    if (scalar == nullptr) return std::nullopt;
    if (const auto* value = std::get_if<std::string_view>(scalar)) return *value;
    refuse_key(*this, key, "is not a text");
}

std::string_view GgufFile::require_string(std::string_view key) const {
    return present(*this, key, optional_string(key));
}

int64_t GgufFile::require_int(std::string_view key, int64_t lowest, int64_t highest) const {
    return present(*this, key, optional_int(key, lowest, highest));
}

double GgufFile::require_float(std::string_view key) const { return present(*this, key, optional_float(key)); }

}  // namespace edgellm
