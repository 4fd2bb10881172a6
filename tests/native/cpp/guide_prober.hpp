// GuideProber: which texts a guide lets a model write, asked token by token of the real grammar compiler.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/token_guide.hpp"
#include "scripted_executor.hpp"

namespace scripted {

#ifdef EDGELLM_GUIDANCE_LIBRARY
inline std::string guidance_library() {
    // The library names Python's symbols; outside Python empty ones stand in.
    static void* const symbols = dlopen(EDGELLM_PYTHON_SYMBOLS, RTLD_NOW | RTLD_GLOBAL);
    return symbols == nullptr ? "" : EDGELLM_GUIDANCE_LIBRARY;
}
#else
inline std::string guidance_library() { return ""; }
#endif

inline edgellm::GuidedDecodingParams guide(edgellm::GuideType type, std::string text) {
    return {type, std::move(text)};
}

enum class Verdict : uint8_t { kRefused, kUnfinished, kWhole };

class GuideProber {
public:
    GuideProber() : vocab_(make_vocab()), compiler_(edgellm::make_llguidance_compiler(guidance_library(), *vocab_)) {}

    edgellm::GuideCompiler& compiler() { return *compiler_; }
    std::unique_ptr<edgellm::TokenGuide> compile(edgellm::GuideType type, const std::string& text) {
        return compiler_->compile(guide(type, text));
    }

    Verdict judge(edgellm::GuideType type, const std::string& text, const std::vector<int32_t>& tokens) {
        const auto compiled = compile(type, text);
        for (const int32_t token : tokens) {
            if (compiled->complete() || !allows(*compiled, token) || !compiled->accept(token)) return Verdict::kRefused;
        }
        return compiled->complete() || allows(*compiled, kEndToken) ? Verdict::kWhole : Verdict::kUnfinished;
    }
    Verdict judge(edgellm::GuideType type, const std::string& text, const std::string& answer) {
        return judge(type, text, bytes_of(answer));
    }

    static bool allows(edgellm::TokenGuide& compiled, int32_t token) {
        std::vector<uint32_t> mask((kVocabSize + 31) / 32);
        compiled.allowed(mask);
        return ((mask[static_cast<std::size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32U)) & 1U) != 0;
    }

private:
    std::shared_ptr<const edgellm::VocabSpec> vocab_;
    std::unique_ptr<edgellm::GuideCompiler> compiler_;
};

}  // namespace scripted
