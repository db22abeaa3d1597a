/* What a pool accepts, and what it takes. */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>

#include "kernels/core/mailbox.h"
#include "tests/host/stash/scene.h"

static void *const untouched = (void *)(uintptr_t)1;

/* ---- the config ---- */

static void check_refused(small_scene *self, const char *message)
{
    uint64_t bytes = 7;
    pst_pool *pool = untouched;
    CHECK_STATUS(pst_pool_bytes(&self->pool_config, &bytes), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_EQ(bytes, 7);
    CHECK_STATUS(pst_pool_create(self->device, &self->pool_config, &pool), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK(pool == untouched);
    CHECK_EQ(self->device->live, 0);
}

static void check_accepted(small_scene *self)
{
    uint64_t bytes = 0;
    pst_pool *pool = NULL;
    CHECK_OK(pst_pool_bytes(&self->pool_config, &bytes));
    CHECK_OK(pst_pool_create(self->device, &self->pool_config, &pool));
    CHECK_EQ(small_status(pool).check_errors, 0);
    CHECK_OK(pst_pool_destroy(pool));
}

#define CHECK_SPOILED(field, value, message)                \
    do {                                                    \
        const pst_pool_config psti_good = self.pool_config; \
        self.pool_config.field = (value);                   \
        check_refused(&self, (message));                    \
        self.pool_config = psti_good;                       \
    } while (0)

/* Fault rows 1. */
PST_TEST(Pool, NullArgumentsAreRefused)
{
    small_scene self;
    uint64_t bytes = 7;
    pst_pool *pool = untouched;
    pst_pool_status status = {.steps = 77};
    small_configs(&self);
    CHECK_STATUS(pst_pool_bytes(NULL, &bytes), PST_E_INVALID);
    CHECK_STATUS(pst_pool_bytes(&self.pool_config, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_pool_create(NULL, &self.pool_config, &pool), PST_E_INVALID);
    CHECK_STATUS(pst_pool_create(self.device, NULL, &pool), PST_E_INVALID);
    CHECK_STATUS(pst_pool_create(self.device, &self.pool_config, NULL), PST_E_INVALID);
    CHECK_EQ(bytes, 7);
    CHECK(pool == untouched);
    CHECK_STATUS(pst_pool_reset(NULL, PST_RESET_ALL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_pool_step(NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_pool_check(NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_pool_poll(NULL, &status), PST_E_INVALID);
    CHECK_EQ(status.steps, 77);
    CHECK(pst_pool_step_valid(NULL) == NULL);
    CHECK_OK(pst_pool_destroy(NULL));
    CHECK_OK(pst_device_close(self.device));
}

/* Fault rows 2, 3, 5. */
PST_TEST(Pool, EveryFieldOfTheConfigIsChecked)
{
    small_scene self;
    small_configs(&self);
    CHECK_SPOILED(struct_size, 0, "struct_size 0: pst_pool_config has ");
    CHECK_SPOILED(struct_size, 1000, "struct_size 1000: pst_pool_config has ");
    CHECK_SPOILED(page_bytes, 8192, "page_bytes 8192: allowed are powers of two, 16384 to 4194304");
    CHECK_SPOILED(page_bytes, 24576, "page_bytes 24576: allowed are powers of two");
    CHECK_SPOILED(page_bytes, 8388608, "page_bytes 8388608: allowed are powers of two");
    CHECK_SPOILED(page_bytes, UINT64_MAX, "page_bytes 18446744073709551615: allowed are");
    CHECK_SPOILED(num_pages, 0, "num_pages 0: allowed are 1 to 2147483647");
    CHECK_SPOILED(num_pages, 2147483648u, "num_pages 2147483648: allowed are 1 to 2147483647");
    CHECK_SPOILED(num_pages, UINT64_C(4294967297),
                  "num_pages 4294967297: allowed are 1 to 2147483647");
    CHECK_SPOILED(num_pages, UINT64_MAX, "num_pages 18446744073709551615: allowed are");
    CHECK_SPOILED(mode, (pst_pool_mode)2, "mode 2: allowed are ordered and concurrent");
    CHECK_SPOILED(max_tickets, (1u << 20) + 1, "max_tickets 1048577: allowed are up to 1048576");
    CHECK_SPOILED(padding[0], 1, "padding 1 0, padding_2 0: must be 0");
    CHECK_SPOILED(padding[1], 2, "padding 0 2, padding_2 0: must be 0");
    CHECK_SPOILED(padding_2, 3, "padding 0 0, padding_2 3: must be 0");
    self.pool_config.page_bytes = 0;
    self.pool_config.num_pages = 1;
    self.pool_config.max_tickets = 0;
    check_accepted(&self);
    self.pool_config.mode = PST_POOL_CONCURRENT;
    self.pool_config.page_bytes = PST_PAGE_BYTES_MAX;
    self.pool_config.max_tickets = 1u << 20;
    check_accepted(&self);
    CHECK_OK(pst_device_close(self.device));
}

PST_TEST(Pool, ASlabIsChecked)
{
    small_scene self;
    small_configs(&self);
    CHECK_SPOILED(slab_tickets, 5, "slab_tickets 5: allowed are up to 4, max_tickets");
    CHECK_SPOILED(slab_pages, 1, "slab_pages 1, slab_counts 0: must be 0 where slab_tickets is 0");
    CHECK_SPOILED(slab_counts, 1, "slab_pages 0, slab_counts 1: must be 0 where slab_tickets is 0");
    self.pool_config.slab_tickets = 4;
    CHECK_SPOILED(slab_counts, 8193, "slab_counts 8193: allowed are up to 8192");
    self.pool_config.max_tickets = 0;
    CHECK_SPOILED(slab_tickets, (1u << 20) + 1, "slab_tickets 1048577: allowed are up to 1048576");
    self.pool_config.slab_counts = 8192;
    self.pool_config.slab_pages = UINT64_MAX;
    check_accepted(&self);
    CHECK_OK(pst_device_close(self.device));
}

/* ---- bytes ---- */

PST_TEST(Pool, RecommendsTheQuantileAskedFor)
{
    const pst_pool_status status = {.demand_high_water = 9, .demand_quantiles = {5, 6, 7, 8}};
    uint64_t pages = 0;
    for (int share = PST_STEPS_P50; share <= PST_STEPS_ALL; share++) {
        CHECK_OK(pst_pool_recommend_pages(&status, (pst_steps_share)share, &pages));
        CHECK_EQ(pages, 5 + share);
    }
    CHECK_STATUS(pst_pool_recommend_pages(&status, (pst_steps_share)990, &pages), PST_E_INVALID);
    CHECK_STATUS(pst_pool_recommend_pages(NULL, PST_STEPS_ALL, &pages), PST_E_INVALID);
    CHECK_STATUS(pst_pool_recommend_pages(&status, PST_STEPS_ALL, NULL), PST_E_INVALID);
}

PST_TEST(Pool, CallersMemoryMustBeAlignedAndLargeEnough)
{
    small_scene self;
    uint64_t bytes = 0;
    void *memory = NULL;
    char message[128];
    small_configs(&self);
    CHECK_OK(pst_pool_bytes(&self.pool_config, &bytes));
    CHECK_OK(pst_device_alloc(self.device, (size_t)bytes, &memory));
    memset(memory, 0xa5, (size_t)bytes); /* its content is of no importance */
    const pst_pool_config good = self.pool_config;
    const struct {
        uint64_t offset, size;
    } bad[] = {{0, 0}, {0, bytes - 1}, {1, bytes}, {128, bytes}};
    for (int i = 0; i < 4; i++) {
        pst_pool *pool = untouched;
        self.pool_config.memory = (char *)memory + bad[i].offset;
        self.pool_config.memory_bytes = bad[i].size;
        snprintf(message, sizeof(message),
                 "memory of %" PRIu64 " bytes at %p: %" PRIu64 " bytes aligned to 256 are needed",
                 bad[i].size, self.pool_config.memory, bytes);
        CHECK_STATUS(pst_pool_create(self.device, &self.pool_config, &pool), PST_E_INVALID);
        CHECK_SAID(message);
        CHECK(pool == untouched);
        CHECK_EQ(self.device->live, 1);
    }
    self.pool_config = good;
    self.pool_config.memory = memory;
    self.pool_config.memory_bytes = bytes;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK(self.pool->memory == NULL);
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
    memset(self.rows, 7, SMALL_BYTES);
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    memset(self.rows, 0, SMALL_BYTES);
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    CHECK_EQ(self.rows[0] + self.rows[SMALL_BYTES - 1], 14);
    CHECK_EQ(small_status(self.pool).check_errors, 0);
    CHECK_OK(pst_ticket_destroy(self.ticket));
    CHECK_OK(pst_group_destroy(self.group));
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_EQ(self.device->live, 1); /* the memory is still the caller's */
    CHECK_OK(pst_device_free(self.device, memory));
    CHECK_OK(pst_device_close(self.device));
}

/* The walk that counts is the walk that carves: the last part ends where the bytes end. ASan
 * sees to it that nothing lies beyond. */
PST_TEST(Pool, TakesTheBytesThatItSaid)
{
    static const uint64_t pages[] = {1, 2, 5, 33};
    small_scene self;
    small_configs(&self);
    for (int i = 0; i < 4; i++) {
        uint64_t bytes = 0;
        pst_pool *pool = NULL;
        self.pool_config.num_pages = pages[i];
        CHECK_OK(pst_pool_bytes(&self.pool_config, &bytes));
        CHECK_OK(pst_pool_create(self.device, &self.pool_config, &pool));
        const char *status = (const char *)pool->view.status;
        CHECK_EQ(status - (const char *)pool->memory, bytes - 256 - psti_canary_room());
        memset(pool->view.pages[0], 0xff, pages[i] * PST_PAGE_BYTES_MIN);
        memset(pool->view.seen, 0, pages[i] * 4);
        const pst_pool_status now = small_status(pool);
        CHECK_EQ(now.check_errors, 0);
        CHECK_EQ(now.in_use[0], 0);
        CHECK_OK(pst_pool_destroy(pool));
    }
    CHECK_OK(pst_device_close(self.device));
}

/* Fault rows 4. */
PST_TEST(Pool, APoolLargerThanMemoryIsRefusedWithBothFigures)
{
    small_scene self;
    uint64_t bytes = 0;
    unsigned long long wanted = 0, available = 0;
    pst_pool *pool = untouched;
    small_configs(&self);
    self.pool_config.num_pages = INT32_MAX; /* of 4 MiB: 8 PiB */
    self.pool_config.page_bytes = PST_PAGE_BYTES_MAX;
    CHECK_OK(pst_pool_bytes(&self.pool_config, &bytes));
    CHECK_STATUS(pst_pool_create(self.device, &self.pool_config, &pool), PST_E_DEVICE_NOMEM);
    CHECK(pool == untouched);
    CHECK_EQ(self.device->live, 0);
    CHECK_EQ(sscanf(pst_last_message(), "%llu bytes wanted, %llu bytes free", &wanted, &available),
             2);
    CHECK_EQ(wanted, bytes);
    CHECK(available < wanted);
    CHECK_OK(pst_device_close(self.device));
}

/* ---- tickets ---- */

/* Fault rows 27. */
PST_TEST(Pool, MaxTicketsAreThereAndNoMore)
{
    small_scene self;
    pst_ticket tickets[4] = {{0}}, more = {77};
    small_open(&self);
    tickets[0] = self.ticket;
    for (uint32_t i = 1; i < 4; i++) {
        CHECK_OK(pst_ticket_create(self.pool, self.group, &tickets[i]));
        CHECK_EQ(pst_ticket_index(tickets[i]), i);
    }
    const uint32_t live = self.device->live;
    CHECK_STATUS(pst_ticket_create(self.pool, self.group, &more), PST_E_INVALID);
    CHECK_SAID("the pool has max_tickets 4 already");
    CHECK_EQ(more.id, 77);
    CHECK_EQ(self.device->live, live);
    CHECK_OK(pst_ticket_destroy(tickets[2])); /* its number is free again */
    CHECK_OK(pst_ticket_create(self.pool, self.group, &tickets[2]));
    CHECK_EQ(pst_ticket_index(tickets[2]), 2);
    CHECK_STATUS(pst_pool_destroy(self.pool), PST_E_BUSY);
    CHECK_SAID("4 tickets and 0 captured graphs hold this pool");
    for (uint32_t i = 1; i < 4; i++)
        CHECK_OK(pst_ticket_destroy(tickets[i]));
    CHECK_STATUS(pst_pool_destroy(self.pool), PST_E_BUSY);
    CHECK_SAID("1 tickets and 0 captured graphs hold this pool");
    CHECK_EQ(small_status(self.pool).check_errors, 0);
    small_close(&self);
}

PST_TEST(Pool, DefaultNumberOfTickets)
{
    small_scene self;
    small_configs(&self);
    self.pool_config.max_tickets = 0;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_EQ(self.pool->view.max_tickets, 4096);
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}

/* Fault rows 28. */
PST_TEST(Pool, AGraphHoldsThePool)
{
    small_scene self;
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    small_configs(&self);
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_stream_create(self.device, &stream));
    pst_status (*const operations[])(pst_pool *, pst_stream) = {pst_pool_step, pst_pool_check};
    for (int i = 0; i < 3; i++) {
        CHECK_OK(pst_graph_begin(self.device, stream));
        if (i < 2)
            CHECK_OK(operations[i](self.pool, stream));
        else
            CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, stream));
        CHECK_OK(pst_graph_end(self.device, stream, &graph));
        CHECK_STATUS(pst_pool_destroy(self.pool), PST_E_BUSY);
        CHECK_SAID("0 tickets and 1 captured graphs hold this pool");
        CHECK_OK(pst_graph_destroy(graph));
    }
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_stream_destroy(self.device, stream));
    CHECK_OK(pst_device_close(self.device));
}

/* ---- operations ---- */

PST_TEST(Pool, ResetRefusesBitsThatItDoesNotKnow)
{
    static const uint32_t bad[] = {0, 8, 9, 15, UINT32_MAX};
    small_scene self;
    small_open(&self);
    for (int i = 0; i < 5; i++) {
        char message[64];
        snprintf(message, sizeof(message), "what %u: allowed are PST_RESET_PAGES, ", bad[i]);
        CHECK_STATUS(pst_pool_reset(self.pool, bad[i], NULL), PST_E_INVALID);
        CHECK_SAID(message);
    }
    for (uint32_t what = 1; what <= PST_RESET_ALL; what++) {
        const uint32_t epoch = self.pool->view.state->epoch;
        CHECK_OK(pst_pool_reset(self.pool, what, NULL));
        CHECK_EQ(self.pool->view.state->epoch, epoch + (what & PST_RESET_PAGES));
    }
    small_close(&self);
}

PST_TEST(Pool, PollAnswersAgainUntilTheFirstStep)
{
    small_scene self;
    pst_pool_status status = {.steps = 77};
    small_open(&self);
    CHECK_STATUS(pst_pool_poll(self.pool, &status), PST_E_AGAIN);
    CHECK_EQ(status.steps, 77);
    CHECK_STATUS(pst_pool_poll(self.pool, NULL), PST_E_INVALID);
    for (uint64_t steps = 1; steps <= 5; steps++) {
        CHECK_OK(pst_pool_step(self.pool, NULL));
        CHECK_OK(pst_pool_poll(self.pool, &status));
        CHECK_EQ(status.steps, steps);
    }
    small_close(&self);
}

PST_TEST(Pool, PollTakesTheNewestWholeSlot)
{
    small_scene self;
    pst_pool_status status;
    small_open(&self);
    for (int i = 0; i < 4; i++)
        CHECK_OK(pst_pool_step(self.pool, NULL));
    psti_mailbox_slot *slots = self.pool->mailbox->slots; /* 4 in the first, 3 in the second */
    slots[0].sequence = 0;                                /* being written */
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.steps, 3);
    slots[1].sequence = 0;
    CHECK_STATUS(pst_pool_poll(self.pool, &status), PST_E_AGAIN);
    slots[0].sequence = 4;
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.steps, 4);
    small_close(&self);
}

/* Fault rows 72. */
PST_TEST(Pool, StepValidIsTheWordOfTheStatusBlock)
{
    small_scene self;
    pst_pool_status status;
    small_open(&self);
    const int32_t *step_valid = pst_pool_step_valid(self.pool);
    CHECK_EQ(*step_valid, 1);
    CHECK_OK(pst_ticket_release(self.ticket, NULL)); /* it is empty: a fault */
    CHECK_EQ(*step_valid, 0);
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.step_valid, 0);
    CHECK_EQ(status.flags, 1u << PST_FAULT_EMPTY);
    CHECK_EQ(*step_valid, 1);
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status));
    CHECK_EQ(status.step_valid, 1);
    small_close(&self);
}

/* Counts messages of this level; the last one is kept. */
static char told[256];

static void hear(pst_log_level level, const char *message, void *user)
{
    *(int *)user += level == PST_LOG_INFO;
    snprintf(told, sizeof(told), "%s", message);
}

PST_TEST(Pool, PollTellsTheLogOfNewFaultsOnce)
{
    small_scene self;
    pst_pool_status status;
    int messages = 0;
    small_open(&self);
    CHECK_OK(pst_ticket_release(self.ticket, NULL)); /* it is empty: a fault */
    CHECK_OK(pst_pool_step(self.pool, NULL));
    pst_log_set_callback(PST_LOG_INFO, hear, &messages);
    pst_status first = pst_pool_poll(self.pool, &status);
    pst_status again = pst_pool_poll(self.pool, &status);
    pst_log_set_callback(PST_LOG_OFF, NULL, NULL);
    CHECK_OK(first);
    CHECK_OK(again);
    CHECK_EQ(messages, 1);
    CHECK_STR(told, "pool has 1 faults; the first since its reset: restore, release or move of a "
                    "ticket that holds nothing (ticket 0)");
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    CHECK_OK(pst_pool_poll(self.pool, &status)); /* nothing to tell, and from here on all again */
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    CHECK_OK(pst_pool_step(self.pool, NULL));
    pst_log_set_callback(PST_LOG_INFO, hear, &messages);
    first = pst_pool_poll(self.pool, &status);
    pst_log_set_callback(PST_LOG_OFF, NULL, NULL);
    CHECK_OK(first);
    CHECK_EQ(messages, 2);
    small_close(&self);
}

PST_TEST(Pool, MemoryBytesWithoutMemoryIsRefused)
{
    small_scene self;
    uint64_t bytes = 7;
    small_configs(&self);
    self.pool_config.memory_bytes = 1;
    CHECK_STATUS(pst_pool_bytes(&self.pool_config, &bytes), PST_E_INVALID);
    CHECK_EQ(bytes, 7);
    CHECK_OK(pst_device_close(self.device));
}

/* ---- the mailbox, published as fast as can be ---- */

typedef struct publisher {
    psti_mailbox *mailbox;
    uint32_t stop;
} publisher;

static void *publish_on(void *opaque)
{
    publisher *self = opaque;
    pst_pool_status status = {0};
    while (!__atomic_load_n(&self->stop, __ATOMIC_ACQUIRE)) {
        status.steps++;
        status.checks = status.steps;
        psti_publish_status(&status, self->mailbox);
    }
    return NULL;
}

/* Between looking at one slot and at the other a poll may meet two publications. */
PST_TEST(Mailbox, PollNeverGoesBack)
{
    small_scene self;
    pthread_t thread;
    uint64_t last = 0, torn = 0, back = 0;
    small_open(&self);
    publisher other = {.mailbox = self.pool->mailbox};
    CHECK_EQ(pthread_create(&thread, NULL, publish_on, &other), 0);
    for (uint64_t i = 0; i < psti_test_cases(10000000); i++) {
        pst_pool_status status;
        if (pst_pool_poll(self.pool, &status) != PST_OK)
            continue;
        torn += status.checks != status.steps;
        back += status.steps < last;
        last = status.steps;
    }
    __atomic_store_n(&other.stop, 1, __ATOMIC_RELEASE);
    CHECK_EQ(pthread_join(thread, NULL), 0);
    CHECK_EQ(torn, 0);
    CHECK_EQ(back, 0);
    CHECK(last > 0);
    small_close(&self);
}
