/* Cases of every_call.h: arenas and scratch. */
#include "tests/host/device/every_call.h"

/* ---- arenas ---- */

static pst_arena *arena;
static void *block;

static void open_arena_room(pst_device *device)
{
    call_open_streams(device);
    arena = NULL;
    block = NULL;
}

static void close_arena_room(void)
{
    if (block)
        (void)pst_arena_free(arena, block, call_has.stream);
    CHECK_OK(pst_arena_destroy(arena));
    call_close_streams();
}

static const call_room arenas = {open_arena_room, NULL, NULL, close_arena_room};

/* Two tensors on two streams. */
static pst_status create_in(pst_arena_mode mode)
{
    const pst_plan_row rows[] = {
        {.line = 1, .op = PST_PLAN_OP_MALLOC, .id = 1, .bytes = 4096},
        {.line = 2, .op = PST_PLAN_OP_MALLOC, .id = 2, .bytes = 4096, .stream = 1, .offset = 4096},
        {.line = 3, .op = PST_PLAN_OP_FREE, .id = 1},
        {.line = 4, .op = PST_PLAN_OP_FREE, .id = 2}};
    pst_plan_file *plan = NULL;
    pst_arena_config config = PST_ARENA_CONFIG_INIT;
    config.mode = mode;
    pst_status status = pst_plan_file_make(rows, 4, &plan);
    if (status == PST_OK)
        status = pst_arena_create(call_has.device, plan, &config, &arena);
    pst_plan_file_destroy(plan);
    if (status != PST_OK && arena)
        psti_test_fail(__FILE__, __LINE__, "out parameter was written");
    return status;
}

static pst_status arena_create(void)
{
    return create_in(PST_ARENA_ALLOC);
}

static pst_status arena_create_reserve(void)
{
    return create_in(PST_ARENA_RESERVE);
}

static void prepare_arena(void)
{
    CHECK_OK(arena_create());
}

static void prepare_reserve(void)
{
    CHECK_OK(arena_create_reserve());
}

/* What no plan has. */
static void prepare_unplanned(void)
{
    CHECK_OK(pst_arena_create(call_has.device, NULL, NULL, &arena));
}

static pst_status arena_destroy(void)
{
    pst_arena *given = arena;
    arena = NULL;
    return pst_arena_destroy(given);
}

static pst_status arena_malloc(void)
{
    return pst_arena_malloc(arena, 4096, &block, call_has.stream);
}

static void write_block(void)
{
    CHECK(pst_arena_owns(arena, block));
    memset(block, 1, 4096);
}

static void prepare_block(void)
{
    prepare_unplanned();
    CHECK_OK(arena_malloc());
}

static pst_status arena_free(void)
{
    void *given = block;
    block = NULL;
    return pst_arena_free(arena, given, call_has.stream);
}

static pst_status arena_record_stream(void)
{
    return pst_arena_record_stream(arena, block, call_has.other);
}

/* On two streams, so that an iteration waits. */
static void prepare_iteration(void)
{
    void *second = NULL;
    prepare_arena();
    CHECK_OK(arena_malloc());
    CHECK_OK(pst_arena_malloc(arena, 4096, &second, call_has.other));
    CHECK_OK(pst_arena_free(arena, second, call_has.other));
}

static pst_status arena_iteration(void)
{
    return pst_arena_iteration(arena);
}

/* With something cached. */
static void prepare_trim(void)
{
    prepare_block();
    CHECK_OK(arena_free());
}

static pst_status arena_trim(void)
{
    return pst_arena_trim(arena);
}

static pst_status arena_owns(void)
{
    return pst_arena_owns(arena, block) ? PST_OK : PST_E_INVALID;
}

static pst_status arena_get_stats(void)
{
    pst_arena_stats stats;
    return pst_arena_get_stats(arena, &stats);
}

/* ---- scratch ---- */

static void open_scratch_room(pst_device *device)
{
    call_open_streams(device);
    CHECK_OK(pst_scratch_create(device, NULL, &call_has.scratch));
}

static void close_scratch_room(void)
{
    if (call_has.lease.id)
        CHECK_OK(pst_scratch_release(call_has.scratch, &call_has.lease, "close", call_has.stream));
    CHECK_OK(pst_scratch_destroy(call_has.scratch));
    call_close_streams();
}

static void reopen_scratch(void)
{
    CHECK_OK(pst_scratch_create(call_has.device, NULL, &call_has.scratch));
}

static void revive_scratch(void)
{
    if (!call_has.scratch)
        reopen_scratch();
    call_check_scratch();
}

static const call_room scratches = {open_scratch_room, call_check_scratch, revive_scratch,
                                    close_scratch_room};

static pst_status scratch_create(void)
{
    return pst_scratch_create(call_has.device, NULL, (pst_scratch **)&call_has.made);
}

static void destroy_made(void)
{
    CHECK_OK(pst_scratch_destroy(call_has.made));
}

static pst_status scratch_lease(void)
{
    const pst_status status =
        pst_scratch_lease(call_has.scratch, "a", 100, "here", call_has.stream, &call_has.lease);
    if (status != PST_OK && call_has.lease.id)
        psti_test_fail(__FILE__, __LINE__, "out parameter was written");
    return status;
}

/* The lease has ended, whatever it answers, but for a stream of which is not known whether it is captured: there
 * it lives on, since its work may run still. */
static pst_status scratch_release(void)
{
    const pst_status status =
        call_has.lease.id
            ? pst_scratch_release(call_has.scratch, &call_has.lease, "there", call_has.stream)
            : PST_OK;
    if (status == PST_E_CAPTURE)
        (void)pst_scratch_release(call_has.scratch, &call_has.lease, "there", call_has.stream);
    if (call_has.lease.id)
        psti_test_fail(__FILE__, __LINE__, "the lease lives on: %s", pst_last_message());
    return status;
}

/* On the other stream, so that a lease waits for it. */
static void prepare_released(void)
{
    pst_lease first;
    CHECK_OK(pst_scratch_lease(call_has.scratch, "a", 100, "first", call_has.other, &first));
    CHECK_OK(pst_scratch_release(call_has.scratch, &first, "first", call_has.other));
}

static void prepare_leased(void)
{
    CHECK_OK(scratch_lease());
}

static void write_lease(void)
{
    memset(call_has.lease.address, 1, call_has.lease.bytes);
    call_check_scratch();
}

static pst_status scratch_destroy(void)
{
    const pst_status status = pst_scratch_destroy(call_has.scratch);
    if (status == PST_OK || status == PST_E_CUDA)
        call_has.scratch = NULL;
    return status;
}

static pst_status scratch_reserve(void)
{
    return pst_scratch_reserve(call_has.scratch, "b", 5000);
}

static pst_status scratch_trim(void)
{
    return pst_scratch_trim(call_has.scratch);
}

static pst_status scratch_scope_begin(void)
{
    return pst_scratch_scope_begin(call_has.scratch, "scope");
}

static pst_status scratch_scope_end(void)
{
    return pst_scratch_scope_end(call_has.scratch);
}

static void end_scope(void)
{
    CHECK_OK(scratch_scope_end());
}

static void begin_scope(void)
{
    CHECK_OK(scratch_scope_begin());
}

static pst_status scratch_get_info(void)
{
    pst_scratch_info info;
    return pst_scratch_get_info(call_has.scratch, &info);
}

static const call_case cases[] = {
    {"pst_arena_create", &arenas, NULL, arena_create, NULL, CALL_FAILS},
    {"pst_arena_create", &arenas, NULL, arena_create_reserve, NULL, CALL_FAILS},
    {"pst_arena_destroy", &arenas, prepare_arena, arena_destroy, NULL, CALL_GIVES},
    {"pst_arena_malloc", &arenas, prepare_unplanned, arena_malloc, write_block, CALL_FAILS},
    {"pst_arena_malloc", &arenas, prepare_reserve, arena_malloc, write_block, CALL_TRIES},
    {"pst_arena_free", &arenas, prepare_block, arena_free, NULL, CALL_NONE},
    {"pst_arena_record_stream", &arenas, prepare_block, arena_record_stream, NULL, CALL_NONE},
    {"pst_arena_iteration", &arenas, prepare_iteration, arena_iteration, NULL, CALL_FAILS},
    {"pst_arena_trim", &arenas, prepare_trim, arena_trim, NULL, CALL_GIVES},
    {"pst_arena_owns", &arenas, prepare_block, arena_owns, NULL, CALL_NONE},
    {"pst_arena_get_stats_sized", &arenas, prepare_block, arena_get_stats, NULL, CALL_NONE},
    {"pst_scratch_create", &scratches, NULL, scratch_create, destroy_made, CALL_NONE},
    {"pst_scratch_destroy", &scratches, prepare_released, scratch_destroy, reopen_scratch,
     CALL_GIVES},
    {"pst_scratch_reserve", &scratches, NULL, scratch_reserve, call_check_scratch, CALL_FAILS},
    {"pst_scratch_trim", &scratches, prepare_released, scratch_trim, call_check_scratch,
     CALL_FAILS},
    {"pst_scratch_lease", &scratches, NULL, scratch_lease, write_lease, CALL_FAILS},
    {"pst_scratch_lease", &scratches, prepare_released, scratch_lease, write_lease, CALL_FAILS},
    {"pst_scratch_release", &scratches, prepare_leased, scratch_release, call_check_scratch,
     CALL_FAILS},
    {"pst_scratch_scope_begin", &scratches, NULL, scratch_scope_begin, end_scope, CALL_NONE},
    {"pst_scratch_scope_end", &scratches, begin_scope, scratch_scope_end, NULL, CALL_NONE},
    {"pst_scratch_get_info_sized", &scratches, NULL, scratch_get_info, NULL, CALL_NONE},
};

const call_table arena_calls = {cases, sizeof(cases) / sizeof(cases[0])};
