// TokenGuide: constrains one sequence to a grammar, token by token, on the engine's thread without the GIL.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "contract/types.hpp"

namespace edgellm {

struct VocabSpec;

// Both throw InvalidRequest (marker kGuideLimit) when the grammar cannot be followed any further: it grew beyond a
// limit of the grammar engine, or took more computing time than one sequence may.
class TokenGuide {
public:
    virtual ~TokenGuide() = default;
    // Bit t of mask[t / 32] is set when token t may come next. End tokens are allowed exactly where the text may end.
    virtual void allowed(std::span<uint32_t> mask) = 0;
    // False when the token was not allowed; the sequence then ends in an error, never in free text.
    virtual bool accept(int32_t token_id) = 0;
    // Nothing but an end token may follow.
    virtual bool complete() const = 0;
};

class GuideCompiler {
public:
    virtual ~GuideCompiler() = default;
    // Throws InvalidRequest (marker kBadGuide) naming the keyword and its path. Thread-safe.
    virtual std::unique_ptr<TokenGuide> compile(const GuidedDecodingParams& params) = 0;
};

// library_path: the shared library that carries llguidance's C interface.
std::unique_ptr<GuideCompiler> make_llguidance_compiler(const std::string& library_path, const VocabSpec& vocab);

}  // namespace edgellm
