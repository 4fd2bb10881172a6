#include "bindings/speech.hpp"

#include <pybind11/stl.h>

#include <memory>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/unsupported.hpp"

namespace edgellm::bindings {

namespace {

// Never exists: construction is refused.
class TTSRuntime {};

}  // namespace

void bind_speech(py::module_& module) {
    py::class_<AudioChunk>(module, "AudioChunk", "A piece of generated speech.")
        .def_property_readonly("pcm16", [](const AudioChunk& self) { return py::bytes(self.pcm16); })
        .def_readonly("is_final", &AudioChunk::is_final)
        .def_readonly("num_frames", &AudioChunk::num_frames);

    py::class_<AudioStreamChannel, std::shared_ptr<AudioStreamChannel>>(module, "AudioStreamChannel",
                                                                        "Carries speech to its reader.")
        .def(py::init<>())
        .def("try_pop", &AudioStreamChannel::try_pop)
        // Waits: the GIL is released.
        .def("wait_pop", &AudioStreamChannel::wait_pop, py::arg("timeout_ms"),
             py::call_guard<py::gil_scoped_release>())
        .def("is_finished", &AudioStreamChannel::is_finished)
        .def("is_cancelled", &AudioStreamChannel::is_cancelled)
        .def("cancel", &AudioStreamChannel::cancel);

    py::class_<OmniAudioParams>(module, "OmniAudioParams", "How speech is sampled.")
        .def(py::init<>())
        .def_readwrite("talker_temperature", &OmniAudioParams::talker_temperature)
        .def_readwrite("talker_top_k", &OmniAudioParams::talker_top_k)
        .def_readwrite("talker_top_p", &OmniAudioParams::talker_top_p)
        .def_readwrite("repetition_penalty", &OmniAudioParams::repetition_penalty)
        .def_readwrite("max_audio_length", &OmniAudioParams::max_audio_length)
        .def_readwrite("speaker_name", &OmniAudioParams::speaker_name)
        .def_readwrite("codec_chunk_frames", &OmniAudioParams::codec_chunk_frames)
        .def_readwrite("talker_prefill_threshold", &OmniAudioParams::talker_prefill_threshold);

    py::class_<TTSRuntime>(module, "TTSRuntime", "Refused: this runtime has no speech models yet.")
        .def(py::init([](const std::string&, const std::string&, const std::string&, const std::string&,
                         const std::string&) -> std::unique_ptr<TTSRuntime> { refuse_speech("TTSRuntime"); }),
             py::arg("talker_engine_dir"), py::arg("code_predictor_engine_dir"), py::arg("code2wav_engine_dir"),
             py::arg("tokenizer_dir") = "", py::arg("checkpoint_dir") = "")
        .def(
            "handle_request_tts",
            [](TTSRuntime&, const std::string&, const OmniAudioParams&, AudioStreamChannel&) -> int32_t {
                refuse_speech("TTSRuntime.handle_request_tts");
            },
            py::arg("text"), py::arg("params"), py::arg("audio_channel"))
        .def("get_speaker_names", [](const TTSRuntime&) { return std::vector<std::string>(); });
}

}  // namespace edgellm::bindings
