#include "executor/ggml/graph_executor.hpp"

#include <ggml-cpp.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "contract/errors.hpp"
#include "executor/ggml/decoder_graph.hpp"
#include "executor/ggml/device_weights.hpp"
#include "executor/step_layout.hpp"
#include "executor/thread_count.hpp"

namespace edgellm {
namespace {

class GraphExecutor final : public Executor {
public:
    GraphExecutor(std::shared_ptr<const GgufFile> file, const ModelSpec& spec, const ExecutorOptions& options,
                  std::string reason)
        : spec_(spec),
          options_(options),
          threads_(resolve_thread_count(options.threads)),
          devices_(threads_, !has_accelerator()),
          weights_(std::move(file), spec_, devices_, options_),
          info_(describe(std::move(reason))),
          planner_(info_) {
        if (int64_t{options.kv_page_count} * options.kv_page_tokens > std::numeric_limits<int32_t>::max())
            throw ExecutorError("the KV store has more than 2^31 positions; use fewer pages");
    }

    const ExecutorInfo& info() const noexcept override { return info_; }

    void step(std::span<const RowGroup> groups, OutputKind kind, std::span<float> out,
              const Meanwhile& meanwhile) override {
        const StepLayout& layout = planner_.plan(groups, kind, out.size());
        if (meanwhile) meanwhile();  // the library's threads take no work before this one waits for them
        if (layout.row_count() == 0) return;

        const std::size_t nodes = DecoderGraph::graph_nodes(spec_, options_, layout.groups.size());
        reserve(nodes);
        const ggml_init_params params{meta_.size(), meta_.data(), true};
        const ggml_context_ptr context(ggml_init(params));
        if (context == nullptr) throw ExecutorError("a graph context cannot be made");
        const DecoderGraph graph(context.get(), spec_, weights_, options_, layout, kind);
        ggml_backend_sched_reset(scheduler_.get());
        if (!ggml_backend_sched_alloc_graph(scheduler_.get(), graph.graph()))
            throw ExecutorError("no memory for the activations of " + std::to_string(layout.row_count()) + " rows");
        graph.set_inputs(layout);
        const ggml_status status = ggml_backend_sched_graph_compute(scheduler_.get(), graph.graph());
        if (status != GGML_STATUS_SUCCESS)
            throw ExecutorError(std::string("step failed: ") + ggml_status_to_string(status));
        if (!out.empty()) ggml_backend_tensor_get(graph.result(), out.data(), 0, out.size_bytes());
    }

    void copy_kv(int32_t from_page, int32_t to_page, int32_t token_count) override {
        check_copy_kv(info_, from_page, to_page, token_count);
        if (token_count == 0 || from_page == to_page) return;
        std::vector<std::byte> staging;
        for (const DeviceLayer& layer : weights_.layers()) {
            for (ggml_tensor* store : {layer.kv_keys, layer.kv_values}) {
                const std::size_t page_bytes = store->nb[1] * static_cast<std::size_t>(info_.kv_page_tokens);
                staging.resize(store->nb[1] * static_cast<std::size_t>(token_count));
                ggml_backend_tensor_get(store, staging.data(), page_bytes * static_cast<std::size_t>(from_page),
                                        staging.size());
                ggml_backend_tensor_set(store, staging.data(), page_bytes * static_cast<std::size_t>(to_page),
                                        staging.size());
            }
        }
    }

    void idle(std::span<const int32_t>) override {}  // the pool's threads sleep between graphs by themselves

private:
    ExecutorInfo describe(std::string reason) const {
        ExecutorInfo info;
        info.name = "ggml";
        info.reason = std::move(reason);
        info.device = devices_.description();
        info.threads = threads_;
        info.vocab_size = spec_.vocab_size;
        info.hidden_size = spec_.hidden_size;
        info.kv_page_tokens = options_.kv_page_tokens;
        info.kv_page_count = options_.kv_page_count;
        info.max_rows = options_.max_rows;
        info.weight_bytes = weights_.weight_bytes();
        for (const DeviceLayer& layer : weights_.layers())
            info.kv_bytes_per_token += static_cast<int64_t>(layer.kv_keys->nb[1] + layer.kv_values->nb[1]);
        return info;
    }

    void reserve(std::size_t nodes) {
        const std::size_t meta_bytes = ggml_tensor_overhead() * nodes + ggml_graph_overhead_custom(nodes, false);
        if (meta_.size() < meta_bytes) meta_.resize(meta_bytes);
        if (scheduler_ != nullptr && nodes <= scheduler_nodes_) return;
        auto backends = devices_.backends();
        scheduler_.reset(
            ggml_backend_sched_new(backends.data(), nullptr, static_cast<int>(backends.size()), nodes, false, true));
        if (scheduler_ == nullptr) throw ExecutorError("a graph scheduler cannot be made");
        scheduler_nodes_ = nodes;
    }

    ModelSpec spec_;
    ExecutorOptions options_;
    int32_t threads_;
    DeviceSet devices_;
    DeviceWeights weights_;
    ExecutorInfo info_;
    StepPlanner planner_;
    std::vector<std::byte> meta_;  // memory of the graph's descriptions, reused
    ggml_backend_sched_ptr scheduler_;
    std::size_t scheduler_nodes_ = 0;
};

}  // namespace

std::unique_ptr<Executor> make_graph_executor(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                              const ExecutorOptions& options, std::string reason) {
    return std::make_unique<GraphExecutor>(std::move(file), spec, options, std::move(reason));
}

}  // namespace edgellm
