#include "executor/thread_count.hpp"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "contract/errors.hpp"

namespace edgellm {
namespace {

std::optional<std::string> first_line(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string line;
    if (!file || !std::getline(file, line)) return std::nullopt;
    return line;
}

std::vector<int32_t> allowed_cpus() {
    std::vector<int32_t> cpus;
    cpu_set_t* const set = CPU_ALLOC(CPU_SETSIZE);
    if (set == nullptr) return cpus;
    const std::size_t set_bytes = CPU_ALLOC_SIZE(CPU_SETSIZE);
    CPU_ZERO_S(set_bytes, set);
    if (sched_getaffinity(0, set_bytes, set) == 0) {
        for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
            if (CPU_ISSET_S(static_cast<unsigned>(cpu), set_bytes, set)) cpus.push_back(cpu);
        }
    }
    CPU_FREE(set);
    return cpus;
}

// CPUs that "quota period" grants, both in microseconds; 0 when it grants no limit.
double quota_cpus(const std::string& quota_us, const std::string& period_us) {
    std::istringstream quota_text(quota_us);
    std::istringstream period_text(period_us);
    double quota = 0.0;
    double period = 0.0;
    if (!(quota_text >> quota) || !(period_text >> period) || quota <= 0.0 || period <= 0.0) return 0.0;
    return quota / period;
}

double smaller_limit(double a, double b) {
    if (a <= 0.0) return b;
    return b <= 0.0 ? a : std::min(a, b);
}

// A limit of any ancestor binds too, so every folder up to the hierarchy's root is asked.
template <typename ReadLimit>
double least_limit_upwards(const std::filesystem::path& root, const std::string& group, ReadLimit read_limit) {
    double limit = 0.0;
    std::filesystem::path folder = root;
    limit = smaller_limit(limit, read_limit(folder));
    for (const auto& part : std::filesystem::path(group).relative_path()) {
        folder /= part;
        limit = smaller_limit(limit, read_limit(folder));
    }
    return limit;
}

double limit_v2(const std::filesystem::path& folder) {
    const auto line = first_line(folder / "cpu.max");
    if (!line) return 0.0;
    const auto space = line->find(' ');
    return space == std::string::npos ? 0.0 : quota_cpus(line->substr(0, space), line->substr(space + 1));
}

double limit_v1(const std::filesystem::path& folder) {
    const auto quota = first_line(folder / "cpu.cfs_quota_us");
    const auto period = first_line(folder / "cpu.cfs_period_us");
    return quota && period ? quota_cpus(*quota, *period) : 0.0;
}

bool names_cpu_controller(const std::string& controllers) {
    std::istringstream list(controllers);
    for (std::string one; std::getline(list, one, ',');) {
        if (one == "cpu") return true;
    }
    return false;
}

}  // namespace

int32_t count_physical_cores(const std::vector<int32_t>& cpus, const std::filesystem::path& sys_root) {
    std::set<std::string> cores;
    for (const int32_t cpu : cpus) {
        const auto topology = sys_root / "devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
        auto siblings = first_line(topology / "core_cpus_list");
        if (!siblings) siblings = first_line(topology / "thread_siblings_list");
        // Without topology every CPU counts as a core.
        cores.insert(siblings.value_or("cpu" + std::to_string(cpu)));
    }
    return std::max<int32_t>(1, static_cast<int32_t>(cores.size()));
}

double cgroup_cpu_quota(const std::filesystem::path& proc_root, const std::filesystem::path& sys_root) {
    std::ifstream membership(proc_root / "self/cgroup");
    double limit = 0.0;
    // Lines are "hierarchy:controllers:path"; version 2 has no controllers.
    for (std::string line; std::getline(membership, line);) {
        const auto first = line.find(':');
        const auto second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) continue;
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string group = line.substr(second + 1);
        const auto root = sys_root / "fs/cgroup";
        if (controllers.empty()) {
            limit = smaller_limit(limit, least_limit_upwards(root, group, limit_v2));
        } else if (names_cpu_controller(controllers)) {
            limit = smaller_limit(limit, least_limit_upwards(root / "cpu", group, limit_v1));
        }
    }
    return limit;
}

int32_t resolve_thread_count(int32_t asked) {
    if (asked < 0 || asked > kMaxThreads) {
        throw InvalidRequest(std::string(kBadValue) + ": threads is " + std::to_string(asked) + "; use 1 to " +
                             std::to_string(kMaxThreads) + ", or 0 to choose");
    }
    if (asked > 0) return asked;
    int32_t count = std::min(count_physical_cores(allowed_cpus(), "/sys"), kMaxAutomaticThreads);
    const double quota = cgroup_cpu_quota("/proc", "/sys");
    if (quota > 0.0) count = std::min(count, std::max(1, static_cast<int32_t>(std::floor(quota))));
    return count;
}

}  // namespace edgellm
