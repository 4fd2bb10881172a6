#include "engine/sequence_spec.hpp"

#include <algorithm>
#include <random>

#include "engine/value_checks.hpp"

namespace edgellm {
namespace {

constexpr float kMaxTemperature = 100.0F;
constexpr float kMaxPenalty = 2.0F;
constexpr float kMaxLogitBias = 100.0F;
constexpr std::size_t kMaxLogitBiasEntries = 1024;
constexpr int32_t kMaxLogprobs = 128;
constexpr std::size_t kMaxStopStrings = 64;
constexpr std::size_t kMaxStopStringBytes = 4096;
constexpr std::size_t kMaxCacheDomainBytes = 256;

void refuse_what_this_runtime_lacks(const LLMGenerationRequest& request) {
    if (!request.lora_weights_name.empty())
        refuse_value("lora_weights_name", "must be empty: this runtime has no adapters");
    if (request.save_system_prompt_kv_cache) {
        refuse_value("save_system_prompt_kv_cache", "must be false: use the context cache");
    }
    check_range<int64_t>("recurrent_capture_interval", request.recurrent_capture_interval, 0, INT64_MAX);
}

void check_prompt(const std::vector<int32_t>& prompt, std::size_t image_count, bool embeddings,
                  const EngineLimits& limits) {
    if (prompt.empty()) refuse_value("token_ids", "must not be empty: the prompt has no tokens");
    const auto tokens = static_cast<int64_t>(prompt.size());
    if (tokens > limits.max_input_tokens) {
        throw InvalidRequest(std::string(kInputTooLong) + ": the prompt has " + std::to_string(tokens) +
                             " tokens; max_input_tokens is " + std::to_string(limits.max_input_tokens));
    }
    if (!embeddings && tokens >= limits.max_kv_tokens) {
        throw InvalidRequest(std::string(kInputTooLong) + ": the prompt has " + std::to_string(tokens) +
                             " tokens and leaves no room for an answer; max_kv_tokens is " +
                             std::to_string(limits.max_kv_tokens));
    }
    const auto outside = std::find_if(prompt.begin(), prompt.end(), [&](int32_t token) {
        return token >= limits.vocab_size || image_index_of(token) >= static_cast<int32_t>(image_count);
    });
    if (outside != prompt.end()) {
        refuse_value("token_ids[" + std::to_string(outside - prompt.begin()) + "]",
                     "must be between 0 and " + std::to_string(limits.vocab_size - 1));
    }
}

// Every image has all of its rows in the prompt, in order.
void place_images(SequenceSpec& spec, const std::vector<std::shared_ptr<const EncodedImage>>& images) {
    std::vector<int32_t> placed(images.size(), 0);
    spec.images = images;
    spec.embedded_rows.assign(spec.prompt.size(), nullptr);
    for (std::size_t position = 0; position < spec.prompt.size(); ++position) {
        int32_t& token = spec.prompt[position];
        if (token >= 0) continue;
        const auto index = static_cast<std::size_t>(image_index_of(token));
        const EncodedImage& image = *images[index];
        if (placed[index] < image.row_count) spec.embedded_rows[position] = image.row(placed[index]);
        ++placed[index];
        token = image.key;
    }
    for (std::size_t index = 0; index < images.size(); ++index) {
        if (placed[index] == images[index]->row_count) continue;
        refuse_value("image_buffers[" + std::to_string(index) + "]",
                     "has " + std::to_string(images[index]->row_count) + " rows, and the prompt places for " +
                         std::to_string(placed[index]));
    }
}

uint64_t unpredictable_seed() {
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32U) | device();
}

// Equal prompts of one batch must not give equal answers, and the first gives what it gives alone.
uint64_t choose_seed(const LLMGenerationRequest& request, std::size_t index) {
    const Request& one = request.requests[index];
    if (one.sampling_seed) return *one.sampling_seed;
    if (request.sampling_seed) return *request.sampling_seed + index * 0xD1B54A32D192ED03ULL;
    return unpredictable_seed();
}

SamplingSpec make_sampling_spec(const LLMGenerationRequest& request, std::size_t index, const EngineLimits& limits) {
    const Request& one = request.requests[index];
    const RequestExtensions& extensions = one.extensions;
    SamplingSpec sampling;
    sampling.temperature = check_range("temperature", extensions.temperature.value_or(request.temperature), 0.0F,
                                       kMaxTemperature, "between 0 and 100");
    sampling.top_p = check_range("top_p", extensions.top_p.value_or(request.top_p), 0.0F, 1.0F, "between 0 and 1");
    const int64_t top_k = check_range<int64_t>("top_k", extensions.top_k.value_or(request.top_k), -1, INT64_MAX);
    sampling.top_k = static_cast<int32_t>(std::clamp<int64_t>(top_k, 0, limits.vocab_size));
    sampling.min_p = check_range("min_p", extensions.min_p, 0.0F, 1.0F, "between 0 and 1");
    sampling.frequency_penalty =
        check_range("frequency_penalty", extensions.frequency_penalty, -kMaxPenalty, kMaxPenalty, "between -2 and 2");
    sampling.presence_penalty =
        check_range("presence_penalty", extensions.presence_penalty, -kMaxPenalty, kMaxPenalty, "between -2 and 2");
    sampling.repetition_penalty =
        check_range("repetition_penalty", extensions.repetition_penalty, 0.0F, kMaxPenalty, "above 0 and at most 2");
    if (sampling.repetition_penalty == 0.0F) refuse_value("repetition_penalty", "must be above 0 and at most 2, not 0");
    sampling.logprob_count =
        check_range("num_logprobs", extensions.num_logprobs.value_or(request.num_logprobs), 0, kMaxLogprobs);
    if (one.logit_bias.size() > kMaxLogitBiasEntries) {
        refuse_value("logit_bias", "must have at most " + std::to_string(kMaxLogitBiasEntries) + " entries");
    }
    for (const auto& [token, bias] : one.logit_bias) {
        check_range("logit_bias token", token, 0, limits.vocab_size - 1);
        check_range("logit_bias value", bias, -kMaxLogitBias, kMaxLogitBias, "between -100 and 100");
        sampling.logit_bias.emplace_back(token, bias);
    }
    sampling.seed = choose_seed(request, index);
    return sampling;
}

void check_stop_strings(const std::vector<std::string>& stop_strings) {
    if (stop_strings.size() > kMaxStopStrings) {
        refuse_value("stop_strings", "must have at most " + std::to_string(kMaxStopStrings) + " entries");
    }
    for (std::size_t i = 0; i < stop_strings.size(); ++i) {
        if (stop_strings[i].empty() || stop_strings[i].size() > kMaxStopStringBytes) {
            refuse_value("stop_strings[" + std::to_string(i) + "]",
                         "must have between 1 and " + std::to_string(kMaxStopStringBytes) + " bytes");
        }
    }
}

}  // namespace

SequenceSpec make_sequence_spec(const LLMGenerationRequest& request, std::size_t index, std::vector<int32_t> prompt,
                                const EngineLimits& limits) {
    const Request& one = request.requests[index];
    refuse_what_this_runtime_lacks(request);
    check_prompt(prompt, one.encoded_images.size(), one.extensions.embeddings, limits);
    check_stop_strings(one.stop_strings);
    if (one.extensions.cache_domain.size() > kMaxCacheDomainBytes) {
        refuse_value("cache_domain", "must have at most " + std::to_string(kMaxCacheDomainBytes) + " bytes");
    }
    const int64_t max_new_tokens = check_range<int64_t>(
        "max_generate_length", one.extensions.max_generate_length.value_or(request.max_generate_length), 0, INT64_MAX);
    const int64_t replay_tail = check_range<int64_t>("context_cache_replay_tail_length",
                                                     request.context_cache_replay_tail_length, -1, INT32_MAX);

    SequenceSpec spec;
    spec.sampling = make_sampling_spec(request, index, limits);
    spec.prompt = std::move(prompt);
    if (!one.encoded_images.empty()) place_images(spec, one.encoded_images);
    const int64_t room = limits.max_kv_tokens - static_cast<int64_t>(spec.prompt.size());
    spec.max_new_tokens = static_cast<int32_t>(std::min(max_new_tokens, room));
    spec.stop_strings = one.stop_strings;
    spec.embeddings = one.extensions.embeddings;
    // Text that a grammar declared finished is never continued.
    spec.ends_at_end_token = !one.extensions.ignore_eos || one.guided_decoding.has_value();
    if (!request.stream_channels.empty()) spec.channel = request.stream_channels[index];
    spec.skip_special_tokens =
        request.skip_special_tokens && (spec.channel == nullptr || spec.channel->get_skip_special_tokens());
    spec.cache_domain = one.extensions.cache_domain;
    spec.cache_lookup = request.context_cache_lookup_policy;
    spec.cache_commit = request.context_cache_commit_policy;
    spec.recompute_tail_tokens = std::max(1, static_cast<int32_t>(replay_tail));
    return spec;
}

}  // namespace edgellm
