// CpuKernels in plain C++: loops of eight that compilers turn into whatever vectors the target has.
#include <cmath>
#include <cstring>

#include "executor/kernels/cpu_kernels_body.hpp"
#include "executor/kernels/half.hpp"

namespace edgellm {
namespace {

constexpr int kLanes = 8;

struct PlainVector {
    float lane[kLanes];

    template <typename F>
    static PlainVector each(F f) {
        PlainVector v;
        for (int i = 0; i < kLanes; ++i) v.lane[i] = f(i);
        return v;
    }
    static PlainVector zero() { return set(0.0F); }
    static PlainVector set(float value) {
        return each([&](int) { return value; });
    }
    static PlainVector load(const float* from) {
        return each([&](int i) { return from[i]; });
    }
    static PlainVector load_half(const uint16_t* from) {
#if defined(__ARM_FP16_FORMAT_IEEE)
        __fp16 halves[kLanes];
        std::memcpy(halves, from, sizeof halves);
        return each([&](int i) { return static_cast<float>(halves[i]); });
#else
        return each([&](int i) { return half_to_float(from[i]); });
#endif
    }
    void store(float* to) const {
        for (int i = 0; i < kLanes; ++i) to[i] = lane[i];
    }
    void store_half(uint16_t* to) const {
#if defined(__ARM_FP16_FORMAT_IEEE)
        __fp16 halves[kLanes];
        for (int i = 0; i < kLanes; ++i) halves[i] = static_cast<__fp16>(lane[i]);
        std::memcpy(to, halves, sizeof halves);
#else
        for (int i = 0; i < kLanes; ++i) to[i] = float_to_half(lane[i]);
#endif
    }
    static PlainVector multiply_add(const PlainVector& a, const PlainVector& b, const PlainVector& c) {
#if defined(__FP_FAST_FMAF)
        return each([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
#else
        return each([&](int i) { return a.lane[i] * b.lane[i] + c.lane[i]; });
#endif
    }
    static PlainVector max(const PlainVector& a, const PlainVector& b) {
        return each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
    }
    static PlainVector exp(const PlainVector& a) {
        return each([&](int i) { return std::exp(a.lane[i]); });
    }
    static PlainVector divide(const PlainVector& a, const PlainVector& b) {
        return each([&](int i) { return a.lane[i] / b.lane[i]; });
    }
    float sum() const {
        const float low = (lane[0] + lane[4]) + (lane[2] + lane[6]);
        return low + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
    }
    float largest() const {
        float top = lane[0];
        for (int i = 1; i < kLanes; ++i) top = lane[i] > top ? lane[i] : top;
        return top;
    }
};

PlainVector operator+(const PlainVector& a, const PlainVector& b) {
    return PlainVector::each([&](int i) { return a.lane[i] + b.lane[i]; });
}

PlainVector operator*(const PlainVector& a, const PlainVector& b) {
    return PlainVector::each([&](int i) { return a.lane[i] * b.lane[i]; });
}

}  // namespace

const CpuKernels& portable_cpu_kernels() noexcept {
    static constexpr CpuKernels kernels = kernel_body::make_cpu_kernels<PlainVector>("portable");
    return kernels;
}

}  // namespace edgellm
