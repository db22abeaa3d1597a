/* The conformance suite: tests that run once for each device, as Suite/host, Suite/lazy (host, but
 * work is done late: tests/lazy), Suite/simt, Suite/ptx90 (nvcc's PTX, executed: tests/ptx) and Suite/cuda, and with the other backends as Suite/simt_bulk, Suite/simt_squeeze,
 * Suite/cuda_bulk and Suite/cuda_squeeze. All device memory is reached through pst_device_alloc
 * and pst_device_copy.
 *
 *   CONFORMANCE(Tickets, KeepTwice)
 *   {
 *       ... uses conf->device ...
 *   }
 *
 * Random cases are numbered; a failure prints the number, and PSTI_TEST_SEED=N begins with that
 * one. */
#ifndef PAGESTASH_TESTS_CONF_H
#define PAGESTASH_TESTS_CONF_H

#include "tests/harness.h"
#include "tests/oracle/lockstep.h"

typedef enum conf_kind {
    CONF_HOST,
    CONF_LAZY,
    CONF_SIMT,
    CONF_PTX,
    CONF_CUDA,
    CONF_KINDS
} conf_kind;

typedef struct conf_run {
    conf_kind kind;
    bool is_slow; /* simt and ptx: instructions of a GPU, executed one by one */
    pst_device *device;
} conf_run;

typedef void (*conf_body)(const conf_run *conf);

PST_BEGIN_DECLS

/* kinds: a set of bits (1 << conf_kind). */
void conf_register(const char *file, int line, const char *suite, const char *name, conf_body body,
                   unsigned kinds);

/* Where the device is simt another order of threads and blocks, and other shapes of the grid; where it
 * is lazy another order of streams. */
void conf_vary(const conf_run *conf, uint64_t seed);
/* The same, with blocks of so many threads where the device is simt. */
void conf_vary_threads(const conf_run *conf, uint64_t seed, uint32_t threads);

/* Of `cases` that are right for a long test on the host device, how many this one runs: simt is
 * slower, and both are under ThreadSanitizer; a GPU runs all in every test. At least 1. */
uint32_t conf_cases(const conf_run *conf, uint32_t cases);
/* A number that is larger where payload is cheap. */
uint64_t conf_bytes(const conf_run *conf, uint64_t bytes);

/* Seed of random case number `i`; printed where the test fails. */
uint64_t conf_seed(uint32_t i);

/* Options with what every test wants. */
ls_options conf_options(pst_pool_mode mode, uint64_t num_pages, uint64_t seed);

/* A group of `num_tensors` tensors with one prefix count; `rows` at capacity, each row_bytes. */
shape conf_prefix_shape(uint32_t num_tensors, int64_t rows, uint64_t row_bytes);
/* One tensor, `segments` segments of `rows` rows. */
shape conf_segments_shape(uint32_t segments, int64_t rows, uint64_t row_bytes);

/* A pool, a source and a destination, and tickets. */
typedef struct conf_pair {
    lockstep ls;
    oracle_random random; /* seeded with the options' seed */
    ls_group source, destination;
    uint32_t tickets[4];
} conf_pair;

/* destination NULL: of the source's shape. */
bool conf_pair_open(conf_pair *self, const conf_run *conf, const ls_options *options,
                    const shape *source, const shape *destination, uint32_t num_tickets);
void conf_pair_close(conf_pair *self);

/* Fills the source and stashes `rows` rows of it, one of which each space counts. */
void conf_pair_stash(conf_pair *self, int ticket, int64_t rows);
/* Restores into a destination that was overwritten before. */
void conf_pair_restore(conf_pair *self, int ticket, pst_restore_pages pages, pst_restore_tail tail);

/* Opens a pair, calls `body` and closes the pair: in an ordered pool, then in a concurrent one. */
void conf_in_both_modes(const conf_run *conf,
                        bool (*open)(conf_pair *self, const conf_run *conf, pst_pool_mode mode,
                                     uint64_t num_pages),
                        uint64_t num_pages, void (*body)(conf_pair *self));

/* A captured graph; what fails is reported. */
void conf_graph_begin(lockstep *ls);
pst_graph *conf_graph_end(lockstep *ls);
void conf_graph_destroy(lockstep *ls, pst_graph *graph);

PST_END_DECLS

#define CONF_DEFINE(suite, name, kinds)                                          \
    static void suite##_##name(const conf_run *conf);                            \
    __attribute__((constructor)) static void register_##suite##_##name(void)     \
    {                                                                            \
        conf_register(__FILE__, __LINE__, #suite, #name, suite##_##name, kinds); \
    }                                                                            \
    static void suite##_##name(const conf_run *conf __attribute__((unused)))

#define CONF_ALL ((1u << CONF_KINDS) - 1)
#define CONFORMANCE(suite, name) CONF_DEFINE(suite, name, CONF_ALL)
/* What only the machine of tests/simt can arrange. */
#define CONFORMANCE_SIMT(suite, name) CONF_DEFINE(suite, name, 1u << CONF_SIMT)
/* Not on lazy, where one operation ends before the next begins. */
#define CONFORMANCE_OVERLAPPING(suite, name) \
    CONF_DEFINE(suite, name, PSTI_UNDER_TSAN ? 0 : CONF_ALL & ~(1u << CONF_LAZY))
/* Not where ThreadSanitizer watches: operations that overlap against the rules write the same
 * pages, which is a race of the test's own. */
#define CONFORMANCE_NO_TSAN(suite, name) CONF_DEFINE(suite, name, PSTI_UNDER_TSAN ? 0 : CONF_ALL)
#define CONFORMANCE_SIMT_NO_TSAN(suite, name) \
    CONF_DEFINE(suite, name, PSTI_UNDER_TSAN ? 0 : 1u << CONF_SIMT)

#define CONF_EACH_MODE(mode) \
    for (pst_pool_mode mode = PST_POOL_ORDERED; mode <= PST_POOL_CONCURRENT; mode++)

/* A body with conf_pair *self, in pools of num_pages pages in both modes. */
#define CONF_BOTH_MODES(CONFORMANCE_AS, suite, name, open, num_pages) \
    static void name(conf_pair *self);                                \
    CONFORMANCE_AS(suite, name)                                       \
    {                                                                 \
        conf_in_both_modes(conf, open, num_pages, name);              \
    }                                                                 \
    static void name(conf_pair *self)

#endif
