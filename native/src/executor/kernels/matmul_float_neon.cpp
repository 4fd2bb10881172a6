// Float matmul kernels for 64-bit Arm: eight floats are two vectors.
#include "executor/kernels/matmul.hpp"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "executor/kernels/matmul_float_body.hpp"

namespace edgellm {
namespace {

struct NeonVectors {
    struct Floats {
        float32x4_t low;
        float32x4_t high;
    };
    static Floats zero() { return {vdupq_n_f32(0.0F), vdupq_n_f32(0.0F)}; }
    static Floats load_float(const std::byte* from) {
        const auto* values = reinterpret_cast<const float*>(from);
        return {vld1q_f32(values), vld1q_f32(values + 4)};
    }
    static Floats load_half(const std::byte* from) {
        const float16x8_t halves = vreinterpretq_f16_u16(load_8(from));
        return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
    }
    static Floats load_bfloat(const std::byte* from) {
        const uint16x8_t upper = load_8(from);
        return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(upper), 16)),
                vreinterpretq_f32_u32(vshll_high_n_u16(upper, 16))};
    }
    static Floats multiply_add(Floats a, Floats b, Floats c) {
        return {vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
    }
    // The order of the other sets: lane by lane of the two halves, then of what is left.
    static float sum(Floats v) {
        const float32x4_t four = vaddq_f32(v.low, v.high);
        const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
        return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
    }

private:
    static uint16x8_t load_8(const std::byte* from) { return vld1q_u16(reinterpret_cast<const uint16_t*>(from)); }
};

}  // namespace

const MatmulKernel* find_neon_float_kernel(TensorType type) noexcept { return float_kernel<NeonVectors>(type); }

}  // namespace edgellm

#else

namespace edgellm {

const MatmulKernel* find_neon_float_kernel(TensorType) noexcept { return nullptr; }

}  // namespace edgellm

#endif
