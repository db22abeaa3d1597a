/* The passes of a stage in order, and what it holds after each. */
#include <stdio.h>

#include "host/estimate/estimate.h"
#include "tests/host/estimate/estimate_models.h"

enum { MOST = 64 };

typedef struct record {
    uint64_t num_events, limit;
    pst_estimate_event events[MOST];
} record;

static bool keep(void *user, const pst_estimate_event *event)
{
    record *self = user;
    self->events[self->num_events++] = *event;
    return self->num_events < self->limit;
}

/* As "F01 B01": forward and backward of chunk 0 for micro-batch 1. */
static void expect_order(const pst_estimate_config *config, uint64_t stage, const char *order)
{
    record made = {.limit = MOST};
    char text[4 * MOST + 1] = "";
    CHECK_OK(pst_estimate_get_timeline(config, stage, keep, &made));
    for (uint64_t i = 0; i < made.num_events; i++) {
        CHECK_EQ(made.events[i].number, i);
        snprintf(text + 4 * i, 5, "%c%u%u ", made.events[i].is_backward ? 'B' : 'F',
                 (unsigned)made.events[i].chunk, (unsigned)made.events[i].micro_batch);
    }
    CHECK_STR(text, order);
}

static pst_estimate_config interleaved(void)
{
    pst_estimate_config config = psti_estimate_run(4);
    config.world_size = 16;
    config.pipeline_parallel = config.virtual_stages = 2;
    config.global_batch = 4;
    return config;
}

PST_TEST(EstimateTimeline, Interleaved)
{
    pst_estimate_config config = interleaved();
    expect_order(&config, 0, "F00 F01 F10 F11 F02 B10 F03 B11 F12 B00 F13 B01 B12 B13 B02 B03 ");
    expect_order(&config, 1, "F00 F01 F10 B10 F11 B11 F02 B00 F03 B01 F12 B12 F13 B13 B02 B03 ");
    config.overlaps_exchange = true; /* B10 runs beside F02: as if F11 came after B10 */
    expect_order(&config, 1, "F00 F01 F10 B10 F11 B11 F02 B00 F03 B01 F12 B12 F13 B13 B02 B03 ");
    config.overlaps_exchange = false;
    config.micro_batch_group_size = 4; /* all four, then the other chunk */
    expect_order(&config, 1, "F00 F01 F02 F03 F10 B10 F11 B11 F12 B12 F13 B13 B00 B01 B02 B03 ");
}

/* 40 layers in two chunks; stage 0 keeps the tokens' numbers as well, stage 1 the head. */
PST_TEST(EstimateTimeline, Bytes)
{
    pst_estimate_config config = interleaved();
    pst_estimate_ledger ledger;
    pst_estimate_memory memory;
    record made = {.limit = MOST};
    CHECK_OK(pst_estimate_get_ledger(&config, false, &ledger));
    CHECK_OK(pst_estimate_get_memory(&config, 0, NULL, &memory));
    CHECK_OK(pst_estimate_get_timeline(&config, 0, keep, &made));
    CHECK_EQ(made.num_events, 16);
    CHECK_EQ(made.events[0].saved_bytes, 20 * ledger.bytes + 8 * 4096);
    CHECK_EQ(made.events[0].live_layers, 20);
    CHECK_EQ(made.events[4].saved_bytes, 100 * ledger.bytes + 3 * 8 * 4096);
    CHECK_EQ(made.events[4].bytes, memory.states.bytes + made.events[4].saved_bytes);
    CHECK_EQ(made.events[15].bytes, memory.states.bytes);
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &memory));
    made.num_events = 0;
    CHECK_OK(pst_estimate_get_timeline(&config, 1, keep, &made));
    CHECK_EQ(made.events[1].head_bytes, 0);
    CHECK_EQ(made.events[2].head_bytes, memory.head_bytes);
    CHECK_EQ(made.events[2].bytes, memory.states.bytes + 60 * ledger.bytes + memory.head_bytes);
    CHECK_EQ(made.events[3].head_bytes, 0);
}

/* With overlapped exchanges, too, at most one micro-batch's logits are live. */
PST_TEST(EstimateTimeline, OneHeadAtATime)
{
    pst_estimate_config config = interleaved();
    pst_estimate_memory memory;
    record made = {.limit = MOST};
    config.overlaps_exchange = true;
    CHECK_OK(pst_estimate_get_memory(&config, 1, NULL, &memory));
    CHECK_OK(pst_estimate_get_timeline(&config, 1, keep, &made));
    CHECK(memory.head_bytes != 0 && made.events[1].head_bytes == 0);
    CHECK_EQ(made.events[2].head_bytes, memory.head_bytes);
    CHECK_EQ(made.events[3].head_bytes, 0);
    CHECK_EQ(made.events[4].head_bytes, memory.head_bytes);
}

/* What paging takes grows and shrinks with the live layers; a stage at rest has no buffers. */
PST_TEST(EstimateTimeline, Paging)
{
    pst_estimate_config config = psti_estimate_run(12);
    config.global_batch = 16 * 64;
    config.moe_rows = PST_MOE_PAGED;
    pst_estimate_moe moe;
    pst_estimate_memory memory;
    record made = {.limit = MOST};
    CHECK_OK(pst_estimate_get_memory(&config, 14, NULL, &memory));
    CHECK_OK(pst_estimate_get_timeline(&config, 14, keep, &made));
    CHECK_EQ(made.events[1].live_layers, 8);
    CHECK_EQ(made.events[1].bytes, memory.bytes);
    CHECK_OK(pst_estimate_get_moe(&config, 4, &moe));
    CHECK_EQ(made.events[0].bytes, memory.states.bytes + made.events[0].saved_bytes +
                                       moe.paged_bytes + moe.table_bytes - moe.balanced_bytes);
    CHECK_EQ(made.events[made.num_events - 1].bytes, memory.states.bytes);
}

PST_TEST(EstimateTimeline, StopsWhenTold)
{
    pst_estimate_config config = interleaved();
    record made = {.limit = 3};
    config.global_batch = UINT64_C(1) << 60;
    CHECK_OK(pst_estimate_get_timeline(&config, 0, keep, &made));
    CHECK_EQ(made.num_events, 3);
}

PST_TEST(EstimateTimeline, Refuses)
{
    pst_estimate_config config = interleaved();
    record made = {.limit = MOST};
    CHECK_STATUS(pst_estimate_get_timeline(&config, 2, keep, &made), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_timeline(&config, 0, NULL, &made), PST_E_INVALID);
    CHECK_STATUS(pst_estimate_get_timeline(NULL, 0, keep, &made), PST_E_INVALID);
    config.global_batch = UINT64_C(1) << 63;
    CHECK_STATUS(pst_estimate_get_timeline(&config, 0, keep, &made), PST_E_INVALID);
    config.hidden_size = 0;
    CHECK_STATUS(pst_estimate_get_timeline(&config, 0, keep, &made), PST_E_INVALID);
    config = interleaved();
    for (long successes = 0; successes < 2; successes++) {
        psti_fail_allocation_after(successes);
        const pst_status status = pst_estimate_get_timeline(&config, 0, keep, &made);
        psti_fail_allocation_after(-1);
        CHECK_STATUS(status, PST_E_NOMEM);
    }
    CHECK_EQ(made.num_events, 0);
}
