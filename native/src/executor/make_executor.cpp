#include <ggml.h>

#include <cstdio>
#include <mutex>
#include <string>

#include "contract/errors.hpp"
#include "executor/cpu/cpu_executor.hpp"
#include "executor/cpu_features.hpp"
#include "executor/executor.hpp"
#include "executor/ggml/device_weights.hpp"
#include "executor/ggml/graph_executor.hpp"

namespace edgellm {
namespace {

constexpr int32_t kMaxRows = 65536;
constexpr int32_t kPageTokensMultiple = 8;
constexpr int32_t kMaxPageTokens = 4096;

void check_options(const ExecutorOptions& options) {
    const auto refuse = [](const std::string& what) { throw InvalidRequest(std::string(kBadValue) + ": " + what); };
    if (options.executor != "auto" && options.executor != "fused" && options.executor != "ggml")
        refuse("executor '" + options.executor + "' is unknown; the allowed ones are auto, fused, ggml");
    if (options.executor == "fused" && options.portable_attention)
        refuse("executor 'fused' has its own attention; leave portable_attention off, or use ggml");
    if (options.kv_page_tokens < kPageTokensMultiple || options.kv_page_tokens > kMaxPageTokens ||
        options.kv_page_tokens % kPageTokensMultiple != 0)
        refuse("kv_page_tokens is " + std::to_string(options.kv_page_tokens) + "; use a multiple of 8 up to 4096");
    if (options.kv_page_count <= 0)
        refuse("kv_page_count is " + std::to_string(options.kv_page_count) + "; it must be above 0");
    if (options.max_rows <= 0 || options.max_rows > kMaxRows)
        refuse("max_rows is " + std::to_string(options.max_rows) + "; use 1 to " + std::to_string(kMaxRows));
}

// The tensor library talks about every device it finds; only its warnings and errors are of interest.
void keep_warnings(ggml_log_level level, const char* text, void*) {
    if (level == GGML_LOG_LEVEL_WARN || level == GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

}  // namespace

std::unique_ptr<Executor> make_executor(std::shared_ptr<const GgufFile> file, const ModelSpec& spec,
                                        const ExecutorOptions& options) {
    require_supported_cpu();
    check_options(options);
    static std::once_flag log_set;
    std::call_once(log_set, [] { ggml_log_set(keep_warnings, nullptr); });
    if (options.executor == "fused") return make_cpu_executor(std::move(file), spec, options, false, "asked for");
    if (options.executor == "ggml") return make_graph_executor(std::move(file), spec, options, "asked for");
    if (options.portable_attention)
        return make_graph_executor(std::move(file), spec, options, "portable_attention needs its operators");
    if (has_accelerator())
        return make_graph_executor(std::move(file), spec, options, "it runs on the accelerator of this machine");
    return make_cpu_executor(std::move(file), spec, options, false, "the fastest on a CPU without an accelerator");
}

}  // namespace edgellm
