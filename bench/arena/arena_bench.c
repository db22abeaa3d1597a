/* pagestash-arena-bench: what a planned request costs, in nanoseconds of processor time per malloc
 * with its free, in the order of a plan, beside those of the C library for the same sequence. */
#include "bench/common/must.h"
#include "bench/common/samples.h"
#include "tools/common/flags.h"
#include "tools/common/json_out.h"
#include "tools/common/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { NUM_SIZES = 24, MAX_LIVE = 6000, SAMPLES = 9 };

#define ARENA_FLAGS(F)                                                \
    F(U64, requests, "N", 2, 100000000, "100000", "of one iteration") \
    F(U64, iterations, "N", 1, 100000000, "5", "in a sample")

typedef struct options {
    ARENA_FLAGS(FLAG_MEMBER)
    const char *json;
} options;

typedef struct scene {
    pst_plan_row *rows; /* mallocs and frees; of a malloc id is its number */
    uint64_t num_rows;
    uint64_t num_tensors;
    void **addresses;
    pst_device *device;
    pst_plan_file *plan;
    pst_arena *arena;
} scene;

/* Sizes of a few kinds, lives of any length; freed addresses serve the same size again. */
static void make_rows(scene *self, uint64_t num_requests)
{
    uint64_t seed = BENCH_FIRST_DRAW;
    uint64_t top = 0;
    uint64_t num_live = 0;
    uint64_t num_free[NUM_SIZES] = {0};
    uint64_t *live = bench_need(calloc(MAX_LIVE, sizeof(*live)));
    uint64_t *pool = bench_need(calloc((size_t)NUM_SIZES * MAX_LIVE, sizeof(*pool)));
    self->rows = bench_need(calloc(num_requests, sizeof(*self->rows)));
    while (self->num_rows < num_requests) {
        const uint64_t left = num_requests - self->num_rows;
        pst_plan_row *row = &self->rows[self->num_rows++];
        row->line = self->num_rows;
        if (num_live &&
            (num_live >= left || num_live == MAX_LIVE || bench_draw(&seed) % MAX_LIVE < num_live)) {
            /* the young die first, mostly */
            const uint64_t range = bench_draw(&seed) % 4 && num_live > 16 ? 16 : num_live;
            const uint64_t pick = num_live - 1 - bench_draw(&seed) % range;
            const pst_plan_row *tensor = &self->rows[live[pick]];
            const uint64_t size = tensor->bytes / 512 - 1;
            pool[size * MAX_LIVE + num_free[size]++] = tensor->offset;
            row->op = PST_PLAN_OP_FREE;
            row->id = tensor->id;
            live[pick] = live[--num_live];
            continue;
        }
        const uint64_t size = bench_draw(&seed) % NUM_SIZES;
        row->op = PST_PLAN_OP_MALLOC;
        row->id = self->num_tensors++;
        row->bytes = (size + 1) * 512;
        row->offset = num_free[size] ? pool[size * MAX_LIVE + --num_free[size]] : top;
        if (row->offset == top)
            top += row->bytes;
        live[num_live++] = self->num_rows - 1;
    }
    free(live);
    free(pool);
}

static void run_arena(scene *self)
{
    bench_check_status(pst_arena_iteration(self->arena));
    for (uint64_t i = 0; i < self->num_rows; i++) {
        const pst_plan_row *row = &self->rows[i];
        if (row->op == PST_PLAN_OP_MALLOC)
            bench_check_status(
                pst_arena_malloc(self->arena, row->bytes, &self->addresses[row->id], NULL));
        else
            bench_check_status(pst_arena_free(self->arena, self->addresses[row->id], NULL));
    }
}

static void run_libc(scene *self)
{
    for (uint64_t i = 0; i < self->num_rows; i++) {
        const pst_plan_row *row = &self->rows[i];
        if (row->op == PST_PLAN_OP_MALLOC)
            self->addresses[row->id] = bench_need(malloc(row->bytes));
        else
            free(self->addresses[row->id]);
    }
}

/* Of this thread: others may have the processor in between. */
static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Median nanoseconds per pair; the first run, which takes the memory, is not counted. */
static double measure(scene *self, void (*run)(scene *), uint64_t iterations)
{
    bench_series series = {.num = 0};
    run(self);
    for (int i = 0; i < SAMPLES; i++) {
        const double begin = now();
        for (uint64_t k = 0; k < iterations; k++)
            run(self);
        bench_series_add(&series, (now() - begin) * 1e9 / (double)(iterations * self->num_tensors));
    }
    return bench_summary(&series).median;
}

static int report(const options *chosen, const pst_arena_stats *stats, double arena, double libc)
{
    metric_list list = {.num = 0};
    metrics_add_count(&list, "requests_per_iteration", chosen->requests);
    metrics_add_bytes(&list, "arena_bytes", stats->arena_bytes);
    metrics_add_count(&list, "requests_not_planned", stats->requests - stats->planned);
    metrics_add_real(&list, "arena_ns_per_pair", arena);
    metrics_add_real(&list, "libc_ns_per_pair", libc);
    if (chosen->json) {
        json_t *object = json_begin("pagestash-arena-bench", 1);
        json_put_metrics(&object, &list);
        TOOL_TRY(json_write(object, chosen->json));
    }
    for (size_t i = 0; i < list.num && (!chosen->json || strcmp(chosen->json, "-") != 0); i++)
        metrics_print(&list.items[i]);
    return tool_flush(stats->requests == stats->planned ? TOOL_OK : TOOL_NO);
}

int main(int argc, char **argv)
{
#define FLAG_OPTIONS options
    static const flag flags[] = {ARENA_FLAGS(FLAG_ROW)};
    static const flag_table table = {
        .command = "pagestash-arena-bench",
        .doc =
            "What a planned request costs, beside malloc and free of the C library.\vExit codes: 1 "
            "if a request did not get its planned address; 2 usage.",
        .groups = {FLAG_GROUP(flags, 0)},
        .json = offsetof(options, json),
    };
    options chosen = {.json = NULL};
    scene self = {.num_rows = 0};
    pst_arena_stats stats;
    tool_name = "pagestash-arena-bench";
    TOOL_TRY(flags_parse(&table, argc, argv, &chosen));
    make_rows(&self, chosen.requests);
    self.addresses = bench_need(calloc(self.num_tensors, sizeof(*self.addresses)));
    bench_check_status(pst_device_open("host", 0, &self.device));
    bench_check_status(pst_plan_file_make(self.rows, self.num_rows, &self.plan));
    bench_check_status(pst_arena_create(self.device, self.plan, NULL, &self.arena));
    const double arena = measure(&self, run_arena, chosen.iterations);
    bench_check_status(pst_arena_get_stats(self.arena, &stats));
    const double libc = measure(&self, run_libc, chosen.iterations);
    const int code = report(&chosen, &stats, arena, libc);
    bench_check_status(pst_arena_destroy(self.arena));
    pst_plan_file_destroy(self.plan);
    bench_check_status(pst_device_close(self.device));
    free(self.addresses);
    free(self.rows);
    return code;
}
