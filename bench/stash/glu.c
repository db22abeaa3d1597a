/* Gated activations: computed in memory beside a stash and a restore of their input, and computed with
 * pages. The four launches and the two are timed in turn, in one run. */
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#include <stdlib.h>
#include <string.h>

typedef struct form {
    const char *name;
    pst_glu_kind kind;
    pst_glu_dtype dtype;
    uint32_t interleave;
    uint32_t features;
} form;

static const form forms[] = {
    {"swiglu bf16", PST_GLU_SWIGLU, PST_GLU_BF16, 0, 2048},
    {"swiglu bf16, blocks of 32", PST_GLU_SWIGLU, PST_GLU_BF16, 32, 2048},
    {"clamped bf16, blocks of 1", PST_GLU_CLAMPED, PST_GLU_BF16, 1, 2880},
    {"geglu bf16", PST_GLU_GEGLU, PST_GLU_BF16, 0, 2048},
    {"swiglu fp16", PST_GLU_SWIGLU, PST_GLU_FP16, 0, 2048},
    {"swiglu fp32", PST_GLU_SWIGLU, PST_GLU_FP32, 0, 1024},
};
enum { NUM_FORMS = sizeof(forms) / sizeof(forms[0]), QUICK_FORMS = 1, CAPACITY_FACTOR = 2 };

/* What is enqueued between two events; the first six are timed. */
typedef enum launch {
    COMPUTE, /* forward, in memory */
    STASH,
    RESTORE,
    DIFFERENTIATE, /* backward, in memory */
    FORWARD,       /* both at once */
    BACKWARD,
    COPY, /* memcpy of the live bytes of the input */
    NUM_LAUNCHES
} launch;

typedef struct glu_rig {
    bench_timer timer;
    const form *form;
    pst_glu glu;
    uint64_t row_bytes, rows, capacity; /* of the input */
    pst_pool *pool;
    pst_group *group;
    pst_ticket ticket;
    void *input, *output, *gradient, *count;
    void *results[2]; /* the input's gradient: in memory, with pages */
    pst_graph *graphs[NUM_LAUNCHES];
} glu_rig;

/* ---- launches ---- */

/* The input, or NULL where it is in pages. */
static pst_buffers buffers_at(void *const *base, const void *const *count)
{
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = base;
    buffers.counts = count;
    return buffers;
}

static int enqueue_forward(const glu_rig *rig, bool with_pages)
{
    const void *count = rig->count;
    const pst_ticket none = {0};
    const pst_buffers source = buffers_at(&rig->input, &count);
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.output.base = rig->output;
    return tool_status(pst_glu_forward(rig->timer.device, &rig->glu,
                                       with_pages ? rig->ticket : none, rig->group, &source,
                                       &operands, NULL, rig->timer.stream));
}

static int enqueue_backward(const glu_rig *rig, bool with_pages)
{
    const void *count = rig->count;
    void *const base = with_pages ? NULL : rig->input;
    const pst_ticket none = {0};
    const pst_buffers source = buffers_at(&base, &count);
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT;
    operands.gradient.base = rig->gradient;
    operands.input_gradient.base = rig->results[with_pages];
    return tool_status(pst_glu_backward(rig->timer.device, &rig->glu,
                                        with_pages ? rig->ticket : none, rig->group, &source,
                                        &operands, NULL, rig->timer.stream));
}

static int enqueue(const glu_rig *rig, launch what)
{
    const void *count = rig->count;
    const pst_buffers input = buffers_at(&rig->input, &count);
    pst_stream stream = rig->timer.stream;
    switch (what) {
    case COMPUTE:
    case FORWARD:
        return enqueue_forward(rig, what == FORWARD);
    case DIFFERENTIATE:
    case BACKWARD:
        return enqueue_backward(rig, what == BACKWARD);
    case STASH:
        return tool_status(pst_ticket_stash(rig->ticket, rig->group, &input, NULL, stream));
    case RESTORE:
        return tool_status(pst_ticket_restore(rig->ticket, rig->group, &input, NULL, stream));
    default:
        return tool_status(pst_device_copy(rig->timer.device, rig->results[0], rig->input,
                                           rig->rows * rig->row_bytes, stream));
    }
}

/* ---- memory ---- */

/* Numbers of magnitude about 1, in all three formats: what is filled in is copied over and over. */
static int fill(const glu_rig *rig, void *to, uint64_t bytes)
{
    enum { PATTERN = 1 << 20 };
    static uint16_t pattern[PATTERN];
    static const uint16_t ones[] = {0x3f80, 0x3c00, 0x3f80}; /* 1 in bf16, fp16, half of fp32 */
    uint64_t seed = BENCH_FIRST_DRAW;
    for (int i = 0; i < PATTERN; i++)
        pattern[i] = (uint16_t)((ones[rig->form->dtype] - (bench_draw(&seed) & 0xff)) |
                                (bench_draw(&seed) & 0x8000));
    for (uint64_t at = 0; at < bytes; at += sizeof(pattern)) {
        const uint64_t left = bytes - at;
        TOOL_PST(pst_device_copy(rig->timer.device, (char *)to + at, pattern,
                                 left < sizeof(pattern) ? left : sizeof(pattern),
                                 rig->timer.stream));
        TOOL_PST(pst_stream_synchronize(rig->timer.device, rig->timer.stream));
    }
    return TOOL_OK;
}

static int make_memory(glu_rig *rig)
{
    pst_device *device = rig->timer.device;
    const uint64_t bytes = rig->capacity * rig->row_bytes;
    const int64_t rows = (int64_t)rig->rows;
    TOOL_PST(pst_device_alloc(device, bytes, &rig->input));
    TOOL_PST(pst_device_alloc(device, bytes / 2, &rig->output));
    TOOL_PST(pst_device_alloc(device, bytes / 2, &rig->gradient));
    TOOL_PST(pst_device_alloc(device, sizeof(rows), &rig->count));
    for (int i = 0; i < 2; i++) {
        TOOL_PST(pst_device_alloc(device, bytes, &rig->results[i]));
        TOOL_PST(pst_device_fill(device, rig->results[i], 0, bytes, rig->timer.stream));
    }
    TOOL_PST(pst_device_copy(device, rig->count, &rows, sizeof(rows), rig->timer.stream));
    TOOL_PST(pst_stream_synchronize(device, rig->timer.stream));
    TOOL_TRY(fill(rig, rig->input, bytes));
    return fill(rig, rig->gradient, bytes / 2);
}

static int make_pool(glu_rig *rig)
{
    const pst_row_space space = {.count_type = PST_COUNT_INT64, .capacity = (int64_t)rig->capacity};
    const pst_tensor tensor = {.row_bytes = rig->row_bytes, .written_by = PST_WRITTEN_BY_GLU};
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = rig->rows * rig->row_bytes / PST_PAGE_BYTES_DEFAULT + 1;
    config.max_tickets = 1;
    TOOL_PST(pst_pool_create(rig->timer.device, &config, &rig->pool));
    TOOL_TRY(bench_make_group(&space, &tensor, 1, &rig->group));
    return tool_status(pst_ticket_create(rig->pool, rig->group, &rig->ticket));
}

static int open_rig(glu_rig *rig, uint64_t bytes)
{
    const form *like = rig->form;
    rig->glu = (pst_glu)PST_GLU_INIT;
    rig->glu.kind = like->kind;
    rig->glu.dtype = like->dtype;
    rig->glu.interleave = like->interleave;
    if (like->kind == PST_GLU_CLAMPED) {
        rig->glu.limit = 7.0f;
        rig->glu.alpha = 1.702f;
        rig->glu.bias = 1.0f;
    }
    rig->row_bytes = 2 * (uint64_t)like->features * (like->dtype == PST_GLU_FP32 ? 4 : 2);
    rig->rows = bytes / rig->row_bytes;
    rig->capacity = rig->rows * CAPACITY_FACTOR;
    TOOL_TRY(make_memory(rig));
    TOOL_TRY(make_pool(rig));
    for (int i = 0; i < NUM_LAUNCHES; i++)
        BENCH_RECORD(&rig->timer, enqueue(rig, (launch)i), &rig->graphs[i]);
    return TOOL_OK;
}

static int close_rig(glu_rig *rig)
{
    pst_device *device = rig->timer.device;
    void *const memory[] = {rig->input, rig->output,     rig->gradient,
                            rig->count, rig->results[0], rig->results[1]};
    for (int i = 0; i < NUM_LAUNCHES; i++)
        TOOL_PST(pst_graph_destroy(rig->graphs[i]));
    TOOL_PST(pst_ticket_destroy(rig->ticket));
    TOOL_PST(pst_group_destroy(rig->group));
    TOOL_PST(pst_pool_destroy(rig->pool));
    for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
        TOOL_PST(pst_device_free(device, memory[i]));
    return TOOL_OK;
}

/* ---- measuring ---- */

/* Bytes in which the gradients with pages differ from those in memory. */
static int compare(const glu_rig *rig, uint64_t *mismatched_bytes)
{
    const uint64_t bytes = rig->capacity * rig->row_bytes;
    unsigned char *in_memory = malloc(bytes), *with_pages = malloc(bytes);
    if (!in_memory || !with_pages) {
        free(in_memory);
        free(with_pages);
        return tool_fail(TOOL_NO, "out of memory");
    }
    pst_status status = pst_device_copy(rig->timer.device, in_memory, rig->results[0], bytes, NULL);
    if (status == PST_OK)
        status = pst_device_copy(rig->timer.device, with_pages, rig->results[1], bytes, NULL);
    if (status == PST_OK)
        status = pst_device_synchronize(rig->timer.device);
    for (uint64_t i = 0; status == PST_OK && i < bytes; i++)
        *mismatched_bytes += in_memory[i] != with_pages[i];
    free(in_memory);
    free(with_pages);
    return tool_status(status);
}

static int check_faults(const glu_rig *rig)
{
    pst_pool_status status;
    TOOL_PST(pst_pool_step(rig->pool, rig->timer.stream));
    TOOL_PST(pst_stream_synchronize(rig->timer.device, rig->timer.stream));
    TOOL_PST(pst_pool_poll(rig->pool, &status));
    if (status.num_faults == 0)
        return TOOL_OK;
    return tool_fail(TOOL_NO, "glu: %u faults, first: %s", status.num_faults,
                     pst_fault_text((pst_fault)status.fault));
}

/* One after the other, so that both ways meet the same machine. */
static int sample(const glu_rig *rig, double seconds[NUM_LAUNCHES])
{
    static const launch order[] = {COPY, COMPUTE, STASH, RESTORE, DIFFERENTIATE, FORWARD, BACKWARD};
    for (int i = 0; i < NUM_LAUNCHES; i++)
        TOOL_TRY(bench_time(&rig->timer, rig->graphs[order[i]], &seconds[order[i]]));
    return TOOL_OK;
}

static int measure(glu_rig *rig, uint32_t samples, bench_glu_row *row)
{
    static bench_series series[NUM_LAUNCHES], apart, fused;
    double seconds[NUM_LAUNCHES];
    for (int i = 0; i < NUM_LAUNCHES; i++)
        series[i].num = 0;
    apart.num = fused.num = 0;
    TOOL_TRY(sample(rig, seconds)); /* for the caches */
    for (uint32_t n = 0; n < samples; n++) {
        TOOL_TRY(sample(rig, seconds));
        for (int i = 0; i < NUM_LAUNCHES; i++)
            bench_series_add(&series[i], seconds[i]);
        bench_series_add(&apart, seconds[COMPUTE] + seconds[STASH] + seconds[RESTORE] +
                                     seconds[DIFFERENTIATE]);
        bench_series_add(&fused, seconds[FORWARD] + seconds[BACKWARD]);
    }
    row->name = rig->form->name;
    row->features = rig->form->features;
    row->bytes = rig->rows * rig->row_bytes;
    row->compute = bench_summary(&series[COMPUTE]);
    row->stash = bench_summary(&series[STASH]);
    row->restore = bench_summary(&series[RESTORE]);
    row->differentiate = bench_summary(&series[DIFFERENTIATE]);
    row->forward = bench_summary(&series[FORWARD]);
    row->backward = bench_summary(&series[BACKWARD]);
    row->copy = bench_summary(&series[COPY]);
    row->speedup = bench_median_ratio(&apart, &fused);
    TOOL_TRY(bench_replay(&rig->timer, rig->graphs[DIFFERENTIATE])); /* COPY went over it */
    TOOL_TRY(compare(rig, &row->mismatched_bytes));
    return check_faults(rig);
}

int bench_measure_glu(pst_device *device, bool quick, uint32_t samples, bench_report *report)
{
    static glu_rig rig;
    rig = (glu_rig){.form = forms};
    TOOL_TRY(bench_timer_open(&rig.timer, device));
    const uint64_t mib = rig.timer.is_host ? (quick ? 4 : 64) : (quick ? 64 : 256);
    const size_t num = quick ? QUICK_FORMS : NUM_FORMS;
    for (size_t i = 0; i < num; i++) {
        rig.form = &forms[i];
        TOOL_TRY(open_rig(&rig, mib * BENCH_MIB));
        TOOL_TRY(measure(&rig, samples, &report->glus[report->num_glus]));
        report->num_glus++;
        TOOL_TRY(close_rig(&rig));
    }
    return bench_timer_close(&rig.timer);
}
