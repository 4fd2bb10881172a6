// Value types of the runtime contract: names, fields and defaults follow NVIDIA's pybind module,
// so that one Python adapter drives both. Fields marked "extension" exist only here.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace edgellm {

enum class FinishReason : int32_t { kNotFinished = 0, kEndId = 1, kLength = 2, kCancelled = 3, kError = 4, kStopWords = 5 };
enum class GuideType : int32_t { kJsonObject = 0, kJsonSchema = 1, kRegex = 2, kEbnf = 3, kStructuralTag = 4, kChoice = 5 };
enum class ToolChoiceMode : int32_t { kNone = 0, kAuto = 1, kRequired = 2, kFunction = 3 };
enum class ShutdownMode : int32_t { kDrain = 0, kCancel = 1 };
enum class ContextCacheLookupPolicy : int32_t { kUseCache = 0, kBypass = 1 };
enum class ContextCacheCommitPolicy : int32_t { kIncludingGeneratedTokens = 0, kPrefillStateOnly = 1 };
enum class SpecProposalSampling : int32_t { kAuto = 0, kGreedy = 1, kProbabilistic = 2 };

struct MessageContent {
    std::string type;
    std::string content;
};

struct MessageToolCall {
    std::string id;
    std::string type = "function";
    std::string name;
    std::string arguments;
    bool arguments_is_string = true;
};

struct Message {
    std::string role;
    std::vector<MessageContent> contents;
    std::string reasoning_content;
    bool has_reasoning_content = false;
    std::vector<MessageToolCall> tool_calls;
    bool has_tool_calls = false;
    std::string tool_call_id;
    std::string name;
    bool has_content = true;
    bool content_is_array = false;
    bool content_is_null = false;
};

struct ToolDefinition {
    std::string name;
    std::string description;
    std::string parameters = "{}";
    bool strict = false;
    bool has_description = true;
    bool has_parameters = true;
    bool has_strict = false;
};

struct ToolChoice {
    ToolChoiceMode mode = ToolChoiceMode::kAuto;
    std::string function_name;
};

struct GuidedDecodingParams {
    GuideType type = GuideType::kJsonObject;
    std::string guide;
};

struct FormattedRequest {
    std::string formatted_system_prompt;
    std::string formatted_complete_request;
};

// Decoded media of a request. Copies share their samples, which nobody changes.
struct ImageData {
    int64_t width = 0;               // pixels
    int64_t height = 0;              // pixels
    int64_t channels = 0;
    int64_t frames = 1;
    bool is_video = false;
    std::vector<double> timestamps;  // seconds, one a frame
    double fps = 1.0;                // frames per second
    bool do_resize = true;
    std::shared_ptr<const std::vector<uint8_t>> pixels;  // [frames][height][width][channels]; null while empty
};

struct AudioData {
    int32_t sample_rate = 24000;     // Hz
    int64_t num_samples = 0;
    std::shared_ptr<const std::vector<float>> samples;  // mono; null while empty
};

// Extension: what NVIDIA's Request cannot say. Unset optionals fall back to the batch-wide fields
// of LLMGenerationRequest; every default is neutral.
struct RequestExtensions {
    std::optional<std::vector<int32_t>> token_ids;  // prompt already tokenised by the front end
    std::optional<float> temperature;
    std::optional<float> top_p;
    std::optional<int64_t> top_k;
    std::optional<int64_t> max_generate_length;     // tokens
    std::optional<int32_t> num_logprobs;
    float min_p = 0.0F;                             // 0 = off
    float frequency_penalty = 0.0F;                 // 0 = off, [-2, 2]
    float presence_penalty = 0.0F;                  // 0 = off, [-2, 2]
    float repetition_penalty = 1.0F;                // 1 = off, (0, 2]
    bool ignore_eos = false;                        // for benchmarks: never ends on an end token
    bool embeddings = false;                        // hidden state instead of text
    std::string cache_domain;                       // prefixes are reused only inside one domain
};

struct EncodedImage;

struct Request {
    std::vector<Message> messages;
    std::vector<std::string> stop_strings;
    std::map<int32_t, float> logit_bias;
    std::optional<GuidedDecodingParams> guided_decoding;
    std::optional<uint64_t> sampling_seed;
    RequestExtensions extensions;                   // extension
    std::vector<ImageData> image_buffers;
    std::vector<AudioData> audio_buffers;
    // Extension, set by the bindings: image_buffers as token_ids refer to them, see encoded_image.hpp.
    std::vector<std::shared_ptr<const EncodedImage>> encoded_images;
};

class StreamChannel;

struct LLMGenerationRequest {
    std::vector<Request> requests;
    std::vector<FormattedRequest> formatted_requests;
    float temperature = 0.0F;
    float top_p = 0.0F;
    int64_t top_k = 0;
    std::optional<uint64_t> sampling_seed;
    SpecProposalSampling spec_proposal_sampling = SpecProposalSampling::kAuto;
    int64_t max_generate_length = 0;
    std::string lora_weights_name;
    bool save_system_prompt_kv_cache = false;
    bool apply_chat_template = true;
    bool add_generation_prompt = true;
    bool enable_thinking = false;
    std::string reasoning_effort;
    std::vector<ToolDefinition> tools;
    ToolChoice tool_choice;
    bool parallel_tool_calls = true;
    bool disable_spec_decode = false;
    bool skip_special_tokens = true;
    int64_t recurrent_capture_interval = 0;
    std::vector<std::shared_ptr<StreamChannel>> stream_channels;
    int32_t num_logprobs = 0;
    ContextCacheLookupPolicy context_cache_lookup_policy = ContextCacheLookupPolicy::kUseCache;
    ContextCacheCommitPolicy context_cache_commit_policy = ContextCacheCommitPolicy::kIncludingGeneratedTokens;
    int64_t context_cache_replay_tail_length = 0;
};

struct LogprobEntry {
    int32_t token_id = 0;
    float logprob = 0.0F;  // natural log under the model's own distribution, before temperature
    std::string piece;     // exact bytes of the token
};

// One entry list per generated token: the sampled token first, then the most likely ones.
using TokenLogprobs = std::vector<LogprobEntry>;

struct StreamChunk {
    std::vector<int32_t> token_ids;
    std::string text;                    // valid UTF-8, never part of a stop string
    int32_t prompt_token_count = -1;     // -1 = unknown
    bool finished = false;
    FinishReason reason = FinishReason::kNotFinished;
    std::vector<TokenLogprobs> logprobs;
    int32_t reused_token_count = -1;     // extension: prompt tokens taken from the context cache, -1 = unknown
    int32_t matched_stop = -1;           // extension: index into stop_strings, -1 = none
};

struct LLMGenerationResponse {
    std::vector<std::vector<int32_t>> output_ids;
    std::vector<std::string> output_texts;
    std::vector<std::vector<TokenLogprobs>> logprobs;
    std::vector<FinishReason> finish_reasons;
    std::vector<int32_t> prompt_token_counts;
    std::vector<int32_t> reused_token_counts;       // extension
    std::vector<int32_t> matched_stops;             // extension
    std::vector<std::vector<float>> embeddings;     // extension: one vector a request, when asked
};

struct ContextCacheConfig {
    bool enabled = false;
    int64_t max_records = 1024;
    int64_t recurrent_snapshot_pool_bytes = 0;
    int64_t partial_kv_snapshot_pool_bytes = 0;
};

struct ContextCachePoolMetrics {
    int64_t free = 0;
    int64_t capacity = 0;
};

struct ContextCacheMetrics {
    int64_t admitted_sequences = 0;
    int64_t hit_sequences = 0;
    int64_t lookup_bypass_sequences = 0;
    int64_t forced_cold_sequences = 0;
    int64_t matched_tokens = 0;
    int64_t reused_tokens = 0;
    int64_t standard_plans = 0;
    int64_t full_input_rewind_plans = 0;
    int64_t no_reusable_prefix_plans = 0;
    int64_t publication_attempts = 0;
    int64_t published_endpoints = 0;
    int64_t committed_publications = 0;
    int64_t existing_publications = 0;
    int64_t spec_pair_publications = 0;
    int64_t spec_full_page_replays = 0;
    int64_t hybrid_capture_synchronizations = 0;
    int64_t hybrid_restores = 0;
    int64_t hybrid_snapshot_pressure_skips = 0;
    int64_t evicted_records = 0;
    int64_t reclaimed_base_kv_pages = 0;
    int64_t reclaimed_draft_kv_pages = 0;
    int64_t reclaimed_recurrent_snapshots = 0;
    int64_t reclaimed_partial_kv_snapshots = 0;
    int64_t current_records = 0;
    ContextCachePoolMetrics base_kv_pages;
    ContextCachePoolMetrics draft_kv_pages;
    ContextCachePoolMetrics recurrent_snapshots;
    ContextCachePoolMetrics partial_kv_snapshots;
    int64_t planning_nanoseconds = 0;
};

struct EngineMetrics {
    int64_t submitted = 0;
    int64_t refused = 0;
    int64_t stalls_incompatible = 0;
    int64_t stalls_guided = 0;
    int64_t stalls_founder_only = 0;
    int64_t stalls_no_capacity = 0;
    int64_t admitted_mid_flight = 0;
    int64_t completed = 0;
    int64_t cancelled = 0;
    int64_t failed = 0;
    int64_t queue_latency_total_us = 0;
    int64_t queue_latency_max_us = 0;
    int64_t queue_latency_count = 0;
};

struct LLMPrefillMetrics {
    int64_t runs = 0;
    int64_t reused_tokens = 0;
    int64_t computed_tokens = 0;
};

struct MultimodalMetrics {
    int64_t runs = 0;                // requests with images
    int64_t total_images = 0;
    int64_t total_image_tokens = 0;
};

struct LLMGenerationMetrics {
    int64_t runs = 0;
    int64_t generated_tokens = 0;
};

}  // namespace edgellm
