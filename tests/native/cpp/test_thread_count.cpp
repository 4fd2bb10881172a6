// The number of threads respects cores, cgroup quotas and bounds.
#include <filesystem>
#include <fstream>

#include "check.hpp"
#include "contract/errors.hpp"
#include "executor/cpu_features.hpp"
#include "executor/thread_count.hpp"

using edgellm::cgroup_cpu_quota;
using edgellm::count_physical_cores;
using edgellm::resolve_thread_count;

namespace {

class FakeRoot {
public:
    FakeRoot() {
        std::string name = (std::filesystem::temp_directory_path() / "edgellm-root-XXXXXX").string();
        if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary directory");
        path = name;
    }
    ~FakeRoot() { std::filesystem::remove_all(path); }
    FakeRoot(const FakeRoot&) = delete;
    FakeRoot& operator=(const FakeRoot&) = delete;

    void put(const std::string& name, const std::string& text) const {
        std::filesystem::create_directories((path / name).parent_path());
        std::ofstream(path / name) << text << "\n";
    }
    double quota() const { return cgroup_cpu_quota(path / "proc", path / "sys"); }

    std::filesystem::path path;
};

}  // namespace

TEST(asked_for_threads_are_taken_as_they_are) {
    CHECK(resolve_thread_count(1) == 1);
    CHECK(resolve_thread_count(edgellm::kMaxThreads) == edgellm::kMaxThreads);
}

TEST(absurd_numbers_are_refused) {
    CHECK_THROWS(resolve_thread_count(-1), edgellm::InvalidRequest, "threads is -1; use 1 to 256, or 0 to choose");
    CHECK_THROWS(resolve_thread_count(257), edgellm::InvalidRequest, "threads is 257");
}

TEST(the_choice_is_within_bounds) {
    const int32_t chosen = resolve_thread_count(0);
    CHECK(chosen >= 1 && chosen <= edgellm::kMaxAutomaticThreads);
}

TEST(siblings_count_as_one_core) {
    const FakeRoot root;
    for (int cpu = 0; cpu < 8; ++cpu) {
        root.put("devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/core_cpus_list",
                 std::to_string(cpu % 4) + "," + std::to_string(cpu % 4 + 4));
    }
    CHECK(count_physical_cores({0, 1, 2, 3, 4, 5, 6, 7}, root.path) == 4);
    CHECK(count_physical_cores({0, 4}, root.path) == 1);
    CHECK(count_physical_cores({1, 2, 6}, root.path) == 2);
    CHECK(count_physical_cores({20, 21}, root.path) == 2);  // no topology: each its own
    CHECK(count_physical_cores({}, root.path) == 1);
}

TEST(older_kernels_name_siblings_otherwise) {
    const FakeRoot root;
    root.put("devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1");
    root.put("devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1");
    CHECK(count_physical_cores({0, 1}, root.path) == 1);
}

TEST(reads_the_quota_of_cgroup_version_2_and_its_ancestors) {
    const FakeRoot root;
    CHECK(root.quota() == 0.0);
    root.put("proc/self/cgroup", "0::/user/app");
    CHECK(root.quota() == 0.0);
    root.put("sys/fs/cgroup/user/app/cpu.max", "max 100000");
    CHECK(root.quota() == 0.0);
    root.put("sys/fs/cgroup/user/app/cpu.max", "350000 100000");
    CHECK(root.quota() == 3.5);
    root.put("sys/fs/cgroup/user/cpu.max", "200000 100000");
    CHECK(root.quota() == 2.0);
    root.put("sys/fs/cgroup/cpu.max", "50000 100000");
    CHECK(root.quota() == 0.5);
}

TEST(reads_the_quota_of_cgroup_version_1) {
    const FakeRoot root;
    root.put("proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/box");
    root.put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1");
    root.put("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000");
    CHECK(root.quota() == 0.0);
    root.put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "400000");
    CHECK(root.quota() == 4.0);
}

TEST(nonsense_in_the_quota_is_no_quota) {
    const FakeRoot root;
    root.put("proc/self/cgroup", "0::/\ngarbage");
    for (const char* text : {"", "abc def", "100000", "-5 100000", "100000 0"}) {
        root.put("sys/fs/cgroup/cpu.max", text);
        CHECK(root.quota() == 0.0);
    }
}

TEST(this_cpu_is_checked) {
    CHECK(edgellm::supported_cpu() == edgellm::missing_cpu_features().empty());
    if (edgellm::supported_cpu()) {
        edgellm::require_supported_cpu();
    } else {
        CHECK_THROWS((edgellm::require_supported_cpu(), 0), edgellm::ExecutorError, edgellm::missing_cpu_features());
    }
}

CHECK_MAIN()
