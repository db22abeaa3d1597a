/* What the command line asks for; main.c and options.c use it. */
#ifndef PAGESTASH_BENCH_OPTIONS_H
#define PAGESTASH_BENCH_OPTIONS_H

#include "bench/stash/case.h"
#include "tools/common/flags.h"

#define BENCH_PLACE_FLAGS(F)                                                                    \
    F(TEXT, device, "auto|host|cuda", 0, 0, "auto", "auto is cuda if there is one, else host")  \
    F(SWITCH, quick, NULL, 0, 0, NULL, "fewer configurations and samples, a smaller A0")        \
    F(TEXT, sweep, "NAME[,NAME]", 0, 0, NULL,                                                   \
      "of bytes, num_sms, page_size, ring, pattern, tensors, alignment, pitch, backend, gemm, " \
      "pairs, host, glu, linear (all)")                                                         \
    F(SIZE, cache, "SIZE", BENCH_MIB, BENCH_MAX_BYTES, NULL,                                    \
      "take the cache to be this large (as the machine says)")                                  \
    F(SWITCH, call_cost, NULL, 0, 0, NULL,                                                      \
      "only what calls cost before the launch on cuda, which needs no GPU")

/* In place of the sweeps one configuration. */
#define BENCH_CASE_FLAGS(F)                                                                       \
    F(SIZE, bytes, "SIZE", BENCH_KIB, BENCH_MAX_BYTES, NULL,                                      \
      "one configuration: live bytes, about (64MiB)")                                             \
    F(POWER_OF_2, page_size, "SIZE", PST_PAGE_BYTES_MIN, PST_PAGE_BYTES_MAX, NULL,                \
      "one configuration: 16KiB to 4MiB (256KiB)")                                                \
    F(U32, num_sms, "N", 0, BENCH_MAX_SMS, FLAG_NOT_GIVEN,                                        \
      "one configuration: SM budget; 0 is all (0)")                                               \
    F(CHOICE, backend, "auto|ldg|bulk|squeeze", 0, 0, FLAG_NOT_GIVEN, "one configuration (auto)") \
    F(U32, tensors, "N", 1, PST_MAX_TENSORS, NULL, "one configuration: 1 to 64 (6)")              \
    F(CHOICE, pattern, "prefix|uniform|zipf|hot-expert|empty|full", 0, 0, FLAG_NOT_GIVEN,         \
      "one configuration (prefix)")

#define BENCH_MAX_BYTES ((uint64_t)1 << 40)
enum { BENCH_MAX_SMS = 1024 };

typedef struct bench_options {
    BENCH_PLACE_FLAGS(FLAG_MEMBER)
    BENCH_CASE_FLAGS(FLAG_MEMBER)
    const char *json; /* NULL: no report; "-": on stdout */
    uint32_t sweeps;  /* bits 1 << bench_sweep */
    bool has_custom;
    bench_case custom;
} bench_options;

/* Returns a tool_exit. */
int bench_parse_options(int argc, char **argv, bench_options *options);

#endif
