/* Shared by simt.cc (slots and launches) and simt_block.cc (the fibers of one block). */
#ifndef PSTI_TESTS_SIMT_INTERNAL_H
#define PSTI_TESTS_SIMT_INTERNAL_H

#include "kernels/core/mix.h"
#include "tests/simt/simt_fiber.h"
#include "tests/simt/simt_machine.h"

struct simt_block;
struct simt_host;
struct simt_slot;

#define SIMT_SHARED_BYTES (256u << 10) /* for all kernels of the process together */
#define SIMT_MAX_VARIABLES 128u
#define SIMT_DYNAMIC_BYTES (160u << 10)
#define SIMT_MAX_COPIES 64u

/* A place in kernel source where threads meet. */
struct simt_site {
    const char *file; /* NULL: a shuffle, of `line` its kind */
    int line;
};

struct simt_thread {
    simt_fiber fiber; /* first: entries convert */
    simt_block *block;
    uint32_t index;
    uint32_t argument; /* of a shuffle */
    uint64_t value;
};

/* Where threads wait until all have come. TSan: those who leave meeting n must not see what others
 * did since, so meetings use the two objects in turn. */
struct simt_meeting {
    simt_site site; /* of the first to come */
    uint32_t arrived;
    uint32_t round;
    char order[2];
};

/* One launch, on the caller's stack. Fields below `lock` are the machine's. */
struct simt_launch_state {
    void (*body)(void *ctx);
    void *ctx;
    uint32_t grid;
    uint32_t block;
    uint64_t seed;
    uint32_t spin_limit;
    simt_host *host;
    simt_block_hook hook;
    void *hook_user;
    uint32_t left; /* blocks that have not ended, atomic */
    uint32_t next; /* of order, guarded by the machine's lock as all below */
    simt_launch_state *next_launch;
    uint32_t order[SIMT_MAX_BLOCKS];
};

/* A bulk copy that is not done. */
struct simt_copy {
    void *to;
    const void *from;
    uint64_t *barrier; /* of a load; NULL: a store */
    void *held;        /* of a store that has read its shared memory */
    uint32_t bytes;
    uint32_t thread;
    uint32_t group;
};

struct simt_bulk {
    uint32_t num_copies;
    uint32_t eagerness; /* 0: lazy, to 3 */
    uint32_t dynamic_bytes;
    uint32_t groups[SIMT_MAX_THREADS]; /* committed by each thread */
    uint32_t done[SIMT_MAX_THREADS];   /* never read: what TSan orders by what is done for each */
    simt_copy copies[SIMT_MAX_COPIES];
};

/* Where a block runs: stacks, shared memory, and its state while it does. Under TSan one for each
 * block number and launching thread, so that what two blocks do is ordered only by what the kernel
 * orders; otherwise one per slot. */
struct simt_block {
    const simt_launch_state *launch;
    simt_slot *slot;
    uint32_t block_idx;
    uint32_t num_made; /* threads that have a stack */
    uint32_t num_threads;
    uint32_t live;
    uint32_t num_runnable, num_spinning;
    uint64_t random;
    uint64_t use; /* counts the blocks that ran here */
    simt_meeting barrier, team[SIMT_MAX_TEAMS];
    simt_meeting warp[SIMT_MAX_THREADS / SIMT_WARP];
    uint16_t *runnable, *spinning; /* the two lists, by thread number */
    uint16_t lists[2][SIMT_MAX_THREADS];
    simt_bulk bulk;
    unsigned char *shared;
    unsigned char *dynamic;
    uint64_t variable_use[SIMT_MAX_VARIABLES]; /* `use` when it was poisoned */
    simt_thread threads[SIMT_MAX_THREADS];
};

/* What a launching OS thread keeps between launches. */
struct simt_host {
    char began, ended;                   /* TSan: launch call -> blocks -> return */
    uint32_t done;                       /* futex: 1 when the launch has ended */
    simt_block *blocks[SIMT_MAX_BLOCKS]; /* TSan only */
};

struct simt_machine;

struct simt_slot {
    simt_fiber fiber; /* of the OS thread */
    simt_machine *machine;
    simt_block *block; /* not under TSan */
    uint32_t busy;     /* atomic, as the two below */
    uint64_t progress; /* blocks, barriers and warp operations begun or done */
    uint64_t pauses;   /* rounds of threads that only paused */
    char hook_order;   /* TSan: hooks and the blocks of this slot */
};

/* ---- simt.cc ---- */

/* Prints one line and aborts. */
__attribute__((format(printf, 2, 3), noreturn)) void simt_die(const simt_launch_state *launch,
                                                              const char *format, ...);

/* All threads of the slot's block paused. */
void simt_round_of_pauses(simt_slot *slot, const simt_launch_state *launch);

/* Lets the other slots get ahead, up to some 20 us: what a block holds meanwhile is contended. */
void simt_dawdle(const simt_slot *slot, uint32_t rounds);

/* A number below `bound`. */
SIMT_RAW static inline uint32_t simt_random(uint64_t *state, uint32_t bound)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(((*state >> 32) * bound) >> 32);
}

SIMT_RAW static inline void simt_count(uint64_t *counter)
{
    __atomic_store_n(counter, __atomic_load_n(counter, __ATOMIC_RELAXED) + 1, __ATOMIC_RELAXED);
}

/* ---- simt_block.cc ---- */

/* At least `num_threads` threads; by the launching thread. */
simt_block *simt_block_create(void);
void simt_block_destroy(simt_block *block);
void simt_block_grow(simt_block *block, uint32_t num_threads);

/* Runs one block to its end in the calling slot. */
void simt_block_run(simt_block *block, const simt_launch_state *launch, uint32_t block_idx,
                    simt_slot *slot);

/* Of the calling CUDA thread. */
simt_block *simt_running_block(void);

/* Words nobody should read; unseen by the sanitizers. */
void simt_poison(void *memory, size_t bytes);

/* ---- simt_bulk.cc ---- */

void simt_bulk_begin(simt_block *block);
void simt_bulk_end(const simt_block *block); /* dies where copies are in flight */

/* ---- simt_block.cc again ---- */

/* Whether the calling OS thread is inside a kernel. */
bool simt_in_kernel(void);

#endif
