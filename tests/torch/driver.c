/* Does with libpagestash_torch.so what torch would do, by a script of trace rows:
 *
 *   driver LIBRARY SCRIPT [THREADS]
 *
 * Besides malloc, free and the marks `iteration` and `use` a script may say begin,ID end,ID and
 * release,ID of a graph's pool, reset, and replay,ID: the tensor's bytes are written again, be it
 * freed or not, as a captured graph would. Every block is filled when it is given out, and looked
 * at when it is freed or the script ends. Prints "ID OFFSET" for each malloc, with - for what is not
 * planned and null for what failed, then the figures. With a number of threads each runs the script
 * for itself, and only the figures are printed. Exit code: 1 if bytes differ, 2 usage.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pagestash_torch.h"

enum { MAX_IDS = 1 << 16, NUM_FIELDS = 9 };

typedef struct block {
    unsigned char *address;
    bool is_live;
    uint64_t bytes;
    pst_stream stream;
} block;

typedef struct library {
    void *(*malloc)(ssize_t, int, pst_stream);
    void (*free)(void *, ssize_t, int, pst_stream);
    void (*init)(int);
    void (*reset)(void);
    void (*fraction)(double, int);
    void (*record_stream)(void *, pst_stream);
    void (*begin)(int, pagestash_torch_pool, void *);
    void (*end)(int, pagestash_torch_pool);
    void (*release)(int, pagestash_torch_pool);
    int (*iteration)(void);
    int (*stats)(int, pagestash_torch_figures *);
    const char *(*deviation_name)(int);
} library;

static _Thread_local block *blocks; /* MAX_IDS */
static bool is_quiet;
static int bad; /* atomic */

static void leave(const char *what)
{
    fprintf(stderr, "driver: %s\n", what);
    exit(2);
}

#define FUNCTION(name, member)                             \
    {                                                      \
        "pagestash_torch_" name, offsetof(library, member) \
    }

static const struct {
    const char *name;
    size_t at; /* of the pointer in library */
} functions[] = {
    FUNCTION("malloc", malloc),
    FUNCTION("free", free),
    FUNCTION("init", init),
    FUNCTION("reset", reset),
    FUNCTION("memory_fraction", fraction),
    FUNCTION("record_stream", record_stream),
    FUNCTION("begin_pool", begin),
    FUNCTION("end_pool", end),
    FUNCTION("release_pool", release),
    FUNCTION("iteration", iteration),
    FUNCTION("stats", stats),
    FUNCTION("deviation_name", deviation_name),
};

static library open_library(const char *path)
{
    library lib;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        leave(dlerror());
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *address = dlsym(handle, functions[i].name);
        if (!address)
            leave(dlerror());
        memcpy((char *)&lib + functions[i].at, &address, sizeof(address));
    }
    return lib;
}

/* Stream 0 is the default one. */
static pst_stream stream_of(const char *number)
{
    const unsigned long stream = strtoul(number, NULL, 10);
    return (pst_stream)(stream == 0 ? 0 : (uintptr_t)0x5000 + 64 * stream);
}

static pagestash_torch_figures figures_of(const library *lib)
{
    pagestash_torch_figures figures = {.struct_size = sizeof(figures)};
    if (lib->stats(0, &figures) != PST_OK)
        leave("no figures");
    return figures;
}

static unsigned char pattern(uint64_t id, uint64_t at)
{
    return (unsigned char)(id * 37 + at / 64);
}

static void fill(uint64_t id)
{
    unsigned char *address = blocks[id].address;
    for (uint64_t i = 0; address && i < blocks[id].bytes; i++)
        address[i] = pattern(id, i);
}

static void look_at(uint64_t id)
{
    const block *what = &blocks[id];
    for (uint64_t i = 0; i < what->bytes; i++)
        if (what->address[i] != pattern(id, i)) {
            fprintf(stderr, "driver: tensor %" PRIu64 ": byte %" PRIu64 " differs\n", id, i);
            __atomic_store_n(&bad, 1, __ATOMIC_RELAXED);
            return;
        }
}

static void print_place(const library *lib, uint64_t id)
{
    const pagestash_torch_figures figures = figures_of(lib);
    const uint64_t address = (uint64_t)(uintptr_t)blocks[id].address;
    if (!address)
        printf("%" PRIu64 " null\n", id);
    else if (figures.base && address - figures.base < figures.arena_bytes)
        printf("%" PRIu64 " %" PRIu64 "\n", id, address - figures.base);
    else
        printf("%" PRIu64 " -\n", id);
}

static void ask(const library *lib, uint64_t id, uint64_t bytes, pst_stream stream)
{
    block *what = &blocks[id];
    *what = (block){lib->malloc((ssize_t)bytes, 0, stream), false, bytes, stream};
    what->is_live = what->address != NULL;
    if (!is_quiet)
        print_place(lib, id);
    if (what->is_live)
        fill(id);
}

static void run_row(const library *lib, char **fields)
{
    const char *op = fields[0];
    const uint64_t id = strtoull(fields[1], NULL, 10);
    const pagestash_torch_pool pool = {7, id};
    block *what = &blocks[id];
    if (id >= MAX_IDS)
        leave("id too large");
    if (strcmp(op, "malloc") == 0) {
        ask(lib, id, strtoull(fields[2], NULL, 10), stream_of(fields[3]));
    } else if (strcmp(op, "free") == 0 && what->is_live) {
        look_at(id);
        lib->free(what->address, (ssize_t)what->bytes, 0, what->stream);
        what->is_live = false;
    } else if (strcmp(op, "replay") == 0) {
        fill(id);
    } else if (strcmp(op, "mark") == 0 && strcmp(fields[8], "use") == 0) {
        lib->record_stream(what->address, stream_of(fields[3]));
    } else if (strcmp(op, "mark") == 0) {
        lib->iteration();
    } else if (strcmp(op, "begin") == 0) {
        lib->begin(0, pool, NULL);
    } else if (strcmp(op, "end") == 0) {
        lib->end(0, pool);
    } else if (strcmp(op, "release") == 0) {
        lib->release(0, pool);
    } else if (strcmp(op, "reset") == 0) {
        lib->reset();
    }
}

static void run_script(const library *lib, const char *path)
{
    char line[256];
    FILE *file = fopen(path, "r");
    if (!file || !fgets(line, sizeof(line), file))
        leave("no script");
    while (fgets(line, sizeof(line), file)) {
        char *fields[NUM_FIELDS];
        char *at = line;
        line[strcspn(line, "\r\n")] = '\0';
        for (int i = 0; i < NUM_FIELDS; i++) {
            fields[i] = at;
            at += strcspn(at, ",");
            if (*at)
                *at++ = '\0';
        }
        run_row(lib, fields);
    }
    fclose(file);
}

static void print_figures(const library *lib)
{
    const pagestash_torch_figures figures = figures_of(lib);
    printf("requests=%" PRIu64 "\nplanned=%" PRIu64 "\nlive=%" PRIu64 "\niterations=%" PRIu64 "\n",
           figures.requests, figures.planned, figures.live, figures.iterations);
    printf("arena_bytes=%" PRIu64 "\ntaken_bytes=%" PRIu64 "\nfailures=%" PRIu64 "\n",
           figures.arena_bytes, figures.taken_bytes, figures.failures);
    for (int i = 0; i < PST_NUM_DEVIATIONS; i++)
        printf("%s=%" PRIu64 "\n", lib->deviation_name(i), figures.deviations[i]);
    printf("first_deviation=%s\nlast_failure=%s\n", figures.first_deviation, figures.last_failure);
}

typedef struct job {
    const library *lib;
    const char *script;
} job;

static void *work(void *argument)
{
    const job *self = argument;
    blocks = calloc(MAX_IDS, sizeof(*blocks));
    if (!blocks)
        leave("out of memory");
    run_script(self->lib, self->script);
    for (uint64_t id = 0; id < MAX_IDS; id++)
        if (blocks[id].is_live)
            look_at(id);
    free(blocks);
    return NULL;
}

static void run_threads(job *self, int count)
{
    pthread_t threads[16];
    is_quiet = true;
    if (count < 1 || count > 16)
        leave("threads: 1 to 16");
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, self) != 0)
            leave("no thread");
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4)
        leave("usage: driver LIBRARY SCRIPT [THREADS]");
    const library lib = open_library(argv[1]);
    job self = {&lib, argv[2]};
    lib.init(1);
    lib.fraction(0.5, 0);
    if (argc == 4)
        run_threads(&self, atoi(argv[3]));
    else
        work(&self);
    print_figures(&lib);
    return bad;
}
