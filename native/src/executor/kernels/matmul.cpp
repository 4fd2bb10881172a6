#include "executor/kernels/matmul.hpp"

#include "executor/cpu_features.hpp"

namespace edgellm {

const std::vector<PanelKernelSet>& panel_kernel_sets() {
    static const std::vector<PanelKernelSet> sets = [] {
        std::vector<PanelKernelSet> usable;
        const auto add = [&](bool can_run, const char* name, const MatmulKernel* (*find)(TensorType) noexcept) {
            if (can_run && find(TensorType::kQ8_0) != nullptr) usable.push_back({name, find});
        };
        add(has_avx512_vnni(), "AVX-512 VNNI", find_avx512_vnni_panel_kernel);
        add(has_avx_vnni(), "AVX-VNNI", find_avx_vnni_panel_kernel);
        add(supported_cpu(), "AVX2", find_avx2_panel_kernel);
        add(has_dot_products(), "NEON dot products", find_neon_panel_kernel);
        return usable;
    }();
    return sets;
}

const MatmulKernel* find_own_matmul_kernel(TensorType type) noexcept {
    if (!supported_cpu()) return nullptr;
    if (!panel_kernel_sets().empty()) {
        if (const MatmulKernel* kernel = panel_kernel_sets().front().find(type)) return kernel;
    }
    if (has_avx512_vnni()) {
        if (const MatmulKernel* kernel = find_avx512_float_kernel(type)) return kernel;
    }
    if (const MatmulKernel* kernel = find_avx2_float_kernel(type)) return kernel;
    return has_dot_products() ? find_neon_float_kernel(type) : nullptr;  // compiled for the CPUs that have them
}

}  // namespace edgellm
