/* Mode bilevel: all layers of a kind get the same addresses. */
#include "tests/harness.h"
#include "tests/host/plan/plan_scene.h"

#include <stdlib.h>

enum { MAX_BLOCKS = 16 };

typedef struct layers {
    scene of;
    pst_plan_block blocks[MAX_BLOCKS];
    uint64_t now;
} layers;

static void add(layers *at, uint64_t bytes, uint64_t begin, uint64_t end, uint32_t block)
{
    at->of.tensors[at->of.problem.num_tensors++] =
        (pst_plan_tensor){bytes, begin, end, PST_PLAN_FREE, 0, block};
}

static void begin(layers *at)
{
    *at = (layers){.of = {.problem = PST_PLAN_PROBLEM_INIT}};
    at->of.problem.align = 1;
}

/* A pass of random tensors, the same for all of a kind. */
static void add_pass(layers *at, uint32_t kind, uint32_t n, uint64_t length)
{
    uint64_t state = kind + 1;
    const uint32_t block = at->of.problem.num_blocks++;
    at->blocks[block] = (pst_plan_block){.begin = at->now, .end = at->now + length, .kind = kind};
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t from = scene_random(&state, length);
        const uint64_t to = from + 1 + scene_random(&state, length - from);
        add(at, 1 + scene_random(&state, 5), at->now + from, at->now + to, block);
    }
    at->now += length;
}

static pst_status plan(layers *at, pst_plan_mode mode)
{
    pst_plan_config config = PST_PLAN_CONFIG_INIT;
    config.mode = mode;
    at->of.problem.tensors = at->of.tensors;
    at->of.problem.blocks = at->blocks;
    return pst_plan_run(&at->of.problem, &config, at->of.offsets, &at->of.plan);
}

static void plan_and_check(layers *at)
{
    pst_plan_fault fault;
    uint64_t peak;
    CHECK_OK(plan(at, PST_PLAN_BILEVEL));
    CHECK_OK(pst_plan_check(&at->of.problem, at->of.offsets, &fault, &peak));
    CHECK_EQ(fault.kind, PST_PLAN_RIGHT);
    CHECK_EQ(peak, at->of.plan.peak);
    CHECK(at->of.plan.mode_bound >= at->of.plan.lower_bound);
    CHECK(at->of.plan.peak >= at->of.plan.mode_bound);
}

PST_TEST(PlanBilevel, SameAddressesInEveryPassOfAKind)
{
    layers at;
    begin(&at);
    add(&at, 3, 0, 60, PST_PLAN_NO_BLOCK); /* outside the passes, and across them */
    for (uint32_t layer = 0; layer < 4; layer++) {
        add(&at, 2, at.now, 90 - at.now, PST_PLAN_NO_BLOCK);
        add_pass(&at, 0, 6, 8);
    }
    for (uint32_t layer = 0; layer < 4; layer++)
        add_pass(&at, 5, 5, 7);
    plan_and_check(&at);
    CHECK_EQ(at.of.plan.status, PST_PLAN_OPTIMAL);
    uint64_t first[6][8];
    uint32_t seen[6] = {0};
    for (uint32_t block = 0; block < at.of.problem.num_blocks; block++) {
        const uint32_t kind = at.blocks[block].kind;
        uint32_t k = 0;
        for (uint64_t i = 0; i < at.of.problem.num_tensors; i++) {
            if (at.of.tensors[i].block != block)
                continue;
            if (seen[kind] == 0)
                first[kind][k] = at.of.offsets[i];
            CHECK_EQ(at.of.offsets[i], first[kind][k]);
            k++;
        }
        CHECK_EQ(k, kind == 0 ? 6 : 5);
        seen[kind]++;
    }
    CHECK_EQ(seen[0], 4);
    CHECK_EQ(seen[5], 4);
}

/* The rectangle of a pass spans all of it: what is freed within, or comes late, stacks upon it. */
PST_TEST(PlanBilevel, CostsWhatRectanglesCost)
{
    layers at;
    begin(&at);
    add(&at, 4, 0, 3, PST_PLAN_NO_BLOCK); /* the gradient that comes in */
    at.blocks[at.of.problem.num_blocks++] = (pst_plan_block){.begin = 1, .end = 8};
    add(&at, 10, 4, 6, 0);
    add(&at, 4, 7, 9, PST_PLAN_NO_BLOCK); /* the one that goes out */
    CHECK_OK(plan(&at, PST_PLAN_FLAT));
    CHECK_EQ(at.of.plan.peak, 10);
    plan_and_check(&at);
    CHECK_EQ(at.of.plan.peak, 14);
    CHECK_EQ(at.of.plan.lower_bound, 10);
    CHECK_EQ(at.of.plan.mode_bound, 14);
    CHECK_EQ(at.of.plan.status, PST_PLAN_OPTIMAL);
}

PST_TEST(PlanBilevel, PassIsAsLowAsCanBe)
{
    for (uint32_t kind = 0; kind < 60 && !psti_test_failed(); kind++) {
        layers at;
        begin(&at);
        add_pass(&at, 0, 1, 1); /* so that kinds are numbered by blocks */
        at.of.problem.num_tensors = 0;
        at.of.problem.num_blocks = 0;
        at.now = 0;
        uint64_t state = kind;
        at.blocks[at.of.problem.num_blocks++] = (pst_plan_block){.end = 6};
        for (uint32_t i = 0; i < 6; i++) {
            const uint64_t from = scene_random(&state, 6);
            add(&at, 1 + scene_random(&state, 4), from, from + 1 + scene_random(&state, 6 - from),
                0);
        }
        plan_and_check(&at);
        const uint64_t peak = at.of.plan.peak;
        CHECK_EQ(peak, scene_optimum(&at.of));
    }
}

PST_TEST(PlanBilevel, NoBlocksIsFlat)
{
    layers at;
    begin(&at);
    add(&at, 4, 0, 3, PST_PLAN_NO_BLOCK);
    add(&at, 5, 2, 4, PST_PLAN_NO_BLOCK);
    plan_and_check(&at);
    CHECK_EQ(at.of.plan.peak, 9);
    CHECK_EQ(at.of.plan.status, PST_PLAN_OPTIMAL);
}

PST_TEST(PlanBilevel, CapacityBetweenTheBounds)
{
    layers at;
    begin(&at);
    add(&at, 4, 0, 3, PST_PLAN_NO_BLOCK);
    at.blocks[at.of.problem.num_blocks++] = (pst_plan_block){.begin = 1, .end = 8};
    add(&at, 10, 4, 6, 0);
    at.of.problem.capacity = 13;
    CHECK_OK(plan(&at, PST_PLAN_BILEVEL));
    CHECK_EQ(at.of.plan.status, PST_PLAN_IMPOSSIBLE);
    CHECK_EQ(at.of.plan.stage, PST_STAGE_BOUND);
    CHECK_EQ(at.of.plan.peak, 0);
    CHECK_OK(plan(&at, PST_PLAN_FLAT));
    CHECK_EQ(at.of.plan.peak, 10);
    at.of.problem.capacity = 9;
    CHECK_OK(plan(&at, PST_PLAN_BILEVEL));
    CHECK_EQ(at.of.plan.status, PST_PLAN_IMPOSSIBLE);
}

/* Kinds take turns, and what lives beside one pass alone may lie where the other kind does. */
PST_TEST(PlanBilevel, APassIsInTheWayInItsTimeOnly)
{
    static const uint32_t kinds[] = {2, 0, 2, 0, 2};
    for (uint32_t beside = 0; beside < 5; beside++) {
        layers at;
        begin(&at);
        for (uint32_t pass = 0; pass < 5; pass++)
            add_pass(&at, kinds[pass], 1 + kinds[pass], 4);
        for (uint32_t i = 0; i < at.of.problem.num_tensors; i++) {
            at.of.tensors[i].begin = at.blocks[at.of.tensors[i].block].begin;
            at.of.tensors[i].end = at.blocks[at.of.tensors[i].block].end;
            at.of.tensors[i].bytes = kinds[at.of.tensors[i].block] == 0 ? 10 : 4;
        }
        add(&at, 7, at.blocks[beside].begin, at.blocks[beside].end, PST_PLAN_NO_BLOCK);
        plan_and_check(&at);
        CHECK_EQ(at.of.plan.peak, kinds[beside] == 0 ? 10 + 7 : 3 * 4 + 7);
    }
}

static void refused(layers *at, const char *words)
{
    CHECK_STATUS(plan(at, PST_PLAN_BILEVEL), PST_E_INVALID);
    CHECK_MSG(strstr(pst_last_message(), words) != NULL, "%s", pst_last_message());
}

PST_TEST(PlanBilevel, RefusesWhatIsNotOfAKind)
{
    layers good;
    begin(&good);
    add_pass(&good, 0, 4, 6);
    add_pass(&good, 0, 4, 6);
    plan_and_check(&good);
    layers at = good;
    at.of.tensors[5].bytes++;
    refused(&at, "tensor 1 of block 1 differs");
    at = good;
    at.of.tensors[5].block = PST_PLAN_NO_BLOCK;
    refused(&at, "block 1 has 3 tensors");
    at = good;
    at.of.tensors[5].block = 2;
    refused(&at, "there are 2");
    at = good;
    at.of.tensors[5].block = 0;
    refused(&at, "lives beyond its block");
    at = good;
    at.blocks[1].kind = 2;
    refused(&at, "allowed are 0..1");
    at = good;
    at.of.tensors[5].pin = 0;
    refused(&at, "pinned");
    at = good;
    at.of.problem.num_tensors = 4;
    at.blocks[1] = (pst_plan_block){.begin = 5, .end = 11};
    for (uint32_t i = 0; i < 4; i++) {
        pst_plan_tensor copy = at.of.tensors[i];
        copy.begin += 5;
        copy.end += 5;
        copy.block = 1;
        at.of.tensors[at.of.problem.num_tensors++] = copy;
    }
    refused(&at, "overlap");
    at = good;
    at.of.problem.num_streams = 2;
    at.of.problem.releases = at.of.releases;
    for (uint32_t k = 0; k < 16; k++)
        at.of.releases[k] = 100;
    CHECK_STATUS(plan(&at, PST_PLAN_BILEVEL), PST_E_UNSUPPORTED);
}

static bool is_late(void *left)
{
    uint64_t *calls = left;
    *calls -= *calls > 0;
    return *calls == 0;
}

/* Whenever the time is over, before there are slots or later, there is a plan in which passes of a kind
 * share their addresses. */
PST_TEST(PlanBilevel, MayEndAtAnyInstant)
{
    layers at;
    begin(&at);
    add(&at, 3, 0, 14, PST_PLAN_NO_BLOCK);
    add_pass(&at, 0, 30, 9);
    add_pass(&at, 1, 20, 3);
    add_pass(&at, 0, 30, 9);
    add(&at, 2, 4, 20, PST_PLAN_NO_BLOCK);
    at.of.tensors[0].pin = 7;
    const pst_plan_range reserved = {40, 41};
    at.of.problem.reserved = &reserved;
    at.of.problem.num_reserved = 1;
    at.of.problem.tensors = at.of.tensors;
    at.of.problem.blocks = at.blocks;
    uint64_t num_late = 0;
    at.of.plan.is_over = true;
    for (uint64_t n = 1; n < 400 && (n == 1 || at.of.plan.is_over); n++, num_late++) {
        uint64_t left = n;
        uint64_t peak;
        pst_plan_fault fault;
        pst_plan_config config = PST_PLAN_CONFIG_INIT;
        config.mode = PST_PLAN_BILEVEL;
        config.is_over = is_late;
        config.user = &left;
        CHECK_OK(pst_plan_run(&at.of.problem, &config, at.of.offsets, &at.of.plan));
        CHECK_OK(pst_plan_check(&at.of.problem, at.of.offsets, &fault, &peak));
        CHECK_EQ(fault.kind, PST_PLAN_RIGHT);
        CHECK_EQ(peak, at.of.plan.peak);
        for (uint32_t k = 0; k < 30; k++)
            CHECK_EQ(at.of.offsets[1 + k], at.of.offsets[51 + k]);
    }
    CHECK(num_late > 4 && num_late < 399);
}

PST_TEST(PlanBilevel, EveryAllocationMayFail)
{
    layers at;
    begin(&at);
    add(&at, 3, 0, 14, PST_PLAN_NO_BLOCK);
    add_pass(&at, 0, 5, 6);
    add_pass(&at, 0, 5, 6);
    add_pass(&at, 1, 4, 3);
    pst_status status = PST_E_NOMEM;
    long successes = 0;
    for (; status == PST_E_NOMEM; successes++) {
        psti_fail_allocation_after(successes);
        status = plan(&at, PST_PLAN_BILEVEL);
        psti_fail_allocation_after(-1);
    }
    CHECK_OK(status);
    CHECK(successes > 40);
}

PST_TEST(PlanBilevel, LateWithoutAFreeTensorReservesNothing)
{
    layers at;
    begin(&at);
    const pst_plan_range reserved = {40, 41};
    at.of.problem.reserved = &reserved;
    at.of.problem.num_reserved = 1;
    at.of.problem.tensors = at.of.tensors;
    for (uint64_t n = 0; n < 2; n++) {
        uint64_t left = 1;
        pst_plan_config config = PST_PLAN_CONFIG_INIT;
        config.mode = PST_PLAN_BILEVEL;
        config.is_over = is_late;
        config.user = &left;
        CHECK_OK(pst_plan_run(&at.of.problem, &config, at.of.offsets, &at.of.plan));
        CHECK_EQ(at.of.plan.peak, 5 * n);
        add(&at, 5, 0, 3, PST_PLAN_NO_BLOCK);
        at.of.tensors[0].pin = 0;
    }
}

/* Behind a pass so many tensors, each after the last, that level 2 is not finished once the time is over: with
 * less time the plan is the stacked one, with more it is not. A time that ends in the search for the pass, and
 * yet has all of level 2 done, would be in between. */
PST_TEST(PlanBilevel, WhatIsMuchIsNotFinishedWhenTheTimeIsOver)
{
    enum { NUM = 20000 };
    layers at;
    begin(&at);
    add_pass(&at, 0, 40, 12);
    const uint32_t num_pass = (uint32_t)at.of.problem.num_tensors;
    pst_plan_tensor *tensors = calloc(NUM, sizeof(*tensors));
    uint64_t *offsets = calloc(NUM, sizeof(*offsets));
    CHECK(tensors != NULL && offsets != NULL);
    memcpy(tensors, at.of.tensors, num_pass * sizeof(*tensors));
    for (uint64_t i = num_pass; i < NUM; i++)
        tensors[i] = (pst_plan_tensor){1, i, i + 1, PST_PLAN_FREE, 0, PST_PLAN_NO_BLOCK};
    at.of.problem.tensors = tensors;
    at.of.problem.num_tensors = NUM;
    at.of.problem.blocks = at.blocks;
    uint64_t num_stacked = 0, num_better = 0;
    at.of.plan.is_over = true;
    for (uint64_t n = 1; n < 1000 && at.of.plan.is_over; n++) {
        uint64_t left = n;
        pst_plan_config config = PST_PLAN_CONFIG_INIT;
        config.mode = PST_PLAN_BILEVEL;
        config.is_over = is_late;
        config.user = &left;
        CHECK_OK(pst_plan_run(&at.of.problem, &config, offsets, &at.of.plan));
        const bool is_stacked = at.of.plan.peak > NUM / 2;
        CHECK(!is_stacked || num_better == 0);
        num_stacked += is_stacked;
        num_better += !is_stacked;
    }
    CHECK(num_stacked > 4 && num_better > 0);
    free(tensors);
    free(offsets);
}
