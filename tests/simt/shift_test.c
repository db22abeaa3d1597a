/* Runs at any address: every byte that is meant, and no other, against a copy byte by byte. */
#include "tests/harness.h"

#include <stdlib.h>

#include "tests/simt/shift.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define FORBID(at, bytes) ASAN_POISON_MEMORY_REGION(at, bytes)
#define ALLOW(at, bytes) ASAN_UNPOISON_MEMORY_REGION(at, bytes)
#else
#define FORBID(at, bytes) ((void)(at), (void)(bytes))
#define ALLOW(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { GUARD = 64, MOST = 9 * 64 * 16 + 64, ROOM = MOST + 2 * GUARD, BATCH = 64 };

typedef struct trial {
    _Alignas(64) unsigned char source[ROOM];
    _Alignas(64) unsigned char target[ROOM];
    unsigned char wanted[ROOM];
    simt_run run;
} trial;

static trial trials[BATCH];
static uint32_t num_trials;

static unsigned char pattern(uint32_t i, uint32_t salt)
{
    return (unsigned char)(i * 37 + salt * 11 + (i >> 3) + (i >> 8) * 5 + 1);
}

static void begin_trial(trial *t, uint32_t to, uint32_t from, uint32_t bytes, bool lifts)
{
    for (uint32_t i = 0; i < ROOM; i++) {
        t->source[i] = pattern(i, 1);
        t->target[i] = t->wanted[i] = pattern(i, 2);
    }
    for (uint32_t i = 0; i < bytes; i++)
        t->wanted[GUARD + to + i] = t->source[GUARD + from + i];
    t->run = (simt_run){t->target + GUARD + to,
                        t->source + GUARD + from,
                        bytes,
                        (to + from + bytes) % 2,
                        lifts ? 1 + (to + from / 2) % 2 : 0,
                        (to + bytes / 4) % 3};
    /* sanitizers know eighths: up to 7 bytes in front of a run are not seen, all behind it are */
    FORBID(t->source, ROOM);
    ALLOW(t->source + (GUARD + from) / 8 * 8, bytes + from % 8);
    FORBID(t->target, ROOM);
    ALLOW(t->target + (GUARD + to) / 8 * 8, bytes + to % 8);
}

static void end_trials(uint32_t threads)
{
    simt_run runs[BATCH];
    for (uint32_t i = 0; i < num_trials; i++)
        runs[i] = trials[i].run;
    CHECK_EQ(simt_copy_runs(runs, num_trials, threads), 0u);
    for (uint32_t i = 0; i < num_trials; i++) {
        trial *t = &trials[i];
        ALLOW(t->source, ROOM);
        ALLOW(t->target, ROOM);
        CHECK_MSG(memcmp(t->target, t->wanted, ROOM) == 0, "%u bytes from %u to %u, %s%s",
                  t->run.bytes, (uint32_t)(t->run.from - t->source) % 64,
                  (uint32_t)(t->run.to - t->target) % 64, t->run.stashes ? "stash" : "restore",
                  t->run.lifts   ? ", lifted"
                  : t->run.alone ? ", by one warp"
                                 : "");
    }
    num_trials = 0;
}

static void try_copy(uint32_t to, uint32_t from, uint32_t bytes, uint32_t threads, bool lifts)
{
    begin_trial(&trials[num_trials], to, from, bytes, lifts);
    if (++num_trials == BATCH)
        end_trials(threads);
}

static void try_short(uint32_t threads, bool lifts)
{
    for (uint32_t to = 0; to < 16; to++)
        for (uint32_t from = 0; from < 16; from++)
            for (uint32_t bytes = 1; bytes <= 64; bytes += 1 + (to + from) % 3)
                try_copy(to, from, bytes, threads, lifts);
    end_trials(threads);
}

PST_TEST(OddRuns, EveryOffsetAndShortLength)
{
    try_short(32, false);
    try_short(64, false);
    try_short(32, true);
    try_short(128, true);
}

/* Whole rounds of vectors, and a few bytes more or less. */
static void try_rounds(uint32_t threads, bool lifts)
{
    for (uint32_t to = 0; to < 16; to += 5)
        for (uint32_t from = 0; from < 16; from++)
            for (uint32_t vectors = 31; vectors <= 9 * 64; vectors += vectors < 128 ? 32 : 64)
                for (uint32_t more = 0; more <= 32; more += 11)
                    try_copy(to, from, vectors * 16 + more, threads, lifts);
    end_trials(threads);
}

PST_TEST(OddRuns, LengthsAroundARound)
{
    try_rounds(32, false);
    try_rounds(64, false); /* by both warps, or by one of them */
}

PST_TEST(OddRuns, LengthsAroundALiftedRound)
{
    try_rounds(64, true);
    try_rounds(224, true);
}
