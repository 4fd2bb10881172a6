// Arguments of the contract's constructors that this runtime cannot honour: refused by name, never ignored.
#pragma once

#include <map>
#include <stdexcept>
#include <string>

namespace edgellm::bindings {

[[noreturn]] inline void refuse_speech(const std::string& call) {
    throw std::runtime_error(call + ": the native runtime has no speech models yet");
}

inline void refuse_unsupported_arguments(const std::map<std::string, std::string>& lora_weights_map) {
    if (!lora_weights_map.empty()) {
        throw std::runtime_error("lora_weights_map: the native runtime has no LoRA adapters yet");
    }
}

}  // namespace edgellm::bindings
