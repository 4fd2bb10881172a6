// Where each weight lives: on the devices the tensor library offers, or, for the CPU, straight in the file's mapping.
#pragma once

#include <ggml-cpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "executor/executor.hpp"
#include "model/decoder_tensors.hpp"
#include "model/gguf_file.hpp"
#include "model/model_spec.hpp"

namespace edgellm {

// Every usable backend, fastest first, the CPU last. Owns a thread pool of its own that sleeps between graphs.
class DeviceSet {
public:
    DeviceSet(int32_t threads, bool cpu_only);
    ~DeviceSet();
    DeviceSet(const DeviceSet&) = delete;
    DeviceSet& operator=(const DeviceSet&) = delete;

    const std::vector<ggml_backend_t>& backends() const noexcept { return order_; }
    const std::vector<ggml_backend_t>& accelerators() const noexcept {
        return accelerators_;
    }  // with memory of their own
    ggml_backend_t cpu() const noexcept { return order_.back(); }
    std::string description() const;

private:
    std::vector<ggml_backend_ptr> owned_;
    std::vector<ggml_backend_t> order_;
    std::vector<ggml_backend_t> accelerators_;
    ggml_threadpool_t threadpool_ = nullptr;
};

// True when the tensor library found a device that is not the CPU.
bool has_accelerator();

struct DeviceLayer {
    ggml_backend_t backend = nullptr;
    ggml_tensor* attention_norm = nullptr;
    ggml_tensor* query = nullptr;
    ggml_tensor* key = nullptr;
    ggml_tensor* value = nullptr;
    ggml_tensor* query_bias = nullptr;
    ggml_tensor* key_bias = nullptr;
    ggml_tensor* value_bias = nullptr;
    ggml_tensor* query_norm = nullptr;
    ggml_tensor* key_norm = nullptr;
    ggml_tensor* attention_output = nullptr;
    ggml_tensor* feed_forward_norm = nullptr;
    ggml_tensor* gate = nullptr;
    ggml_tensor* up = nullptr;
    ggml_tensor* down = nullptr;
    ggml_tensor* kv_keys = nullptr;    // [kv width, slots]
    ggml_tensor* kv_values = nullptr;  // [kv width, slots]
};

class DeviceWeights {
public:
    // Fills devices layer by layer while their memory lasts; the rest stays on the CPU.
    DeviceWeights(std::shared_ptr<const GgufFile> file, const ModelSpec& spec, const DeviceSet& devices,
                  const ExecutorOptions& options);

    ggml_tensor* token_embedding() const noexcept { return token_embedding_; }
    ggml_tensor* output_norm() const noexcept { return output_norm_; }
    ggml_tensor* output() const noexcept { return output_; }
    ggml_tensor* rope_factors() const noexcept { return rope_factors_; }  // nullptr: none
    const std::vector<DeviceLayer>& layers() const noexcept { return layers_; }
    int64_t weight_bytes() const noexcept { return weight_bytes_; }

private:
    class Placer;

    std::shared_ptr<const GgufFile> file_;
    ggml_tensor* token_embedding_ = nullptr;
    ggml_tensor* output_norm_ = nullptr;
    ggml_tensor* output_ = nullptr;
    ggml_tensor* rope_factors_ = nullptr;
    std::vector<DeviceLayer> layers_;
    int64_t weight_bytes_ = 0;
    std::vector<ggml_context_ptr> contexts_;
    std::vector<ggml_backend_buffer_ptr> buffers_;
};

}  // namespace edgellm
