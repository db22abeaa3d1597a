/* The tickets that a pool lends. Where one given back may be used again:
 *   - on the same stream, in the same capture or both times outside one: at once (a stack per key)
 *   - anywhere, once a step that was enqueued after it has been published (a queue in that order)
 *   - anywhere, once the last graph that used it is destroyed: looked for when a graph let go
 * All of it is under the pool's lock, but for the count of those that let go. */
#include "host/base/structs.h"
#include "host/stash/stash.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

#include "kernels/core/mailbox.h"
#include "kernels/core/mix.h"

typedef enum lent_state {
    LENT_FREE, /* anybody may take it */
    LENT_TAKEN,
    LENT_GIVEN, /* waits for a step, in the queue */
    LENT_HELD   /* given, and a graph uses it, in the list of those */
} lent_state;

typedef struct lent {
    psti_ticket ticket; /* first: they are the same address */
    lent_state state;
    uint64_t captured_in; /* the capture that has used it, 0: none, or PSTI_SEVERAL_CAPTURES */
    uint64_t give;        /* GIVEN: its number among the pool's */
    pst_stream stream;    /* the key that it was given with */
    uint64_t capture;
    bool has_key;                 /* is in the stack of its key */
    struct lent *above, *below;   /* in that stack */
    struct lent *next_key;        /* from the top of a stack to that of another, in one bucket */
    struct lent *before, *behind; /* in the queue, or in the list of those held */
    struct lent *next;            /* FREE */
} lent;

typedef struct lent_queue {
    lent *first, *last;
} lent_queue;

struct psti_slab {
    lent *tickets;
    uint32_t num, num_taken, num_held;
    lent *clean;   /* FREE */
    lent *unclean; /* FREE: a graph may have left pages in them */
    lent_queue given;
    lent_queue held;
    uint64_t num_let_go; /* atomic: how often a ticket's last graph was gone */
    uint64_t seen_let_go;
    lent **buckets;
    uint32_t bucket_mask;
};

/* ---- stacks by stream and capture ---- */

static lent **bucket_of(psti_slab *slab, pst_stream stream, uint64_t capture)
{
    const uint64_t key = psti_mix((uint64_t)(uintptr_t)stream ^ psti_mix(capture));
    return &slab->buckets[key & slab->bucket_mask];
}

/* The link to the top of the key's stack; to NULL where there is none. */
static lent **find_top(psti_slab *slab, pst_stream stream, uint64_t capture)
{
    lent **link = bucket_of(slab, stream, capture);
    while (*link && ((*link)->stream != stream || (*link)->capture != capture))
        link = &(*link)->next_key;
    return link;
}

static void push_key(psti_slab *slab, lent *given)
{
    lent **link = find_top(slab, given->stream, given->capture);
    given->below = *link;
    given->above = NULL;
    given->next_key = NULL;
    given->has_key = true;
    if (*link) {
        given->next_key = (*link)->next_key;
        (*link)->above = given;
    }
    *link = given;
}

static void drop_key(psti_slab *slab, lent *given)
{
    if (!given->has_key)
        return;
    given->has_key = false;
    if (given->below)
        given->below->above = given->above;
    if (given->above) {
        given->above->below = given->below;
        return;
    }
    lent **link = find_top(slab, given->stream, given->capture);
    if (given->below)
        given->below->next_key = given->next_key;
    *link = given->below ? given->below : given->next_key;
}

/* ---- queues ---- */

static void push_queue(lent_queue *queue, lent *given)
{
    given->behind = NULL;
    given->before = queue->last;
    if (queue->last)
        queue->last->behind = given;
    else
        queue->first = given;
    queue->last = given;
}

static void drop_queue(lent_queue *queue, lent *given)
{
    if (given->before)
        given->before->behind = given->behind;
    else
        queue->first = given->behind;
    if (given->behind)
        given->behind->before = given->before;
    else
        queue->last = given->before;
}

/* From wherever it is, but for the stacks of FREE ones. */
static void drop(psti_slab *slab, lent *given)
{
    drop_key(slab, given);
    if (given->state == LENT_GIVEN) {
        drop_queue(&slab->given, given);
    } else if (given->state == LENT_HELD) {
        drop_queue(&slab->held, given);
        slab->num_held--;
    }
}

static void push_free(psti_slab *slab, lent *given)
{
    lent **stack = given->ticket.needs_release ? &slab->unclean : &slab->clean;
    given->state = LENT_FREE;
    given->next = *stack;
    *stack = given;
}

static lent *pop_free(lent **stack)
{
    lent *free = *stack;
    if (free)
        *stack = free->next;
    return free;
}

/* ---- graphs ---- */

/* The last graph that used a ticket is gone. May run on a thread of the driver's, which waits for
 * nobody: the next who takes one looks. */
static void let_go(psti_hold *hold)
{
    const lent *held = (const lent *)((const char *)hold - offsetof(lent, ticket.hold));
    __atomic_fetch_add(&held->ticket.pool->lends->num_let_go, 1, __ATOMIC_RELEASE);
}

void psti_slab_note_capture(psti_ticket *ticket, const psti_capture_of *capture)
{
    lent *taken = (lent *)ticket;
    if (!ticket->is_lent || capture->id == 0)
        return;
    if (psti_hold_users(&ticket->hold) == 0)
        taken->captured_in = capture->id;
    else if (taken->captured_in != capture->id)
        taken->captured_in = PSTI_SEVERAL_CAPTURES;
}

/* No graph uses it any more, and the last replay may have left pages in it. */
static void forget_graphs(lent *given)
{
    given->captured_in = 0;
    given->ticket.needs_release = true;
}

/* What graphs that are gone held is anybody's. */
static void take_returned(psti_slab *slab)
{
    const uint64_t num_let_go = __atomic_load_n(&slab->num_let_go, __ATOMIC_ACQUIRE);
    if (slab->seen_let_go == num_let_go)
        return;
    slab->seen_let_go = num_let_go;
    lent *behind;
    for (lent *held = slab->held.first; held; held = behind) {
        behind = held->behind;
        if (psti_hold_users(&held->ticket.hold) != 0)
            continue;
        drop(slab, held);
        forget_graphs(held);
        push_free(slab, held);
    }
}

/* ---- taking ---- */

static lent *take_covered(psti_slab *slab, const psti_mailbox *mailbox)
{
    lent *first = slab->given.first;
    if (!first || first->give > psti_read_covered(mailbox))
        return NULL;
    drop(slab, first);
    return first;
}

static lent *take_same_key(psti_slab *slab, pst_stream stream, uint64_t capture)
{
    lent *top = *find_top(slab, stream, capture);
    if (top)
        drop(slab, top);
    return top;
}

/* Where there is a choice, outside a capture what a graph left pages in: the owner's first operation
 * frees them. In a capture it would do so only when the graph is replayed. */
static lent *take(pst_pool *pool, pst_stream stream, uint64_t capture)
{
    psti_slab *slab = pool->lends;
    take_returned(slab);
    lent *taken = take_same_key(slab, stream, capture);
    if (!taken && !capture)
        taken = pop_free(&slab->unclean);
    if (!taken)
        taken = pop_free(&slab->clean);
    if (!taken)
        taken = take_covered(slab, pool->mailbox);
    if (!taken)
        taken = pop_free(&slab->unclean);
    if (!taken)
        return NULL;
    taken->state = LENT_TAKEN;
    taken->ticket.host_num = 0;
    taken->ticket.host_den = 0;
    taken->ticket.may_hold = false;
    slab->num_taken++;
    return taken;
}

/* Takes one and gives it a number. Fails: BUSY, NOMEM. */
static pst_status try_take(pst_pool *pool, pst_stream stream, uint64_t capture,
                           pst_ticket *ticket_out)
{
    psti_slab *slab = pool->lends;
    lent *taken = take(pool, stream, capture);
    PSTI_CHECK(taken, PST_E_BUSY,
               "of %u tickets %u are taken, %u are held by graphs, %u wait for a step", slab->num,
               slab->num_taken, slab->num_held, slab->num - slab->num_taken - slab->num_held);
    const pst_status status = psti_ticket_issue(&taken->ticket, ticket_out);
    if (status != PST_OK) {
        slab->num_taken--;
        push_free(slab, taken);
    }
    return status;
}

pst_status pst_ticket_take(pst_pool *pool, pst_stream stream, pst_ticket *ticket_out)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    psti_capture_of capture;
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_CHECK(ticket_out, PST_E_INVALID, "ticket_out is NULL");
    PSTI_CHECK(pool->lends, PST_E_INVALID, "the pool was made without slab_tickets");
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_TRY(pool->device->ops->capture_of(pool->device, stream, &capture));
    for (int tries = 0;; tries++) {
        psti_lock_take(&pool->lock);
        const pst_status status = try_take(pool, stream, capture.id, ticket_out);
        const bool may_come = pool->lends->num_held > 0;
        psti_lock_give(&pool->lock);
        /* a thread of the driver's lets go of a graph that was destroyed a moment ago */
        if (status != PST_E_BUSY || !may_come || tries == 50 ||
            pool->device->info.kind != PST_DEVICE_CUDA)
            return status;
        clock_nanosleep(CLOCK_MONOTONIC, 0, &millisecond, NULL);
    }
}

/* ---- giving back ---- */

static void give(pst_pool *pool, lent *given, pst_stream stream, uint64_t capture)
{
    psti_slab *slab = pool->lends;
    slab->num_taken--;
    given->stream = stream;
    given->capture = capture;
    if (given->captured_in && psti_hold_users(&given->ticket.hold) == 0)
        forget_graphs(given);
    if (given->captured_in) {
        given->state = LENT_HELD;
        slab->num_held++;
        push_queue(&slab->held, given);
    } else {
        given->state = LENT_GIVEN;
        given->give = __atomic_add_fetch(&pool->num_gives, 1, __ATOMIC_RELAXED);
        push_queue(&slab->given, given);
    }
    if (given->captured_in == 0 || given->captured_in == capture)
        push_key(slab, given);
}

pst_status pst_ticket_give(pst_ticket handle, pst_stream stream)
{
    psti_capture_of capture = {.id = 0};
    if (handle.id == 0)
        return PST_OK;
    PSTI_FIND_TICKET(ticket, handle);
    PSTI_CHECK(ticket->is_lent, PST_E_INVALID,
               "ticket %u was created: pst_ticket_destroy is for it", ticket->index);
    pst_pool *pool = ticket->pool;
    const bool is_filled_outside = ticket->may_hold && ticket->filled_in == 0;
    pst_status status =
        psti_pool_note(pool, pool->device->ops->capture_of(pool->device, stream, &capture));
    if (status == PST_E_CAPTURE && is_filled_outside)
        return status;
    PSTI_CHECK(
        capture.id == 0 || !is_filled_outside, PST_E_CAPTURE,
        "ticket %u was filled outside this capture: its pages would be freed by replays only",
        ticket->index);
    PSTI_CHECK(psti_ticket_revoke(ticket, handle), PST_E_INVALID,
               "ticket %u was given back by another thread", ticket->index);
    if (ticket->may_hold) {
        if (status == PST_OK)
            status = psti_ticket_clear(ticket, &capture, stream);
        ticket->needs_release |= status != PST_OK;
    }
    psti_lock_take(&pool->lock);
    give(pool, (lent *)ticket, stream, capture.id);
    psti_lock_give(&pool->lock);
    return status;
}

pst_status psti_slab_sweep(pst_pool *pool, pst_stream stream)
{
    const psti_capture_of none = {.id = 0};
    pst_status status = PST_OK;
    while (pool->lends && status == PST_OK) {
        psti_lock_take(&pool->lock);
        take_returned(pool->lends);
        lent *unclean = pop_free(&pool->lends->unclean);
        pool->lends->num_taken += unclean != NULL;
        psti_lock_give(&pool->lock);
        if (!unclean)
            return PST_OK;
        status = psti_ticket_clear(&unclean->ticket, &none, stream);
        psti_lock_take(&pool->lock);
        give(pool, unclean, stream, 0);
        psti_lock_give(&pool->lock);
    }
    return status;
}

/* ---- opening and closing ---- */

static pst_status enlist_all(pst_pool *pool)
{
    psti_slab *slab = pool->lends;
    for (uint32_t i = slab->num; i-- > 0;) {
        lent *made = &slab->tickets[i];
        made->ticket = (psti_ticket){
            .index = i,
            .pool = pool,
            .hold = {.let_go = let_go},
            .record = (psti_ticket_record *)(pool->slab.first + i * pool->slab.record_bytes),
            .table_pages = pool->slab.table_pages,
            .count_room = pool->slab.count_room,
            .is_lent = true};
        PSTI_TRY(psti_ticket_enlist(&made->ticket));
        push_free(slab, made);
    }
    return PST_OK;
}

pst_status psti_slab_open(pst_pool *pool)
{
    uint32_t num_buckets = 16;
    if (pool->slab.num == 0)
        return PST_OK;
    while (num_buckets < pool->slab.num)
        num_buckets *= 2;
    psti_slab *slab = psti_calloc(1, sizeof(*slab));
    PSTI_CHECK(slab, PST_E_NOMEM, "no memory for the tickets of a pool");
    pool->lends = slab;
    slab->num = pool->slab.num;
    slab->bucket_mask = num_buckets - 1;
    slab->tickets = psti_calloc(slab->num, sizeof(*slab->tickets));
    slab->buckets = psti_calloc(num_buckets, sizeof(lent *));
    PSTI_CHECK(slab->tickets && slab->buckets, PST_E_NOMEM, "no memory for %u tickets of a pool",
               slab->num);
    return enlist_all(pool);
}

void psti_slab_close(pst_pool *pool)
{
    psti_slab *slab = pool->lends;
    if (!slab)
        return;
    for (uint32_t i = 0; slab->tickets && i < slab->num; i++)
        psti_ticket_delist(&slab->tickets[i].ticket);
    psti_free(slab->tickets);
    psti_free(slab->buckets);
    psti_free(slab);
    pool->lends = NULL;
}

uint32_t psti_slab_num_taken(const pst_pool *pool)
{
    return pool->lends ? pool->lends->num_taken : 0;
}

uint32_t psti_slab_num_held(const pst_pool *pool)
{
    uint32_t held = 0;
    for (uint32_t i = 0; pool->lends && i < pool->lends->num; i++) {
        const psti_hold *hold = &pool->lends->tickets[i].ticket.hold;
        held += __atomic_load_n(&hold->graphs, __ATOMIC_ACQUIRE) != 0;
    }
    return held;
}
