// Lets code with AVX-VNNI run on a CPU without it: the trap of an unknown vpdpbusd is answered by doing what it does.
#pragma once

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <signal.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace avxvnni {

inline constexpr std::size_t kLowHalves_bytes = 160;  // of the vector registers, in the saved state
inline constexpr std::size_t kHeader_bytes = 512;     // of the extended state

inline std::size_t high_halves_bytes() {
    unsigned eax = 0;
    unsigned ebx = 0;
    unsigned ecx = 0;
    unsigned edx = 0;
    __get_cpuid_count(0xD, 2, &eax, &ebx, &ecx, &edx);
    return ebx;
}

inline std::size_t g_high_halves_bytes = 0;

inline uint64_t general_register(const mcontext_t& machine, unsigned number) {
    static constexpr int kPlaces[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                        REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
    return static_cast<uint64_t>(machine.gregs[kPlaces[number]]);
}

struct Vector {
    unsigned char bytes[32];
};

inline Vector read_vector(const unsigned char* state, unsigned number) {
    Vector vector;
    std::memcpy(vector.bytes, state + kLowHalves_bytes + number * 16, 16);
    std::memcpy(vector.bytes + 16, state + g_high_halves_bytes + number * 16, 16);
    return vector;
}

inline void write_vector(unsigned char* state, unsigned number, const Vector& vector) {
    std::memcpy(state + kLowHalves_bytes + number * 16, vector.bytes, 16);
    std::memcpy(state + g_high_halves_bytes + number * 16, vector.bytes + 16, 16);
    state[kHeader_bytes] |= 6;  // both halves are in use
}

// The address of a memory operand; `at` is left behind it.
inline uint64_t operand_address(const mcontext_t& machine, const unsigned char*& at, unsigned mod, unsigned rm,
                                unsigned base_bit, unsigned index_bit) {
    uint64_t address = 0;
    bool relative = false;
    bool wide = mod == 2;
    if ((rm & 7U) == 4) {
        const unsigned sib = *at++;
        const unsigned index = ((sib >> 3U) & 7U) | index_bit;
        if (index != 4) address += general_register(machine, index) << (sib >> 6U);
        if ((sib & 7U) == 5 && mod == 0) {
            wide = true;
        } else {
            address += general_register(machine, (sib & 7U) | base_bit);
        }
    } else if ((rm & 7U) == 5 && mod == 0) {
        relative = true;
        wide = true;
    } else {
        address += general_register(machine, (rm & 7U) | base_bit);
    }
    if (wide) {
        int32_t displacement;
        std::memcpy(&displacement, at, sizeof displacement);
        at += sizeof displacement;
        address += static_cast<uint64_t>(static_cast<int64_t>(displacement));
    } else if (mod == 1) {
        address += static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(*at++)));
    }
    return relative ? address + reinterpret_cast<uint64_t>(at) : address;
}

inline void on_unknown_instruction(int, siginfo_t*, void* context) {
    mcontext_t& machine = static_cast<ucontext_t*>(context)->uc_mcontext;
    const auto* const code = reinterpret_cast<const unsigned char*>(machine.gregs[REG_RIP]);
    // A three-byte VEX prefix of the map 0F38, prefix 66, W0, 256 bits; then vpdpbusd.
    if (code[0] != 0xC4 || (code[1] & 0x1FU) != 2 || (code[2] & 0x87U) != 0x05 || code[3] != 0x50) std::abort();
    const unsigned r = (code[1] & 0x80U) != 0 ? 0 : 8;
    const unsigned x = (code[1] & 0x40U) != 0 ? 0 : 8;
    const unsigned b = (code[1] & 0x20U) != 0 ? 0 : 8;
    const unsigned unsigned_source = ~(static_cast<unsigned>(code[2]) >> 3U) & 15U;
    const unsigned mod = code[4] >> 6U;
    const unsigned rm = code[4] & 7U;
    const unsigned target = ((code[4] >> 3U) & 7U) | r;
    const unsigned char* at = code + 5;
    auto* const state = reinterpret_cast<unsigned char*>(machine.fpregs);
    Vector signed_bytes;
    if (mod == 3) {
        signed_bytes = read_vector(state, rm | b);
    } else {
        std::memcpy(signed_bytes.bytes, reinterpret_cast<const void*>(operand_address(machine, at, mod, rm, b, x)), 32);
    }
    const Vector unsigned_bytes = read_vector(state, unsigned_source);
    Vector sums = read_vector(state, target);
    for (std::size_t lane = 0; lane < 8; ++lane) {
        uint32_t sum;
        std::memcpy(&sum, sums.bytes + lane * 4, sizeof sum);
        for (std::size_t i = lane * 4; i < lane * 4 + 4; ++i)
            sum += static_cast<uint32_t>(unsigned_bytes.bytes[i] * static_cast<int8_t>(signed_bytes.bytes[i]));
        std::memcpy(sums.bytes + lane * 4, &sum, sizeof sum);
    }
    write_vector(state, target, sums);
    machine.gregs[REG_RIP] = reinterpret_cast<greg_t>(at);
}

// For the life of the process.
inline void install() {
    g_high_halves_bytes = high_halves_bytes();
    struct sigaction action{};
    action.sa_sigaction = on_unknown_instruction;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGILL, &action, nullptr);
}

}  // namespace avxvnni

#endif
