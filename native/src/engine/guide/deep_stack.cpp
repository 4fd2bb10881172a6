#include "engine/guide/deep_stack.hpp"

#include <pthread.h>

#include <cstddef>
#include <exception>

#include "contract/errors.hpp"

namespace edgellm {
namespace {

// The deepest guide of the largest size took less than 64 MiB.
constexpr std::size_t kStackBytes = std::size_t{256} << 20U;

struct Job {
    const std::function<void()>& work;
    std::exception_ptr error;
};

void* run_job(void* argument) {
    Job& job = *static_cast<Job*>(argument);
    try {
        job.work();
    } catch (...) {  // carried to the caller's thread, whatever it is
        job.error = std::current_exception();
    }
    return nullptr;
}

}  // namespace

void run_on_deep_stack(const std::function<void()>& work) {
    Job job{work, nullptr};
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_t thread{};
    const int failed = pthread_create(&thread, &attributes, run_job, &job);
    pthread_attr_destroy(&attributes);
    if (failed != 0) throw Error("no memory for compiling a guide");
    pthread_join(thread, nullptr);
    if (job.error != nullptr) std::rethrow_exception(job.error);
}

}  // namespace edgellm
