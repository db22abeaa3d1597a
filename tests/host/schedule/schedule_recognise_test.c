/* Kinds found again from their lists. */
#include <pagestash/pagestash.h>

#include "tests/host/schedule/schedule_scene.h"

#define K(kind) PST_SCHEDULE_##kind

static pst_status recognise(const pst_schedule *schedule, pst_schedule_config *found_out)
{
    return pst_schedule_recognise(schedule->passes, schedule->num_passes,
                                  schedule->config.num_stages, schedule->config.stage, found_out);
}

static bool has_list(const pst_schedule_config *config, const pst_schedule *schedule)
{
    pst_schedule *again = NULL;
    if (pst_schedule_create(config, &again) != PST_OK)
        return false;
    bool is_equal = again->num_passes == schedule->num_passes;
    for (uint64_t n = 0; is_equal && n < again->num_passes; n++)
        is_equal = memcmp(&again->passes[n], &schedule->passes[n], sizeof(pst_pass)) == 0;
    pst_schedule_destroy(again);
    return is_equal;
}

/* What is found has the same list, and is not a later kind than the one that made it. */
static void finds(const pst_schedule_config *config)
{
    pst_schedule *schedule = NULL;
    pst_schedule_config found = PST_SCHEDULE_CONFIG_INIT;
    CHECK_OK(pst_schedule_create(config, &schedule));
    const pst_status status = recognise(schedule, &found);
    const bool is_right = status == PST_OK && has_list(&found, schedule);
    const pst_schedule_info info = schedule->info;
    pst_schedule_destroy(schedule);
    CHECK_MSG(is_right, "kind %d p %u stage %u m %u v %u group %u %d limit %u: %s, kind %d",
              config->kind, info.config.num_stages, config->stage, config->num_micro_batches,
              info.config.num_chunks, info.config.group, config->overlaps_exchange,
              info.config.limit, pst_status_name(status), found.kind);
    CHECK(found.kind <= config->kind && found.struct_size == sizeof(found));
    CHECK_EQ(found.stage, config->stage);
    CHECK_EQ(found.num_stages, info.config.num_stages);
}

static void finds_all_stages(const shape *of, uint32_t limit)
{
    for (uint32_t r = 0; r < of->p; r++) {
        pst_schedule_config config = config_of(of, r);
        config.limit = limit;
        finds(&config);
    }
}

PST_TEST(ScheduleRecognise, EveryKind)
{
    static const uint32_t stages[] = {1, 2, 3, 4, 8}, batches[] = {1, 2, 3, 4, 7, 8, 16, 17};
    for (size_t i = 0; i < 5; i++)
        for (size_t j = 0; j < 8; j++) {
            const uint32_t p = stages[i], m = batches[j];
            finds_all_stages(&(shape){K(1F1B), p, m, 0, 0, false}, 0);
            finds_all_stages(&(shape){K(GPIPE), p, m, 0, 0, false}, 0);
            finds_all_stages(&(shape){K(GPIPE_REVERSED), p, m, 0, 0, false}, 0);
            finds_all_stages(&(shape){K(ZB_H1), p, m, 0, 0, false}, 0);
            finds_all_stages(&(shape){K(ZB_H2), p, m, 0, 0, false}, 0);
            if (m >= 2 * p)
                finds_all_stages(&(shape){K(DUALPIPE_V), p, m, 0, 0, false}, 0);
            if (m >= 2 * p && p % 2 == 0 && m % 2 == 0)
                finds_all_stages(&(shape){K(DUALPIPE), p, m, 0, 0, false}, 0);
            for (uint32_t v = 2; v <= 3; v++)
                for (uint32_t group = p; group <= m; group++)
                    if (m % group == 0 || m % group >= p) {
                        finds_all_stages(&(shape){K(INTERLEAVED), p, m, v, group, false}, 0);
                        finds_all_stages(&(shape){K(INTERLEAVED), p, m, v, group, true}, 0);
                    }
        }
}

/* With any limit, on every rank. */
PST_TEST(ScheduleRecognise, ZeroBubbleV)
{
    for (uint32_t p = 1; p <= 6; p++)
        for (uint32_t m = 1; m <= 14; m++)
            for (uint32_t limit = 0; limit <= m + 1; limit++)
                finds_all_stages(&(shape){K(ZB_V), p, m, 0, 0, false}, limit);
}

static void expect(const shape *of, uint32_t stage, const pst_schedule_config *expected)
{
    pst_schedule *schedule = schedule_of(of, stage);
    pst_schedule_config found = PST_SCHEDULE_CONFIG_INIT;
    CHECK(schedule != NULL);
    const pst_status status = recognise(schedule, &found);
    pst_schedule_destroy(schedule);
    CHECK_OK(status);
    CHECK_EQ(found.kind, expected->kind);
    CHECK_EQ(found.num_micro_batches, of->m);
    CHECK_EQ(found.num_chunks, expected->num_chunks);
    CHECK_EQ(found.group, expected->group);
    CHECK_EQ(found.overlaps_exchange, expected->overlaps_exchange);
    CHECK_EQ(found.limit, expected->limit);
    CHECK(found.passes == NULL && found.num_passes == 0);
}

/* Where several kinds have the list, the first; else all that makes it. */
PST_TEST(ScheduleRecognise, WhatIsFound)
{
    const shape gpipe = {K(GPIPE), 8, 3, 0, 0, false},
                reversed = {K(GPIPE_REVERSED), 2, 1, 0, 0, 0};
    const shape inter = {K(INTERLEAVED), 2, 12, 3, 4, true}, h2 = {K(ZB_H2), 1, 5, 0, 0, false};
    const shape dual = {K(DUALPIPE), 4, 12, 0, 0, false}, v = {K(ZB_V), 4, 9, 0, 0, false};
    expect(&gpipe, 5, &(pst_schedule_config){.kind = K(1F1B), .num_chunks = 1});
    expect(&(shape){K(GPIPE), 8, 4, 0, 0, false}, 5,
           &(pst_schedule_config){.kind = K(GPIPE), .num_chunks = 1});
    expect(&reversed, 0, &(pst_schedule_config){.kind = K(1F1B), .num_chunks = 1});
    expect(&inter, 1,
           &(pst_schedule_config){
               .kind = K(INTERLEAVED), .num_chunks = 3, .group = 4, .overlaps_exchange = true});
    expect(&h2, 0, &(pst_schedule_config){.kind = K(ZB_H1), .num_chunks = 1});
    expect(&dual, 3, &(pst_schedule_config){.kind = K(DUALPIPE), .num_chunks = 2});
    expect(&v, 2, &(pst_schedule_config){.kind = K(ZB_V), .num_chunks = 2, .limit = 4});
}

static pst_status recognise_text(const char *list, uint32_t num_stages, uint32_t stage)
{
    pst_pass passes[64];
    const uint64_t num = passes_from(list, passes);
    pst_schedule_config found = PST_SCHEDULE_CONFIG_INIT;
    const pst_status status = pst_schedule_recognise(passes, num, num_stages, stage, &found);
    if (status != PST_OK && (found.kind != K(1F1B) || found.num_micro_batches != 0))
        psti_test_fail(__FILE__, __LINE__, "a failed call wrote its output");
    return status;
}

PST_TEST(ScheduleRecognise, NoKind)
{
    static const char *const lists[] = {
        "F1 F0 B1 B0",                             /* another order of micro-batches */
        "F0 F1 F2 F3 B0 B1 B3 B2",                 /* the last two changed */
        "F0",                                      /* forward only */
        "F0 F1 B0 F2 [B1 F3 B2 B3",                /* 1F1B with a pair */
        "F0 F1 F1.0 B1.0 B0 B1",                   /* chunks of unequal numbers */
        "F0 I0 W0 F1.0 B1.0",                      /* split in one chunk */
        "F0 F1.0 I1.0 I0 W1.0 W0 F1 F1.1 B1.1 B1", /* a ZB_V that goes on otherwise */
    };
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        CHECK_MSG(recognise_text(lists[i], 2, 0) == PST_E_AGAIN, "%s", lists[i]);
        CHECK_SAID("no kind has this list of ");
    }
    CHECK_STATUS(recognise_text("F0 F1 B0 B1", 4, 0), PST_OK);
    CHECK_STATUS(recognise_text("F0 F1 B0 B1", 0, 0), PST_OK); /* GPipe on one stage */
    CHECK_STATUS(recognise_text("F0 B1", 2, 0), PST_E_INVALID);
    CHECK_SAID("pass 1, backward of chunk 0, micro-batch 1: its forward is not in the list");
    CHECK_STATUS(recognise_text("F0 B0", 2, 2), PST_E_INVALID);
    CHECK_SAID("stage 2: allowed is 0 to 1");
    CHECK_STATUS(recognise_text("", 2, 0), PST_E_INVALID);
}

/* One pass of each list is changed: what is found, if anything, has that list. */
PST_TEST(ScheduleRecognise, AlmostAKind)
{
    static const shape shapes[] = {{K(1F1B), 4, 8, 0, 0, false},
                                   {K(INTERLEAVED), 2, 6, 2, 3, false},
                                   {K(ZB_H1), 4, 8, 0, 0, false},
                                   {K(ZB_V), 3, 6, 0, 0, false},
                                   {K(DUALPIPE), 2, 6, 0, 0, false}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        pst_schedule *schedule = schedule_of(&shapes[i], 0);
        CHECK(schedule != NULL);
        for (uint64_t n = 0; n + 1 < schedule->num_passes; n++) {
            const pst_pass was[2] = {schedule->passes[n], schedule->passes[n + 1]};
            schedule->passes[n] = was[1];
            schedule->passes[n + 1] = was[0];
            pst_schedule_config found;
            const pst_status status = recognise(schedule, &found);
            CHECK_MSG(status != PST_OK || has_list(&found, schedule), "shape %zu pass %u", i,
                      (unsigned)n);
            schedule->passes[n] = was[0];
            schedule->passes[n + 1] = was[1];
        }
        pst_schedule_destroy(schedule);
    }
}

PST_TEST(ScheduleRecognise, AllocationFailures)
{
    pst_schedule *schedule = schedule_of(&(shape){K(ZB_V), 2, 5, 0, 0, false}, 1);
    pst_schedule_config found;
    pst_status status = PST_E_NOMEM;
    long n = 0;
    for (; status == PST_E_NOMEM && n < 100; n++) {
        psti_fail_allocation_after(n);
        status = recognise(schedule, &found);
        psti_fail_allocation_after(-1);
    }
    pst_schedule_destroy(schedule);
    CHECK_OK(status);
    CHECK_EQ(n - 1, 10); /* a list, room for another, and two for the ranks of ZB_V */
}
