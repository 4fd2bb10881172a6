// How many threads a step uses: asked for, or chosen so that a shared machine stays usable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace edgellm {

inline constexpr int32_t kMaxThreads = 256;
inline constexpr int32_t kMaxAutomaticThreads = 8;

// 0 chooses: the physical cores among the CPUs this process may use, at most its cgroup's CPU quota, at most
// kMaxAutomaticThreads. Throws InvalidRequest for a negative or absurd number.
int32_t resolve_thread_count(int32_t asked);

// The parts of the choice, with the roots of /proc and /sys as parameters.
int32_t count_physical_cores(const std::vector<int32_t>& cpus, const std::filesystem::path& sys_root);
double cgroup_cpu_quota(const std::filesystem::path& proc_root,
                        const std::filesystem::path& sys_root);  // CPUs; 0 = none

}  // namespace edgellm
