// What the CPU can do: checked before any kernel or tensor library code runs.
#pragma once

#include <string>

namespace edgellm {

// AVX2, FMA, F16C and BMI2 on x86-64 (what the tensor library assumes without asking); true elsewhere.
bool supported_cpu() noexcept;

// Dot products of bytes on x86-64 in vectors of 256 bits and of 512 bits, beside what supported_cpu() asks for.
bool has_avx_vnni() noexcept;
bool has_avx512_vnni() noexcept;

// Dot products of bytes, which 64-bit Arm has from version 8.2 on; false elsewhere.
bool has_dot_products() noexcept;

// Names of the missing instruction sets, "" when none is missing.
std::string missing_cpu_features();

// Throws ExecutorError that names what is missing.
void require_supported_cpu();

}  // namespace edgellm
