// Counters, as copies taken at the time of the call.
#include "bindings/metrics.hpp"

#include "bindings/bindings.hpp"
#include "contract/types.hpp"
#include "executor/executor.hpp"

namespace edgellm::bindings {

namespace {

void bind_context_cache(py::module_& module) {
    py::class_<ContextCachePoolMetrics>(module, "ContextCachePoolMetrics", "How full one pool is.")
        .def_readonly("free", &ContextCachePoolMetrics::free)
        .def_readonly("capacity", &ContextCachePoolMetrics::capacity);

    using Metrics = ContextCacheMetrics;
    py::class_<Metrics>(module, "ContextCacheMetrics", "What the context cache did since the start.")
        .def_readonly("admitted_sequences", &Metrics::admitted_sequences)
        .def_readonly("hit_sequences", &Metrics::hit_sequences)
        .def_readonly("lookup_bypass_sequences", &Metrics::lookup_bypass_sequences)
        .def_readonly("forced_cold_sequences", &Metrics::forced_cold_sequences)
        .def_readonly("matched_tokens", &Metrics::matched_tokens)
        .def_readonly("reused_tokens", &Metrics::reused_tokens)
        .def_readonly("standard_plans", &Metrics::standard_plans)
        .def_readonly("full_input_rewind_plans", &Metrics::full_input_rewind_plans)
        .def_readonly("no_reusable_prefix_plans", &Metrics::no_reusable_prefix_plans)
        .def_readonly("publication_attempts", &Metrics::publication_attempts)
        .def_readonly("published_endpoints", &Metrics::published_endpoints)
        .def_readonly("committed_publications", &Metrics::committed_publications)
        .def_readonly("existing_publications", &Metrics::existing_publications)
        .def_readonly("spec_pair_publications", &Metrics::spec_pair_publications)
        .def_readonly("spec_full_page_replays", &Metrics::spec_full_page_replays)
        .def_readonly("hybrid_capture_synchronizations", &Metrics::hybrid_capture_synchronizations)
        .def_readonly("hybrid_restores", &Metrics::hybrid_restores)
        .def_readonly("hybrid_snapshot_pressure_skips", &Metrics::hybrid_snapshot_pressure_skips)
        .def_readonly("evicted_records", &Metrics::evicted_records)
        .def_readonly("reclaimed_base_kv_pages", &Metrics::reclaimed_base_kv_pages)
        .def_readonly("reclaimed_draft_kv_pages", &Metrics::reclaimed_draft_kv_pages)
        .def_readonly("reclaimed_recurrent_snapshots", &Metrics::reclaimed_recurrent_snapshots)
        .def_readonly("reclaimed_partial_kv_snapshots", &Metrics::reclaimed_partial_kv_snapshots)
        .def_readonly("current_records", &Metrics::current_records)
        .def_readonly("base_kv_pages", &Metrics::base_kv_pages)
        .def_readonly("draft_kv_pages", &Metrics::draft_kv_pages)
        .def_readonly("recurrent_snapshots", &Metrics::recurrent_snapshots)
        .def_readonly("partial_kv_snapshots", &Metrics::partial_kv_snapshots)
        .def_readonly("planning_nanoseconds", &Metrics::planning_nanoseconds);
}

void bind_engine(py::module_& module) {
    py::class_<EngineMetrics>(module, "EngineMetrics", "What the scheduler did since the start.")
        .def_readonly("submitted", &EngineMetrics::submitted)
        .def_readonly("refused", &EngineMetrics::refused)
        .def_readonly("stalls_incompatible", &EngineMetrics::stalls_incompatible)
        .def_readonly("stalls_guided", &EngineMetrics::stalls_guided)
        .def_readonly("stalls_founder_only", &EngineMetrics::stalls_founder_only)
        .def_readonly("stalls_no_capacity", &EngineMetrics::stalls_no_capacity)
        .def_readonly("admitted_mid_flight", &EngineMetrics::admitted_mid_flight)
        .def_readonly("completed", &EngineMetrics::completed)
        .def_readonly("cancelled", &EngineMetrics::cancelled)
        .def_readonly("failed", &EngineMetrics::failed)
        .def_readonly("queue_latency_total_us", &EngineMetrics::queue_latency_total_us)
        .def_readonly("queue_latency_max_us", &EngineMetrics::queue_latency_max_us)
        .def_readonly("queue_latency_count", &EngineMetrics::queue_latency_count);
}

void bind_phases(py::module_& module) {
    py::class_<LLMPrefillMetrics>(module, "LLMPrefillMetrics", "Prompt tokens, taken from the cache or computed.")
        .def_readonly("reused_tokens", &LLMPrefillMetrics::reused_tokens)
        .def_readonly("computed_tokens", &LLMPrefillMetrics::computed_tokens)
        .def("get_total_runs", [](const LLMPrefillMetrics& self) { return self.runs; });
    py::class_<LLMGenerationMetrics>(module, "LLMGenerationMetrics", "Tokens generated.")
        .def_readonly("generated_tokens", &LLMGenerationMetrics::generated_tokens)
        .def("get_total_runs", [](const LLMGenerationMetrics& self) { return self.runs; });
    py::class_<SpecDecodeGenerationMetrics>(module, "SpecDecodeGenerationMetrics",
                                            "Speculative decoding; zero on this runtime, which has none yet.")
        .def_readonly("total_iterations", &SpecDecodeGenerationMetrics::total_iterations)
        .def_readonly("total_generated_tokens", &SpecDecodeGenerationMetrics::total_generated_tokens)
        .def_readonly("total_accepted_draft_tokens", &SpecDecodeGenerationMetrics::total_accepted_draft_tokens)
        .def_readonly("total_proposed_draft_tokens", &SpecDecodeGenerationMetrics::total_proposed_draft_tokens)
        .def("get_total_runs", [](const SpecDecodeGenerationMetrics& self) { return self.runs; });
    py::class_<MultimodalMetrics>(module, "MultimodalMetrics",
                                  "Images of requests, and the prompt tokens that they took the place of.")
        .def_readonly("total_images", &MultimodalMetrics::total_images)
        .def_readonly("total_image_tokens", &MultimodalMetrics::total_image_tokens)
        .def("get_total_runs", [](const MultimodalMetrics& self) { return self.runs; });
}

}  // namespace

void bind_metrics(py::module_& module) {
    bind_context_cache(module);
    bind_engine(module);
    bind_phases(module);
    py::class_<ExecutorInfo>(module, "ExecutorInfo", "Extension: what runs the model, and its sizes.")
        .def_readonly("name", &ExecutorInfo::name)
        .def_readonly("device", &ExecutorInfo::device)
        .def_readonly("reason", &ExecutorInfo::reason)
        .def_readonly("threads", &ExecutorInfo::threads)
        .def_readonly("vocab_size", &ExecutorInfo::vocab_size)
        .def_readonly("hidden_size", &ExecutorInfo::hidden_size)
        .def_readonly("kv_page_tokens", &ExecutorInfo::kv_page_tokens)
        .def_readonly("kv_page_count", &ExecutorInfo::kv_page_count)
        .def_readonly("max_rows", &ExecutorInfo::max_rows)
        .def_readonly("weight_bytes", &ExecutorInfo::weight_bytes)
        .def_readonly("kv_bytes_per_token", &ExecutorInfo::kv_bytes_per_token);
}

}  // namespace edgellm::bindings
