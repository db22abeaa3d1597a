/* What a planned request costs: nanoseconds of processor time per malloc with its free, in the
 * order of a plan, beside those of the C library for the same sequence.
 *
 *   pagestash-arena-bench [REQUESTS [ITERATIONS]]
 *
 * Exit code: 1 if a request did not get its planned address.
 */
#include <pagestash/pagestash.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { NUM_SIZES = 24, MAX_LIVE = 6000, SAMPLES = 9 };

typedef struct scene {
    pst_plan_row *rows; /* mallocs and frees; of a malloc id is its number */
    uint64_t num_rows;
    uint64_t num_tensors;
    void **addresses;
    pst_device *device;
    pst_plan_file *plan;
    pst_arena *arena;
} scene;

static uint64_t draw(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void check(pst_status status)
{
    if (status == PST_OK)
        return;
    fprintf(stderr, "pagestash-arena-bench: %s: %s\n", pst_status_name(status), pst_last_message());
    exit(1);
}

static void *need(void *memory)
{
    if (!memory) {
        fprintf(stderr, "pagestash-arena-bench: out of memory\n");
        exit(1);
    }
    return memory;
}

/* Sizes of a few kinds, lives of any length; freed addresses serve the same size again. */
static void make_rows(scene *self, uint64_t num_requests)
{
    uint64_t seed = 1;
    uint64_t top = 0;
    uint64_t num_live = 0;
    uint64_t num_free[NUM_SIZES] = {0};
    uint64_t *live = need(calloc(MAX_LIVE, sizeof(*live)));
    uint64_t *pool = need(calloc((size_t)NUM_SIZES * MAX_LIVE, sizeof(*pool)));
    self->rows = need(calloc(num_requests, sizeof(*self->rows)));
    while (self->num_rows < num_requests) {
        const uint64_t left = num_requests - self->num_rows;
        pst_plan_row *row = &self->rows[self->num_rows++];
        row->line = self->num_rows;
        if (num_live &&
            (num_live >= left || num_live == MAX_LIVE || draw(&seed) % MAX_LIVE < num_live)) {
            /* the young die first, mostly */
            const uint64_t range = draw(&seed) % 4 && num_live > 16 ? 16 : num_live;
            const uint64_t pick = num_live - 1 - draw(&seed) % range;
            const pst_plan_row *tensor = &self->rows[live[pick]];
            const uint64_t size = tensor->bytes / 512 - 1;
            pool[size * MAX_LIVE + num_free[size]++] = tensor->offset;
            row->op = PST_PLAN_OP_FREE;
            row->id = tensor->id;
            live[pick] = live[--num_live];
            continue;
        }
        const uint64_t size = draw(&seed) % NUM_SIZES;
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
    check(pst_arena_iteration(self->arena));
    for (uint64_t i = 0; i < self->num_rows; i++) {
        const pst_plan_row *row = &self->rows[i];
        if (row->op == PST_PLAN_OP_MALLOC)
            check(pst_arena_malloc(self->arena, row->bytes, &self->addresses[row->id], NULL));
        else
            check(pst_arena_free(self->arena, self->addresses[row->id], NULL));
    }
}

static void run_libc(scene *self)
{
    for (uint64_t i = 0; i < self->num_rows; i++) {
        const pst_plan_row *row = &self->rows[i];
        if (row->op == PST_PLAN_OP_MALLOC)
            self->addresses[row->id] = need(malloc(row->bytes));
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

static int compare(const void *a, const void *b)
{
    const double *left = a;
    const double *right = b;
    return (*left > *right) - (*left < *right);
}

/* Median nanoseconds per pair; the first run, which takes the memory, is not counted. */
static double measure(scene *self, void (*run)(scene *), uint64_t iterations)
{
    double samples[SAMPLES];
    run(self);
    for (int i = 0; i < SAMPLES; i++) {
        const double begin = now();
        for (uint64_t k = 0; k < iterations; k++)
            run(self);
        samples[i] = (now() - begin) * 1e9 / (double)(iterations * self->num_tensors);
    }
    qsort(samples, SAMPLES, sizeof(samples[0]), compare);
    return samples[SAMPLES / 2];
}

static uint64_t argument(int argc, char **argv, int index, uint64_t otherwise)
{
    char *end = NULL;
    if (index >= argc)
        return otherwise;
    const unsigned long long value = strtoull(argv[index], &end, 10);
    if (*end || value < 2 || value > 100000000) {
        fprintf(stderr, "usage: pagestash-arena-bench [REQUESTS [ITERATIONS]], each 2..10^8\n");
        exit(2);
    }
    return value;
}

int main(int argc, char **argv)
{
    scene self = {.num_rows = 0};
    pst_arena_stats stats;
    const uint64_t num_requests = argument(argc, argv, 1, 100000);
    const uint64_t iterations = argument(argc, argv, 2, 5);
    make_rows(&self, num_requests);
    self.addresses = need(calloc(self.num_tensors, sizeof(*self.addresses)));
    check(pst_device_open("host", 0, &self.device));
    check(pst_plan_file_make(self.rows, self.num_rows, &self.plan));
    check(pst_arena_create(self.device, self.plan, NULL, &self.arena));
    const double arena = measure(&self, run_arena, iterations);
    check(pst_arena_get_stats(self.arena, &stats));
    const double libc = measure(&self, run_libc, iterations);
    printf("requests per iteration: %llu\n", (unsigned long long)num_requests);
    printf("arena bytes: %llu\n", (unsigned long long)stats.arena_bytes);
    printf("requests not planned: %llu\n", (unsigned long long)(stats.requests - stats.planned));
    printf("arena ns per pair: %.1f\n", arena);
    printf("libc ns per pair: %.1f\n", libc);
    check(pst_arena_destroy(self.arena));
    pst_plan_file_destroy(self.plan);
    check(pst_device_close(self.device));
    free(self.addresses);
    free(self.rows);
    return stats.requests == stats.planned ? 0 : 1;
}
