#include "model/vision_spec.hpp"

#include <cmath>
#include <string>
#include <unordered_set>

#include "contract/errors.hpp"
#include "model/printable.hpp"
#include "model/tensor_types.hpp"

namespace edgellm {
namespace {

// Bounds that no real tower reaches; they keep every later product inside its integer type.
constexpr int64_t kMaxImageSize_pixels = 4096;
constexpr int64_t kMaxPatches = 1 << 14;
constexpr int64_t kMaxWidth = 1 << 16;
constexpr int64_t kMaxLayers = 256;
constexpr int64_t kMaxHeads = 256;
constexpr int64_t kMaxScaleFactor = 16;

constexpr std::string_view kArchitecture = "clip";
constexpr std::string_view kProjector = "idefics3";

[[noreturn]] void refuse(const GgufFile& file, const std::string& what) {
    throw ModelFileError("model file '" + file.path().string() + "': " + what);
}

void require_text(const GgufFile& file, std::string_view key, std::string_view supported) {
    const std::string_view found = file.require_string(key);
    if (found != supported)
        refuse(file, "key '" + std::string(key) + "' is '" + printable(found) + "'; supported is " +
                         std::string(supported));
}

std::array<float, kColours> colours(const GgufFile& file, const std::string& key, double lowest) {
    const GgufValue* value = file.find(key);
    const auto* array = value == nullptr ? nullptr : std::get_if<GgufArray>(value);
    const auto* numbers = array == nullptr ? nullptr : std::get_if<std::vector<double>>(array);
    if (numbers == nullptr || numbers->size() != kColours) refuse(file, "key '" + key + "' is no list of 3 numbers");
    std::array<float, kColours> result{};
    for (std::size_t i = 0; i < result.size(); ++i) {
        const double number = (*numbers)[i];
        if (!std::isfinite(number) || number < lowest || number > 1e6)
            refuse(file, "key '" + key + "' is out of range");
        result[i] = static_cast<float>(number);
    }
    return result;
}

float positive(const GgufFile& file, const std::string& key) {
    const double number = file.require_float(key);
    if (!std::isfinite(number) || number <= 0.0 || number > 1e6) refuse(file, "key '" + key + "' is out of range");
    return static_cast<float>(number);
}

class TensorFinder {
public:
    explicit TensorFinder(const GgufFile& file) : file_(file) {}

    // Values of a vector, and whatever is added to rows, stay exact.
    const TensorView* exact(const std::string& name, std::vector<int64_t> shape) {
        const TensorView* view = require(name, shape);
        if (view->type != TensorType::kF32) refuse_tensor(name, "must be of type F32");
        return view;
    }

    const TensorView* matrix(const std::string& name, std::vector<int64_t> shape) {
        const TensorView* view = require(name, shape);
        if (view->type != TensorType::kF32 && view->type != TensorType::kF16)
            refuse_tensor(name, "must be of type F32 or F16");
        return view;
    }

    LinearTensors linear(const std::string& name, int64_t inputs, int64_t outputs) {
        return {matrix(name + ".weight", {inputs, outputs}), exact(name + ".bias", {outputs})};
    }

    LinearTensors norm(const std::string& name, int64_t size) {
        return {exact(name + ".weight", {size}), exact(name + ".bias", {size})};
    }

    // A tensor that nobody reads would silently change what the model computes.
    void refuse_unused() const {
        for (const TensorView& view : file_.tensors()) {
            if (!used_.contains(view.name)) refuse_tensor(view.name, "is not part of a vision tower of this runtime");
        }
    }

private:
    [[noreturn]] void refuse_tensor(const std::string& name, const std::string& what) const {
        refuse(file_, "tensor '" + printable(name) + "' " + what);
    }

    const TensorView* require(const std::string& name, const std::vector<int64_t>& shape) {
        const TensorView* view = file_.tensor(name);
        if (view == nullptr) refuse_tensor(name, "is missing: build the engine again");
        std::vector<int64_t> found = view->shape;
        while (found.size() > shape.size() && found.back() == 1) found.pop_back();
        if (found != shape) refuse_tensor(name, "has a shape that contradicts the metadata");
        used_.insert(view->name);
        return view;
    }

    const GgufFile& file_;
    std::unordered_set<std::string> used_;
};

}  // namespace

VisionSpec read_vision_spec(const GgufFile& file) {
    require_text(file, "general.architecture", kArchitecture);
    require_text(file, "clip.projector_type", kProjector);
    const auto count = [&](const char* key, int64_t highest) {
        return static_cast<int32_t>(file.require_int(key, 1, highest));
    };
    VisionSpec spec;
    spec.image_size = count("clip.vision.image_size", kMaxImageSize_pixels);
    spec.patch_size = count("clip.vision.patch_size", spec.image_size);
    spec.hidden_size = count("clip.vision.embedding_length", kMaxWidth);
    spec.intermediate_size = count("clip.vision.feed_forward_length", kMaxWidth);
    spec.layer_count = count("clip.vision.block_count", kMaxLayers);
    spec.head_count = count("clip.vision.attention.head_count", kMaxHeads);
    spec.norm_epsilon = positive(file, "clip.vision.attention.layer_norm_epsilon");
    spec.scale_factor = count("clip.vision.projector.scale_factor", kMaxScaleFactor);
    spec.projection_size = count("clip.vision.projection_dim", kMaxWidth);
    spec.rescale_factor = positive(file, "clip.vision.rescale_factor");
    spec.mean = colours(file, "clip.vision.image_mean", -1e6);
    spec.deviation = colours(file, "clip.vision.image_std", 1e-6);
    if (spec.image_size % spec.patch_size != 0) refuse(file, "patch_size does not divide image_size");
    if (spec.patch_count() > kMaxPatches) refuse(file, "patch_size leaves too many patches");
    if (spec.patches_on_side() % spec.scale_factor != 0) refuse(file, "scale_factor does not divide the patches");
    if (spec.hidden_size % spec.head_count != 0) refuse(file, "head_count does not divide embedding_length");
    return spec;
}

VisionTensors find_vision_tensors(const GgufFile& file, const VisionSpec& spec) {
    TensorFinder find(file);
    const int64_t hidden = spec.hidden_size;
    VisionTensors tensors;
    tensors.patch_embedding = {
        find.matrix("v.patch_embd.weight", {spec.patch_size, spec.patch_size, kColours, hidden}),
        find.exact("v.patch_embd.bias", {hidden}),
    };
    tensors.position_embedding = find.exact("v.position_embd.weight", {hidden, spec.patch_count()});
    for (int32_t index = 0; index < spec.layer_count; ++index) {
        const std::string prefix = "v.blk." + std::to_string(index) + ".";
        VisionLayerTensors layer;
        layer.attention_norm = find.norm(prefix + "ln1", hidden);
        layer.query = find.linear(prefix + "attn_q", hidden, hidden);
        layer.key = find.linear(prefix + "attn_k", hidden, hidden);
        layer.value = find.linear(prefix + "attn_v", hidden, hidden);
        layer.attention_output = find.linear(prefix + "attn_out", hidden, hidden);
        layer.feed_forward_norm = find.norm(prefix + "ln2", hidden);
        layer.up = find.linear(prefix + "ffn_up", hidden, spec.intermediate_size);
        layer.down = find.linear(prefix + "ffn_down", spec.intermediate_size, hidden);
        tensors.layers.push_back(layer);
    }
    tensors.output_norm = find.norm("v.post_ln", hidden);
    tensors.connector = find.matrix("mm.model.fc.weight", {spec.shuffled_size(), spec.projection_size});
    find.refuse_unused();
    return tensors;
}

}  // namespace edgellm
