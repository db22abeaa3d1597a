/* kernels/core/mailbox.h: publications that a reader meets at any place. */
#include "tests/harness.h"

#include <pthread.h>
#include <string.h>

#include "kernels/core/fn.h"
#include "kernels/core/layout.h"

/* Its accesses by way of this file, which can stop between any two of them. */
static uint64_t meddled_acquire(const uint64_t *at);
static uint64_t meddled_relaxed(const uint64_t *at);
static void stopped_store(uint64_t *at, uint64_t value);
#define psti_load_acquire_u64 meddled_acquire
#define psti_load_relaxed_u64 meddled_relaxed
#define psti_store_before_system_u64 stopped_store
#define psti_store_behind_system_u64 stopped_store
#define psti_store_release_system_u64 stopped_store
#include "kernels/core/mailbox.h"
#undef psti_load_acquire_u64
#undef psti_load_relaxed_u64
#undef psti_store_before_system_u64
#undef psti_store_behind_system_u64
#undef psti_store_release_system_u64

enum { WORDS = sizeof(pst_pool_status) / 8, LOADS = 2 + 1 + WORDS + 1, STORES = 1 + WORDS + 1 };

/* All words tell the number of the publication. */
static pst_pool_status status_of(uint64_t n)
{
    uint64_t words[WORDS];
    pst_pool_status status;
    for (int i = 0; i < WORDS; i++)
        words[i] = n;
    memcpy(&status, words, sizeof(status));
    return status;
}

static void publish(psti_mailbox *mailbox, uint64_t n)
{
    const pst_pool_status status = status_of(n);
    psti_publish_status(&status, mailbox);
}

/* ---- a reader that is met in the middle ---- */

static psti_mailbox *met;
static int loads_left, stores_left = -1; /* -1: no end */

static void stopped_store(uint64_t *at, uint64_t value)
{
    if (stores_left != 0)
        psti_store_release_u64(at, value);
    if (stores_left > 0)
        stores_left--;
}

static void meddle(void)
{
    if (!met || loads_left-- != 0)
        return;
    for (uint64_t n = 4; n <= 5; n++)
        publish(met, n);
}

static uint64_t meddled_acquire(const uint64_t *at)
{
    meddle();
    return psti_load_acquire_u64(at);
}

static uint64_t meddled_relaxed(const uint64_t *at)
{
    meddle();
    return psti_load_relaxed_u64(at);
}

/* Before each load of a reader others publish twice, or come no further than to any store of it. */
PST_TEST(CoreMailbox, ReaderThatIsMetInTheMiddleNoticesIt)
{
    int got = 0, refused = 0;
    for (int load = 0; load < LOADS; load++)
        for (int stores = 0; stores <= 2 * STORES; stores++) {
            psti_mailbox mailbox = {0};
            pst_pool_status status = {0};
            stores_left = -1;
            for (uint64_t n = 1; n <= 3; n++)
                publish(&mailbox, n);
            met = &mailbox;
            loads_left = load;
            stores_left = stores;
            const bool is_whole = psti_read_mailbox(&mailbox, &status);
            met = NULL;
            stores_left = -1;
            CHECK(loads_left == load - LOADS || (loads_left < 0 && !is_whole));
            got += is_whole;
            refused += !is_whole;
            const pst_pool_status expected = status_of(status.steps);
            CHECK(memcmp(&status, &expected, sizeof(status)) == 0);
            CHECK(is_whole ? status.steps >= 3 : status.steps == 0);
        }
    CHECK(got > refused);
    CHECK(refused > LOADS * STORES / 4);
}

/* ---- slots ---- */

PST_TEST(CoreMailbox, PublicationsUseTheSlotsInTurn)
{
    static psti_mailbox mailbox;
    pst_pool_status read;
    CHECK(!psti_read_mailbox(&mailbox, &read));
    for (uint64_t n = 1; n <= 5; n++) {
        const pst_pool_status status = {.steps = n, .checks = ~n, .fault_wanted = n << 40};
        psti_publish_status(&status, &mailbox);
        CHECK_EQ(mailbox.slots[n % 2].sequence, n);
        CHECK_EQ(mailbox.slots[(n + 1) % 2].sequence, n - 1);
        CHECK(psti_read_slot(&mailbox.slots[n % 2], &read));
        CHECK(memcmp(&read, &status, sizeof(read)) == 0);
        CHECK(psti_read_mailbox(&mailbox, &read));
        CHECK_EQ(read.steps, n);
    }
}

/* ---- a reader in a thread of its own ---- */

enum { PUBLICATIONS = 200000, READS = 2000000 };

typedef struct reader {
    psti_mailbox mailbox;
    uint32_t stop;
    uint64_t reads, torn;
} reader;

static void *read_on(void *opaque)
{
    reader *self = opaque;
    while (!__atomic_load_n(&self->stop, __ATOMIC_ACQUIRE))
        for (int slot = 0; slot < 2; slot++) {
            pst_pool_status status = {0};
            psti_read_slot(&self->mailbox.slots[slot], &status);
            const pst_pool_status expected = status_of(status.steps);
            self->torn += memcmp(&status, &expected, sizeof(status)) != 0;
            __atomic_fetch_add(&self->reads, 1, __ATOMIC_RELAXED);
        }
    return NULL;
}

PST_TEST(CoreMailbox, ReadersNeverSeeHalfAPublication)
{
    static reader self;
    pthread_t thread;
    CHECK_EQ(pthread_create(&thread, NULL, read_on, &self), 0);
    for (uint64_t n = 1;
         n <= PUBLICATIONS || __atomic_load_n(&self.reads, __ATOMIC_RELAXED) < READS; n++)
        publish(&self.mailbox, n);
    __atomic_store_n(&self.stop, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    CHECK_EQ(self.torn, 0);
}
