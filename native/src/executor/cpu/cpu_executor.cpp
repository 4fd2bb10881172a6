#include "executor/cpu/cpu_executor.hpp"

#include <string>
#include <utility>

#include "contract/errors.hpp"
#include "executor/cpu/cpu_step.hpp"
#include "executor/cpu/cpu_weights.hpp"
#include "executor/cpu/kv_store.hpp"
#include "executor/kernels/cpu_kernels.hpp"
#include "executor/phase_runner.hpp"
#include "executor/step_layout.hpp"
#include "executor/thread_count.hpp"

namespace edgellm {
namespace {

KvLayout kv_layout(const ModelSpec& spec, const ExecutorOptions& options) {
    KvLayout layout;
    layout.type = options.kv_type;
    layout.layer_count = spec.layer_count;
    layout.kv_head_count = spec.kv_head_count;
    layout.head_size = spec.head_size;
    layout.page_tokens = options.kv_page_tokens;
    return layout;
}

const CpuKernels& choose_kernels(bool portable) {
    const CpuKernels* fast = portable ? nullptr : avx2_cpu_kernels();
    return fast == nullptr ? portable_cpu_kernels() : *fast;
}

class CpuExecutor final : public Executor {
public:
    CpuExecutor(std::shared_ptr<const GgufFile> file, const ModelSpec& spec, const ExecutorOptions& options,
                bool portable, std::string reason)
        : spec_(spec),
          weights_(std::move(file), spec_, portable, options.derived_folder),
          store_(kv_layout(spec_, options), options.kv_page_count),
          kernels_(choose_kernels(portable)),
          runner_(resolve_thread_count(options.threads)),
          step_(spec_, weights_, store_, kernels_, runner_.threads(), options.max_rows),
          info_(describe(options, std::move(reason))),
          planner_(info_) {}

    const ExecutorInfo& info() const noexcept override { return info_; }

    void step(std::span<const RowGroup> groups, OutputKind kind, std::span<float> out,
              const Meanwhile& meanwhile) override {
        const StepLayout& layout = planner_.plan(groups, kind, out.size());
        if (layout.row_count() == 0) {
            if (meanwhile) meanwhile();
            return;
        }
        for (const StepGroup& group : layout.groups) {
            const int32_t last = (group.end_position() - 1) / info_.kv_page_tokens;
            for (int32_t page = group.first_position / info_.kv_page_tokens; page <= last; ++page)
                store_.mark_written(group.pages[static_cast<std::size_t>(page)]);
        }
        runner_.run(step_.plan(layout, kind, out), step_, meanwhile);
    }

    void copy_kv(int32_t from_page, int32_t to_page, int32_t token_count) override {
        check_copy_kv(info_, from_page, to_page, token_count);
        store_.copy(from_page, to_page, token_count);
    }

    void idle(std::span<const int32_t> free_pages) override { store_.give_back(free_pages); }

private:
    ExecutorInfo describe(const ExecutorOptions& options, std::string reason) const {
        ExecutorInfo info;
        info.name = "fused";
        info.reason = std::move(reason);
        info.device = std::string("CPU, ") + kernels_.name + " kernels";
        if (const char* name = weights_.panel_kernels(); name != nullptr)
            info.device += std::string(", weights in panels for ") + name;
        info.threads = runner_.threads();
        info.vocab_size = spec_.vocab_size;
        info.hidden_size = spec_.hidden_size;
        info.kv_page_tokens = options.kv_page_tokens;
        info.kv_page_count = options.kv_page_count;
        info.max_rows = options.max_rows;
        info.weight_bytes = weights_.weight_bytes();
        info.kv_bytes_per_token = static_cast<int64_t>(store_.layout().page_bytes()) / options.kv_page_tokens;
        return info;
    }

    ModelSpec spec_;
    CpuWeights weights_;
    KvStore store_;
    const CpuKernels& kernels_;
    PhaseRunner runner_;
    CpuStep step_;
    ExecutorInfo info_;
    StepPlanner planner_;
};

}  // namespace

std::unique_ptr<Executor> make_cpu_executor(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                            const ExecutorOptions& options, bool portable_kernels,
                                            std::string reason) {
    return std::make_unique<CpuExecutor>(std::move(file), spec, options, portable_kernels, std::move(reason));
}

}  // namespace edgellm
