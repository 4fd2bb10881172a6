// Image, video and audio values. Files are decoded by the project's one decoder of each kind, in Python and within
// its limits: two decoders would disagree about what a file shows, and about what is too much.
#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bindings.hpp"
#include "bindings/media.hpp"
#include "contract/types.hpp"

namespace edgellm::bindings {

namespace {

using PixelArray = py::array_t<uint8_t, py::array::c_style | py::array::forcecast>;
using SampleArray = py::array_t<float, py::array::c_style | py::array::forcecast>;

constexpr int64_t kColours = 3;
constexpr std::size_t kMaxVideoFrames = 768;

// The contract has a RuntimeError for whatever cannot be decoded; here it says which function could not.
template <class Call>
auto decoding(const char* function, Call call) {
    std::string cause;
    try {
        return call();
    } catch (py::error_already_set& error) {
        if (!error.matches(PyExc_Exception)) throw;
        cause = py::str(error.value()).cast<std::string>();
    } catch (const std::runtime_error& error) {
        cause = error.what();
    }
    throw std::runtime_error(std::string(function) + ": " + cause);
}

PixelArray decode_rgb(const py::bytes& data) {
    const py::object decode = py::module_::import("edgellm.media.image_decoding").attr("decode_rgb");
    auto pixels = decode(data).cast<PixelArray>();
    if (pixels.ndim() != 3 || pixels.shape(2) != kColours || pixels.size() == 0) {
        throw std::runtime_error("the image decoder gave no picture of three colours");
    }
    return pixels;
}

template <class Sample, class Array>
std::shared_ptr<const std::vector<Sample>> owned(const Array& array) {
    return std::make_shared<const std::vector<Sample>>(array.data(), array.data() + array.size());
}

ImageData image_of(const PixelArray& pixels) {
    ImageData image;
    image.height = pixels.shape(0);
    image.width = pixels.shape(1);
    image.channels = pixels.shape(2);
    image.pixels = owned<uint8_t>(pixels);
    return image;
}

// A device or a pipe would be read without end.
py::bytes read_image_file(const std::string& path) {
    std::error_code failed;
    if (!std::filesystem::is_regular_file(path, failed)) throw std::runtime_error("the path names no file");
    const auto most_bytes = py::module_::import("edgellm.media.limits").attr("IMAGE_BYTES_MAX").cast<std::uintmax_t>();
    const std::uintmax_t bytes = std::filesystem::file_size(path, failed);
    if (failed || bytes > most_bytes) {
        throw std::runtime_error("the file has more than " + std::to_string(most_bytes) + " bytes");
    }
    std::string content(static_cast<std::size_t>(bytes), '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(content.data(), static_cast<std::streamsize>(bytes));
    if (!file) throw std::runtime_error("the file cannot be read");
    return py::bytes(content);
}

ImageData load_image_from_bytes(const py::bytes& data) {
    return decoding("load_image_from_bytes", [&] { return image_of(decode_rgb(data)); });
}

// What was decoded already: neither limits of files nor the time of a decoder apply.
ImageData load_image_from_array(const PixelArray& array) {
    if (array.ndim() != 3 || array.shape(2) != kColours || array.size() == 0) {
        throw std::runtime_error("load_image_from_array: array must have the shape (height, width, 3)");
    }
    return image_of(array);
}

ImageData load_image_from_path(const std::string& path) {
    return decoding("load_image_from_path", [&] { return image_of(decode_rgb(read_image_file(path))); });
}

void describe_video(ImageData& video, const std::string& function, double fps, const std::vector<double>& timestamps) {
    if (!std::isfinite(fps) || fps <= 0.0) throw std::runtime_error(function + ": fps must be above 0");
    if (!timestamps.empty() && static_cast<int64_t>(timestamps.size()) != video.frames) {
        throw std::runtime_error(function + ": timestamps has " + std::to_string(timestamps.size()) +
                                 " entries and the video " + std::to_string(video.frames) + " frames");
    }
    video.is_video = true;
    video.fps = fps;
    video.timestamps = timestamps;
}

void check_frame_count(const std::string& function, std::size_t frames) {
    if (frames == 0 || frames > kMaxVideoFrames) {
        throw std::runtime_error(function + ": a video must have between 1 and " + std::to_string(kMaxVideoFrames) +
                                 " frames, not " + std::to_string(frames));
    }
}

ImageData load_video_from_array(const PixelArray& array, double fps, const std::vector<double>& timestamps) {
    const std::string function = "load_video_from_array";
    if (array.ndim() != 4 || array.shape(3) != kColours || array.shape(1) == 0 || array.shape(2) == 0) {
        throw std::runtime_error(function + ": array must have the shape (frames, height, width, 3)");
    }
    check_frame_count(function, static_cast<std::size_t>(array.shape(0)));
    ImageData video;
    video.frames = array.shape(0);
    video.height = array.shape(1);
    video.width = array.shape(2);
    video.channels = array.shape(3);
    describe_video(video, function, fps, timestamps);
    video.pixels = owned<uint8_t>(array);
    return video;
}

ImageData load_video_from_paths(const std::vector<std::string>& paths, double fps,
                                const std::vector<double>& timestamps) {
    const std::string function = "load_video_from_paths";
    check_frame_count(function, paths.size());
    ImageData video;
    auto pixels = std::make_shared<std::vector<uint8_t>>();
    for (const std::string& path : paths) {
        const ImageData frame = load_image_from_path(path);
        if (pixels->empty()) {
            video = frame;
        } else if (frame.width != video.width || frame.height != video.height) {
            throw std::runtime_error(function + ": the frames are not all of one size");
        }
        pixels->insert(pixels->end(), frame.pixels->begin(), frame.pixels->end());
    }
    video.frames = static_cast<int64_t>(paths.size());
    describe_video(video, function, fps, timestamps);
    video.pixels = std::move(pixels);
    return video;
}

AudioData load_audio_buffer_from_bytes(const py::bytes& data) {
    return decoding("load_audio_buffer_from_bytes", [&] {
        const py::module_ decoder = py::module_::import("edgellm.media.audio");
        const py::object file = py::module_::import("edgellm.media.media_file").attr("MediaFile").attr("empty")();
        file.attr("append")(data);
        auto samples = std::make_shared<std::vector<float>>();
        const auto never_cancelled = py::cpp_function([] { return false; });
        for (const py::handle piece : decoder.attr("audio_samples")(file, never_cancelled)) {
            const auto array = py::cast<SampleArray>(piece);
            samples->insert(samples->end(), array.data(), array.data() + array.size());
        }
        file.attr("close")();
        if (samples->empty()) throw std::runtime_error("the file holds no sound");
        AudioData audio;
        audio.sample_rate = decoder.attr("SAMPLE_RATE_HZ").cast<int32_t>();
        audio.num_samples = static_cast<int64_t>(samples->size());
        audio.samples = std::move(samples);
        return audio;
    });
}

}  // namespace

py::array pixel_view(const ImageData& image) {
    std::vector<py::ssize_t> shape{image.height, image.width, image.channels};
    if (image.is_video) shape.insert(shape.begin(), image.frames);
    if (image.pixels == nullptr) return py::array_t<uint8_t>(std::vector<py::ssize_t>(shape.size(), 0));
    auto kept = std::make_unique<std::shared_ptr<const std::vector<uint8_t>>>(image.pixels);
    py::capsule owner(kept.get(), [](void* pointer) {
        delete static_cast<std::shared_ptr<const std::vector<uint8_t>>*>(pointer);
    });
    kept.release();
    py::array_t<uint8_t> view(shape, image.pixels->data(), owner);
    view.attr("setflags")(py::arg("write") = false);
    return view;
}

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
        .def_readwrite("do_resize", &ImageData::do_resize)
        .def_property_readonly(
            "pixels", [](const ImageData& self) -> py::array_t<uint8_t> { return pixel_view(self); },
            "Extension: the pixels, (height, width, 3), of a video (frames, height, width, 3); not to be changed.");

    py::class_<AudioData>(module, "AudioData", "Decoded mono audio.")
        .def(py::init<>())
        .def_readwrite("sample_rate", &AudioData::sample_rate)
        .def_readonly("num_samples", &AudioData::num_samples);

    module.def("load_image_from_path", &load_image_from_path, py::arg("path"));
    module.def("load_image_from_bytes", &load_image_from_bytes, py::arg("data"));
    module.def("load_image_from_array", &load_image_from_array, py::arg("array"),
               "Extension: an image of pixels that were decoded before, (height, width, 3).");
    module.def("load_video_from_paths", &load_video_from_paths, py::arg("frame_paths"), py::arg("fps") = 1.0,
               py::arg("timestamps") = std::vector<double>{});
    module.def("load_video_from_array", &load_video_from_array, py::arg("array"), py::arg("fps") = 1.0,
               py::arg("timestamps") = std::vector<double>{});
    module.def(
        "load_audio_buffer_from_bytes",
        [](const std::string& data) { return load_audio_buffer_from_bytes(py::bytes(data)); }, py::arg("data"));
    module.def(
        "extract_mel_to_numpy",
        [](const py::bytes&, const std::string& fe_type) -> py::array_t<float> {
            if (fe_type != "whisper" && fe_type != "parakeet") {
                throw std::invalid_argument("fe_type must be 'whisper' or 'parakeet'");
            }
            throw std::runtime_error("extract_mel_to_numpy: the native runtime has no audio models yet");
        },
        py::arg("data"), py::arg("fe_type"));
}

}  // namespace edgellm::bindings
