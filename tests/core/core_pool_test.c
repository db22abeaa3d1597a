/* kernels/core/pool.h at the edges of its numbers; no payload. */
#include "tests/harness.h"

#include <pthread.h>
#include <sched.h>

#define PSTI_PAUSE() sched_yield()
#include "kernels/core/pool.h"

#define TWO_31 ((uint64_t)1 << 31)
#define TWO_32 ((uint64_t)1 << 32)

static void check_decision(uint64_t wanted, uint64_t device, uint64_t host, bool fits,
                           uint64_t from_device)
{
    const psti_decision decision = psti_decide(wanted, device, host, 0, 0);
    CHECK_MSG(decision.fits == fits, "%llu of %llu and %llu: fits is %d",
              (unsigned long long)wanted, (unsigned long long)device, (unsigned long long)host,
              decision.fits);
    if (!fits)
        return;
    CHECK_EQ(decision.take[0], from_device);
    CHECK_EQ(decision.take[1], wanted - from_device);
}

PST_TEST(CorePool, DecisionsAtTheEdges)
{
    check_decision(0, 0, 0, true, 0);
    check_decision(1, 0, 0, false, 0);
    check_decision(1, 1, 0, true, 1);
    check_decision(1, 0, 1, true, 0);
    check_decision(2, 1, 0, false, 0);
    const uint64_t full[] = {1, 7, TWO_31 - 1, TWO_31, TWO_32 - 1, TWO_32, TWO_32 + 1};
    for (size_t i = 0; i < sizeof(full) / sizeof(full[0]); i++) {
        check_decision(full[i], full[i], 0, true, full[i]);
        check_decision(full[i] + 1, full[i], 0, false, 0);
        check_decision(full[i] + 1, full[i], 1, true, full[i]);
        check_decision(2 * full[i], full[i], full[i], true, full[i]);
        check_decision(2 * full[i] + 1, full[i], full[i], false, 0);
        check_decision(0, full[i], full[i], true, 0);
        check_decision(UINT64_MAX, full[i], full[i], false, 0);
    }
}

PST_TEST(CorePool, IdsSayTheirTier)
{
    const uint32_t indices[] = {0, 1, 0x7ffffffeu, 0x7fffffffu};
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(psti_id_tier(indices[i]), PSTI_TIER_DEVICE);
        CHECK_EQ(psti_id_tier(indices[i] | PSTI_ID_HOST_BIT), PSTI_TIER_HOST);
        CHECK_EQ(psti_id_index(indices[i]), indices[i]);
        CHECK_EQ(psti_id_index(indices[i] | PSTI_ID_HOST_BIT), indices[i]);
    }
}

PST_TEST(CorePool, IdsOutOfRangeAreSeen)
{
    psti_pool_view pool = {.max_pages = {0x7fffffffu, 3}};
    CHECK(psti_id_in_range(&pool, 0));
    CHECK(psti_id_in_range(&pool, 0x7ffffffeu));
    CHECK(!psti_id_in_range(&pool, 0x7fffffffu));
    CHECK(psti_id_in_range(&pool, PSTI_ID_HOST_BIT | 2));
    CHECK(!psti_id_in_range(&pool, PSTI_ID_HOST_BIT | 3));
    CHECK(!psti_id_in_range(&pool, PSTI_ID_NONE));
    pool.max_pages[1] = 0x7fffffffu;
    CHECK(!psti_id_in_range(&pool, PSTI_ID_NONE));
    pool.max_pages[1] = 0;
    CHECK(!psti_id_in_range(&pool, PSTI_ID_HOST_BIT));
}

PST_TEST(CorePool, AddressesReachBeyond32Bits)
{
    unsigned char *device = (unsigned char *)(uintptr_t)4096;
    unsigned char *host = (unsigned char *)(uintptr_t)8192;
    const psti_pool_view pool = {.pages = {device, host}, .page_shift = 22};
    CHECK_EQ((uintptr_t)psti_page_address(&pool, 0x7fffffffu), 4096 + ((uint64_t)0x7fffffff << 22));
    CHECK_EQ((uintptr_t)psti_page_address(&pool, PSTI_ID_HOST_BIT | 1024), 8192 + TWO_32);
}

PST_TEST(CorePool, OwnerWordsTellTicketEpochAndPlace)
{
    const uint32_t values[] = {0, 1, 2, 1u << 20, INT32_MAX};
    for (int a = 0; a < 125; a++) {
        const uint64_t word = psti_owner_word(values[a / 25], values[a / 5 % 5], values[a % 5]);
        CHECK(word != 0); /* 0 is nobody */
        for (int b = 0; b < 125; b++)
            CHECK_EQ(psti_owner_word(values[b / 25], values[b / 5 % 5], values[b % 5]) == word,
                     a == b);
    }
}

/* ---- rings ---- */

enum { SLOTS = 8 };

/* Slots hold their own number, so that an id says which slot it was read from. */
static psti_pool_view ring_view(uint32_t *device, uint32_t *host)
{
    for (uint32_t i = 0; i < SLOTS; i++) {
        device[i] = i;
        host[i] = i | PSTI_ID_HOST_BIT;
    }
    return (psti_pool_view){.ring = {device, host}, .ring_mask = {SLOTS - 1, SLOTS - 1}};
}

PST_TEST(CorePool, RingsTurnWithCountersOfAnySize)
{
    const uint64_t heads[] = {0,          1,      SLOTS - 1,      TWO_31 - 1,     TWO_31,
                              TWO_32 - 1, TWO_32, UINT64_MAX - 9, UINT64_MAX - 2, UINT64_MAX};
    uint32_t device[SLOTS], host[SLOTS];
    const psti_pool_view pool = ring_view(device, host);
    for (int h = 0; h < 10; h++)
        for (uint64_t from_device = 0; from_device <= SLOTS; from_device++)
            for (uint64_t page = 0; page < from_device + SLOTS; page++) {
                const uint64_t head[PSTI_TIERS] = {heads[h], heads[9 - h]};
                const psti_decision decision = {.take = {from_device, SLOTS}};
                const uint64_t expected =
                    page < from_device
                        ? (heads[h] % SLOTS + page) % SLOTS
                        : (heads[9 - h] % SLOTS + page - from_device) % SLOTS | PSTI_ID_HOST_BIT;
                CHECK_EQ(psti_ring_id(&pool, head, &decision, page), expected);
            }
}

/* Place by place: what it prefers if there is some, else the other. */
static void check_places(uint64_t wanted, uint64_t device, uint64_t host, uint32_t num,
                         uint32_t den)
{
    uint32_t ring[PSTI_TIERS][SLOTS];
    const psti_pool_view pool = ring_view(ring[0], ring[1]);
    const uint64_t head[PSTI_TIERS] = {TWO_32 - 1, 3};
    const psti_decision decision = psti_decide(wanted, device, host, num, den);
    uint64_t left[PSTI_TIERS] = {device, host}, displaced = 0;
    CHECK_EQ(decision.fits, wanted <= device + host);
    for (uint64_t page = 0; decision.fits && page < wanted; page++) {
        const uint64_t prefers = den != 0 && page < wanted * num / den;
        const uint64_t tier = left[prefers] ? prefers : !prefers;
        const uint64_t nth = tier ? host - left[1] : device - left[0];
        CHECK_EQ(psti_ring_id(&pool, head, &decision, page),
                 (head[tier] + nth) % SLOTS | (tier ? PSTI_ID_HOST_BIT : 0));
        left[tier]--;
        displaced += prefers && !tier;
    }
    if (!decision.fits)
        return;
    CHECK_EQ(decision.take[0], device - left[0]);
    CHECK_EQ(decision.take[1], host - left[1]);
    CHECK_EQ(decision.displaced, displaced);
}

PST_TEST(CorePool, EachPlaceGetsThePageThatItPrefers)
{
    static const uint32_t fractions[][2] = {
        {0, 0}, {0, 1}, {1, 1}, {1, 2}, {1, 3}, {5, 7}, {1, UINT32_MAX}, {UINT32_MAX, UINT32_MAX}};
    for (uint64_t wanted = 0; wanted <= SLOTS; wanted++)
        for (uint64_t device = 0; device <= SLOTS; device++)
            for (uint64_t host = 0; host <= SLOTS; host++)
                for (int f = 0; f < 8; f++)
                    check_places(wanted, device, host, fractions[f][0], fractions[f][1]);
}

PST_TEST(CorePool, FractionsOfManyPages)
{
    const psti_decision half = psti_decide(TWO_32 - 2, TWO_31, TWO_31, 1, 2);
    CHECK_EQ(half.lead, TWO_31 - 1);
    const psti_decision all = psti_decide(TWO_31, TWO_31, TWO_31, UINT32_MAX, UINT32_MAX);
    CHECK_EQ(all.lead, TWO_31);
    const psti_decision most = psti_decide(TWO_31, TWO_31, TWO_31, UINT32_MAX - 1, UINT32_MAX);
    CHECK_EQ(most.lead, TWO_31 - 1);
    CHECK_EQ(most.take[0], 1);
}

PST_TEST(CorePool, FreePagesSurviveTheWrapOfTheCounters)
{
    const uint64_t heads[] = {0, TWO_31 - 1, TWO_32 - 1, TWO_32, UINT64_MAX - 1, UINT64_MAX};
    const uint64_t pages[] = {0, 1, 2, TWO_31 - 1};
    for (int h = 0; h < 6; h++)
        for (int p = 0; p < 4; p++) {
            const psti_pool_state state = {.head = {heads[h], 5}, .tail = {heads[h] + pages[p], 6}};
            CHECK_EQ(psti_free_pages(&state, 0), pages[p]);
            CHECK_EQ(psti_free_pages(&state, 1), 1);
        }
}

/* ---- marks ---- */

PST_TEST(CorePool, MarksOnlyGrow)
{
    const uint32_t all = 0x7fffffffu;
    psti_pool_state state = {.num_pages = {all, all}, .tail = {all, all}};
    psti_raise_marks(&state);
    CHECK_EQ(state.step_demand, 0);
    state.head[0] = all; /* everything in use */
    state.head[1] = all - 1;
    state.failed_wanted = TWO_32;
    psti_raise_marks(&state);
    CHECK_EQ(state.step_high[0], all);
    CHECK_EQ(state.step_high[1], all - 1);
    CHECK_EQ(state.step_demand, TWO_32 + all + all - 1);
    state.head[0] = 0;
    state.failed_wanted = 0;
    psti_raise_marks(&state);
    CHECK_EQ(state.step_high[0], all);
    CHECK_EQ(state.step_demand, TWO_32 + all + all - 1);
}

PST_TEST(CorePool, OnlyAFailureOfThisEpochIsForgotten)
{
    psti_pool_state state = {.failed_wanted = TWO_32 + 9, .epoch = 7};
    psti_ticket_record ticket = {.state = PSTI_TICKET_FAILED, .epoch = 6, .num_pages = TWO_32};
    psti_forget_failure(&state, &ticket);
    CHECK_EQ(state.failed_wanted, TWO_32 + 9);
    ticket.epoch = 7;
    ticket.state = PSTI_TICKET_LIVE;
    psti_forget_failure(&state, &ticket);
    CHECK_EQ(state.failed_wanted, TWO_32 + 9);
    ticket.state = PSTI_TICKET_FAILED;
    psti_forget_failure(&state, &ticket);
    CHECK_EQ(state.failed_wanted, 9);
}

PST_TEST(CorePool, TicketsOfAnotherEpochAreEmpty)
{
    const psti_ticket_record ticket = {.state = PSTI_TICKET_LIVE, .epoch = UINT32_MAX};
    CHECK_EQ(psti_ticket_now(&ticket, UINT32_MAX), PSTI_TICKET_LIVE);
    CHECK_EQ(psti_ticket_now(&ticket, 0), PSTI_TICKET_EMPTY);
    CHECK_EQ(psti_ticket_now(&ticket, UINT32_MAX - 1), PSTI_TICKET_EMPTY);
}

PST_TEST(CorePool, TicketsHaveCountsThenPages)
{
    psti_ticket_record records[4];
    CHECK_EQ((char *)psti_ticket_counts(records) - (char *)records, 80);
    CHECK_EQ((char *)psti_ticket_table(records, 3) - (char *)records, 80 + 3 * 8);
}

/* ---- launch numbers ---- */

PST_TEST(CorePool, OperationsHaveWordsOfTheirOwn)
{
    const uint64_t launches[] = {0, 2, 4, TWO_31, TWO_32 - 2};
    const uint32_t ops[] = {1, 2, 3, 0x7fffffffu, UINT32_MAX};
    for (int a = 0; a < 25; a++) {
        const uint64_t word = psti_launch_word(launches[a / 5], ops[a % 5]);
        const uint64_t ready = psti_ready_word(launches[a / 5], ops[a % 5], 1);
        CHECK(word != 0); /* 0: nobody leads */
        CHECK_EQ(ready % 2, 1);
        for (int b = 0; b < 25; b++)
            CHECK_EQ(psti_launch_word(launches[b / 5], ops[b % 5]) == word, a == b);
    }
}

/* ---- faults ---- */

PST_TEST(CorePool, FirstFaultStays)
{
    psti_pool_state state = {.head = {3, UINT64_MAX}, .tail = {5, 3}};
    pst_pool_status status = {.step_valid = 1};
    const psti_pool_view pool = {.state = &state, .status = &status};
    psti_record_fault(&pool, PST_FAULT_COUNT, 17, (uint64_t)-5);
    psti_record_fault(&pool, PST_FAULT_EXHAUSTED, 18, TWO_32);
    CHECK_EQ(status.flags, 1u << PST_FAULT_COUNT | 1u << PST_FAULT_EXHAUSTED);
    CHECK_EQ(status.step_valid, 0);
    CHECK_EQ(status.fault_state, 2);
    CHECK_EQ(status.fault, PST_FAULT_COUNT);
    CHECK_EQ(status.fault_ticket, 17);
    CHECK_EQ(status.num_faults, 2);
    CHECK_EQ(status.fault_wanted, (uint64_t)-5);
    CHECK_EQ(status.fault_free[0], 2);
    CHECK_EQ(status.fault_free[1], 4);
    CHECK_EQ(state.refuse, 0);
    psti_refuse(&pool, 4);
    CHECK_EQ(state.refuse, 1);
    CHECK(status.flags & PST_FLAG_ORDER);
}

typedef struct crowd {
    psti_pool_view pool;
    uint32_t number;
    uint64_t *shared; /* guarded by the lock */
} crowd;

enum { CROWD = 4, TIMES = 2000 };

static void *fault_often(void *opaque)
{
    const crowd *self = opaque;
    for (int i = 0; i < TIMES; i++)
        psti_record_fault(&self->pool, (pst_fault)(1 + self->number), self->number,
                          self->number * 100);
    return NULL;
}

static void *lock_often(void *opaque)
{
    const crowd *self = opaque;
    for (int i = 0; i < TIMES; i++) {
        psti_lock(self->pool.state);
        (*self->shared)++;
        psti_unlock(self->pool.state);
    }
    return NULL;
}

static void run_crowd(crowd *members, const psti_pool_view *pool, uint64_t *shared,
                      void *(*work)(void *))
{
    pthread_t threads[CROWD];
    for (uint32_t i = 0; i < CROWD; i++) {
        members[i] = (crowd){.pool = *pool, .number = i, .shared = shared};
        CHECK_EQ(pthread_create(&threads[i], NULL, work, &members[i]), 0);
    }
    for (uint32_t i = 0; i < CROWD; i++)
        pthread_join(threads[i], NULL);
}

PST_TEST(CorePool, OneOfManyFaultsIsTheFirst)
{
    crowd members[CROWD];
    psti_pool_state state = {.epoch = 0};
    pst_pool_status status = {.step_valid = 1};
    const psti_pool_view pool = {.state = &state, .status = &status};
    run_crowd(members, &pool, NULL, fault_often);
    CHECK_EQ(status.num_faults, CROWD * TIMES);
    CHECK_EQ(status.flags, 0x1e);
    CHECK_EQ(status.fault_state, 2);
    CHECK_EQ(status.fault, 1 + status.fault_ticket); /* of one thread, all of it */
    CHECK_EQ(status.fault_wanted, status.fault_ticket * 100);
}

/* ---- the lock ---- */

PST_TEST(CorePool, LockExcludesAndSurvivesTheWrapOfItsNumbers)
{
    crowd members[CROWD];
    uint64_t shared = 0;
    psti_pool_state state = {.lock_next = UINT32_MAX - TIMES, .lock_serving = UINT32_MAX - TIMES};
    const psti_pool_view pool = {.state = &state};
    run_crowd(members, &pool, &shared, lock_often);
    CHECK_EQ(shared, CROWD * TIMES);
    CHECK_EQ(state.lock_next, state.lock_serving);
    CHECK_EQ(state.lock_next, (uint32_t)(UINT32_MAX - TIMES + CROWD * TIMES));
}
