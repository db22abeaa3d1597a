/* Cases of every_call.h: pools, dirty words, patterns, calibration. */
#include "tests/host/device/every_call_pages.h"

/* ---- pools ---- */

static pst_status pool_create(void)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = 2;
    config.max_pages = 3;
    config.num_host_pages = 1;
    config.slab_tickets = 2;
    config.max_tickets = 4;
    return pst_pool_create(call_has.device, &config, (pst_pool **)&call_has.made);
}

static void destroy_pool(void)
{
    CHECK_OK(pst_pool_destroy(call_has.made));
}

static void prepare_pool(void)
{
    CHECK_OK(pool_create());
}

static pst_status pool_destroy(void)
{
    return pst_pool_destroy(call_has.made);
}

static pst_status pool_resize(void)
{
    return pst_pool_resize(pages.ls.pool, 8, 6);
}

static void done_resize(void)
{
    oracle_resize(pages.ls.oracle, 8, 6);
    ls_compare(&pages.ls);
}

static pst_status pool_get_info(void)
{
    pst_pool_info info;
    return pst_pool_get_info(pages.ls.pool, &info);
}

static pst_status pool_reset(void)
{
    return pst_pool_reset(pages.ls.pool, PST_RESET_ALL, pages.ls.stream);
}

static void done_reset(void)
{
    oracle_reset(pages.ls.oracle, PST_RESET_ALL);
    ls_compare(&pages.ls);
}

static pst_status pool_step(void)
{
    return pst_pool_step(pages.ls.pool, pages.ls.stream);
}

static void done_step(void)
{
    oracle_step(pages.ls.oracle, &pages.ls.published);
    ls_compare(&pages.ls);
}

static void prepare_step(void)
{
    ls_step(&pages.ls);
}

static pst_status pool_poll(void)
{
    pst_pool_status status;
    return pst_pool_poll(pages.ls.pool, &status);
}

static pst_status pool_check(void)
{
    return pst_pool_check(pages.ls.pool, pages.ls.stream);
}

static void done_check(void)
{
    oracle_check(pages.ls.oracle);
    ls_compare(&pages.ls);
}

static pst_status pool_step_valid(void)
{
    return pst_pool_step_valid(pages.ls.pool) ? PST_OK : PST_E_INVALID;
}

/* On this device there is no NCCL: refused before the device is asked. */
static pst_status nccl_agree(void)
{
    return pst_nccl_agree(pages.ls.pool, (pst_nccl_comm)call_untouched(), pages.ls.stream) ==
                   PST_E_UNSUPPORTED
               ? PST_OK
               : PST_E_INVALID;
}

/* ---- dirty words and patterns ---- */

static pst_status dirty_create(void)
{
    return pst_dirty_create(call_has.device, pages.source.group, false,
                            (pst_dirty **)&call_has.made);
}

static void destroy_dirty(void)
{
    CHECK_OK(pst_dirty_destroy(call_has.made));
    pages_same();
}

static void prepare_dirty(void)
{
    CHECK_OK(dirty_create());
}

static pst_status dirty_destroy(void)
{
    return pst_dirty_destroy(call_has.made);
}

static pst_dirty *marked; /* the destination's own, closed with it */

static void take_marked(void)
{
    marked = pages.destination.dirty;
}

static pst_status dirty_mark(void)
{
    return pst_dirty_mark(marked, pages.ls.stream);
}

static const pst_pattern pattern = {.seed = 1, .key = 2};

static pst_status group_fill(void)
{
    return pst_group_fill(call_has.device, pages.source.group, ls_at(&pages.source), &pattern,
                          pages.ls.stream);
}

static uint64_t mismatches;

static pst_status group_verify(void)
{
    return pst_group_verify(call_has.device, pages.source.group, ls_at(&pages.source), &pattern,
                            PST_VERIFY_ANY, &mismatches, pages.ls.stream);
}

static void check_filled(void)
{
    mismatches = 0;
    CHECK_OK(group_verify());
    CHECK_EQ(mismatches, 0);
}

static void check_counted(void)
{
    CHECK(mismatches > 0); /* random bytes */
    mismatches = 0;
}

static pst_status calibrate(void)
{
    pst_calibrate_config config = PST_CALIBRATE_CONFIG_INIT;
    pst_copy_rates rates;
    config.bytes = 1 << 20;
    config.repetitions = 1;
    return pst_device_calibrate(call_has.device, &config, &rates);
}

static const call_case cases[] = {
    {"pst_pool_create", &pages_room, NULL, pool_create, destroy_pool, CALL_FAILS},
    {"pst_pool_destroy", &pages_room, prepare_pool, pool_destroy, pages_same, CALL_GIVES},
    {"pst_pool_resize", &pages_room, NULL, pool_resize, done_resize, CALL_FAILS},
    {"pst_pool_get_info_sized", &pages_room, NULL, pool_get_info, NULL, CALL_NONE},
    {"pst_pool_reset", &pages_room, NULL, pool_reset, done_reset, CALL_FAILS},
    {"pst_pool_step", &pages_room, NULL, pool_step, done_step, CALL_FAILS},
    {"pst_pool_poll", &pages_room, prepare_step, pool_poll, NULL, CALL_NONE},
    {"pst_pool_check", &pages_room, NULL, pool_check, done_check, CALL_FAILS},
    {"pst_pool_step_valid", &pages_room, NULL, pool_step_valid, NULL, CALL_NONE},
    {"pst_nccl_agree", &pages_room, NULL, nccl_agree, NULL, CALL_NONE},
    {"pst_dirty_create", &pages_room, NULL, dirty_create, destroy_dirty, CALL_FAILS},
    {"pst_dirty_destroy", &pages_room, prepare_dirty, dirty_destroy, pages_same, CALL_GIVES},
    {"pst_dirty_mark", &pages_room, take_marked, dirty_mark, NULL, CALL_FAILS},
    {"pst_group_fill", &pages_room, NULL, group_fill, check_filled, CALL_FAILS},
    {"pst_group_verify", &pages_room, NULL, group_verify, check_counted, CALL_FAILS},
    {"pst_device_calibrate", &pages_room, NULL, calibrate, pages_same, CALL_OWNS},
};

const call_table pool_calls = {cases, sizeof(cases) / sizeof(cases[0])};
