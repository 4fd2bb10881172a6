#include "executor/cpu_features.hpp"

#include "contract/errors.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace edgellm {
namespace {

#if defined(__x86_64__)
constexpr unsigned kAvxVnniBit = 1U << 4;  // older compilers know no name for it either
#endif

}  // namespace

std::string missing_cpu_features() {
    std::string missing;
#if defined(__x86_64__)
    const auto need = [&](bool present, const char* name) {
        if (!present) missing += (missing.empty() ? "" : ", ") + std::string(name);
    };
    __builtin_cpu_init();
    need(__builtin_cpu_supports("avx2") != 0, "AVX2");  // also asks whether the system saves the wide registers
    need(__builtin_cpu_supports("fma") != 0, "FMA");
    need(__builtin_cpu_supports("bmi2") != 0, "BMI2");
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    const bool leaf = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0;  // older compilers know no name for F16C
    need(leaf && (ecx & bit_F16C) != 0, "F16C");
#endif
    return missing;
}

bool has_avx_vnni() noexcept {
#if defined(__x86_64__)
    if (!supported_cpu()) return false;
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnniBit) != 0;
#else
    return false;
#endif
}

bool has_avx512_vnni() noexcept {
#if defined(__x86_64__)
    // Asks whether the system saves the 512-bit registers, too.
    return supported_cpu() && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
           __builtin_cpu_supports("avx512vnni") != 0;
#else
    return false;
#endif
}

bool has_dot_products() noexcept {
#if defined(__aarch64__) && defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
    return false;
#endif
}

bool supported_cpu() noexcept {
    static const bool supported = missing_cpu_features().empty();
    return supported;
}

void require_supported_cpu() {
    if (supported_cpu()) return;
    throw ExecutorError(
        "this CPU lacks " + missing_cpu_features() +
        "; the native runtime needs AVX2, FMA, F16C and BMI2 (x86-64-v3): use a newer machine, or, in a "
        "virtual machine, pass the host's CPU model through");
}

}  // namespace edgellm
