/* One operation stands still before one of its accesses to the protocol's words, another that is
 * not ordered with it runs from another thread, and the first goes on. README.md says which bugs are
 * found so. */
#ifndef PSTI_TESTS_SIMT_PAUSE_H
#define PSTI_TESTS_SIMT_PAUSE_H

#include "tests/simt/overlap_scene.h"

#include <pthread.h>
#include <sched.h>

#include "kernels/core/pool.h"
#include "tests/simt/simt_points.h"

/* Slots: launches of one number share them, so what runs meanwhile has others. */
#define OUTER 1
#define INNER 2
#define OTHER 3
#define POISON 0xcc
/* What two operations on one ticket may find, one behind the other. */
#define SAME_TICKET (1u << PST_FAULT_LIVE | 1u << PST_FAULT_EMPTY | 1u << PST_FAULT_MOVED)

typedef struct pause {
    bench b;
    bool is_simt;
    uint32_t outer_blocks, inner_blocks; /* of a launch, at most */
    uint64_t seed;
    /* when: */
    bool (*is_place)(const struct pause *self, simt_access access, const void *at);
    uint32_t target, seen; /* at the place of this number */
    bool is_armed;
    bool with_lock; /* also where it holds the lock, for what does not want it */
    /* what then: */
    void (*act)(struct pause *self);
    uint32_t num_acted;
} pause;

static inline psti_pool_state *state_of(const pause *self)
{
    return self->b.pool->view.state;
}

static inline psti_ticket_record *record_of(const pause *self, int ticket)
{
    return (psti_ticket_record *)(uintptr_t)
        self->b.pool->view.tickets[pst_ticket_index(self->b.tickets[ticket])];
}

static inline bool is_within(const void *at, const void *start, size_t bytes)
{
    return (uintptr_t)at - (uintptr_t)start < bytes;
}

/* ---- places ---- */

static inline bool in_protocol(const pause *self, simt_access access, const void *at)
{
    const psti_pool_view *view = &self->b.pool->view;
    bool is = is_within(at, view->state, sizeof(*view->state));
    for (int t = 0; t < NUM_TICKETS; t++)
        is |= is_within(at, record_of(self, t), sizeof(psti_ticket_record));
    for (uint32_t tier = 0; access == SIMT_CAS && tier < PSTI_TIERS;
         tier++) /* not the many loads */
        is |= is_within(at, view->owner[tier], view->max_pages[tier] * sizeof(uint64_t));
    return is;
}

static inline uint64_t *launch_of(const pause *self)
{
    return self->b.pool->view.concurrent ? &record_of(self, 0)->launch : &state_of(self)->launch;
}

/* Of kernels: the last one of a launch claims the operation; behind these what ends it adds, too. */
static inline bool is_arrival(const pause *self, simt_access access, const void *at)
{
    return access == SIMT_ADD && at == launch_of(self);
}

/* ---- standing still ---- */

static inline void configure(const pause *self, uint32_t residency)
{
    simt_options options = bench_machine(self->seed, residency);
    options.max_blocks = residency == OUTER ? self->outer_blocks : self->inner_blocks;
    if (self->is_simt)
        psti_simt_configure(&options);
}

static inline void *run_act(void *opaque)
{
    pause *self = opaque;
    self->act(self);
    return NULL;
}

/* Who waits for a lock of one who stands still waits for ever. */
static inline bool is_locked(const pause *self)
{
    return __atomic_load_n(&state_of(self)->lock_next, __ATOMIC_RELAXED) !=
           __atomic_load_n(&state_of(self)->lock_serving, __ATOMIC_RELAXED);
}

static inline void on_point(simt_access access, const void *at, void *user)
{
    pause *self = user;
    pthread_t thread;
    if (!self->is_armed || (is_locked(self) && !self->with_lock) ||
        !self->is_place(self, access, at) || self->seen++ != self->target)
        return;
    self->is_armed = false;
    self->num_acted++;
    configure(self, INNER);
    pthread_create(&thread, NULL, run_act, self);
    pthread_join(thread, NULL);
    configure(self, OUTER);
}

static inline void arm(pause *self,
                       bool (*is_place)(const pause *self, simt_access access, const void *at),
                       uint32_t target, void (*act)(pause *self))
{
    self->is_place = is_place;
    self->target = target;
    self->seen = 0;
    self->num_acted = 0;
    self->act = act;
    self->is_armed = true;
    simt_set_point_hook(on_point, self);
}

static inline void disarm(pause *self)
{
    simt_set_point_hook(NULL, NULL);
    self->is_armed = false;
}

static inline void open_pause(pause *self, bool is_simt, pst_pool_mode mode, uint32_t blocks)
{
    const simt_options options = bench_machine(OUTER, OUTER);
    pst_pool_config config = bench_pool(mode);
    pst_device *device = NULL;
    config.num_host_pages = 16;
    *self = (pause){.is_simt = is_simt, .outer_blocks = blocks, .inner_blocks = 2, .seed = 1};
    CHECK_EQ(is_simt ? psti_simt_device_open(&options, &device) : psti_simt_host_open(&device),
             PST_OK);
    configure(self, OUTER);
    open_bench_on(&self->b, device, &config);
    self->b.count = 3;
}

/* ---- operations ---- */

static inline void stash_0(pause *self)
{
    stash_rows(&self->b, 0, 0);
}

static inline void stash_1(pause *self)
{
    stash_rows(&self->b, 1, 1);
}

static inline void stash_0_again(pause *self)
{
    stash_rows(&self->b, 0, 1);
}

static inline void restore_0(pause *self)
{
    restore_rows(&self->b, 0, 2);
}

static inline void restore_1(pause *self)
{
    restore_rows(&self->b, 1, 3);
}

static inline void release_0(pause *self)
{
    pst_ticket_release(self->b.tickets[0], NULL);
}

static inline void demote_0(pause *self)
{
    pst_ticket_demote(self->b.tickets[0], NULL, NULL);
}

static inline void demote_1(pause *self)
{
    pst_ticket_demote(self->b.tickets[1], NULL, NULL);
}

static inline uint32_t live_tickets(const pause *self)
{
    uint32_t live = 0;
    for (int t = 0; t < NUM_TICKETS; t++)
        live |= (uint32_t)(psti_ticket_now(record_of(self, t), state_of(self)->epoch) ==
                           PSTI_TICKET_LIVE)
                << t;
    return live;
}

static inline bool holds(const pause *self, int group, int value)
{
    return wrong_rows(&self->b, group, value) == 0;
}

static inline uint32_t arrived(const pause *self)
{
    return psti_teams_arrived(__atomic_load_n(launch_of(self), __ATOMIC_ACQUIRE));
}

#endif
