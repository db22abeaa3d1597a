/* Arenas on every device: planned addresses, the fallback, and bytes that stay what they were. */
#include "tests/conformance/conf.h"

enum { BLOCKS = 6, BLOCK_BYTES = 4096 };

/* Blocks of one size that take turns: three addresses for six tensors, two iterations. */
static pst_plan_file *make_plan(void)
{
    pst_plan_row rows[2 * BLOCKS + 1] = {{.line = 1, .op = PST_PLAN_OP_MARK}};
    uint64_t num = 1;
    for (uint64_t i = 0; i < BLOCKS + 3; i++) {
        if (i >= 3) {
            rows[num] = (pst_plan_row){.line = num + 1, .id = i - 3, .op = PST_PLAN_OP_FREE};
            num++;
        }
        if (i < BLOCKS) {
            rows[num] = (pst_plan_row){.line = num + 1,
                                       .id = i,
                                       .bytes = BLOCK_BYTES,
                                       .offset = i % 3 * BLOCK_BYTES,
                                       .op = PST_PLAN_OP_MALLOC};
            num++;
        }
    }
    pst_plan_file *plan = NULL;
    if (pst_plan_file_make(rows, num, &plan) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return plan;
}

static void verify(const conf_run *conf, const void *address, uint8_t value)
{
    unsigned char bytes[BLOCK_BYTES];
    CHECK_OK(pst_device_copy(conf->device, bytes, address, BLOCK_BYTES, NULL));
    CHECK_OK(pst_stream_synchronize(conf->device, NULL));
    for (int k = 0; k < BLOCK_BYTES; k++)
        CHECK_MSG(bytes[k] == value, "byte %d is %u, not %u", k, bytes[k], value);
}

static void run_iteration(const conf_run *conf, pst_arena *arena, bool has_extra)
{
    void *address[BLOCKS];
    void *extra = NULL;
    pst_arena_stats stats;
    CHECK_OK(pst_arena_iteration(arena));
    for (uint32_t i = 0; i < BLOCKS + 3; i++) {
        if (i >= 3) {
            verify(conf, address[i - 3], (uint8_t)(i - 3 + 1));
            CHECK_OK(pst_arena_free(arena, address[i - 3], NULL));
        }
        if (i >= BLOCKS)
            continue;
        if (has_extra && i == 2) {
            CHECK_OK(pst_arena_malloc(arena, 100, &extra, NULL));
            CHECK_OK(pst_device_fill(conf->device, extra, 0xee, 100, NULL));
        }
        CHECK_OK(pst_arena_malloc(arena, BLOCK_BYTES, &address[i], NULL));
        CHECK_OK(pst_arena_get_stats(arena, &stats));
        CHECK_EQ((unsigned char *)address[i] - (unsigned char *)stats.base, i % 3 * BLOCK_BYTES);
        CHECK_OK(pst_device_fill(conf->device, address[i], (uint8_t)(i + 1), BLOCK_BYTES, NULL));
    }
    CHECK_OK(pst_arena_free(arena, extra, NULL));
}

static void run_mode(const conf_run *conf, pst_arena_mode mode)
{
    pst_plan_file *plan = make_plan();
    pst_arena_config config = PST_ARENA_CONFIG_INIT;
    pst_arena *arena = NULL;
    config.mode = mode;
    CHECK_OK(pst_arena_create(conf->device, plan, &config, &arena));
    pst_plan_file_destroy(plan);
    for (int i = 0; i < 3; i++)
        run_iteration(conf, arena, i == 1);
    pst_arena_stats stats;
    CHECK_OK(pst_arena_get_stats(arena, &stats));
    CHECK_EQ(stats.arena_bytes, 3 * BLOCK_BYTES);
    CHECK_EQ(stats.requests, 3 * BLOCKS + 1);
    CHECK_EQ(stats.planned, 3 * BLOCKS);
    CHECK_EQ(stats.deviations[PST_DEVIATION_SIZE] + stats.deviations[PST_DEVIATION_EXTRA], 1);
    CHECK_OK(pst_arena_destroy(arena));
}

CONFORMANCE(Arena, OneAllocation)
{
    run_mode(conf, PST_ARENA_ALLOC);
}

CONFORMANCE(Arena, ReservedAddresses)
{
    run_mode(conf, PST_ARENA_RESERVE);
}
