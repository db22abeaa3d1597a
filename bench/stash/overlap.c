/* Stash and GEMM side by side: what either costs the other, and how long a stash waits to begin. */
#include "bench/stash/gemm.h"
#include "bench/stash/measure.h"
#include "bench/stash/rig.h"

#include <math.h>
#include <stdio.h>

enum { GEMMS = 4, SAMPLES = 21, MAX_BURST = 256 };

typedef struct overlap {
    bench_rig rig;
    bench_gemm gemm;
    bench_timer gemm_timer;
    pst_event begin, end; /* nodes of the graphs below */
    pst_graph *burst;     /* stash between begin and end, restore, and the same over and over */
    pst_graph *start;     /* an empty kernel of the stash's grid between begin and end */
} overlap;

enum { GEMM_ALONE, GEMM_BESIDE, STASH_ALONE, STASH_BESIDE, START_ALONE, START_BESIDE, NUM_SERIES };

/* ---- graphs ---- */

static int enqueue_burst(const overlap *self, uint32_t pairs)
{
    const bench_rig *rig = &self->rig;
    for (uint32_t i = 0; i < pairs; i++) {
        const bench_copy *copy = &rig->copies[i % rig->num_copies];
        if (i == 0)
            TOOL_PST(pst_event_record_external(rig->device, self->begin, rig->timer.stream));
        TOOL_TRY(bench_rig_enqueue(rig, copy, BENCH_STASH));
        if (i == 0)
            TOOL_PST(pst_event_record_external(rig->device, self->end, rig->timer.stream));
        TOOL_TRY(bench_rig_enqueue(rig, copy, BENCH_RESTORE));
    }
    return TOOL_OK;
}

static int enqueue_start(const overlap *self)
{
    const bench_rig *rig = &self->rig;
    TOOL_PST(pst_event_record_external(rig->device, self->begin, rig->timer.stream));
    BENCH_GPU(bench_gpu_empty(&rig->grid, rig->timer.stream));
    return tool_status(pst_event_record_external(rig->device, self->end, rig->timer.stream));
}

/* ---- samples ---- */

/* GEMMs on their own, or with the graph launched once they run. */
static int run_gemms(const overlap *self, int num_sms, pst_graph *beside, double *seconds_out)
{
    const bench_timer *timer = &self->gemm_timer;
    BENCH_GPU(bench_gpu_hold(timer->stream));
    TOOL_PST(pst_event_record(timer->device, timer->begin, timer->stream));
    for (int i = 0; i < GEMMS; i++)
        TOOL_TRY(bench_gemm_run(&self->gemm, num_sms));
    TOOL_PST(pst_event_record(timer->device, timer->end, timer->stream));
    if (beside) {
        TOOL_PST(pst_event_synchronize(timer->device, timer->begin));
        TOOL_TRY(bench_replay(&self->rig.timer, beside));
    }
    TOOL_PST(pst_stream_synchronize(timer->device, timer->stream));
    return tool_status(pst_event_elapsed(timer->device, timer->begin, timer->end, seconds_out));
}

static int add_inner(const overlap *self, bench_series *series)
{
    double seconds;
    TOOL_PST(pst_event_elapsed(self->rig.device, self->begin, self->end, &seconds));
    bench_series_add(series, seconds);
    return TOOL_OK;
}

static int take_sample(const overlap *self, int gemm_sms, bench_series *series)
{
    double seconds;
    TOOL_TRY(run_gemms(self, 0, NULL, &seconds));
    bench_series_add(&series[GEMM_ALONE], seconds);
    TOOL_TRY(bench_replay(&self->rig.timer, self->burst));
    TOOL_TRY(add_inner(self, &series[STASH_ALONE]));
    TOOL_TRY(bench_replay(&self->rig.timer, self->start));
    TOOL_TRY(add_inner(self, &series[START_ALONE]));
    TOOL_TRY(run_gemms(self, gemm_sms, self->burst, &seconds));
    bench_series_add(&series[GEMM_BESIDE], seconds);
    TOOL_TRY(add_inner(self, &series[STASH_BESIDE]));
    TOOL_TRY(run_gemms(self, gemm_sms, self->start, &seconds));
    return add_inner(self, &series[START_BESIDE]);
}

/* So many pairs that they outlast the GEMMs. */
static int measure_burst(const overlap *self, uint32_t *pairs_out)
{
    double gemms = 0.0, stash = 0.0, restore = 0.0;
    for (int i = 0; i < 2; i++) { /* the first warms up */
        TOOL_TRY(run_gemms(self, 0, NULL, &gemms));
        TOOL_TRY(bench_time(&self->rig.timer, self->rig.copies[0].graphs[BENCH_STASH], &stash));
        TOOL_TRY(bench_time(&self->rig.timer, self->rig.copies[0].graphs[BENCH_RESTORE], &restore));
    }
    const double pairs = ceil(1.5 * gemms / (stash + restore));
    *pairs_out = pairs < MAX_BURST ? (uint32_t)pairs : MAX_BURST;
    return TOOL_OK;
}

static int measure(overlap *self, bench_overlap *result)
{
    static bench_series series[NUM_SERIES];
    uint32_t pairs;
    for (int i = 0; i < NUM_SERIES; i++)
        series[i].num = 0;
    TOOL_TRY(bench_check(&self->rig, 0, &result->mismatched_bytes));
    TOOL_TRY(measure_burst(self, &pairs));
    TOOL_TRY(enqueue_start(self)); /* outside capture, because that loads the kernel */
    TOOL_PST(pst_stream_synchronize(self->rig.device, self->rig.timer.stream));
    BENCH_RECORD(&self->rig.timer, enqueue_burst(self, pairs), &self->burst);
    BENCH_RECORD(&self->rig.timer, enqueue_start(self), &self->start);
    for (int i = 0; i < SAMPLES; i++)
        TOOL_TRY(take_sample(self, result->gemm_sms, series));
    result->gemm_alone = bench_summary(&series[GEMM_ALONE]);
    result->gemm_beside = bench_summary(&series[GEMM_BESIDE]);
    result->stash_alone = bench_summary(&series[STASH_ALONE]);
    result->stash_beside = bench_summary(&series[STASH_BESIDE]);
    result->start_alone = bench_summary(&series[START_ALONE]);
    result->start_beside = bench_summary(&series[START_BESIDE]);
    TOOL_TRY(bench_check(&self->rig, 1000, &result->mismatched_bytes));
    return bench_check_faults(&self->rig);
}

/* ---- configurations ---- */

static int run_one(overlap *self, pst_device *device, const bench_case *what, bench_report *report)
{
    const int all = report->machine.device.num_sms;
    bench_overlap *result = &report->overlaps[report->num_overlaps];
    bool skipped;
    TOOL_TRY(bench_prepare_or_skip(&self->rig, device, what, true, report, &skipped));
    if (skipped)
        return TOOL_OK;
    *result = (bench_overlap){.backend = what->backend,
                              .num_sms = what->num_sms ? what->num_sms : all,
                              .gemm_sms = what->num_sms ? all - what->num_sms : all,
                              .bytes = self->rig.shape.live_bytes};
    int code = bench_rig_open(&self->rig);
    if (code == TOOL_OK)
        code = measure(self, result);
    TOOL_TRY(code);
    TOOL_PST(pst_graph_destroy(self->burst));
    TOOL_PST(pst_graph_destroy(self->start));
    TOOL_TRY(bench_rig_close(&self->rig, TOOL_OK));
    report->num_overlaps++;
    return TOOL_OK;
}

static int run_all(overlap *self, pst_device *device, bool quick, bench_report *report)
{
    static const struct {
        pst_backend backend;
        int num_sms;
    } list[] = {{PST_BACKEND_BULK, 8},  {PST_BACKEND_BULK, 16}, {PST_BACKEND_LDG, 16},
                {PST_BACKEND_BULK, 32}, {PST_BACKEND_LDG, 32},  {PST_BACKEND_SQUEEZE, 0}};
    const pst_device_info *info = &report->machine.device;
    bench_case what = bench_base_case();
    what.sweep = BENCH_SWEEP_GEMM;
    what.bytes = (quick ? 64 : 256) * BENCH_MIB;
    for (size_t i = 0; i < sizeof(list) / sizeof(list[0]); i++) {
        what.backend = list[i].backend;
        what.num_sms = list[i].num_sms;
        if (what.num_sms == info->num_sms)
            TOOL_TRY(bench_add_skip(report, &what, "leaves no SM to the GEMM"));
        else
            TOOL_TRY(run_one(self, device, &what, report));
    }
    return TOOL_OK;
}

int bench_measure_overlaps(pst_device *device, bool quick, bench_report *report)
{
    static overlap self;
    const char *missing = NULL;
    if (report->machine.device.kind == PST_DEVICE_HOST) {
        snprintf(report->no_overlap, sizeof(report->no_overlap), "the host device has no SMs");
        return TOOL_OK;
    }
    TOOL_TRY(bench_timer_open(&self.gemm_timer, device));
    TOOL_PST(pst_event_create(device, &self.begin));
    TOOL_PST(pst_event_create(device, &self.end));
    TOOL_TRY(bench_gemm_open(&self.gemm, device, self.gemm_timer.stream, &missing));
    if (missing)
        snprintf(report->no_overlap, sizeof(report->no_overlap), "%s", missing);
    else
        TOOL_TRY(run_all(&self, device, quick, report));
    TOOL_TRY(bench_gemm_close(&self.gemm));
    TOOL_PST(pst_event_destroy(device, self.begin));
    TOOL_PST(pst_event_destroy(device, self.end));
    return bench_timer_close(&self.gemm_timer);
}
