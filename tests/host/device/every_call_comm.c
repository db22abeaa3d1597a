/* Cases of every_call.h: communicators of one rank. */
#include "tests/host/device/every_call.h"

enum { ELEMENTS = 8 };

static float from[ELEMENTS], to[ELEMENTS];
static uint64_t number;

static void open_room(pst_device *device)
{
    call_open_comm(device);
    for (int i = 0; i < ELEMENTS; i++) {
        from[i] = (float)i;
        to[i] = -1;
    }
}

static void check_unmoved(void)
{
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(to[i] == -1);
}

static void check_moved(void)
{
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(to[i] == (float)i);
}

static const call_room comms = {open_room, check_unmoved, NULL, call_close_comm};
static const call_room started = {open_room, NULL, NULL, call_close_comm};

static pst_status make_id(void)
{
    pst_comm_id id;
    return pst_comm_make_id(call_has.device, &id);
}

static pst_status create(void)
{
    return call_create_comm((pst_comm **)&call_has.made);
}

static void destroy_made(void)
{
    CHECK_OK(pst_comm_destroy(call_has.made));
}

/* Of NCCL's, which this device has not: refused before it is asked. */
static pst_status adopt(void)
{
    return pst_comm_adopt(call_has.device, (pst_nccl_comm)call_untouched(),
                          (pst_comm **)&call_has.made) == PST_E_UNSUPPORTED
               ? PST_OK
               : PST_E_INVALID;
}

static pst_status destroy(void)
{
    const pst_status status = pst_comm_destroy(call_has.comm);
    if (status == PST_OK)
        call_has.comm = NULL;
    return status;
}

static pst_exchange all_gather_exchange(void)
{
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = PST_EXCHANGE_ALL_GATHER;
    exchange.dtype = PST_DTYPE_FP32;
    exchange.from = from;
    exchange.to = to;
    exchange.count = ELEMENTS;
    return exchange;
}

static pst_status run(void)
{
    const pst_exchange exchange = all_gather_exchange();
    return pst_comm_run(call_has.comm, &exchange, call_has.stream);
}

static pst_status start(void)
{
    const pst_exchange exchange = all_gather_exchange();
    return pst_comm_start(call_has.comm, &exchange, call_has.stream, &number);
}

static pst_status finish(void)
{
    return pst_comm_finish(call_has.comm, 1, call_has.stream);
}

static void finish_started(void)
{
    CHECK_EQ(number, 1);
    CHECK_OK(finish());
    check_moved();
}

static void prepare_started(void)
{
    CHECK_OK(start());
}

static pst_status all_gather(void)
{
    return pst_comm_all_gather(call_has.comm, from, to, ELEMENTS, PST_DTYPE_FP32, call_has.stream);
}

static pst_status reduce_scatter(void)
{
    return pst_comm_reduce_scatter(call_has.comm, from, to, ELEMENTS, PST_DTYPE_FP32,
                                   call_has.stream);
}

static pst_status all_reduce(void)
{
    return pst_comm_all_reduce(call_has.comm, from, to, ELEMENTS, PST_DTYPE_FP32, PST_REDUCE_SUM,
                               call_has.stream);
}

static pst_status all_to_all_v(void)
{
    static const uint64_t counts[] = {ELEMENTS}, offsets[] = {0};
    return pst_comm_all_to_all_v(call_has.comm, from, counts, offsets, to, counts, offsets,
                                 PST_DTYPE_FP32, call_has.stream);
}

static pst_status wait_for(void)
{
    return pst_comm_wait(call_has.comm, call_has.stream, 1000);
}

static pst_status abort_it(void)
{
    return pst_comm_abort(call_has.comm, "a test");
}

static pst_status get_info(void)
{
    pst_comm_info info;
    return pst_comm_get_info(call_has.comm, &info);
}

static const call_case cases[] = {
    {"pst_comm_make_id", &comms, NULL, make_id, NULL, CALL_NONE},
    {"pst_comm_create", &comms, NULL, create, destroy_made, CALL_FAILS},
    {"pst_comm_adopt", &comms, NULL, adopt, NULL, CALL_NONE},
    {"pst_comm_destroy", &comms, NULL, destroy, NULL, CALL_FAILS},
    {"pst_comm_run", &comms, NULL, run, check_moved, CALL_FAILS},
    {"pst_comm_start", &comms, NULL, start, finish_started, CALL_FAILS},
    {"pst_comm_finish", &started, prepare_started, finish, check_moved, CALL_FAILS},
    {"pst_comm_all_gather", &comms, NULL, all_gather, check_moved, CALL_FAILS},
    {"pst_comm_reduce_scatter", &comms, NULL, reduce_scatter, check_moved, CALL_FAILS},
    {"pst_comm_all_reduce", &comms, NULL, all_reduce, check_moved, CALL_FAILS},
    {"pst_comm_all_to_all_v", &comms, NULL, all_to_all_v, check_moved, CALL_FAILS},
    {"pst_comm_wait", &comms, NULL, wait_for, NULL, CALL_FAILS},
    {"pst_comm_abort", &comms, NULL, abort_it, NULL, CALL_NONE},
    {"pst_comm_get_info_sized", &comms, NULL, get_info, NULL, CALL_NONE},
};

const call_table comm_calls = {cases, sizeof(cases) / sizeof(cases[0])};
