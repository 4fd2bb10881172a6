// The smallest test vocabulary: TEST registers, CHECK and CHECK_THROWS report with file and line,
// CHECK_MAIN() makes the program that runs all.
#pragma once

#include <cstdio>
#include <exception>
#include <functional>
#include <string>
#include <vector>

namespace check {

struct Case {
    const char* name;
    std::function<void()> body;
};

inline std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}

inline int& failures() {
    static int count = 0;
    return count;
}

struct Register {
    Register(const char* name, std::function<void()> body) { cases().push_back({name, std::move(body)}); }
};

inline void fail(const char* file, int line, const std::string& what) {
    std::printf("%s:%d: %s\n", file, line, what.c_str());
    ++failures();
}

inline int run_all() {
    int failed_cases = 0;
    for (const Case& one : cases()) {
        const int before = failures();
        try {
            one.body();
        } catch (const std::exception& error) {
            fail(one.name, 0, std::string("unexpected exception: ") + error.what());
        }
        const bool failed = failures() != before;
        failed_cases += failed ? 1 : 0;
        std::printf("%s %s\n", failed ? "FAILED" : "ok", one.name);
    }
    std::printf("%zu tests, %d failed\n", cases().size(), failed_cases);
    return failed_cases == 0 && !cases().empty() ? 0 : 1;
}

}  // namespace check

#define CHECK_CONCAT_(a, b) a##b
#define CHECK_CONCAT(a, b) CHECK_CONCAT_(a, b)
#define TEST(name)                                                                            \
    static void name();                                                                       \
    static const check::Register CHECK_CONCAT(register_, name)(#name, name);                  \
    static void name()
#define CHECK(condition)                                                                      \
    do {                                                                                      \
        if (!(condition)) check::fail(__FILE__, __LINE__, "not true: " #condition);           \
    } while (false)
#define CHECK_THROWS(expression, exception_type, text)                                        \
    do {                                                                                      \
        bool thrown_ = false;                                                                 \
        try {                                                                                 \
            (void)(expression);                                                               \
        } catch (const exception_type& error_) {                                              \
            thrown_ = true;                                                                   \
            if (std::string(error_.what()).find(text) == std::string::npos)                   \
                check::fail(__FILE__, __LINE__, std::string("message lacks '") + (text) + "': " + error_.what()); \
        }                                                                                     \
        if (!thrown_) check::fail(__FILE__, __LINE__, "did not throw " #exception_type ": " #expression); \
    } while (false)
#define CHECK_MAIN()                                                                          \
    int main() { return check::run_all(); }
