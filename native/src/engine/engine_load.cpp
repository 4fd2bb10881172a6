#include <filesystem>
#include <utility>

#include "engine/engine_parts.hpp"
#include "engine/value_checks.hpp"
#include "model/gguf_file.hpp"

namespace edgellm {
namespace {

constexpr const char* kModelFileName = "llm.gguf";
constexpr const char* kVisualFolder = "visual";
constexpr const char* kVisualFileName = "visual.gguf";
constexpr const char* kDerivedFolder = "derived";  // of a bundle: what its loader may make again from the rest
constexpr int32_t kMaxThreads = 1024;

KvType parse_kv_type(const std::string& name) {
    if (name == "f16") return KvType::kF16;
    if (name == "f32") return KvType::kF32;
    refuse_value("kv_type", "must be \"f16\" or \"f32\"");
}

}  // namespace

EngineParts load_engine_parts(const std::string& engine_dir, const std::string& multimodal_engine_dir,
                              const ContextCacheConfig& cache, int32_t max_batch_size, const RuntimeOptions& options) {
    const auto file = GgufFile::open(std::filesystem::path(engine_dir) / kModelFileName);
    const ModelSpec spec = read_model_spec(*file);

    EngineParts parts;
    parts.cache = cache;
    parts.prompt_encoder = options.prompt_encoder;
    parts.limits = resolve_engine_limits(options, cache, max_batch_size, spec.context_length, spec.vocab_size);
    ExecutorOptions executor_options;
    executor_options.executor = options.executor;
    executor_options.threads = check_range("threads", options.threads, 0, kMaxThreads);
    executor_options.kv_page_tokens = parts.limits.kv_page_tokens;
    executor_options.kv_page_count = parts.limits.kv_page_count;
    executor_options.max_rows = parts.limits.max_step_rows();
    executor_options.kv_type = parse_kv_type(options.kv_type);
    executor_options.derived_folder = std::filesystem::path(engine_dir) / kDerivedFolder;
    executor_options.portable_attention = options.portable_attention;
    parts.executor = make_executor(file, spec, executor_options);
    parts.limits.vocab_size = parts.executor->info().vocab_size;
    if (!multimodal_engine_dir.empty()) {
        auto visual = GgufFile::open(std::filesystem::path(multimodal_engine_dir) / kVisualFolder / kVisualFileName);
        parts.images = std::make_shared<ImageEncoder>(make_vision_tower(std::move(visual), options.threads),
                                                      parts.executor->info().hidden_size, parts.limits);
    }
    parts.vocab = std::make_shared<const VocabSpec>(spec.vocab);
    if (!options.guidance_library.empty())
        parts.guides = make_llguidance_compiler(options.guidance_library, *parts.vocab);
    return parts;
}

std::unique_ptr<RequestEngine> RequestEngine::create(const std::string& engine_dir,
                                                     const std::string& multimodal_engine_dir,
                                                     const ContextCacheConfig& cache, int32_t max_batch_size,
                                                     int32_t max_pending_requests, int32_t command_queue_capacity,
                                                     const RuntimeOptions& options) {
    return make_request_engine(load_engine_parts(engine_dir, multimodal_engine_dir, cache, max_batch_size, options),
                               max_pending_requests, command_queue_capacity);
}

std::unique_ptr<LLMRuntime> LLMRuntime::create(const std::string& engine_dir, const std::string& multimodal_engine_dir,
                                               const ContextCacheConfig& cache, const RuntimeOptions& options) {
    return make_llm_runtime(
        load_engine_parts(engine_dir, multimodal_engine_dir, cache, options.max_batch_size, options));
}

}  // namespace edgellm
