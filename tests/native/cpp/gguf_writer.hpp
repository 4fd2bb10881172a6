// Writes small GGUF files for tests, sound ones and, by editing their bytes, damaged ones.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "model/gguf_file.hpp"

namespace gguf_test {

class Bytes {
public:
    template <typename T>
    Bytes& put(T value) {
        const auto* from = reinterpret_cast<const char*>(&value);
        text.append(from, sizeof value);
        return *this;
    }
    Bytes& put_text(const std::string& value) {
        put<uint64_t>(value.size());
        text += value;
        return *this;
    }

    std::string text;
};

class GgufWriter {
public:
    static constexpr uint32_t kUint32 = 4, kInt32 = 5, kFloat32 = 6, kBool = 7, kString = 8, kArray = 9, kUint64 = 10;

    uint32_t version = 3;
    uint64_t alignment = 32;

    GgufWriter& raw(const std::string& key, uint32_t type, const std::string& value) {
        values_.push_back({key, Bytes().put(type).text + value});
        return *this;
    }
    GgufWriter& u32(const std::string& key, uint32_t value) { return raw(key, kUint32, Bytes().put(value).text); }
    GgufWriter& i32(const std::string& key, int32_t value) { return raw(key, kInt32, Bytes().put(value).text); }
    GgufWriter& u64(const std::string& key, uint64_t value) { return raw(key, kUint64, Bytes().put(value).text); }
    GgufWriter& f32(const std::string& key, float value) { return raw(key, kFloat32, Bytes().put(value).text); }
    GgufWriter& boolean(const std::string& key, bool value) {
        return raw(key, kBool, Bytes().put<uint8_t>(value ? 1 : 0).text);
    }
    GgufWriter& string(const std::string& key, const std::string& value) {
        return raw(key, kString, Bytes().put_text(value).text);
    }
    GgufWriter& strings(const std::string& key, const std::vector<std::string>& values) {
        Bytes bytes;
        bytes.put(kString).put<uint64_t>(values.size());
        for (const auto& value : values) bytes.put_text(value);
        return raw(key, kArray, bytes.text);
    }
    GgufWriter& integers(const std::string& key, const std::vector<int32_t>& values) {
        Bytes bytes;
        bytes.put(kInt32).put<uint64_t>(values.size());
        for (const auto value : values) bytes.put(value);
        return raw(key, kArray, bytes.text);
    }
    GgufWriter& remove(const std::string& key) {
        std::erase_if(values_, [&](const auto& one) { return one.first == key; });
        return *this;
    }

    GgufWriter& tensor(const std::string& name, edgellm::TensorType type, const std::vector<uint64_t>& shape,
                       const std::string& data) {
        tensors_.push_back({name, static_cast<uint32_t>(type), shape, data, 0, false});
        return *this;
    }
    GgufWriter& floats(const std::string& name, const std::vector<uint64_t>& shape, const std::vector<float>& values) {
        return tensor(name, edgellm::TensorType::kF32, shape,
                      std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)));
    }
    GgufWriter& remove_tensor(const std::string& name) {
        std::erase_if(tensors_, [&](const auto& one) { return one.name == name; });
        return *this;
    }
    // Where the file says that the last added tensor starts, whatever is true.
    GgufWriter& claim_offset(uint64_t offset) {
        tensors_.back().claimed_offset = offset;
        tensors_.back().has_claim = true;
        return *this;
    }

    std::string bytes() const {
        Bytes out;
        out.text = "GGUF";
        out.put(version).put<uint64_t>(tensors_.size()).put<uint64_t>(values_.size());
        for (const auto& [key, value] : values_) {
            out.put_text(key);
            out.text += value;
        }
        uint64_t offset = 0;
        for (const Tensor& one : tensors_) {
            out.put_text(one.name).put<uint32_t>(static_cast<uint32_t>(one.shape.size()));
            for (const uint64_t extent : one.shape) out.put(extent);
            out.put(one.type).put<uint64_t>(one.has_claim ? one.claimed_offset : offset);
            offset = padded(offset + one.data.size());
        }
        for (const Tensor& one : tensors_) {
            out.text.resize(padded(out.text.size()));
            out.text += one.data;
        }
        if (tensors_.empty()) return out.text;
        out.text.resize(padded(out.text.size()));
        return out.text;
    }

private:
    struct Tensor {
        std::string name;
        uint32_t type;
        std::vector<uint64_t> shape;
        std::string data;
        uint64_t claimed_offset;
        bool has_claim;
    };

    uint64_t padded(uint64_t size) const { return (size + alignment - 1) / alignment * alignment; }

    std::vector<std::pair<std::string, std::string>> values_;
    std::vector<Tensor> tensors_;
};

// A file that is gone when the test is over.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string& content) {
        std::string name = (std::filesystem::temp_directory_path() / "edgellm-test-XXXXXX").string();
        const int descriptor = ::mkstemp(name.data());
        if (descriptor < 0) throw std::runtime_error("no temporary file");
        ::close(descriptor);
        path_ = name;
        rewrite(content);
    }
    ~TemporaryFile() { std::filesystem::remove(path_); }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;

    // A new file each time: cutting an old one short makes some file systems write it out at once.
    void rewrite(const std::string& content) const {
        std::filesystem::remove(path_);
        std::ofstream file(path_, std::ios::binary | std::ios::trunc);
        file.write(content.data(), static_cast<std::streamsize>(content.size()));
    }
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

}  // namespace gguf_test
