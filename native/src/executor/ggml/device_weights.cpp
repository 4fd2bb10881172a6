#include "executor/ggml/device_weights.hpp"

#include <ggml-cpu.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "contract/errors.hpp"
#include "model/mapped_file.hpp"

namespace edgellm {
namespace {

constexpr std::size_t kHostAlignment_bytes = 32;  // what the CPU backend asks of a buffer's address
constexpr std::size_t kComputeReserve_bytes = std::size_t{512} << 20;  // left free on a device for activations
constexpr std::size_t kTensorsPerLayer = 16;

ggml_type to_ggml(TensorType type) { return static_cast<ggml_type>(static_cast<uint32_t>(type)); }

bool is_accelerator(ggml_backend_dev_t device) {
    const auto type = ggml_backend_dev_type(device);
    return type == GGML_BACKEND_DEVICE_TYPE_GPU || type == GGML_BACKEND_DEVICE_TYPE_IGPU;
}

[[noreturn]] void refuse_memory(const char* what, std::size_t bytes) {
    throw ExecutorError(std::string("no memory for ") + what + " (" + std::to_string(bytes >> 20) +
                        " MiB); use a smaller model, fewer sequences or a shorter context");
}

}  // namespace

bool has_accelerator() {
    for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
        if (is_accelerator(ggml_backend_dev_get(i))) return true;
    }
    return false;
}

DeviceSet::DeviceSet(int32_t threads, bool cpu_only) {
    const auto add = [&](ggml_backend_t backend, const char* name) {
        if (backend == nullptr) throw ExecutorError(std::string("device ") + name + " cannot be opened");
        owned_.emplace_back(backend);
        order_.push_back(backend);
    };
    for (std::size_t i = 0; i < ggml_backend_dev_count() && !cpu_only; ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (!is_accelerator(device)) continue;
        add(ggml_backend_dev_init(device, nullptr), ggml_backend_dev_name(device));
        accelerators_.push_back(order_.back());
    }
    for (std::size_t i = 0; i < ggml_backend_dev_count() && !cpu_only; ++i) {
        ggml_backend_dev_t device = ggml_backend_dev_get(i);
        if (ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_ACCEL)
            add(ggml_backend_dev_init(device, nullptr), ggml_backend_dev_name(device));
    }
    add(ggml_backend_cpu_init(), "CPU");

    ggml_threadpool_params params = ggml_threadpool_params_default(threads);
    params.poll = 0;
    threadpool_ = ggml_threadpool_new(&params);
    if (threadpool_ == nullptr) throw ExecutorError("cannot start " + std::to_string(threads) + " threads");
    ggml_backend_cpu_set_n_threads(cpu(), threads);
    ggml_backend_cpu_set_threadpool(cpu(), threadpool_);
}

DeviceSet::~DeviceSet() {
    order_.clear();
    owned_.clear();
    if (threadpool_ != nullptr) ggml_threadpool_free(threadpool_);
}

std::string DeviceSet::description() const {
    std::string text;
    for (ggml_backend_t backend : order_) {
        if (!text.empty()) text += " + ";
        text += ggml_backend_dev_description(ggml_backend_get_device(backend));
    }
    return text;
}

// Creates tensors backend by backend, then gives all of one backend their memory and contents at once.
class DeviceWeights::Placer {
public:
    Placer(DeviceWeights& weights, const DeviceSet& devices, std::size_t tensor_capacity)
        : weights_(weights), devices_(devices), tensor_capacity_(tensor_capacity) {}

    ggml_tensor* weight(ggml_backend_t backend, const TensorView* view) {
        if (view == nullptr) return nullptr;
        const bool in_place = backend == devices_.cpu() && is_aligned(*view);
        Shelf& shelf = in_place ? mapped_ : shelf_of(weights_on_device_, backend);
        if (in_place) ensure_context(shelf);
        const auto extent = [&](std::size_t i) { return i < view->shape.size() ? view->shape[i] : 1; };
        ggml_tensor* tensor = view->shape.size() == 1
                                  ? ggml_new_tensor_1d(shelf.context, to_ggml(view->type), extent(0))
                                  : ggml_new_tensor_2d(shelf.context, to_ggml(view->type), extent(0), extent(1));
        if (ggml_nbytes(tensor) != view->data.size())
            throw ExecutorError("tensor sizes of the tensor library differ from GGUF's");
        ggml_set_name(tensor, view->name.c_str());
        shelf.filled.push_back({tensor, view});
        weights_.weight_bytes_ += static_cast<int64_t>(view->data.size());
        return tensor;
    }

    ggml_tensor* store(ggml_backend_t backend, ggml_type type, int64_t width, int64_t slots) {
        return ggml_new_tensor_2d(shelf_of(stores_, backend).context, type, width, slots);
    }

    void allocate() {
        map_in_place();
        for (auto& [backend, shelf] : weights_on_device_) {
            allocate_shelf(backend, shelf, "the weights", GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
            for (const Filled& one : shelf.filled)
                ggml_backend_tensor_set(one.tensor, one.view->data.data(), 0, one.view->data.size());
        }
        for (auto& [backend, shelf] : stores_)
            allocate_shelf(backend, shelf, "the KV store", GGML_BACKEND_BUFFER_USAGE_ANY);
    }

private:
    struct Filled {
        ggml_tensor* tensor;
        const TensorView* view;
    };
    struct Shelf {
        ggml_context* context = nullptr;
        std::vector<Filled> filled;
    };

    static bool is_aligned(const TensorView& view) {
        return reinterpret_cast<std::uintptr_t>(view.data.data()) % kHostAlignment_bytes == 0;
    }

    void ensure_context(Shelf& shelf) {
        if (shelf.context != nullptr) return;
        const ggml_init_params params{ggml_tensor_overhead() * tensor_capacity_, nullptr, true};
        weights_.contexts_.emplace_back(ggml_init(params));
        shelf.context = weights_.contexts_.back().get();
        if (shelf.context == nullptr) refuse_memory("tensor descriptions", params.mem_size);
    }

    Shelf& shelf_of(std::map<ggml_backend_t, Shelf>& shelves, ggml_backend_t backend) {
        Shelf& shelf = shelves[backend];
        ensure_context(shelf);
        return shelf;
    }

    void allocate_shelf(ggml_backend_t backend, const Shelf& shelf, const char* what, ggml_backend_buffer_usage usage) {
        ggml_backend_buffer_type_t type = ggml_backend_get_default_buffer_type(backend);
        const std::size_t bytes = ggml_backend_alloc_ctx_tensors_from_buft_size(shelf.context, type);
        if (bytes == 0) return;
        ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors_from_buft(shelf.context, type);
        if (buffer == nullptr) refuse_memory(what, bytes);
        weights_.buffers_.emplace_back(buffer);
        ggml_backend_buffer_set_usage(buffer, usage);
    }

    void map_in_place() {
        if (mapped_.filled.empty()) return;
        const auto mapping = weights_.file_->mapping();
        // The library takes a mutable pointer; nothing writes weights, and the pages are mapped read-only.
        auto* base = const_cast<std::byte*>(mapping.data());
        ggml_backend_buffer_t buffer = ggml_backend_cpu_buffer_from_ptr(base, mapping.size());
        if (buffer == nullptr) refuse_memory("the weight buffer", mapping.size());
        weights_.buffers_.emplace_back(buffer);
        ggml_backend_buffer_set_usage(buffer, GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
        for (const Filled& one : mapped_.filled) {
            const auto status =
                ggml_backend_tensor_alloc(buffer, one.tensor, const_cast<std::byte*>(one.view->data.data()));
            if (status != GGML_STATUS_SUCCESS) throw ExecutorError("a weight cannot be used from the mapping");
        }
    }

    DeviceWeights& weights_;
    const DeviceSet& devices_;
    std::size_t tensor_capacity_;
    Shelf mapped_;
    std::map<ggml_backend_t, Shelf> weights_on_device_;
    std::map<ggml_backend_t, Shelf> stores_;
};

DeviceWeights::DeviceWeights(std::shared_ptr<const GgufFile> file, const ModelSpec& spec, const DeviceSet& devices,
                             const ExecutorOptions& options)
    : file_(std::move(file)) {
    load_pages(file_->mapping());
    const DecoderTensors tensors = find_decoder_tensors(*file_, spec);
    const auto layer_count = static_cast<std::size_t>(spec.layer_count);
    Placer placer(*this, devices, (layer_count + 1) * kTensorsPerLayer);

    const ggml_type kv_type = options.kv_type == KvType::kF16 ? GGML_TYPE_F16 : GGML_TYPE_F32;
    const int64_t kv_width = int64_t{spec.kv_head_count} * spec.head_size;
    const int64_t slots = int64_t{options.kv_page_count} * options.kv_page_tokens;
    const std::size_t kv_bytes = 2 * ggml_row_size(kv_type, kv_width) * static_cast<std::size_t>(slots);

    std::vector<std::size_t> free_bytes;
    for (ggml_backend_t backend : devices.accelerators()) {
        std::size_t free = 0;
        std::size_t total = 0;
        ggml_backend_dev_memory(ggml_backend_get_device(backend), &free, &total);
        free_bytes.push_back(free > kComputeReserve_bytes ? free - kComputeReserve_bytes : 0);
    }
    std::size_t device = 0;
    const auto choose = [&](std::size_t bytes) {
        while (device < free_bytes.size() && free_bytes[device] < bytes) ++device;
        if (device == free_bytes.size()) return devices.cpu();
        free_bytes[device] -= bytes;
        return devices.accelerators()[device];
    };

    // The embedding is only looked up, never multiplied: it stays with the CPU, where any type can be read.
    token_embedding_ = placer.weight(devices.cpu(), tensors.token_embedding);
    ggml_backend_t backend = devices.cpu();
    for (const LayerTensors& from : tensors.layers) {
        std::size_t bytes = kv_bytes;
        for (const TensorView* view :
             {from.query, from.key, from.value, from.attention_output, from.gate, from.up, from.down})
            bytes += view->data.size();
        backend = choose(bytes);
        DeviceLayer layer;
        layer.backend = backend;
        layer.attention_norm = placer.weight(backend, from.attention_norm);
        layer.query = placer.weight(backend, from.query);
        layer.key = placer.weight(backend, from.key);
        layer.value = placer.weight(backend, from.value);
        layer.query_bias = placer.weight(backend, from.query_bias);
        layer.key_bias = placer.weight(backend, from.key_bias);
        layer.value_bias = placer.weight(backend, from.value_bias);
        layer.query_norm = placer.weight(backend, from.query_norm);
        layer.key_norm = placer.weight(backend, from.key_norm);
        layer.attention_output = placer.weight(backend, from.attention_output);
        layer.feed_forward_norm = placer.weight(backend, from.feed_forward_norm);
        layer.gate = placer.weight(backend, from.gate);
        layer.up = placer.weight(backend, from.up);
        layer.down = placer.weight(backend, from.down);
        layer.kv_keys = placer.store(backend, kv_type, kv_width, slots);
        layer.kv_values = placer.store(backend, kv_type, kv_width, slots);
        layers_.push_back(layer);
    }
    backend = choose(tensors.output->data.size());
    output_norm_ = placer.weight(backend, tensors.output_norm);
    const bool shares_embedding = tensors.output == tensors.token_embedding && backend == devices.cpu();
    output_ = shares_embedding ? token_embedding_ : placer.weight(backend, tensors.output);
    if (!spec.rope.freq_factors.empty())
        rope_factors_ = placer.weight(layers_.front().backend, file_->tensor("rope_freqs.weight"));
    placer.allocate();
}

}  // namespace edgellm
