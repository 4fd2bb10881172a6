// The enums of the contract. They convert to int and do not compare equal to it.
#include "bindings/bindings.hpp"
#include "contract/types.hpp"

namespace edgellm::bindings {

void bind_enums(py::module_& module) {
    py::enum_<FinishReason>(module, "FinishReason", "Why a sequence ended.")
        .value("NOT_FINISHED", FinishReason::kNotFinished)
        .value("END_ID", FinishReason::kEndId)
        .value("LENGTH", FinishReason::kLength)
        .value("CANCELLED", FinishReason::kCancelled)
        .value("ERROR", FinishReason::kError)
        .value("STOP_WORDS", FinishReason::kStopWords);
    py::enum_<GuideType>(module, "GuideType", "What a guide is written in.")
        .value("JSON_OBJECT", GuideType::kJsonObject)
        .value("JSON_SCHEMA", GuideType::kJsonSchema)
        .value("REGEX", GuideType::kRegex)
        .value("EBNF", GuideType::kEbnf)
        .value("STRUCTURAL_TAG", GuideType::kStructuralTag)
        .value("CHOICE", GuideType::kChoice);
    py::enum_<ToolChoiceMode>(module, "ToolChoiceMode", "Whether the model may or must call tools.")
        .value("NONE", ToolChoiceMode::kNone)
        .value("AUTO", ToolChoiceMode::kAuto)
        .value("REQUIRED", ToolChoiceMode::kRequired)
        .value("FUNCTION", ToolChoiceMode::kFunction);
    py::enum_<ShutdownMode>(module, "ShutdownMode", "What happens to work at shutdown.")
        .value("DRAIN", ShutdownMode::kDrain)
        .value("CANCEL", ShutdownMode::kCancel);
    py::enum_<ContextCacheLookupPolicy>(module, "ContextCacheLookupPolicy", "Whether a prompt may reuse cached prefixes.")
        .value("USE_CACHE", ContextCacheLookupPolicy::kUseCache)
        .value("BYPASS", ContextCacheLookupPolicy::kBypass);
    py::enum_<ContextCacheCommitPolicy>(module, "ContextCacheCommitPolicy", "What of a sequence is kept for reuse.")
        .value("INCLUDING_GENERATED_TOKENS", ContextCacheCommitPolicy::kIncludingGeneratedTokens)
        .value("PREFILL_STATE_ONLY", ContextCacheCommitPolicy::kPrefillStateOnly);
    py::enum_<SpecProposalSampling>(module, "SpecProposalSampling", "How drafts of speculative decoding are sampled.")
        .value("AUTO", SpecProposalSampling::kAuto)
        .value("GREEDY", SpecProposalSampling::kGreedy)
        .value("PROBABILISTIC", SpecProposalSampling::kProbabilistic);
}

}  // namespace edgellm::bindings
