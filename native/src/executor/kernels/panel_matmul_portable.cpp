// Panel kernels in plain C++: what every other set must equal bit for bit, and the one for CPUs without another.
#include <cmath>
#include <cstring>

#include "executor/kernels/half.hpp"
#include "executor/kernels/panel_matmul_body.hpp"

namespace edgellm {
namespace {

struct PlainPanel {
    static constexpr int kRows = static_cast<int>(kPanelRows);
    static constexpr int kTokens = 2;

    struct Floats {
        float lane[kRows];
    };
    struct Nibbles {
        uint8_t value[kRows][kPanelBlock];
    };
    struct Bytes {
        int8_t value[kRows][kPanelBlock / 2];
    };
    struct ByteSums {
        int32_t lane[kRows];
    };

    template <typename F>
    static Floats each(F f) {
        Floats v;
        for (int r = 0; r < kRows; ++r) v.lane[r] = f(r);
        return v;
    }
    static Floats zero_floats() { return set(0.0F); }
    static Floats set(float value) {
        return each([&](int) { return value; });
    }
    static Floats load_half(const std::byte* from) {
        return each([&](int r) {
            uint16_t half;
            std::memcpy(&half, from + 2 * r, sizeof half);
            return half_to_float(half);
        });
    }
    static void store(float* to, const Floats& v) { std::memcpy(to, v.lane, sizeof v.lane); }
    static Floats multiply(const Floats& a, const Floats& b) {
        return each([&](int r) { return a.lane[r] * b.lane[r]; });
    }
    static Floats multiply_add(const Floats& a, const Floats& b, const Floats& c) {
        return each([&](int r) { return std::fma(a.lane[r], b.lane[r], c.lane[r]); });
    }

    static Nibbles load_nibbles(const std::byte* words) {
        Nibbles w;
        for (int r = 0; r < kRows; ++r) {
            for (int i = 0; i < static_cast<int>(kPanelBlock) / 2; ++i) {
                const auto both = static_cast<uint8_t>(words[(i / 4 * kRows + r) * 4 + i % 4]);
                w.value[r][i] = both & 15U;
                w.value[r][i + kPanelBlock / 2] = static_cast<uint8_t>(both >> 4U);
            }
        }
        return w;
    }
    static Floats dot_nibbles(const Nibbles& w, const int8_t* x, int32_t start) {
        return each([&](int r) {
            int32_t sum = start;
            for (int i = 0; i < static_cast<int>(kPanelBlock); ++i) sum += w.value[r][i] * x[i];
            return static_cast<float>(sum);
        });
    }
    static Bytes load_bytes(const std::byte* words) {
        Bytes w;
        for (int r = 0; r < kRows; ++r) {
            for (int i = 0; i < static_cast<int>(kPanelBlock) / 2; ++i)
                w.value[r][i] = static_cast<int8_t>(words[(i / 4 * kRows + r) * 4 + i % 4]);
        }
        return w;
    }
    static ByteSums zero_sums() { return {}; }
    static ByteSums add_bytes(ByteSums sums, const Bytes& w, const std::byte* x) {
        for (int i = 0; i < static_cast<int>(kPanelBlock) / 2; ++i) {
            int16_t value;
            std::memcpy(&value, x + 2 * i, sizeof value);
            for (int r = 0; r < kRows; ++r) sums.lane[r] += w.value[r][i] * value;
        }
        return sums;
    }
    static Floats total(const ByteSums& sums) {
        return each([&](int r) { return static_cast<float>(sums.lane[r]); });
    }

    static float largest_magnitude(const float* values) {
        float largest = 0.0F;
        for (int64_t i = 0; i < kPanelBlock; ++i) largest = std::fmax(largest, std::fabs(values[i]));
        return largest;
    }
    // Values that are no numbers become zero: a conversion to an integer would be undefined.
    static int32_t round(float value) { return std::isnan(value) ? 0 : static_cast<int32_t>(std::nearbyint(value)); }
    static int32_t quantise_bytes(const float* values, float inverse, int8_t* quants) {
        int32_t sum = 0;
        for (int64_t i = 0; i < kPanelBlock; ++i) {
            const int32_t quant = round(values[i] * inverse);
            quants[i] = static_cast<int8_t>(quant);
            sum += quant;
        }
        return sum;
    }
    static void quantise_words(const float* values, float inverse, std::byte* to) {
        for (int64_t i = 0; i < kPanelBlock; ++i) {
            const auto quant = static_cast<int16_t>(round(values[i] * inverse));
            std::memcpy(to + 2 * i, &quant, sizeof quant);
        }
    }
};

}  // namespace

const MatmulKernel* find_portable_panel_kernel(TensorType type) noexcept {
    static const ByteFormat<PlainPanel> byte_format;
    static const WordFormat<PlainPanel> word_format;
    return panel_kernel<PlainPanel>(type, byte_format, word_format);
}

}  // namespace edgellm
