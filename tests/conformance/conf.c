/* Runs each conformance test on every device, and what the suites share. */
#include "tests/conformance/conf.h"

#include <stdio.h>
#include <stdlib.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/conformance/conf_ptx.h"
#include "tests/conformance/conf_simt.h"
#include "tests/lazy/lazy_device.h"

typedef struct conf_device {
    const char *name;
    conf_kind kind;
    pst_backend backend;   /* of all launches; auto: as the library picks */
    unsigned architecture; /* of ptx */
} conf_device;

static const conf_device devices[] = {
    {"host", CONF_HOST, PST_BACKEND_AUTO, 0},
    {"lazy", CONF_LAZY, PST_BACKEND_AUTO, 0},
    {"simt", CONF_SIMT, PST_BACKEND_LDG, 0},
    {"simt_bulk", CONF_SIMT, PST_BACKEND_BULK, 0},
    {"simt_squeeze", CONF_SIMT, PST_BACKEND_SQUEEZE, 0},
    {"ptx80", CONF_PTX, PST_BACKEND_LDG, 80},
    {"ptx90", CONF_PTX, PST_BACKEND_LDG, 90},
    {"ptx90_bulk", CONF_PTX, PST_BACKEND_BULK, 90},
    {"ptx90_squeeze", CONF_PTX, PST_BACKEND_SQUEEZE, 90},
    {"ptx100", CONF_PTX, PST_BACKEND_LDG, 100},
    {"ptx100_bulk", CONF_PTX, PST_BACKEND_BULK, 100},
    {"ptx100_squeeze", CONF_PTX, PST_BACKEND_SQUEEZE, 100},
    {"cuda", CONF_CUDA, PST_BACKEND_LDG, 0},
    {"cuda_bulk", CONF_CUDA, PST_BACKEND_BULK, 0},
    {"cuda_squeeze", CONF_CUDA, PST_BACKEND_SQUEEZE, 0},
};

typedef struct registered {
    const conf_device *device;
    conf_body body;
} registered;

static uint64_t last_seed; /* of the running test's random cases; 0: it has none */

static pst_status open_device(const conf_device *wanted, pst_device **device_out)
{
    const ptx_options ptx = {.architecture = wanted->architecture};
    if (wanted->kind == CONF_SIMT)
        PSTI_TRY(conf_simt_open(device_out));
    else if (wanted->kind == CONF_PTX)
        PSTI_TRY(psti_ptx_device_open(&ptx, device_out));
    else
        PSTI_TRY(pst_device_open(wanted->kind == CONF_CUDA ? "cuda" : "host", 0, device_out));
    if (wanted->kind == CONF_LAZY)
        lazy_make(*device_out, NULL);
    if (wanted->backend == PST_BACKEND_AUTO)
        return PST_OK;
    if (!((*device_out)->info.backends & 1u << wanted->backend)) {
        pst_device_close(*device_out);
        return PST_E_UNSUPPORTED;
    }
    (*device_out)->preset = wanted->backend;
    return PST_OK;
}

static void run(void *opaque)
{
    const registered *test = opaque;
    const conf_kind kind = test->device->kind;
    conf_run conf = {.kind = kind, .is_slow = kind == CONF_SIMT || kind == CONF_PTX};
    const pst_status status = open_device(test->device, &conf.device);
    if (conf.kind == CONF_CUDA && status == PST_E_NO_DEVICE)
        pst_test_skip("no GPU");
    if (conf.kind == CONF_CUDA && status == PST_E_UNSUPPORTED)
        pst_test_skip("a GPU without this backend, or a build without CUDA");
    const char *all_tools = getenv("PSTI_TEST_ALL_TOOLS");
    if (kind == CONF_PTX && status == PST_E_NO_DEVICE &&
        !(all_tools && strcmp(all_tools, "1") == 0))
        pst_test_skip("no nvcc");
    CHECK_MSG(status == PST_OK, "%s", pst_last_message());
    last_seed = 0;
    test->body(&conf);
    CHECK_MSG(!psti_test_failed() || last_seed == 0, "in the random case of seed %llu",
              (unsigned long long)last_seed);
    if (!psti_test_failed()) /* BUSY: the test left something behind */
        CHECK_OK(pst_device_close(conf.device));
}

void conf_register(const char *file, int line, const char *suite, const char *name, conf_body body,
                   unsigned kinds)
{
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        if (!(kinds & 1u << devices[i].kind) || (PSTI_UNDER_TSAN && devices[i].kind == CONF_PTX))
            continue;
        char full[128];
        registered *test = malloc(sizeof(*test));
        if (!test)
            abort();
        *test = (registered){.device = &devices[i], .body = body};
        snprintf(full, sizeof(full), "%s/%s", suite, devices[i].name);
        psti_test_register_at(file, line, full, name, run, test);
    }
}

uint32_t conf_cases(const conf_run *conf, uint32_t cases)
{
    const uint32_t slower = (conf->kind == CONF_PTX    ? 8
                             : conf->kind == CONF_SIMT ? 2
                                                       : 1) *
                            (PSTI_UNDER_TSAN ? 20 : 1);
    const uint32_t all = cases > slower ? cases / slower : 1;
    return conf->kind == CONF_CUDA ? all : psti_test_cases(all);
}

uint64_t conf_bytes(const conf_run *conf, uint64_t bytes)
{
    return conf->is_slow ? bytes / (PSTI_UNDER_TSAN ? 4 : 2) : bytes;
}

void conf_vary(const conf_run *conf, uint64_t seed)
{
    static const uint32_t threads[] = {32, 64, 128, 96, 256};
    conf_vary_threads(conf, seed, threads[psti_mix(seed) / 24 % 5]);
}

void conf_vary_threads(const conf_run *conf, uint64_t seed, uint32_t threads)
{
    if (conf->kind == CONF_SIMT)
        conf_simt_vary(seed, threads);
    else if (conf->kind == CONF_PTX)
        conf_ptx_vary(seed);
    else if (conf->kind == CONF_LAZY)
        lazy_seed(conf->device, seed);
}

uint64_t conf_seed(uint32_t i)
{
    static uint64_t first;
    if (first == 0) {
        const char *text = getenv("PSTI_TEST_SEED");
        first = text ? strtoull(text, NULL, 0) : 1;
    }
    last_seed = first + i;
    return last_seed;
}

static void report(const char *file, int line, const char *text)
{
    psti_test_fail(file, line, "%s", text);
}

ls_options conf_options(pst_pool_mode mode, uint64_t num_pages, uint64_t seed)
{
    return (ls_options){.mode = mode, .num_pages = num_pages, .seed = seed, .report = report};
}

static void place(shape *made)
{
    oracle_group *group = &made->group;
    uint64_t at = 64;
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        group->at[t] = at;
        at +=
            oracle_stride(group, t) * oracle_num_segments(&group->spaces[group->tensors[t].space]);
        at = (at + 79) / 16 * 16;
    }
    made->arena_bytes = (size_t)at + 64;
}

shape conf_prefix_shape(uint32_t num_tensors, int64_t rows, uint64_t row_bytes)
{
    shape made = {.group = {.num_spaces = 1, .num_tensors = num_tensors}};
    made.group.spaces[0] =
        (pst_row_space){.kind = PST_ROWS_PREFIX, .count_type = PST_COUNT_INT32, .capacity = rows};
    for (uint32_t t = 0; t < num_tensors; t++)
        made.group.tensors[t] = (pst_tensor){.row_bytes = row_bytes};
    place(&made);
    return made;
}

shape conf_segments_shape(uint32_t segments, int64_t rows, uint64_t row_bytes)
{
    shape made = {.group = {.num_spaces = 1, .num_tensors = 1}};
    made.group.spaces[0] = (pst_row_space){.kind = PST_ROWS_SEGMENTS,
                                           .count_type = PST_COUNT_INT64,
                                           .capacity = rows,
                                           .num_segments = segments};
    made.group.tensors[0] = (pst_tensor){.row_bytes = row_bytes};
    place(&made);
    return made;
}

bool conf_pair_open(conf_pair *self, const conf_run *conf, const ls_options *options,
                    const shape *source, const shape *destination, uint32_t num_tickets)
{
    self->random = oracle_random_seeded(options->seed);
    if (!ls_open(&self->ls, conf->device, options))
        return false;
    ls_group_make(&self->ls, source, &self->random, &self->source);
    ls_group_make(&self->ls, destination ? destination : source, &self->random, &self->destination);
    for (uint32_t i = 0; i < num_tickets; i++)
        self->tickets[i] = ls_ticket_make(&self->ls, &self->source);
    return !self->ls.failed;
}

void conf_pair_close(conf_pair *self)
{
    ls_group_free(&self->ls, &self->source);
    ls_group_free(&self->ls, &self->destination);
    ls_close(&self->ls);
}

void conf_pair_stash(conf_pair *self, int ticket, int64_t rows)
{
    ls_group_fill(&self->ls, &self->source, &self->random);
    ls_group_set_counts(&self->ls, &self->source, &rows);
    ls_stash(&self->ls, self->tickets[ticket], &self->source);
}

void conf_pair_restore(conf_pair *self, int ticket, pst_restore_pages pages, pst_restore_tail tail)
{
    ls_group_poison(&self->ls, &self->destination, 0xcc);
    ls_restore(&self->ls, self->tickets[ticket], &self->destination, pages, tail);
}

void conf_in_both_modes(const conf_run *conf,
                        bool (*open)(conf_pair *self, const conf_run *conf, pst_pool_mode mode,
                                     uint64_t num_pages),
                        uint64_t num_pages, void (*body)(conf_pair *self))
{
    static conf_pair self;
    CONF_EACH_MODE (mode) {
        if (!open(&self, conf, mode, num_pages))
            return;
        body(&self);
        if (psti_test_failed())
            return;
        conf_pair_close(&self);
    }
}

void conf_graph_begin(lockstep *ls)
{
    LS_TRY(pst_graph_begin(ls->device, ls->stream));
}

pst_graph *conf_graph_end(lockstep *ls)
{
    pst_graph *graph = NULL;
    LS_TRY(pst_graph_end(ls->device, ls->stream, &graph));
    return graph;
}

void conf_graph_destroy(lockstep *ls, pst_graph *graph)
{
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    LS_TRY(pst_graph_destroy(graph));
}
