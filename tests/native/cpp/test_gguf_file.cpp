// GgufFile takes every sound file and refuses every unsound one with a text that names file and place.
#include <random>
#include <sys/stat.h>

#include "check.hpp"
#include "contract/errors.hpp"
#include "gguf_writer.hpp"
#include "model/gguf_file.hpp"
#include "model/model_spec.hpp"

using edgellm::GgufFile;
using edgellm::ModelFileError;
using edgellm::TensorType;
using gguf_test::Bytes;
using gguf_test::GgufWriter;
using gguf_test::TemporaryFile;

namespace {

GgufWriter small_file() {
    GgufWriter writer;
    writer.string("general.architecture", "llama").u32("llama.block_count", 2).f32("llama.epsilon", 1e-5F);
    writer.boolean("flag", true).i32("negative", -7).u64("huge", uint64_t{1} << 63);
    writer.strings("words", {"one", "", "three"}).integers("numbers", {1, -2, 3});
    writer.floats("vector", {3}, {1.0F, 2.0F, 3.0F});
    writer.tensor("blocks", TensorType::kQ8_0, {64, 2}, std::string(4 * 34, 'x'));
    return writer;
}

std::shared_ptr<const GgufFile> open_bytes(const std::string& bytes) {
    const TemporaryFile file(bytes);
    return GgufFile::open(file.path());  // the mapping outlives the name
}

void check_refused(const std::string& bytes, const char* text) {
    CHECK_THROWS(open_bytes(bytes), ModelFileError, text);
    CHECK_THROWS(open_bytes(bytes), ModelFileError, "edgellm-test-");
}

// The bytes with the 64-bit number at the first occurrence of a marker, plus an offset, replaced.
std::string with_u64(std::string bytes, const std::string& marker, std::size_t offset, uint64_t value) {
    const auto at = bytes.find(marker);
    std::memcpy(bytes.data() + at + offset, &value, sizeof value);
    return bytes;
}

}  // namespace

TEST(reads_every_kind_of_value) {
    const auto file = open_bytes(small_file().bytes());
    CHECK(file->require_string("general.architecture") == "llama");
    CHECK(file->require_int("llama.block_count", 1, 10) == 2);
    CHECK(file->require_int("negative", -10, 10) == -7);
    CHECK(file->optional_bool("flag") == true);
    CHECK(std::abs(file->require_float("llama.epsilon") - 1e-5) < 1e-9);
    CHECK(!file->optional_int("absent", 0, 1).has_value());
    CHECK(file->find("absent") == nullptr);
    const auto& words = std::get<std::vector<std::string_view>>(std::get<edgellm::GgufArray>(*file->find("words")));
    CHECK(words.size() == 3 && words[0] == "one" && words[1].empty() && words[2] == "three");
    const auto& numbers = std::get<std::vector<int64_t>>(std::get<edgellm::GgufArray>(*file->find("numbers")));
    CHECK((numbers == std::vector<int64_t>{1, -2, 3}));
}

TEST(places_tensors_inside_the_mapping) {
    const auto file = open_bytes(small_file().bytes());
    CHECK(file->tensors().size() == 2);
    const auto* vector = file->tensor("vector");
    CHECK(vector != nullptr && vector->data.size() == 12 && vector->shape == std::vector<int64_t>{3});
    float second = 0.0F;
    std::memcpy(&second, vector->data.data() + 4, sizeof second);
    CHECK(second == 2.0F);
    CHECK(file->tensor("blocks")->data.size() == 136);
    CHECK(file->tensor("absent") == nullptr);
}

TEST(takes_version_2_and_other_alignments) {
    GgufWriter writer = small_file();
    writer.version = 2;
    CHECK(open_bytes(writer.bytes())->tensors().size() == 2);
    writer.alignment = 64;
    writer.u32("general.alignment", 64);
    CHECK(open_bytes(writer.bytes())->tensor("blocks")->data.size() == 136);
}

TEST(says_what_is_wrong_with_a_path) {
    CHECK_THROWS(GgufFile::open("/nonexistent/model.gguf"), ModelFileError, "/nonexistent/model.gguf");
    CHECK_THROWS(GgufFile::open("/nonexistent/model.gguf"), ModelFileError, "does not exist");
    CHECK_THROWS(GgufFile::open(std::filesystem::temp_directory_path()), ModelFileError, "is a directory");
    CHECK_THROWS(GgufFile::open("/dev/null"), ModelFileError, "not a regular file");
    check_refused("", "is empty");
    const TemporaryFile pipe("x");
    std::filesystem::remove(pipe.path());
    CHECK(::mkfifo(pipe.path().c_str(), 0600) == 0);
    CHECK_THROWS(GgufFile::open(pipe.path()), ModelFileError, "not a regular file");
}

TEST(refuses_what_is_no_gguf_or_of_another_kind) {
    check_refused("not a model", "not a GGUF model file");
    check_refused("GG", "not a GGUF model file");
    std::string bytes = small_file().bytes();
    bytes[4] = 0;
    bytes[7] = 3;
    check_refused(bytes, "big-endian");
    GgufWriter writer = small_file();
    writer.version = 1;
    check_refused(writer.bytes(), "GGUF version 1");
    writer.version = 4;
    check_refused(writer.bytes(), "GGUF version 4");
}

TEST(refuses_every_truncation) {
    const std::string bytes = small_file().bytes();
    const auto whole = open_bytes(bytes);
    const auto& last = whole->tensor("blocks")->data;
    const auto needed = static_cast<std::size_t>(last.data() + last.size() - whole->mapping().data());
    for (std::size_t size = 0; size < needed; ++size)
        CHECK_THROWS(open_bytes(bytes.substr(0, size)), ModelFileError, "edgellm-test-");
    CHECK(open_bytes(bytes.substr(0, needed)) != nullptr);
}

TEST(refuses_impossible_counts_before_allocating) {
    const std::string bytes = small_file().bytes();
    check_refused(with_u64(bytes, "GGUF", 8, uint64_t{1} << 60), "tensors");
    check_refused(with_u64(bytes, "GGUF", 16, UINT64_MAX), "keys");
    check_refused(with_u64(bytes, "general.architecture", 24, uint64_t{1} << 62), "general.architecture");
    check_refused(with_u64(bytes, "words", 5 + 8, UINT64_MAX / 8), "words");
    check_refused(with_u64(bytes, "numbers", 7 + 8, uint64_t{1} << 61), "numbers");
}

TEST(refuses_bad_values) {
    GgufWriter writer = small_file();
    writer.raw("strange", 77, "");
    check_refused(writer.bytes(), "'strange' has value type 77");
    writer = small_file();
    writer.raw("nested", GgufWriter::kArray, Bytes().put(GgufWriter::kArray).put<uint64_t>(0).text);
    check_refused(writer.bytes(), "array of arrays");
    writer = small_file();
    writer.raw("flag2", GgufWriter::kBool, Bytes().put<uint8_t>(2).text);
    check_refused(writer.bytes(), "not 0 or 1");
    writer = small_file();
    writer.u32("flag", 1);
    check_refused(writer.bytes(), "key 'flag' appears twice");
    writer = small_file();
    writer.u32("", 1);
    check_refused(writer.bytes(), "has no name");
    writer = small_file();
    writer.u32("general.alignment", 24);
    check_refused(writer.bytes(), "general.alignment");
}

TEST(refuses_bad_tensors) {
    const auto refused = [](auto change, const char* text) {
        GgufWriter writer = small_file();
        change(writer);
        check_refused(writer.bytes(), text);
    };
    refused([](GgufWriter& w) { w.floats("vector", {1}, {1.0F}); }, "tensor 'vector' appears twice");
    refused([](GgufWriter& w) { w.floats("none", {}, {1.0F}); }, "0 dimensions");
    refused([](GgufWriter& w) { w.floats("five", {1, 1, 1, 1, 1}, {1.0F}); }, "5 dimensions");
    refused([](GgufWriter& w) { w.floats("zero", {4, 0}, {}); }, "impossible dimension of 0");
    refused([](GgufWriter& w) { w.floats("wide", {uint64_t{1} << 40, uint64_t{1} << 40}, {1.0F}); },
            "impossible dimension");
    refused([](GgufWriter& w) { w.floats("max", {UINT64_MAX}, {1.0F}); }, "impossible dimension");
    refused([](GgufWriter& w) { w.tensor("odd", TensorType::kQ4_0, {33}, std::string(36, 'x')); },
            "not a multiple of the 32");
    refused([](GgufWriter& w) { w.tensor("alien", static_cast<TensorType>(999), {32}, "x"); }, "type number 999");
    refused([](GgufWriter& w) { w.tensor("alien", static_cast<TensorType>(16), {32}, "x"); },
            "quantise the model to one of F32");
    refused([](GgufWriter& w) { w.floats("loose", {1}, {1.0F}).claim_offset(8); }, "not a multiple of 32");
    refused([](GgufWriter& w) { w.floats("over", {1}, {1.0F}).claim_offset(32); }, "overlaps");
    refused([](GgufWriter& w) { w.floats("past", {1}, {1.0F}).claim_offset(1 << 20); }, "passes the end of the file");
    refused([](GgufWriter& w) { w.floats("wrap", {1}, {1.0F}).claim_offset(UINT64_MAX - 31); },
            "passes the end of the file");
    refused([](GgufWriter& w) { w.floats(std::string(65, 'n'), {1}, {1.0F}); }, "more than 64");
}

TEST(typed_access_names_key_and_bounds) {
    const auto file = open_bytes(small_file().bytes());
    CHECK_THROWS(file->require_string("absent"), ModelFileError, "key 'absent' is missing");
    CHECK_THROWS(file->require_string("flag"), ModelFileError, "'flag' is not a text");
    CHECK_THROWS(file->require_int("general.architecture", 0, 1), ModelFileError, "not an integer");
    CHECK_THROWS(file->require_int("llama.block_count", 3, 9), ModelFileError, "is 2, not from 3 to 9");
    CHECK_THROWS(file->require_int("huge", 0, INT64_MAX), ModelFileError, "is 9223372036854775808");
    CHECK_THROWS(file->optional_bool("negative"), ModelFileError, "not a boolean");
    CHECK_THROWS(file->require_float("general.architecture"), ModelFileError, "not a number");
    CHECK_THROWS(file->require_int("words", 0, 1), ModelFileError, "is an array");
}

TEST(error_texts_are_printable_and_short) {
    GgufWriter writer = small_file();
    const std::string ugly = std::string("\x01\xFF\n", 3) + std::string(3000, 'k');
    writer.u32(ugly, 1).u32(ugly, 1);
    try {
        (void)open_bytes(writer.bytes());
        CHECK(false);
    } catch (const ModelFileError& error) {
        const std::string text = error.what();
        CHECK(text.size() < 400);
        CHECK(text.find("???kkk") != std::string::npos);
    }
}

TEST(survives_random_damage) {
    const std::string sound = small_file().bytes();
    const TemporaryFile file(sound);
    std::mt19937 random(7);
    int refused = 0;
    constexpr int kRounds = 4000;
    for (int round = 0; round < kRounds; ++round) {
        std::string bytes = sound;
        const int edits = 1 + static_cast<int>(random() % 4);
        for (int i = 0; i < edits; ++i) {
            const std::size_t at = random() % bytes.size();
            switch (random() % 4) {
                case 0: bytes[at] = static_cast<char>(random()); break;
                case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8)); break;
                case 2: bytes.resize(at + 1); break;
                default: {
                    const uint64_t value = random() % 2 == 0 ? UINT64_MAX >> random() % 64 : random() % 100;
                    std::memcpy(bytes.data() + at, &value, std::min(sizeof value, bytes.size() - at));
                }
            }
        }
        file.rewrite(bytes);
        try {
            const auto opened = GgufFile::open(file.path());
            for (const auto& tensor : opened->tensors()) {
                CHECK(tensor.data.data() >= opened->mapping().data());
                CHECK(tensor.data.data() + tensor.data.size() <= opened->mapping().data() + opened->mapping().size());
            }
            (void)edgellm::read_model_spec(*opened);
        } catch (const ModelFileError&) {
            ++refused;
        }
    }
    CHECK(refused == kRounds);  // without a decoder's tensors even a sound file is no model
}

CHECK_MAIN()
