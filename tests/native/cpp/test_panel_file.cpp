// Weight panels as a file beside the model: made once, mapped after that, and never believed when it is another's.
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "executor/cpu/panel_weights.hpp"
#include "executor/kernels/matmul.hpp"
#include "executor_harness.hpp"
#include "model/decoder_tensors.hpp"

using namespace harness;
using edgellm::PanelWeights;
using edgellm::TensorType;
using edgellm::TensorView;

namespace {

struct TemporaryFolder {
    TemporaryFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "panels.XXXXXX").string();
        CHECK(::mkdtemp(name.data()) != nullptr);
        path = name;
    }
    ~TemporaryFolder() { std::filesystem::remove_all(path); }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    std::vector<std::string> names() const {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
            if (entry.is_regular_file()) found.push_back(entry.path().filename().string());
        }
        return found;
    }
    std::filesystem::path panels() const { return path / "weight_panels"; }
    std::filesystem::path file() const { return panels() / "llm.panels"; }

    std::filesystem::path path;
};

tiny::Decoder decoder(TensorType type, uint32_t seed = 1) {
    tiny::Shape shape;
    shape.type = type;
    shape.seed = seed;
    return tiny::Decoder(shape);
}

std::vector<const TensorView*> matrices(const Model& model) {
    const edgellm::DecoderTensors tensors = edgellm::find_decoder_tensors(*model.file, model.spec);
    std::vector<const TensorView*> all = {tensors.output};
    for (const auto& layer : tensors.layers) {
        all.push_back(layer.query);
        all.push_back(layer.down);
    }
    return all;
}

std::string content(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

void put(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::vector<float> logits(const Model& model, const std::filesystem::path& folder) {
    ExecutorOptions options = small_options();
    options.executor = "fused";
    options.derived_folder = folder;
    const auto executor = model.executor(options);
    Sequence one = sequence(tiny::random_tokens(20, 101, 5), 8, 0);
    return run_whole(*executor, one);
}

bool has_panel_kernels() { return !edgellm::panel_kernel_sets().empty(); }

}  // namespace

TEST(a_file_is_made_once_and_mapped_after_that) {
    for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_1, TensorType::kQ4_0}) {
        const Model model(decoder(type));
        const TemporaryFolder folder;
        const PanelWeights in_memory(*model.file, matrices(model), "");
        const PanelWeights made(*model.file, matrices(model), folder.panels());
        CHECK(!in_memory.is_mapped() && made.is_mapped());
        struct stat before{};
        CHECK(::stat(folder.file().c_str(), &before) == 0);
        const PanelWeights again(*model.file, matrices(model), folder.panels());
        struct stat after{};
        CHECK(::stat(folder.file().c_str(), &after) == 0);
        CHECK(before.st_ino == after.st_ino && again.is_mapped());
        for (const TensorView* tensor : matrices(model)) {
            const std::byte* wanted = in_memory.find(*tensor);
            CHECK(std::memcmp(wanted, made.find(*tensor), tensor->data.size()) == 0);
            CHECK(std::memcmp(wanted, again.find(*tensor), tensor->data.size()) == 0);
        }
        CHECK(folder.names() == std::vector<std::string>{"llm.panels"});
    }
}

TEST(executors_with_and_without_the_file_give_the_same_bits) {
    for (const TensorType type : {TensorType::kQ8_0, TensorType::kQ4_1, TensorType::kF16}) {
        const Model model(decoder(type));
        const TemporaryFolder folder;
        const auto wanted = logits(model, "");
        CHECK(identical(logits(model, folder.path), wanted));
        CHECK(identical(logits(model, folder.path), wanted));
        const bool expected = has_panel_kernels() && type != TensorType::kF16;
        CHECK(std::filesystem::exists(folder.file()) == expected);
    }
}

TEST(a_file_of_another_model_is_replaced) {
    const Model first(decoder(TensorType::kQ4_1, 1));
    const Model second(decoder(TensorType::kQ4_1, 2));
    const TemporaryFolder folder;
    const PanelWeights of_first(*first.file, matrices(first), folder.panels());
    const std::string before = content(folder.file());
    const PanelWeights of_second(*second.file, matrices(second), folder.panels());
    const PanelWeights wanted(*second.file, matrices(second), "");
    CHECK(of_second.is_mapped() && content(folder.file()) != before);
    for (const TensorView* tensor : matrices(second))
        CHECK(std::memcmp(of_second.find(*tensor), wanted.find(*tensor), tensor->data.size()) == 0);
    // Whoever has the old file mapped keeps it.
    const PanelWeights first_wanted(*first.file, matrices(first), "");
    for (const TensorView* tensor : matrices(first))
        CHECK(std::memcmp(of_first.find(*tensor), first_wanted.find(*tensor), tensor->data.size()) == 0);
}

TEST(a_damaged_file_is_replaced) {
    const Model model(decoder(TensorType::kQ4_0));
    const TemporaryFolder folder;
    { const PanelWeights made(*model.file, matrices(model), folder.panels()); }
    const std::string whole = content(folder.file());
    std::string other_version = whole;
    other_version[8] = static_cast<char>(other_version[8] + 1);
    for (const std::string& damaged : {std::string(), whole.substr(0, 10), whole.substr(0, whole.size() - 1),
                                       whole + "x", other_version, std::string(whole.size(), '\0')}) {
        put(folder.file(), damaged);
        const PanelWeights again(*model.file, matrices(model), folder.panels());
        CHECK(again.is_mapped());
        CHECK(content(folder.file()) == whole);
    }
}

TEST(without_a_place_for_the_file_panels_are_in_memory) {
    const Model model(decoder(TensorType::kQ8_0));
    const TemporaryFolder folder;
    put(folder.panels(), "a file where the folder should be");
    const PanelWeights panels(*model.file, matrices(model), folder.panels());
    CHECK(!panels.is_mapped());
    for (const TensorView* tensor : matrices(model)) CHECK(panels.find(*tensor) != nullptr);
    CHECK(content(folder.panels()) == "a file where the folder should be");
}

TEST(what_is_no_regular_file_is_replaced_or_left) {
    const Model model(decoder(TensorType::kQ8_0));
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder.panels());
    CHECK(::mkfifo(folder.file().c_str(), 0600) == 0);
    const PanelWeights panels(*model.file, matrices(model), folder.panels());
    CHECK(panels.is_mapped());
}

TEST(several_processes_may_make_it_at_once) {
    const Model model(decoder(TensorType::kQ4_1));
    const TemporaryFolder folder;
    const PanelWeights wanted(*model.file, matrices(model), "");
    std::vector<std::thread> threads;
    std::vector<int> equal(8, 0);
    for (std::size_t i = 0; i < equal.size(); ++i) {
        threads.emplace_back([&, i] {
            const PanelWeights panels(*model.file, matrices(model), folder.panels());
            equal[i] = 1;
            for (const TensorView* tensor : matrices(model)) {
                if (std::memcmp(panels.find(*tensor), wanted.find(*tensor), tensor->data.size()) != 0) equal[i] = 0;
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int one : equal) CHECK(one == 1);
    CHECK(folder.names() == std::vector<std::string>{"llm.panels"});
}

TEST(a_tensor_named_twice_has_one_place_and_others_none) {
    const Model model(decoder(TensorType::kQ8_0));
    std::vector<const TensorView*> named = matrices(model);
    named.push_back(named.front());
    const PanelWeights panels(*model.file, named, "");
    CHECK(panels.find(*named.front()) != nullptr);
    const edgellm::DecoderTensors tensors = edgellm::find_decoder_tensors(*model.file, model.spec);
    CHECK(panels.find(*tensors.layers[0].gate) == nullptr);
    CHECK(PanelWeights(*model.file, {}, "").empty());
}

CHECK_MAIN()
