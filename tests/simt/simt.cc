/* Slots and launches. */
#include "tests/simt/simt_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Mutexes of libc would order host threads in TSan's eyes that CUDA does not order. */
struct simt_machine {
    uint32_t lock;
    uint32_t work; /* futex: counts launches */
    uint32_t idle; /* slots that sleep or are about to */
    uint32_t num_slots;
    uint32_t num_pending;
    simt_launch_state *pending; /* have blocks that no slot took */
    uint64_t random;
    simt_slot slots[SIMT_MAX_SLOTS];
};

static simt_machine machines[SIMT_MAX_SLOTS + 1]; /* by number of slots */
static uint32_t global_lock;                      /* of machines being made and of the hook */
static uint32_t num_tsan_threads;
static simt_block_hook block_hook;
static void *block_hook_user;

static __thread simt_slot *my_slot;

/* ---- failure ---- */

void simt_die(const simt_launch_state *launch, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (launch)
        fprintf(stderr, "simt: %s; launch of %u x %u, seed %llu\n", text, launch->grid,
                launch->block, (unsigned long long)launch->seed);
    else
        fprintf(stderr, "simt: %s\n", text);
    abort();
}

/* ---- waiting ---- */

SIMT_RAW static void futex_wait(uint32_t *word, uint32_t expected)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

SIMT_RAW static void futex_wake(uint32_t *word, int count)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

/* 0 free, 1 held, 2 held and somebody waits */
SIMT_RAW static void lock(uint32_t *word)
{
    uint32_t expected = 0;
    if (__atomic_compare_exchange_n(word, &expected, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return;
    while (__atomic_exchange_n(word, 2, __ATOMIC_ACQUIRE) != 0)
        futex_wait(word, 2);
}

SIMT_RAW static void unlock(uint32_t *word)
{
    if (__atomic_exchange_n(word, 0, __ATOMIC_RELEASE) == 2)
        futex_wake(word, 1);
}

/* ---- hangs ---- */

struct census {
    bool all_wait; /* no slot could take a pending block */
    uint64_t progress;
    uint64_t pauses[SIMT_MAX_SLOTS];
};

SIMT_RAW static void take_census(const simt_machine *machine, census *result)
{
    result->progress = 0;
    result->all_wait = true;
    bool idle = false;
    for (uint32_t i = 0; i < machine->num_slots; i++) {
        const simt_slot *slot = &machine->slots[i];
        const bool busy = __atomic_load_n(&slot->busy, __ATOMIC_RELAXED) != 0;
        idle |= !busy;
        result->pauses[i] = busy ? __atomic_load_n(&slot->pauses, __ATOMIC_RELAXED) : UINT64_MAX;
        result->progress += __atomic_load_n(&slot->progress, __ATOMIC_RELAXED);
    }
    if (idle && __atomic_load_n(&machine->num_pending, __ATOMIC_RELAXED))
        result->all_wait = false;
}

/* True when nothing happened in the machine between two censuses but `limit` vain rounds in every
 * slot that is busy. A slot that copies or that the system does not run has made fewer. */
SIMT_RAW static bool is_hang(const simt_machine *machine, const census *a, const census *b,
                             uint32_t limit)
{
    if (!a->all_wait || !b->all_wait || a->progress != b->progress)
        return false;
    for (uint32_t i = 0; i < machine->num_slots; i++) {
        if ((a->pauses[i] == UINT64_MAX) != (b->pauses[i] == UINT64_MAX))
            return false;
        if (a->pauses[i] != UINT64_MAX && b->pauses[i] - a->pauses[i] < limit / 4)
            return false;
    }
    return true;
}

SIMT_RAW void simt_round_of_pauses(simt_slot *slot, const simt_launch_state *launch)
{
    static __thread census taken[2];
    static __thread uint32_t turn;
    simt_count(&slot->pauses);
    sched_yield();
    if (slot->pauses % launch->spin_limit != 0)
        return;
    census *const now = &taken[turn & 1];
    turn++;
    take_census(slot->machine, now);
    if (is_hang(slot->machine, &taken[turn & 1], now, launch->spin_limit))
        simt_die(launch,
                 "hang: the blocks in all %u slots spin in vain, %u launches have blocks waiting",
                 slot->machine->num_slots, slot->machine->num_pending);
}

SIMT_RAW void simt_dawdle(const simt_slot *slot, uint32_t rounds)
{
    if (slot->machine->num_slots > 1)
        for (uint32_t i = 0; i < rounds; i++)
            sched_yield();
}

/* ---- blocks in slots ---- */

SIMT_RAW static simt_block *block_of(simt_slot *slot, const simt_launch_state *launch,
                                     uint32_t block_idx)
{
#if SIMT_TSAN
    (void)slot;
    return launch->host->blocks[block_idx];
#else
    (void)block_idx;
    if (!slot->block)
        slot->block = simt_block_create();
    simt_block_grow(slot->block, launch->block);
    return slot->block;
#endif
}

SIMT_RAW static void call_hook(simt_slot *slot, const simt_launch_state *launch, uint32_t block_idx,
                               int at_start)
{
    SIMT_ACQUIRE(&launch->host->began);
    SIMT_ACQUIRE(&slot->hook_order);
    launch->hook(block_idx, at_start, launch->hook_user);
    SIMT_RELEASE(&slot->hook_order);
    SIMT_RELEASE(&launch->host->ended);
}

SIMT_RAW static void run_block(simt_slot *slot, const simt_launch_state *launch, uint32_t block_idx)
{
    if (launch->hook)
        call_hook(slot, launch, block_idx, 1);
    simt_block_run(block_of(slot, launch, block_idx), launch, block_idx, slot);
    if (launch->hook)
        call_hook(slot, launch, block_idx, 0);
}

/* Takes a block of any pending launch, as those of several streams would interleave. */
SIMT_RAW static simt_launch_state *take_block(simt_machine *machine, uint32_t *block_idx)
{
    simt_launch_state **link = &machine->pending;
    if (!*link)
        return nullptr;
    for (uint32_t n = simt_random(&machine->random, machine->num_pending); n > 0; n--)
        link = &(*link)->next_launch;
    simt_launch_state *launch = *link;
    *block_idx = launch->order[launch->next++];
    if (launch->next == launch->grid) {
        *link = launch->next_launch;
        machine->num_pending--;
    }
    return launch;
}

SIMT_RAW static void end_block(simt_launch_state *launch)
{
    simt_host *host = launch->host; /* launch may be gone once `left` is 0 */
    if (__atomic_sub_fetch(&launch->left, 1, __ATOMIC_ACQ_REL) != 0)
        return;
    __atomic_store_n(&host->done, 1, __ATOMIC_RELEASE);
    futex_wake(&host->done, 1);
}

SIMT_RAW static void *slot_main(void *opaque)
{
    simt_slot *slot = static_cast<simt_slot *>(opaque);
    simt_machine *machine = slot->machine;
    my_slot = slot;
    simt_fiber_adopt(&slot->fiber);
    for (;;) {
        uint32_t block_idx = 0;
        lock(&machine->lock);
        simt_launch_state *launch = take_block(machine, &block_idx);
        const uint32_t work = machine->work;
        __atomic_store_n(&slot->busy, launch != nullptr, __ATOMIC_RELAXED);
        machine->idle += launch == nullptr;
        unlock(&machine->lock);
        if (launch) {
            run_block(slot, launch, block_idx);
            end_block(launch);
        } else {
            while (__atomic_load_n(&machine->work, __ATOMIC_ACQUIRE) == work)
                futex_wait(&machine->work, work);
            lock(&machine->lock);
            machine->idle--;
            unlock(&machine->lock);
        }
    }
}

SIMT_RAW static simt_machine *machine_of(uint32_t num_slots)
{
    simt_machine *machine = &machines[num_slots];
    if (__atomic_load_n(&machine->num_slots, __ATOMIC_ACQUIRE))
        return machine;
    lock(&global_lock);
    if (machine->num_slots == 0) {
        for (uint32_t i = 0; i < num_slots; i++) {
            pthread_t thread;
            machine->slots[i].machine = machine;
            if (pthread_create(&thread, nullptr, slot_main, &machine->slots[i]) != 0)
                simt_die(nullptr, "no thread for a slot");
            pthread_detach(thread);
        }
        __atomic_store_n(&machine->num_slots, num_slots, __ATOMIC_RELEASE);
    }
    unlock(&global_lock);
    return machine;
}

/* ---- launching ---- */

/* Goes with its OS thread: another thread that took it over would seem ordered after this one. */
struct host_holder {
    simt_host *host;
    SIMT_RAW ~host_holder()
    {
        for (uint32_t i = 0; host && i < SIMT_MAX_BLOCKS; i++) {
            if (!host->blocks[i])
                continue;
            __atomic_sub_fetch(&num_tsan_threads, host->blocks[i]->num_made, __ATOMIC_RELAXED);
            simt_block_destroy(host->blocks[i]);
        }
        free(host);
    }
};

SIMT_RAW static simt_host *my_host(void)
{
    static thread_local host_holder holder;
    if (!holder.host)
        holder.host = static_cast<simt_host *>(calloc(1, sizeof *holder.host));
    if (!holder.host)
        simt_die(nullptr, "no memory for a launching thread");
    return holder.host;
}

/* TSan can tell about 8000 threads apart. */
SIMT_RAW static void make_blocks(simt_host *host, uint32_t grid, uint32_t block)
{
    for (uint32_t i = 0; SIMT_TSAN && i < grid; i++) {
        if (!host->blocks[i])
            host->blocks[i] = simt_block_create();
        const uint32_t made = host->blocks[i]->num_made;
        if (made >= block)
            continue;
        if (__atomic_add_fetch(&num_tsan_threads, block - made, __ATOMIC_RELAXED) > 7500)
            simt_die(nullptr, "more than 7500 CUDA threads at once under ThreadSanitizer");
        simt_block_grow(host->blocks[i], block);
    }
}

SIMT_RAW static void shuffle_order(simt_launch_state *launch)
{
    uint64_t random = psti_mix(launch->seed);
    for (uint32_t i = 0; i < launch->grid; i++) {
        const uint32_t other = simt_random(&random, i + 1);
        launch->order[i] = launch->order[other];
        launch->order[other] = i;
    }
}

SIMT_RAW static void run_in_slots(simt_machine *machine, simt_launch_state *launch)
{
    simt_host *host = launch->host;
    __atomic_store_n(&host->done, 0, __ATOMIC_RELAXED);
    lock(&machine->lock);
    machine->random ^= launch->seed;
    launch->next_launch = machine->pending;
    machine->pending = launch;
    machine->num_pending++;
    __atomic_fetch_add(&machine->work, 1, __ATOMIC_RELEASE);
    const uint32_t idle = machine->idle;
    unlock(&machine->lock);
    if (idle)
        futex_wake(&machine->work, launch->grid < idle ? (int)launch->grid : INT_MAX);
    while (__atomic_load_n(&host->done, __ATOMIC_ACQUIRE) == 0)
        futex_wait(&host->done, 0);
}

SIMT_RAW void simt_launch(const simt_config *config, uint32_t grid, uint32_t block,
                          void (*body)(void *ctx), void *ctx)
{
    const simt_config complete = simt_complete(config);
    simt_launch_state launch;
    launch.body = body;
    launch.ctx = ctx;
    launch.grid = grid;
    launch.block = block;
    launch.seed = complete.seed;
    launch.spin_limit = complete.spin_limit;
    launch.next = 0;
    launch.left = grid;
    const char *error = simt_config_error(&complete);
    if (error)
        simt_die(&launch, "%s", error);
    if (grid == 0 || grid > SIMT_MAX_BLOCKS || block == 0 || block > SIMT_MAX_THREADS)
        simt_die(&launch, "at most %u blocks of %u threads", SIMT_MAX_BLOCKS, SIMT_MAX_THREADS);
    if (simt_in_kernel())
        simt_die(&launch, "a kernel cannot launch");
    launch.host = my_host();
    make_blocks(launch.host, grid, block);
    shuffle_order(&launch);
    lock(&global_lock);
    launch.hook = my_slot ? nullptr : block_hook;
    launch.hook_user = block_hook_user;
    unlock(&global_lock);
    SIMT_RELEASE(&launch.host->began);
    if (my_slot) {
        for (uint32_t i = 0; i < grid; i++)
            run_block(my_slot, &launch, launch.order[i]);
    } else {
        run_in_slots(machine_of(complete.residency), &launch);
    }
    SIMT_ACQUIRE(&launch.host->ended);
}

SIMT_RAW void simt_set_block_hook(simt_block_hook hook, void *user)
{
    lock(&global_lock);
    block_hook = hook;
    block_hook_user = user;
    unlock(&global_lock);
}
