/* What calls on the cuda device cost the calling thread before the launch: argument checks, the
 * parameter block, the grid; describing a layer; tickets of a slab. The launch itself is a function
 * that only counts, so no GPU is needed; neither that nor the runtime's answer to "is this stream
 * captured?" is in the figures. */
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#if PSTI_HAVE_CUDA

#include "bench/stash/counting.h"
#include "host/stash/stash.h"

enum { SAMPLES = 101, CALLS = 1000, ROWS = 4096, ROW_BYTES = 4096 };

static pst_status note_hold(pst_device *device, const psti_capture_of *capture, psti_hold *hold)
{
    (void)device;
    hold->last_capture = capture->id;
    return PST_OK;
}

/* A layer, and what its calls take. Nothing reads or writes the tensors. */
typedef struct layer {
    pst_row_space space;
    pst_tensor tensors[PST_MAX_TENSORS];
    uint32_t num_tensors;
    void *bases[PST_MAX_TENSORS];
    const void *count;
    pst_buffers at;
    pst_pool *pool;
    pst_group *group;
    pst_ticket ticket;
    pst_ticket lent[CALLS];
} layer;

static int make_layer(layer *self, pst_device *device, uint32_t num_tensors)
{
    static const int64_t count = ROWS;
    /* as large as a tensor, so that no pool's pages are in it */
    static unsigned char base[ROWS * ROW_BYTES];
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    *self = (layer){.space = {.count_type = PST_COUNT_INT64, .capacity = ROWS},
                    .num_tensors = num_tensors,
                    .count = &count,
                    .at = PST_BUFFERS_INIT};
    self->at.bases = self->bases;
    self->at.counts = &self->count;
    for (uint32_t t = 0; t < num_tensors; t++) {
        self->tensors[t].row_bytes = ROW_BYTES;
        self->bases[t] = base;
    }
    config.num_pages = 1;
    config.slab_tickets = 2 * CALLS; /* those outside a capture, and those within */
    config.max_tickets = config.slab_tickets + 1;
    TOOL_PST(pst_pool_create(device, &config, &self->pool));
    TOOL_TRY(bench_make_group(&self->space, self->tensors, num_tensors, &self->group));
    return tool_status(pst_ticket_create(self->pool, self->group, &self->ticket));
}

static int free_layer(layer *self)
{
    TOOL_PST(pst_ticket_destroy(self->ticket));
    TOOL_PST(pst_group_destroy(self->group));
    return tool_status(pst_pool_destroy(self->pool));
}

/* ---- the calls; i: which of a sample's ---- */

static pst_status call_stash(layer *self, int i)
{
    (void)i;
    return pst_ticket_stash(self->ticket, self->group, &self->at, NULL, NULL);
}

static pst_status call_restore(layer *self, int i)
{
    (void)i;
    return pst_ticket_restore(self->ticket, self->group, &self->at, NULL, NULL);
}

static pst_status call_describe(layer *self, int i)
{
    pst_group *group = NULL;
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    (void)i;
    config.spaces = &self->space;
    config.num_spaces = 1;
    config.tensors = self->tensors;
    config.num_tensors = self->num_tensors;
    const pst_status status = pst_group_create(&config, &group);
    return status == PST_OK ? pst_group_destroy(group) : status;
}

static pst_status call_take(layer *self, int i)
{
    return pst_ticket_take(self->pool, NULL, &self->lent[i]);
}

static pst_status call_give(layer *self, int i)
{
    return pst_ticket_give(self->lent[i], NULL);
}

/* What a ticket that is given back has behind it. Not timed. */
static pst_status use_lent(layer *self, int i)
{
    const pst_status status = pst_ticket_stash(self->lent[i], self->group, &self->at, NULL, NULL);
    return status == PST_OK ? pst_ticket_restore(self->lent[i], self->group, &self->at, NULL, NULL)
                            : status;
}

/* One sample: the mean of so many calls, of which each makes `launches`. */
static int time_calls(layer *self, pst_status (*call)(layer *self, int i), uint64_t launches,
                      bench_series *series)
{
    pst_status status = PST_OK;
    counting_launches = 0;
    const double begin = bench_now();
    for (int i = 0; i < CALLS && status == PST_OK; i++)
        status = call(self, i);
    bench_series_add(series, (bench_now() - begin) * 1e9 / CALLS);
    TOOL_PST(status);
    if (counting_launches != CALLS * launches)
        return tool_fail(TOOL_NO, "%d calls made %llu launches", CALLS,
                         (unsigned long long)counting_launches);
    return TOOL_OK;
}

static int time_tickets(layer *self, uint64_t capture, bench_series *take, bench_series *give)
{
    counting_capture_id = capture;
    TOOL_TRY(time_calls(self, call_take, 0, take));
    for (int i = 0; i < CALLS; i++)
        TOOL_PST(use_lent(self, i));
    TOOL_TRY(time_calls(self, call_give, 0, give));
    counting_capture_id = 0;
    return TOOL_OK;
}

static int measure_layer(pst_device *device, int column, bench_call_cost *cost)
{
    static layer self;
    bench_series series[BENCH_NUM_CALLS] = {{.num = 0}};
    TOOL_TRY(make_layer(&self, device, cost->tensors[column]));
    for (int i = 0; i < SAMPLES; i++) {
        TOOL_TRY(time_calls(&self, call_stash, 1, &series[BENCH_CALL_STASH]));
        TOOL_TRY(time_calls(&self, call_restore, 1, &series[BENCH_CALL_RESTORE]));
        TOOL_TRY(time_calls(&self, call_describe, 0, &series[BENCH_CALL_DESCRIBE]));
    }
    for (int i = 0; i < SAMPLES; i++)
        TOOL_TRY(time_tickets(&self, 0, &series[BENCH_CALL_TAKE], &series[BENCH_CALL_GIVE]));
    for (int i = 0; i < SAMPLES; i++)
        TOOL_TRY(time_tickets(&self, 1, &series[BENCH_CALL_TAKE_CAPTURED],
                              &series[BENCH_CALL_GIVE_CAPTURED]));
    for (int call = 0; call < BENCH_NUM_CALLS; call++)
        cost->ns[call][column] = bench_summary(&series[call]);
    return free_layer(&self);
}

int bench_measure_calls(bench_call_cost *cost)
{
    pst_device *host = NULL;
    *cost = (bench_call_cost){.tensors = {1, 6, 10, 64}};
    TOOL_PST(pst_device_open("host", 0, &host));
    /* the memory of host, the launches of cuda */
    psti_device_ops ops = *host->ops;
    ops.launch = counting_launch;
    ops.capture_of = counting_capture_of;
    ops.hold = note_hold;
    pst_device device = *host;
    device.ops = &ops;
    device.info.kind = PST_DEVICE_CUDA;
    device.info.num_sms = COUNTING_SMS;
    device.info.backends = 1u << PST_BACKEND_LDG;
    for (int i = 0; i < BENCH_CALL_TENSORS; i++)
        TOOL_TRY(measure_layer(&device, i, cost));
    return tool_status(pst_device_close(host));
}

#else

int bench_measure_calls(bench_call_cost *cost)
{
    *cost = (bench_call_cost){.unavailable = "this library was built without CUDA"};
    return TOOL_OK;
}

#endif
