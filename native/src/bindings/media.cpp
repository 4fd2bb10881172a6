// Image, video and audio values. The types exist so that callers of the contract run unchanged;
// decoding is refused by name, since no model of this runtime takes media yet.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/bindings.hpp"
#include "contract/types.hpp"

namespace edgellm::bindings {

namespace {

[[noreturn]] void refuse(const std::string& function, const std::string& kind) {
    throw std::runtime_error(function + ": the native runtime has no " + kind + " models yet");
}

}  // namespace

void bind_media(py::module_& module) {
    py::class_<ImageData>(module, "ImageData", "A decoded image, or the frames of a video.")
        .def(py::init<>())
        .def_readonly("width", &ImageData::width)
        .def_readonly("height", &ImageData::height)
        .def_readonly("channels", &ImageData::channels)
        .def_readonly("frames", &ImageData::frames)
        .def_readonly("is_video", &ImageData::is_video)
        .def_readonly("timestamps", &ImageData::timestamps)
        .def_readwrite("fps", &ImageData::fps)
        .def_readwrite("do_resize", &ImageData::do_resize);

    py::class_<AudioData>(module, "AudioData", "Decoded mono audio.")
        .def(py::init<>())
        .def_readwrite("sample_rate", &AudioData::sample_rate)
        .def_readonly("num_samples", &AudioData::num_samples);

    module.def(
        "load_image_from_path", [](const std::string&) -> ImageData { refuse("load_image_from_path", "vision"); },
        py::arg("path"));
    module.def(
        "load_image_from_bytes", [](const py::bytes&) -> ImageData { refuse("load_image_from_bytes", "vision"); },
        py::arg("data"));
    module.def(
        "load_video_from_paths",
        [](const std::vector<std::string>&, double, const std::vector<double>&) -> ImageData {
            refuse("load_video_from_paths", "vision");
        },
        py::arg("frame_paths"), py::arg("fps") = 1.0, py::arg("timestamps") = std::vector<double>{});
    module.def(
        "load_video_from_array",
        [](const py::array_t<uint8_t, py::array::c_style | py::array::forcecast>&, double,
           const std::vector<double>&) -> ImageData { refuse("load_video_from_array", "vision"); },
        py::arg("array"), py::arg("fps") = 1.0, py::arg("timestamps") = std::vector<double>{});
    module.def(
        "load_audio_buffer_from_bytes",
        [](const std::string&) -> AudioData { refuse("load_audio_buffer_from_bytes", "audio"); }, py::arg("data"));
    module.def(
        "extract_mel_to_numpy",
        [](const py::bytes&, const std::string& fe_type) -> py::array_t<float> {
            if (fe_type != "whisper" && fe_type != "parakeet") {
                throw std::invalid_argument("fe_type must be 'whisper' or 'parakeet'");
            }
            refuse("extract_mel_to_numpy", "audio");
        },
        py::arg("data"), py::arg("fe_type"));
}

}  // namespace edgellm::bindings
