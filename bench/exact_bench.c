/* pagestash-exact-bench: does an instance fit into its largest load? One line per instance.
 *
 *   pagestash-exact-bench [--threads T] [--seconds S] [--seed R] FILE...
 *   pagestash-exact-bench [...] --tilings N --seeds A:B [--side L]
 *
 * Files are MiniMalloc's: a header, then id,lower,upper,size. */
#include <argp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/plan.h"
#include "tilings.h"

enum {
    OPTION_TILINGS = 256,
    OPTION_SEEDS,
    OPTION_SIDE,
    OPTION_THREADS,
    OPTION_SECONDS,
    OPTION_SEED
};
enum { EXIT_NOT_ALL = 1, EXIT_USAGE = 2, EXIT_INPUT = 3, MAX_TENSORS = 1 << 20 };

typedef struct options {
    uint32_t num_tiles, num_threads;
    uint64_t first_seed, end_seed, side, seed;
    double seconds;
    char **files;
    int num_files;
} options;

/* An instance as it was read; instants become slots later. */
typedef struct instance {
    char name[64];
    uint32_t num_tensors;
    uint64_t *begin, *end, *size;
} instance;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *must_calloc(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    if (!memory) {
        fprintf(stderr, "pagestash-exact-bench: out of memory\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

/* ---- instances ---- */

static instance make_instance(const char *name, uint32_t capacity)
{
    instance i = {.num_tensors = 0};
    snprintf(i.name, sizeof(i.name), "%s", name);
    i.begin = must_calloc(capacity, sizeof(uint64_t));
    i.end = must_calloc(capacity, sizeof(uint64_t));
    i.size = must_calloc(capacity, sizeof(uint64_t));
    return i;
}

static void free_instance(instance *i)
{
    free(i->begin);
    free(i->end);
    free(i->size);
}

static instance read_instance(const char *path)
{
    const char *slash = strrchr(path, '/');
    instance i = make_instance(slash ? slash + 1 : path, MAX_TENSORS);
    FILE *file = fopen(path, "r");
    char line[256];
    bool is_good = file && fgets(line, sizeof(line), file);
    while (is_good && fgets(line, sizeof(line), file)) {
        const uint32_t n = i.num_tensors;
        is_good = n < MAX_TENSORS &&
                  sscanf(line, "%*[^,],%" SCNu64 ",%" SCNu64 ",%" SCNu64, &i.begin[n], &i.end[n],
                         &i.size[n]) == 3 &&
                  i.begin[n] < i.end[n] && i.size[n] > 0;
        i.num_tensors += is_good;
    }
    if (!is_good) {
        fprintf(stderr, "pagestash-exact-bench: %s: cannot be read after tensor %" PRIu32 "\n",
                path, i.num_tensors);
        exit(EXIT_INPUT);
    }
    fclose(file);
    return i;
}

static instance tile_instance(const options *o, uint64_t seed)
{
    char name[64];
    snprintf(name, sizeof(name), "tiling-%" PRIu32 "-%" PRIu64, o->num_tiles, seed);
    instance i = make_instance(name, o->num_tiles);
    tile *tiles = must_calloc(o->num_tiles, sizeof(*tiles));
    i.num_tensors = tilings_make(o->num_tiles, o->side, o->side, seed, tiles);
    for (uint32_t k = 0; k < i.num_tensors; k++) {
        i.begin[k] = tiles[k].begin, i.end[k] = tiles[k].end;
        i.size[k] = tiles[k].top - tiles[k].bottom;
    }
    free(tiles);
    return i;
}

/* ---- search ---- */

static int compare_words(const void *left, const void *right)
{
    const uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return a < b ? -1 : a > b;
}

static uint32_t rank_of(const uint64_t *times, uint32_t count, uint64_t time)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (times[middle] < time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Slots between the instants; begin and end are of num_tensors words. Returns the largest load. */
static uint64_t to_slots(const instance *i, uint32_t *begin, uint32_t *end, uint32_t *num_slots_out)
{
    const uint32_t n = i->num_tensors;
    uint64_t *times = must_calloc(2 * (size_t)n, sizeof(*times));
    memcpy(times, i->begin, n * sizeof(*times));
    memcpy(times + n, i->end, n * sizeof(*times));
    qsort(times, 2 * (size_t)n, sizeof(*times), compare_words);
    uint32_t count = 0;
    for (uint32_t k = 0; k < 2 * n; k++)
        if (count == 0 || times[count - 1] != times[k])
            times[count++] = times[k];
    uint64_t *change = must_calloc(count, sizeof(*change));
    for (uint32_t k = 0; k < n; k++) {
        begin[k] = rank_of(times, count, i->begin[k]);
        end[k] = rank_of(times, count, i->end[k]);
        change[begin[k]] += i->size[k];
        change[end[k]] -= i->size[k];
    }
    uint64_t load = 0, largest = 0;
    for (uint32_t t = 0; t < count; t++) {
        load += change[t];
        largest = load > largest ? load : largest;
    }
    *num_slots_out = count > 0 ? count - 1 : 0;
    free(times);
    free(change);
    return largest;
}

static bool is_placement(const psti_exact_problem *p, uint64_t target, const uint64_t *offsets)
{
    for (uint32_t a = 0; a < p->num_tensors; a++) {
        if (offsets[a] > target || p->size[a] > target - offsets[a])
            return false;
        for (uint32_t b = 0; b < a; b++)
            if (p->begin[a] < p->end[b] && p->begin[b] < p->end[a] &&
                offsets[a] < offsets[b] + p->size[b] && offsets[b] < offsets[a] + p->size[a])
                return false;
    }
    return true;
}

static bool is_late(void *deadline)
{
    return now() > *(const double *)deadline;
}

/* Whether a placement was found. */
static bool run(const instance *i, const options *o)
{
    static const char *const names[] = {"found", "none", "stopped", "no memory"};
    uint32_t *begin = must_calloc(i->num_tensors, sizeof(*begin));
    uint32_t *end = must_calloc(i->num_tensors, sizeof(*end));
    uint64_t *offsets = must_calloc(i->num_tensors, sizeof(*offsets));
    psti_exact_problem problem = {
        .num_tensors = i->num_tensors, .begin = begin, .end = end, .size = i->size};
    const uint64_t target = to_slots(i, begin, end, &problem.num_slots);
    const double start = now();
    double deadline = start + o->seconds;
    psti_limits limits = {.steps_left = UINT64_MAX / 2,
                          .memory_left = UINT64_C(1) << 30,
                          .num_threads = o->num_threads,
                          .seed = o->seed,
                          .is_over = is_late,
                          .user = &deadline};
    const psti_verdict verdict = psti_exact_search(&problem, target, &limits, offsets);
    const double seconds = now() - start;
    const bool is_wrong = verdict == PSTI_FOUND && !is_placement(&problem, target, offsets);
    printf("%-20s %6" PRIu32 " %-9s %9.4f s %12" PRIu64 " steps\n", i->name, i->num_tensors,
           is_wrong ? "WRONG" : names[verdict], seconds, UINT64_MAX / 2 - limits.steps_left);
    fflush(stdout);
    free(begin);
    free(end);
    free(offsets);
    return verdict == PSTI_FOUND && !is_wrong;
}

/* ---- options ---- */

static error_t parse(int key, char *text, struct argp_state *state)
{
    options *o = state->input;
    int used = 0;
    switch (key) {
    case OPTION_TILINGS:
        o->num_tiles = (uint32_t)strtoul(text, NULL, 10);
        if (o->num_tiles == 0 || o->num_tiles > MAX_TENSORS)
            argp_error(state, "--tilings %s: allowed are 1 to %d", text, MAX_TENSORS);
        return 0;
    case OPTION_SEEDS:
        if (sscanf(text, "%" SCNu64 ":%" SCNu64 "%n", &o->first_seed, &o->end_seed, &used) != 2 ||
            text[used] != '\0')
            argp_error(state, "--seeds %s: a range A:B is wanted", text);
        return 0;
    case OPTION_SIDE:
        o->side = strtoull(text, NULL, 10);
        if (o->side == 0 || o->side > PST_PLAN_MAX_BYTES)
            argp_error(state, "--side %s: allowed are 1 to 2^62", text);
        return 0;
    case OPTION_THREADS:
        o->num_threads = (uint32_t)strtoul(text, NULL, 10);
        if (o->num_threads == 0 || o->num_threads > 64)
            argp_error(state, "--threads %s: allowed are 1 to 64", text);
        return 0;
    case OPTION_SECONDS:
        o->seconds = strtod(text, NULL);
        if (!(o->seconds > 0))
            argp_error(state, "--seconds %s: must be above 0", text);
        return 0;
    case OPTION_SEED:
        o->seed = strtoull(text, NULL, 10);
        return 0;
    case ARGP_KEY_ARGS:
        o->files = state->argv + state->next;
        o->num_files = state->argc - state->next;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp_option table[] = {
        {"tilings", OPTION_TILINGS, "N", 0, "tilings of N rectangles", 0},
        {"seeds", OPTION_SEEDS, "A:B", 0, "seeds of the tilings, 0:20 unless told", 0},
        {"side", OPTION_SIDE, "L", 0, "of the square that is cut, 2^20 unless told", 0},
        {"threads", OPTION_THREADS, "T", 0, "1 unless told", 0},
        {"seconds", OPTION_SECONDS, "S", 0, "at most, for an instance; 60 unless told", 0},
        {"seed", OPTION_SEED, "R", 0, "of the search", 0},
        {0}};
    static const struct argp argp = {
        table, parse, "[FILE...]", "Does an instance fit into its largest load?", NULL, NULL, NULL};
    options o = {.num_threads = 1, .end_seed = 20, .side = UINT64_C(1) << 20, .seconds = 60};
    argp_err_exit_status = EXIT_USAGE;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    bool are_all = true;
    for (int i = 0; i < o.num_files; i++) {
        instance read = read_instance(o.files[i]);
        are_all &= run(&read, &o);
        free_instance(&read);
    }
    for (uint64_t seed = o.first_seed; o.num_tiles > 0 && seed < o.end_seed; seed++) {
        instance tiles = tile_instance(&o, seed);
        are_all &= run(&tiles, &o);
        free_instance(&tiles);
    }
    return are_all ? EXIT_SUCCESS : EXIT_NOT_ALL;
}
