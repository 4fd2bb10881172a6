// VisionTower: pixels of square tiles in, rows for a decoder out. Not thread-safe: one tile is encoded at a time.
// No type of a tensor library appears here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "model/gguf_file.hpp"
#include "model/vision_spec.hpp"

namespace edgellm {

class VisionTower {
public:
    virtual ~VisionTower() = default;

    virtual const VisionSpec& spec() const noexcept = 0;

    // pixels is [height][width][colour] of one tile; rows is [row_count][projection_size]. The result depends on the
    // pixels alone. Throws ExecutorError.
    virtual void encode(std::span<const uint8_t> pixels, std::span<float> rows) = 0;
};

// Throws ModelFileError naming the key or tensor that is wrong, InvalidRequest for a bad number of threads (0 chooses).
std::unique_ptr<VisionTower> make_vision_tower(std::shared_ptr<const GgufFile> file, int32_t threads);

}  // namespace edgellm
