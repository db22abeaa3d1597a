/* Schedules: what is refused and how that is said, limits, failures of memory. */
#include <pagestash/pagestash.h>

#include "tests/host/schedule/schedule_scene.h"

/* ---- configs that are refused ---- */

#define K(kind) PST_SCHEDULE_##kind

static const pst_pass one_pass[1];

static const struct {
    pst_schedule_config config;
    const char *message;
} configs[] = {
    {{.kind = (pst_schedule_kind)10, .num_micro_batches = 1},
     "kind 10: allowed are 0 to 9, the values of pst_schedule_kind"},
    {{.num_micro_batches = 0}, "num_micro_batches 0: allowed is 1 to 2^20"},
    {{.num_micro_batches = (1 << 20) + 1}, "num_micro_batches 1048577: allowed is 1 to 2^20"},
    {{.num_micro_batches = 4, .num_stages = 4, .stage = 4},
     "stage 4: allowed is 0 to 3, since num_stages is 4"},
    {{.num_micro_batches = 4, .stage = 1}, "stage 1: allowed is 0 to 0, since num_stages is 1"},
    {{.num_micro_batches = 4, .num_stages = (1 << 20) + 1},
     "num_stages 1048577: allowed is 1 to 1048576"},
    {{.num_micro_batches = 4, .num_chunks = 2}, "num_chunks 2: 1F1B allows 1"},
    {{.num_micro_batches = 4, .group = 4},
     "group 4: allowed is 0 in 1F1B, only INTERLEAVED has groups"},
    {{.kind = K(GPIPE), .num_micro_batches = 4, .overlaps_exchange = true},
     "overlaps_exchange true: allowed is false in GPIPE, only INTERLEAVED has it"},
    {{.kind = K(ZB_H1), .num_micro_batches = 4, .limit = 2},
     "limit 2: allowed is 0 in ZB_H1, only ZB_V has one"},
    {{.kind = K(ZB_H2), .num_micro_batches = 4, .passes = one_pass},
     "passes or num_passes of ZB_H2: allowed are NULL and 0, only LIST has passes"},
    {{.kind = K(GPIPE_REVERSED), .num_micro_batches = 4, .num_passes = 1},
     "passes or num_passes of GPIPE_REVERSED: allowed are NULL and 0, only LIST has passes"},
    {{.kind = K(INTERLEAVED), .num_stages = 2, .num_micro_batches = 4, .num_chunks = 1},
     "num_chunks 1: INTERLEAVED allows 2 and more"},
    {{.kind = K(INTERLEAVED), .num_stages = 4, .num_micro_batches = 3},
     "num_micro_batches 3: INTERLEAVED allows at least num_stages, 4"},
    {{.kind = K(INTERLEAVED), .num_stages = 4, .num_micro_batches = 8, .group = 3},
     "group 3: INTERLEAVED allows num_stages to num_micro_batches, 4 to 8"},
    {{.kind = K(INTERLEAVED), .num_stages = 4, .num_micro_batches = 8, .group = 9},
     "group 9: INTERLEAVED allows num_stages to num_micro_batches, 4 to 8"},
    {{.kind = K(INTERLEAVED), .num_stages = 4, .num_micro_batches = 11, .group = 8},
     "num_micro_batches 11: with groups of 8 the last has 3, INTERLEAVED allows whole groups or at "
     "least num_stages, 4"},
    {{.kind = K(INTERLEAVED), .num_micro_batches = 4, .num_chunks = UINT32_C(1) << 31},
     "num_chunks 2147483648 and num_micro_batches 4 make 17179869184 passes: allowed are 2^32"},
    {{.kind = K(ZB_V), .num_micro_batches = 4, .num_chunks = 1}, "num_chunks 1: ZB_V allows 2"},
    {{.kind = K(DUALPIPE), .num_stages = 3, .num_micro_batches = 8},
     "num_stages 3: DUALPIPE allows even numbers"},
    {{.kind = K(DUALPIPE), .num_stages = 2, .num_micro_batches = 7},
     "num_micro_batches 7: DUALPIPE allows even numbers"},
    {{.kind = K(DUALPIPE), .num_stages = 4, .num_micro_batches = 6},
     "num_micro_batches 6: DUALPIPE allows at least twice num_stages, 8"},
    {{.kind = K(DUALPIPE_V), .num_stages = 4, .num_micro_batches = 7},
     "num_micro_batches 7: DUALPIPE_V allows at least twice num_stages, 8"},
    {{.kind = K(DUALPIPE_V), .num_stages = 4, .num_micro_batches = 8, .num_chunks = 3},
     "num_chunks 3: DUALPIPE_V allows 2"},
    {{.kind = K(LIST), .num_passes = 1}, "passes is NULL in LIST"},
    {{.kind = K(LIST), .passes = one_pass}, "num_passes 0: allowed is 1 to 2^32"},
    {{.kind = K(LIST), .passes = one_pass, .num_passes = (UINT64_C(1) << 32) + 1},
     "num_passes 4294967297: allowed is 1 to 2^32"},
    {{.kind = K(LIST), .passes = one_pass, .num_passes = 1, .num_micro_batches = 2},
     "num_micro_batches 2: the list has 1"},
    {{.kind = K(LIST), .passes = one_pass, .num_passes = 1, .num_chunks = 2},
     "num_chunks 2: the list has 1 passes, and each chunk at least 1"},
};

PST_TEST(Schedule, RefusesConfigs)
{
    pst_schedule *none = (pst_schedule *)(uintptr_t)8, *schedule = none;
    for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++) {
        pst_schedule_config config = configs[i].config;
        config.struct_size = sizeof(config);
        CHECK_STATUS(pst_schedule_create(&config, &schedule), PST_E_INVALID);
        CHECK_SAID(configs[i].message);
        CHECK(schedule == none);
    }
}

/* ---- lists that are refused ---- */

static const struct {
    const char *list, *message;
} refused[] = {
    {"B0 F0", "pass 0, backward of chunk 0, micro-batch 0: comes before its forward, pass 1"},
    {"F0 B0 B1", "pass 2, backward of chunk 0, micro-batch 1: its forward is not in the list"},
    {"F0 B0 B1.0", "pass 2, backward of chunk 1, micro-batch 0: its forward is not in the list"},
    {"F0 F1 F0 B0 B1", "pass 2, forward of chunk 0, micro-batch 0: it ran already, as pass 0"},
    {"F0 B0 F1 B1 B0", "pass 4, backward of chunk 0, micro-batch 0: it ran already, as pass 1"},
    {"F0 I0 I0", "pass 2, input backward of chunk 0, micro-batch 0: it ran already, as pass 1"},
    {"F0 I0 W0 W0", "pass 3, weight backward of chunk 0, micro-batch 0: it ran already, as pass 2"},
    {"F0 B0 I0", "pass 2, input backward of chunk 0, micro-batch 0: comes after its backward, pass "
                 "1: allowed is a whole backward, or one of the input and one of the weights"},
    {"F0 I0 B0", "pass 2, backward of chunk 0, micro-batch 0: comes after its input backward, pass "
                 "1: allowed is a whole backward, or one of the input and one of the weights"},
    {"F0 B0 W0",
     "pass 2, weight backward of chunk 0, micro-batch 0: comes after its backward, pass "
     "1: allowed is"},
    {"F0 W0 I0", "pass 1, weight backward of chunk 0, micro-batch 0: comes before its input "
                 "backward, pass 2"},
    {"W0 F0 I0", "pass 0, weight backward of chunk 0, micro-batch 0: comes before its input "
                 "backward, pass 2"},
    {"F0 F1 I1 W0", "pass 3, weight backward of chunk 0, micro-batch 0: its input backward is not "
                    "in the list"},
    {"F0 F1 B1", "pass 0, forward of chunk 0, micro-batch 0: it has no backward, and others have: "
                 "pass 2, backward of chunk 0, micro-batch 1"},
    {"F0 F2 B0 B2", "pass 1, forward of chunk 0, micro-batch 2: the chunk has 2 forwards, so that "
                    "micro-batches 0 to 1 leave no gap"},
    {"F1 B1", "pass 0, forward of chunk 0, micro-batch 1: the chunk has 1 forwards, so that "
              "micro-batches 0 to 0 leave no gap"},
    {"F0 F2.0 B2.0 B0", "chunk 1 has no pass: allowed are chunks 0 to 2 without a gap"},
    {"F0 F9.0 B0 B9.0", "pass 1, forward of chunk 9, micro-batch 0: 4 passes cannot have so many "
                        "chunks without a gap"},
    {"F0 F1048576 B0", "pass 1, forward of chunk 0, micro-batch 1048576: allowed are micro-batches "
                       "0 to 1048575"},
    {"F0 F1 B0 [B1", "pass 3, backward of chunk 0, micro-batch 1: pairs is true: allowed is false "
                     "in the last pass"},
    {"F0 [F1 [B0 F2 B1 B2", "pass 1, forward of chunk 0, micro-batch 1: pairs with pass 2, "
                            "backward of chunk 0, micro-batch 0, which is itself the first of a "
                            "pair"},
    {"F0 [F1 F2 B0 B1 B2", "pass 1, forward of chunk 0, micro-batch 1: pairs with pass 2, forward "
                           "of chunk 0, micro-batch 2: allowed is a forward with a backward"},
    {"F0 F1 [I0 W0 I1 W1", "pass 2, input backward of chunk 0, micro-batch 0: pairs with pass 3, "
                           "weight backward of chunk 0, micro-batch 0: allowed is a forward with "
                           "a backward"},
    {"[F0 B0", "pass 0, forward of chunk 0, micro-batch 0: pairs with pass 1, backward of chunk 0, "
               "micro-batch 0: allowed is another chunk or micro-batch"},
};

PST_TEST(Schedule, RefusesLists)
{
    pst_schedule *none = (pst_schedule *)(uintptr_t)8, *schedule = none;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        CHECK_MSG(list_of(refused[i].list, &schedule) == PST_E_INVALID, "%s", refused[i].list);
        CHECK_SAID(refused[i].message);
        CHECK(schedule == none);
    }
}

PST_TEST(Schedule, RefusesFieldsOfPasses)
{
    pst_pass passes[2] = {{.kind = PST_PASS_FORWARD}, {.kind = (pst_pass_kind)4}};
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    pst_schedule *schedule = NULL;
    config.kind = PST_SCHEDULE_LIST;
    config.passes = passes;
    config.num_passes = 2;
    CHECK_STATUS(pst_schedule_create(&config, &schedule), PST_E_INVALID);
    CHECK_SAID("pass 1: kind 4: allowed are 0 to 3, the values of pst_pass_kind");
    passes[1] = (pst_pass){.chunk = 1};
    config.num_chunks = 1;
    CHECK_STATUS(pst_schedule_create(&config, &schedule), PST_E_INVALID);
    CHECK_SAID("pass 1, forward of chunk 1, micro-batch 0: allowed are chunks 0 to 0, since "
               "num_chunks is 1");
    passes[1].chunk = UINT32_MAX;
    config.num_chunks = 0;
    CHECK_STATUS(pst_schedule_create(&config, &schedule), PST_E_INVALID);
    CHECK_SAID("pass 1, forward of chunk 4294967295, micro-batch 0: 2 passes cannot have so many");
    CHECK(schedule == NULL);
}

/* ---- what can be asked ---- */

PST_TEST(Schedule, Questions)
{
    pst_schedule *schedule = NULL;
    pst_schedule_info info;
    pst_pass pass;
    uint32_t num_slots = 7;
    CHECK_OK(list_of("F0 F1.0 [B1.0 F1 B0 F1.1 B1.1 B1", &schedule));
    CHECK_OK(pst_schedule_get_info(schedule, &info));
    CHECK_EQ(info.num_passes, 8);
    CHECK_EQ(info.config.kind, PST_SCHEDULE_LIST);
    CHECK_EQ(info.config.struct_size, sizeof(info.config));
    CHECK(info.config.passes == NULL && info.config.num_passes == 0);
    CHECK_EQ(info.config.num_chunks, 2);
    CHECK_EQ(info.config.num_micro_batches, 2);
    CHECK_EQ(info.config.num_stages, 1);
    CHECK(!info.splits_backward && !info.is_forward_only);
    CHECK_EQ(info.peak, 3); /* all that the pair touches live beside it */
    CHECK_EQ(info.peak_at, 3);
    CHECK_OK(pst_schedule_get_pass(schedule, 2, &pass));
    CHECK(pass.kind == PST_PASS_BACKWARD && pass.chunk == 1 && pass.pairs);
    CHECK_STATUS(pst_schedule_get_pass(schedule, 8, &pass), PST_E_INVALID);
    CHECK_SAID("pass 8: the schedule has 8");
    CHECK_STATUS(pst_schedule_get_slots(schedule, 2, &num_slots), PST_E_INVALID);
    CHECK_SAID("chunk 2: the schedule has 2");
    CHECK_EQ(num_slots, 7);
    CHECK_EQ(pst_schedule_slot(schedule, 0, 1), 1);
    CHECK_EQ(pst_schedule_slot(schedule, 0, 2), PST_SCHEDULE_NO_SLOT);
    CHECK_EQ(pst_schedule_slot(schedule, 2, 0), PST_SCHEDULE_NO_SLOT);
    pst_schedule_destroy(schedule);
    CHECK_STATUS(pst_schedule_get_info(schedule, &info), PST_E_INVALID);
    CHECK_EQ(pst_schedule_slot(schedule, 0, 0), PST_SCHEDULE_NO_SLOT);
    pst_schedule_destroy(NULL);
}

PST_TEST(Schedule, NullArguments)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    pst_schedule *schedule = NULL;
    config.num_micro_batches = 1;
    CHECK_STATUS(pst_schedule_create(NULL, &schedule), PST_E_INVALID);
    CHECK_STATUS(pst_schedule_create(&config, NULL), PST_E_INVALID);
    CHECK_OK(pst_schedule_create(&config, &schedule));
    CHECK_STATUS(pst_schedule_get_info(schedule, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_schedule_get_pass(schedule, 0, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_schedule_get_slots(schedule, 0, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_schedule_recognise(NULL, 1, 1, 0, &config), PST_E_INVALID);
    CHECK_STATUS(pst_schedule_recognise(one_pass, 1, 1, 0, NULL), PST_E_INVALID);
    pst_schedule_destroy(schedule);
}

PST_TEST(Schedule, ForwardOnly)
{
    pst_schedule *schedule = NULL;
    uint32_t num_slots = 7;
    CHECK_OK(list_of("F1 F0 F1.0", &schedule));
    CHECK(schedule->info.is_forward_only && !schedule->info.splits_backward);
    CHECK(schedule->info.is_fifo && schedule->info.is_lifo);
    CHECK_EQ(schedule->info.peak, 0);
    CHECK_EQ(schedule->info.config.num_micro_batches, 2);
    CHECK_OK(pst_schedule_get_slots(schedule, 0, &num_slots));
    CHECK_EQ(num_slots, 0);
    CHECK_EQ(pst_schedule_slot(schedule, 0, 0), PST_SCHEDULE_NO_SLOT);
    pst_schedule_destroy(schedule);
}

/* A backward of an input lives without one of weights: frozen layers have none. */
PST_TEST(Schedule, InputBackwardAlone)
{
    pst_schedule *schedule = NULL;
    CHECK_OK(list_of("F0 F1 I0 I1 W1 F2 B2", &schedule));
    CHECK(schedule->info.splits_backward);
    CHECK_EQ(psti_schedule_life(schedule, 0, 0)->last_backward, 2);
    CHECK_EQ(psti_schedule_life(schedule, 0, 1)->first_backward, 3);
    CHECK_EQ(psti_schedule_life(schedule, 0, 1)->last_backward, 4);
    CHECK_EQ(pst_schedule_slot(schedule, 0, 2), 0);
    measure_again(schedule);
    pst_schedule_destroy(schedule);
}

/* ---- the digest ---- */

static uint64_t digest_of(const pst_schedule_config *config)
{
    pst_schedule *schedule = NULL;
    if (pst_schedule_create(config, &schedule) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    const uint64_t digest = schedule ? schedule->info.digest : 0;
    pst_schedule_destroy(schedule);
    return digest;
}

/* Equal on all stages, and another for everything else. */
PST_TEST(Schedule, Digest)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT, other[7];
    config.kind = PST_SCHEDULE_INTERLEAVED;
    config.num_stages = 2;
    config.num_micro_batches = 8;
    const uint64_t digest = digest_of(&config);
    for (int i = 0; i < 7; i++)
        other[i] = config;
    other[0].stage = 1;
    other[0].group = 2; /* what 0 stands for */
    CHECK_EQ(digest_of(&other[0]), digest);
    other[1].num_micro_batches = 9;
    other[1].group = 3;
    other[2].num_chunks = 3;
    other[3].group = 4;
    other[4].overlaps_exchange = true;
    other[5].num_stages = 4;
    other[5].group = 4;
    other[6].kind = PST_SCHEDULE_ZB_V;
    for (int i = 1; i < 7; i++)
        CHECK(digest_of(&other[i]) != digest);
    const uint64_t v = digest_of(&other[6]);
    other[6].limit = 3;
    CHECK(digest_of(&other[6]) != v);
}

/* ---- limits ---- */

static void check_many(pst_schedule_kind kind, uint32_t num_slots_expected)
{
    const shape of = {kind, 4, PST_SCHEDULE_MAX_MICRO_BATCHES, 0, 0, false};
    pst_schedule *schedule = schedule_of(&of, 0);
    uint32_t num_slots = 0;
    CHECK(schedule != NULL);
    CHECK_OK(pst_schedule_get_slots(schedule, 0, &num_slots));
    CHECK_EQ(num_slots, num_slots_expected);
    CHECK_EQ(pst_schedule_slot(schedule, 0, (1 << 20) - 1), num_slots_expected - 1);
    pst_schedule_destroy(schedule);
}

PST_TEST(Schedule, AsManyMicroBatchesAsThereCanBe)
{
    check_many(PST_SCHEDULE_1F1B, 4);
    check_many(PST_SCHEDULE_GPIPE_REVERSED, 1 << 20);
    check_many(PST_SCHEDULE_ZB_V, 4);
}

PST_TEST(Schedule, AsManyStagesAsThereCanBe)
{
    const shape of = {PST_SCHEDULE_1F1B, 1 << 20, 3, 0, 0, false};
    pst_schedule *schedule = schedule_of(&of, (1 << 20) - 1);
    CHECK(schedule != NULL && schedule->info.peak == 1);
    pst_schedule_destroy(schedule);
}

/* ---- memory ---- */

static pst_status create(const pst_schedule_config *config)
{
    pst_schedule *schedule = NULL;
    const pst_status status = pst_schedule_create(config, &schedule);
    if (status == PST_OK)
        pst_schedule_destroy(schedule);
    else if (schedule != NULL)
        psti_test_fail(__FILE__, __LINE__, "a failed create left a schedule");
    return status;
}

static void survives(const pst_schedule_config *config, long num_allocations)
{
    long n = 0;
    for (pst_status status = PST_E_NOMEM; status != PST_OK; n++) {
        psti_fail_allocation_after(n);
        status = create(config);
        psti_fail_allocation_after(-1);
        CHECK(status == PST_OK || status == PST_E_NOMEM);
        CHECK(status == PST_OK || strstr(pst_last_message(), "out of memory"));
    }
    CHECK_EQ(n - 1, num_allocations);
}

PST_TEST(Schedule, AllocationFailures)
{
    pst_schedule_config config = PST_SCHEDULE_CONFIG_INIT;
    pst_pass passes[8];
    config.num_micro_batches = 4;
    survives(&config, 7); /* handle, passes, chunks, lives, what was seen, two for slots */
    config.kind = PST_SCHEDULE_ZB_V;
    survives(&config, 9);
    config = (pst_schedule_config)PST_SCHEDULE_CONFIG_INIT;
    config.kind = PST_SCHEDULE_LIST;
    config.passes = passes;
    config.num_passes = passes_from("F0 F1 B0 B1", passes);
    survives(&config, 7);
    config.num_passes = passes_from("F0 F1", passes);
    survives(&config, 5);
}
