// GoogleTest for tests written in C: see harness.h. Options besides GoogleTest's own:
//   --source=TEXT   only tests whose source path contains TEXT
#include "harness.h"

#include <gtest/gtest.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

namespace
{

struct Registered {
    const char *file;
    int line;
    std::string suite, name;
    psti_test_function fn;
    void *arg;
};

// A function-local static: constructors of C files run before this file's own statics exist. Never
// freed, so that what the tests gave as arg is not a leak.
std::vector<Registered> &registered_tests()
{
    static auto *tests = new std::vector<Registered>;
    return *tests;
}

bool require_gpu = false;

class CTest : public testing::Test
{
  public:
    CTest(psti_test_function fn, void *arg) : fn_(fn), arg_(arg)
    {
    }
    void TestBody() override
    {
        fn_(arg_);
    }

  private:
    psti_test_function fn_;
    void *arg_;
};

bool take_source_option(int *argc, char **argv, std::string *source)
{
    const char option[] = "--source=";
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (std::strncmp(argv[i], option, sizeof option - 1) == 0)
            *source = argv[i] + sizeof option - 1;
        else if (std::strncmp(argv[i], "--gtest_", 8) == 0)
            argv[kept++] = argv[i];
        else
            return std::fprintf(stderr, "unknown option %s\n", argv[i]), false;
    }
    *argc = kept;
    argv[kept] = nullptr;
    return true;
}

bool register_all(const std::string &source)
{
    std::set<std::string> seen;
    for (const Registered &t : registered_tests()) {
        if (std::strstr(t.file, source.c_str()) == nullptr)
            continue;
        if (!seen.insert(t.suite + "." + t.name).second) {
            std::fprintf(stderr, "%s:%d: a second test %s.%s\n", t.file, t.line, t.suite.c_str(),
                         t.name.c_str());
            return false;
        }
        testing::RegisterTest(t.suite.c_str(), t.name.c_str(), nullptr, nullptr, t.file, t.line,
                              [&t]() { return new CTest(t.fn, t.arg); });
    }
    return true;
}

bool long_tests()
{
    static const char *const text = std::getenv("PSTI_TEST_LONG");
    return text != nullptr && *text == '1';
}

// Read here and taken away: the library would warn about a name that it does not know.
bool take_flag(const char *name)
{
    const char *value = std::getenv(name);
    const bool set = value != nullptr && std::strcmp(value, "0") != 0 && *value != '\0';
    unsetenv(name);
    return set;
}

} // namespace

extern "C" {

void psti_test_register_at(const char *file, int line, const char *suite, const char *name,
                           psti_test_function fn, void *arg)
{
    registered_tests().push_back({file, line, suite, name, fn, arg});
}

void psti_test_fail(const char *file, int line, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    ADD_FAILURE_AT(file, line) << text;
}

bool psti_test_failed(void)
{
    return testing::Test::HasFailure();
}

uint32_t psti_test_cases(uint32_t all)
{
    const uint32_t share = long_tests() ? 1 : 5;
    return all > share ? all / share : 1;
}

uint32_t psti_test_step(uint32_t few)
{
    return PSTI_UNDER_TSAN && !long_tests() ? few : 1;
}

void psti_test_skip(const char *file, int line, const char *reason)
{
    if (require_gpu)
        ADD_FAILURE_AT(file, line) << "skipped, but PAGESTASH_REQUIRE_GPU is set: " << reason;
    else
        GTEST_MESSAGE_AT_(file, line, reason, testing::TestPartResult::kSkip);
}

} // extern "C"

int main(int argc, char **argv)
{
    std::string source;
    testing::InitGoogleTest(&argc, argv);
    if (!take_source_option(&argc, argv, &source))
        return 2;
    require_gpu = take_flag("PAGESTASH_REQUIRE_GPU");
    if (!register_all(source))
        return 2;
    const int result = RUN_ALL_TESTS();
    if (GTEST_FLAG_GET(list_tests))
        return result;
    const testing::UnitTest *unit = testing::UnitTest::GetInstance();
    const int passed = unit->successful_test_count(), failed = unit->failed_test_count();
    const int skipped = unit->skipped_test_count();
    std::printf("tests run: %d, passed: %d, failed: %d, skipped for want of a GPU: %d\n",
                passed + failed, passed, failed, skipped);
    if (passed + failed + skipped == 0 && std::getenv("GTEST_TOTAL_SHARDS") == nullptr) {
        std::fprintf(stderr, "no test has that name or source\n");
        return 2;
    }
    return result;
}
