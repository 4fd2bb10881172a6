#include "contract/errors.hpp"
#include "engine/token_guide.hpp"

namespace edgellm {

std::unique_ptr<GuideCompiler> make_llguidance_compiler(const std::string&, const VocabSpec&) {
    throw InvalidRequest(std::string(kBadGuide) + ": guided decoding is not part of this build");
}

}  // namespace edgellm
