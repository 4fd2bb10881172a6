// Float matmul kernels in plain C++, slow: what those with instructions of their own equal bit for bit.
#include <array>
#include <bit>
#include <cmath>

#include "executor/kernels/half.hpp"
#include "executor/kernels/matmul_float_body.hpp"

namespace edgellm {
namespace {

struct PortableVectors {
    using Floats = std::array<float, kLanes>;
    static Floats zero() { return {}; }
    static Floats load_float(const std::byte* from) {
        Floats v;
        std::memcpy(v.data(), from, sizeof v);
        return v;
    }
    static Floats load_half(const std::byte* from) {
        return converted(from, [](uint16_t half) { return half_to_float(half); });
    }
    static Floats load_bfloat(const std::byte* from) {
        return converted(from, [](uint16_t upper) { return std::bit_cast<float>(static_cast<uint32_t>(upper) << 16); });
    }
    static Floats multiply_add(const Floats& a, const Floats& b, Floats c) {
        for (std::size_t i = 0; i < c.size(); ++i) c[i] = std::fma(a[i], b[i], c[i]);
        return c;
    }
    static float sum(const Floats& v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }

private:
    template <typename Convert>
    static Floats converted(const std::byte* from, Convert convert) {
        std::array<uint16_t, kLanes> codes;
        std::memcpy(codes.data(), from, sizeof codes);
        Floats v;
        for (std::size_t i = 0; i < v.size(); ++i) v[i] = convert(codes[i]);
        return v;
    }
};

}  // namespace

const MatmulKernel* find_portable_float_kernel(TensorType type) noexcept { return float_kernel<PortableVectors>(type); }

}  // namespace edgellm
