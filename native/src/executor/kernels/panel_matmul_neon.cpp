// Panel kernels for 64-bit Arm with dot products of bytes. Activations of 16 bits are two bytes, 256 × high + low.
#include "executor/kernels/matmul.hpp"

#if defined(__aarch64__) && defined(__ARM_FEATURE_DOTPROD)

#include <arm_neon.h>

#include "executor/kernels/panel_matmul_body.hpp"

namespace edgellm {
namespace {

struct NeonPanel {
    static constexpr int kRows = 4;
    static constexpr int kTokens = 4;

    using Floats = float32x4_t;
    struct Nibbles {
        int8x16_t word[8];
    };
    struct Bytes {
        int8x16_t word[4];
    };
    struct ByteSums {
        int32x4_t high;
        int32x4_t low;
    };

    static Floats zero_floats() { return vdupq_n_f32(0.0F); }
    static Floats set(float value) { return vdupq_n_f32(value); }
    static Floats load_half(const std::byte* from) {
        return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(reinterpret_cast<const uint16_t*>(from))));
    }
    static void store(float* to, Floats v) { vst1q_f32(to, v); }
    static Floats multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
    static Floats multiply_add(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }

    static int8x16_t load_word(const std::byte* words, int index) {
        return vld1q_s8(reinterpret_cast<const int8_t*>(words + index * kWords_bytes));
    }
    // sums + the four words of w times the four words of x.
    static int32x4_t dot_words(int32x4_t sums, const int8x16_t* w, int8x16_t x) {
        sums = vdotq_laneq_s32(sums, w[0], x, 0);
        sums = vdotq_laneq_s32(sums, w[1], x, 1);
        sums = vdotq_laneq_s32(sums, w[2], x, 2);
        return vdotq_laneq_s32(sums, w[3], x, 3);
    }
    static Nibbles load_nibbles(const std::byte* words) {
        Nibbles w;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) {
            const uint8x16_t both = vreinterpretq_u8_s8(load_word(words, i));
            w.word[i] = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
            w.word[4 + i] = vreinterpretq_s8_u8(vshrq_n_u8(both, 4));
        }
        return w;
    }
    static Floats dot_nibbles(const Nibbles& w, const int8_t* x, int32_t start) {
        const int32x4_t sums = dot_words(vdupq_n_s32(start), w.word, vld1q_s8(x));
        return vcvtq_f32_s32(dot_words(sums, w.word + 4, vld1q_s8(x + 16)));
    }

    static Bytes load_bytes(const std::byte* words) {
        Bytes w;
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) w.word[i] = load_word(words, i);
        return w;
    }
    static ByteSums zero_sums() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
    static ByteSums add_bytes(ByteSums sums, const Bytes& w, const std::byte* x) {
        const auto* bytes = reinterpret_cast<const int8_t*>(x);
        return {dot_words(sums.high, w.word, vld1q_s8(bytes)), dot_words(sums.low, w.word, vld1q_s8(bytes + 16))};
    }
    static Floats total(const ByteSums& sums) {
        return vcvtq_f32_s32(vaddq_s32(vshlq_n_s32(sums.high, 8), sums.low));
    }

    static float largest_magnitude(const float* values) {
        float32x4_t largest = vdupq_n_f32(0.0F);
        for (int i = 0; i < 8; ++i) largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(values + 4 * i)));
        return vmaxvq_f32(largest);
    }
    static int32x4_t round(const float* values, float inverse) {
        return vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(values), inverse));
    }
    static int16x8_t round_eight(const float* values, float inverse) {
        return vcombine_s16(vqmovn_s32(round(values, inverse)), vqmovn_s32(round(values + 4, inverse)));
    }
    static int32_t quantise_bytes(const float* values, float inverse, int8_t* to) {
        int32_t sum = 0;
        for (int i = 0; i < 4; ++i) {
            const int16x8_t quants = round_eight(values + 8 * i, inverse);
            vst1_s8(to + 8 * i, vqmovn_s16(quants));
            sum += vaddlvq_s16(quants);
        }
        return sum;
    }
    // For each half of the block 16 high bytes, then 16 low ones.
    static void quantise_words(const float* values, float inverse, std::byte* to) {
        auto* bytes = reinterpret_cast<int8_t*>(to);
        for (int i = 0; i < 4; ++i) {
            const int16x8_t quants = round_eight(values + 8 * i, inverse);
            const int16x8_t high = vrshrq_n_s16(quants, 8);
            int8_t* const half = bytes + i / 2 * 32 + i % 2 * 8;
            vst1_s8(half, vmovn_s16(high));
            vst1_s8(half + 16, vmovn_s16(vsubq_s16(quants, vshlq_n_s16(high, 8))));
        }
    }
};

}  // namespace

const MatmulKernel* find_neon_panel_kernel(TensorType type) noexcept {
    static const ByteFormat<NeonPanel> byte_format;
    static const WordFormat<NeonPanel> word_format;
    return panel_kernel<NeonPanel>(type, byte_format, word_format);
}

}  // namespace edgellm

#else

namespace edgellm {

const MatmulKernel* find_neon_panel_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
