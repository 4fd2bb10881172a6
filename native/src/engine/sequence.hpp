// Sequence: one request on its way through the engine: prompt, KV pages, sampling state and output.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/kv_pages.hpp"
#include "engine/sequence_output.hpp"
#include "engine/sequence_spec.hpp"
#include "engine/token_guide.hpp"

namespace edgellm {

class Sequence {
public:
    // vocab outlives the sequence; guide may be null. cancelled is shared with whoever may cancel.
    Sequence(SequenceSpec checked, const VocabSpec& vocab, std::unique_ptr<TokenGuide> token_guide,
             std::shared_ptr<const std::atomic<bool>> cancelled)
        : spec(std::move(checked)),
          guide(std::move(token_guide)),
          sampler(spec.sampling, spec.prompt),
          output(vocab, TextStream(vocab, spec.stop_strings, spec.skip_special_tokens), spec.channel,
                 static_cast<int32_t>(spec.prompt.size())),
          tokens(spec.prompt),
          cancelled_(std::move(cancelled)) {}

    bool cancel_requested() const {
        return (cancelled_ != nullptr && cancelled_->load()) ||
               (spec.channel != nullptr && spec.channel->is_cancelled());
    }
    int32_t prompt_size() const { return static_cast<int32_t>(spec.prompt.size()); }
    int32_t rows_to_compute() const { return static_cast<int32_t>(tokens.size()) - computed; }
    // As RowGroup has them; empty where no row of the prompt's part is an image's.
    std::span<const float* const> embedded_rows(std::size_t first, std::size_t count) const {
        if (first >= spec.embedded_rows.size()) return {};
        return std::span(spec.embedded_rows).subspan(first, count);
    }
    bool in_prefill() const { return computed < prompt_size(); }

    const SequenceSpec spec;
    std::unique_ptr<TokenGuide> guide;
    Sampler sampler;
    SequenceOutput output;

    std::vector<int32_t> tokens;    // prompt, then what was generated
    int32_t computed = 0;           // positions whose KV is in pages
    PageList pages;
    bool planned = false;           // the context cache was asked
    int32_t reused = 0;             // positions taken over from it
    bool finished = false;
    uint64_t owner_id = 0;          // the engine's own use

private:
    std::shared_ptr<const std::atomic<bool>> cancelled_;
};

}  // namespace edgellm
