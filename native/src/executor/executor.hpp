// Executor: one forward pass over rows of many sequences against a paged KV store.
// The engine owns sequences, pages and sampling; an executor owns weights, KV memory and arithmetic.
// No type of a tensor library appears here, so that executors can be exchanged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace edgellm {

class GgufFile;
struct ModelSpec;

enum class RowsWanted : uint8_t { kNone, kLast, kAll };
enum class OutputKind : uint8_t { kLogits, kHidden };
enum class KvType : uint8_t { kF16, kF32 };

struct ExecutorOptions {
    std::string executor = "auto";   // "auto" | "fused" (own kernels, on the CPU) | "ggml" (its operators, any device)
    int32_t threads = 0;             // 0 = chosen from the CPUs this process may use
    int32_t kv_page_tokens = 32;     // positions per KV page, a multiple of 8
    int32_t kv_page_count = 0;       // pages in the store, > 0
    int32_t max_rows = 512;          // rows one step may carry
    KvType kv_type = KvType::kF16;
    std::filesystem::path derived_folder;  // for files derived from the model file, made where they miss; "" for none
    bool portable_attention = false; // attention from the tensor library's own operators only: ggml
};

struct ExecutorInfo {
    std::string name;                // "fused" | "ggml"
    std::string device;              // what it runs on, for people
    std::string reason;              // why this executor, for people
    int32_t threads = 0;
    int32_t vocab_size = 0;          // width of a logits row
    int32_t hidden_size = 0;         // width of a hidden row
    int32_t kv_page_tokens = 0;
    int32_t kv_page_count = 0;
    int32_t max_rows = 0;
    int64_t weight_bytes = 0;
    int64_t kv_bytes_per_token = 0;
};

// Consecutive positions of one sequence. Position p lives in pages[p / kv_page_tokens].
// Pages that hold positions before first_position are read; the rest are written. Groups of one step
// belong to different sequences and never write the same page; read-only pages may be shared.
struct RowGroup {
    std::span<const int32_t> tokens;  // not empty
    int32_t first_position = 0;
    std::span<const int32_t> pages;   // covers positions [0, first_position + tokens.size())
    RowsWanted wanted = RowsWanted::kLast;
    // Empty, or for each row the hidden_size values that it enters the model with; null where its token says them.
    // Tokens of the other rows may be anything.
    std::span<const float* const> embedded = {};
};

// What a caller wants done while a pass is computed: it costs no other thread its time there.
using Meanwhile = std::function<void()>;

class Executor {
public:
    virtual ~Executor() = default;

    virtual const ExecutorInfo& info() const noexcept = 0;

    // Runs all groups in one pass. out holds the wanted rows, groups in order, positions ascending;
    // its size is wanted rows × (vocab_size | hidden_size). Hidden rows are after the final norm.
    // A row's result does not depend on which other sequences share the step.
    // meanwhile, where there is one, is called once by the calling thread, as soon as other threads have work of this
    // pass, and throws from here what it throws. Throws ExecutorError; the KV content of the groups is then undefined.
    // One caller at a time.
    virtual void step(std::span<const RowGroup> groups, OutputKind kind, std::span<float> out,
                      const Meanwhile& meanwhile) = 0;
    void step(std::span<const RowGroup> groups, OutputKind kind, std::span<float> out) {
        step(groups, kind, out, Meanwhile());
    }

    // Copies the first token_count positions of one page into another.
    virtual void copy_kv(int32_t from_page, int32_t to_page, int32_t token_count) = 0;

    // Tells that no step is coming soon: threads sleep, memory of the named free pages may be returned.
    virtual void idle(std::span<const int32_t> free_pages) = 0;
};

// Throws ModelFileError for what the chosen executor cannot run, naming the tensor or key.
std::unique_ptr<Executor> make_executor(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                        const ExecutorOptions& options);

}  // namespace edgellm
