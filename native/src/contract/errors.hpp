// The exception tree of the native runtime. Bindings map each to one Python class; texts carry no prompt
// and no address, and start with a marker where the adapter has to tell causes apart.
//
//   Error
//   ├── ModelFileError    a GGUF file that cannot be used: names the file, the key or tensor, and the remedy
//   ├── InvalidRequest    one request is wrong; the runtime is unharmed
//   ├── SubmitRefused     queue full, shutting down, more than one sequence
//   └── ExecutorError     a step failed; the runtime must be replaced
#pragma once

#include <stdexcept>
#include <string>

namespace edgellm {

class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

class ModelFileError : public Error {
public:
    using Error::Error;
};

class InvalidRequest : public Error {
public:
    using Error::Error;
};

class SubmitRefused : public Error {
public:
    using Error::Error;
};

class ExecutorError : public Error {
public:
    using Error::Error;
};

// Markers at the start of InvalidRequest texts; the first is NVIDIA's.
inline constexpr const char* kInputTooLong = "EDGELLM_INPUT_TOO_LONG";
inline constexpr const char* kBadGuide = "EDGELLM_BAD_GUIDE";
inline constexpr const char* kBadValue = "EDGELLM_BAD_VALUE";
// A sound guide that could not be followed to its end: the answer stops, and the text says why.
inline constexpr const char* kGuideLimit = "EDGELLM_GUIDE_LIMIT";

}  // namespace edgellm
