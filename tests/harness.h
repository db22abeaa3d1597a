/* Tests written in C, run by GoogleTest: filters, sharding and JUnit reports work as usual.
 *
 *   PST_TEST(Ring, WrapsAround)
 *   {
 *       CHECK_EQ(psti_min_u64(8, 9), 8);
 *   }
 *
 * A failed CHECK returns from the function it stands in, which must return void. A helper that
 * returns something else calls psti_test_fail and lets its caller look at psti_test_failed().
 */
#ifndef PAGESTASH_TESTS_HARNESS_H
#define PAGESTASH_TESTS_HARNESS_H

#include <pagestash/status.h>

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Whether ThreadSanitizer watches: tests of wrong use, where races are real, are not for it. */
#if defined(__SANITIZE_THREAD__)
#define PSTI_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PSTI_UNDER_TSAN 1
#endif
#endif
#ifndef PSTI_UNDER_TSAN
#define PSTI_UNDER_TSAN 0
#endif

PST_BEGIN_DECLS

typedef void (*psti_test_function)(void *arg);

/* Registers fn(arg) as test suite.name; arg must live until the end. Copies both names. To be
 * called before main, from a constructor: a suite that runs over several devices registers itself
 * once for each, as Tickets/host, Tickets/simt, Tickets/cuda. */
void psti_test_register_at(const char *file, int line, const char *suite, const char *name,
                           psti_test_function fn, void *arg);
#define psti_test_register(suite, name, fn, arg) \
    psti_test_register_at(__FILE__, __LINE__, suite, name, fn, arg)

/* Fails the running test; it goes on until it returns. Threads: any. */
__attribute__((format(printf, 3, 4))) void psti_test_fail(const char *file, int line,
                                                          const char *format, ...);

/* Whether the running test has failed so far. */
bool psti_test_failed(void);

/* How many of `all` random cases to run: all in the long tests (PSTI_TEST_LONG=1 in the environment),
 * else a share; at least 1. */
uint32_t psti_test_cases(uint32_t all);

/* Step of a loop over every case: `few` under ThreadSanitizer, 1 otherwise and in the long tests. */
uint32_t psti_test_step(uint32_t few);

/* Marks the running test as skipped, or as failed under PAGESTASH_REQUIRE_GPU=1. */
void psti_test_skip(const char *file, int line, const char *reason);

PST_END_DECLS

#define PST_TEST(suite, name)                                                           \
    static void suite##_##name(void *arg);                                              \
    __attribute__((constructor)) static void register_##suite##_##name(void)            \
    {                                                                                   \
        psti_test_register_at(__FILE__, __LINE__, #suite, #name, suite##_##name, NULL); \
    }                                                                                   \
    static void suite##_##name(void *arg __attribute__((unused)))

/* Returns. The only reason to skip a test is that there is no GPU. */
#define pst_test_skip(reason)                       \
    do {                                            \
        psti_test_skip(__FILE__, __LINE__, reason); \
        return;                                     \
    } while (0)

/* CHECK_MSG(condition, format, ...) */
#define CHECK_MSG(cond, ...)                                 \
    do {                                                     \
        if (!(cond)) {                                       \
            psti_test_fail(__FILE__, __LINE__, __VA_ARGS__); \
            return;                                          \
        }                                                    \
    } while (0)

#define CHECK(cond) CHECK_MSG(cond, "%s is false", #cond)

/* Integers, enums and pointers; a double would be cut off before it is compared. */
#define PSTI_CHECK_NO_FLOAT(a)                                              \
    _Static_assert(!__builtin_types_compatible_p(__typeof__(a), double) &&  \
                       !__builtin_types_compatible_p(__typeof__(a), float), \
                   "CHECK_EQ is for integers")

#define CHECK_EQ(a, b)                                                                 \
    do {                                                                               \
        PSTI_CHECK_NO_FLOAT(a);                                                        \
        PSTI_CHECK_NO_FLOAT(b);                                                        \
        const long long psti_a = (long long)(a), psti_b = (long long)(b);              \
        CHECK_MSG(psti_a == psti_b, "%s is %lld, %s is %lld", #a, psti_a, #b, psti_b); \
    } while (0)

#define CHECK_STR(a, b)                                                             \
    do {                                                                            \
        const char *psti_a = (a), *psti_b = (b);                                    \
        CHECK_MSG(psti_a != NULL && psti_b != NULL && strcmp(psti_a, psti_b) == 0,  \
                  "%s is \"%s\", %s is \"%s\"", #a, psti_a ? psti_a : "(null)", #b, \
                  psti_b ? psti_b : "(null)");                                      \
    } while (0)

/* The call must answer `expected`; the message shows the name and the library's last message. */
#define CHECK_STATUS(call, expected)                                                      \
    do {                                                                                  \
        const pst_status psti_status = (call);                                            \
        CHECK_MSG(psti_status == (expected), "%s is %s, not %s; last message: %s", #call, \
                  pst_status_name(psti_status), #expected, pst_last_message());           \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, PST_OK)

/* The library's last message begins so. */
#define CHECK_SAID(text)                                                          \
    do {                                                                          \
        const char *psti_text = (text);                                           \
        CHECK_MSG(strncmp(pst_last_message(), psti_text, strlen(psti_text)) == 0, \
                  "\"%s\", not \"%s\"", pst_last_message(), psti_text);           \
    } while (0)

#endif
