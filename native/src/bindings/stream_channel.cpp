// StreamChannel and what comes out of it. Only create() makes one.
#include "contract/stream_channel.hpp"

#include <pybind11/stl.h>

#include <string_view>

#include "bindings/bindings.hpp"
#include "contract/types.hpp"

namespace edgellm::bindings {

void bind_stream_channel(py::module_& module) {
    py::class_<LogprobEntry>(module, "LogprobEntry", "A token, its log-probability and its exact bytes.")
        .def_readonly("token_id", &LogprobEntry::token_id)
        .def_readonly("logprob", &LogprobEntry::logprob)
        .def_property_readonly("piece", [](const LogprobEntry& self) { return py::bytes(self.piece); });

    py::class_<StreamChunk>(module, "StreamChunk", "What a sequence produced since the chunk before.")
        .def(py::init<>())
        .def_readonly("token_ids", &StreamChunk::token_ids)
        .def_readonly("text", &StreamChunk::text)
        .def_readonly("prompt_token_count", &StreamChunk::prompt_token_count)
        .def_readonly("finished", &StreamChunk::finished)
        .def_readonly("reason", &StreamChunk::reason)
        .def_readonly("logprobs", &StreamChunk::logprobs)
        .def_readonly("reused_token_count", &StreamChunk::reused_token_count)
        .def_readonly("matched_stop", &StreamChunk::matched_stop);

    py::class_<StreamSignal, std::shared_ptr<StreamSignal>>(
        module, "StreamSignal", "Extension: a descriptor for event loops, readable once a channel has raised it.")
        .def(py::init(&StreamSignal::create))
        .def("fileno", &StreamSignal::descriptor)
        .def("clear", &StreamSignal::clear, "Call it before looking at the channels.");

    py::class_<DeltaFrames, std::shared_ptr<DeltaFrames>>(
        module, "DeltaFrames", "Extension: one stream's chunks as frames of a worker.")
        .def("take_credit", &DeltaFrames::take_credit, "False when none is left.")
        .def("add_credit", &DeltaFrames::add_credit, py::arg("deltas"));

    py::class_<FrameSocket, std::shared_ptr<FrameSocket>>(
        module, "FrameSocket", "Extension: the sending end of a worker's socket; never waits.")
        .def(py::init(&FrameSocket::create), py::arg("descriptor"))
        .def("fileno", &FrameSocket::descriptor)
        .def("send", [](FrameSocket& self, const py::bytes& frame) { self.send(std::string_view(frame)); },
             py::arg("frame"), "What the kernel does not take at once is kept.")
        .def("delta_frames",
             [](const std::shared_ptr<FrameSocket>& self, uint64_t stream, int64_t credit) {
                 return std::make_shared<DeltaFrames>(self, stream, credit);
             },
             py::arg("stream"), py::arg("credit"))
        .def("flush", &FrameSocket::flush, "Send what was kept; False while something is left.")
        .def("kept_bytes", &FrameSocket::kept_bytes);

    py::class_<StreamChannel, std::shared_ptr<StreamChannel>>(
        module, "StreamChannel", "Carries one sequence to its reader; cancelling it cancels the sequence.")
        .def_static("create", &StreamChannel::create)
        .def("try_pop", &StreamChannel::try_pop)
        // Waits: the GIL is released.
        .def("wait_pop", &StreamChannel::wait_pop, py::arg("timeout_ms"), py::call_guard<py::gil_scoped_release>())
        .def("is_finished", &StreamChannel::is_finished)
        .def("get_reason", &StreamChannel::get_reason)
        .def("is_cancelled", &StreamChannel::is_cancelled)
        .def("cancel", &StreamChannel::cancel)
        .def("set_stream_interval", [](StreamChannel& self, int32_t n) { self.set_stream_interval(n); }, py::arg("n"))
        .def("get_stream_interval", &StreamChannel::get_stream_interval)
        .def("set_skip_special_tokens", &StreamChannel::set_skip_special_tokens, py::arg("skip"))
        .def("get_skip_special_tokens", &StreamChannel::get_skip_special_tokens)
        .def("set_signal", &StreamChannel::set_signal, py::arg("signal"),
             "Extension: raised at once, with each chunk, and when the runtime has let go of the request.")
        .def("forward_to", &StreamChannel::forward_to, py::arg("frames"),
             "Extension: from resume_forwarding() on, chunks of text alone go out as frames and raise no signal.")
        .def("resume_forwarding", &StreamChannel::resume_forwarding,
             "Call it once everything that was read has been sent.");
}

}  // namespace edgellm::bindings
