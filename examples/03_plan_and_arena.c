/* Computes addresses for the tensors of a transformer's iteration ahead, and runs an iteration with
 * them: every malloc gives the planned address, and nothing is searched for. */
#include <pagestash/pagestash.h>

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

static void *need(void *memory)
{
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

/* One row for each request of the trace, with the planned address. */
static pst_plan_file *make_file(const pst_trace *trace, const uint64_t *offsets)
{
    const pst_trace_request *requests = pst_trace_rows(trace);
    const uint64_t num = pst_trace_num_rows(trace);
    pst_plan_row *rows = need(calloc(num, sizeof(*rows)));
    uint64_t tensor = 0;
    for (uint64_t k = 0; k < num; k++) {
        rows[k] = (pst_plan_row){.line = k + 1, .id = requests[k].id, .op = PST_PLAN_OP_FREE};
        if (requests[k].op == PST_TRACE_MALLOC) {
            rows[k].op = PST_PLAN_OP_MALLOC;
            rows[k].bytes = requests[k].bytes;
            rows[k].offset = offsets[tensor++];
        }
    }
    pst_plan_file *file = NULL;
    CHECK(pst_plan_file_make(rows, num, &file));
    free(rows);
    return file;
}

/* What the application does in an iteration: here, the trace again. */
static void run_iteration(pst_arena *arena, const pst_trace *trace, void **addresses)
{
    const pst_trace_request *requests = pst_trace_rows(trace);
    CHECK(pst_arena_iteration(arena));
    for (uint64_t k = 0; k < pst_trace_num_rows(trace); k++)
        if (requests[k].op == PST_TRACE_MALLOC)
            CHECK(pst_arena_malloc(arena, requests[k].bytes, &addresses[requests[k].id], NULL));
        else
            CHECK(pst_arena_free(arena, addresses[requests[k].id], NULL));
}

int main(int argc, char **argv)
{
    /* a small model, from formulas; an application records its own trace */
    pst_trace_derivation model = PST_TRACE_DERIVATION_INIT;
    model.sequence_size = 1024;
    model.hidden_size = 256;
    model.vocab_size = 1000;
    model.num_layers = 4;
    pst_trace *trace = NULL;
    CHECK(pst_trace_derive(&model, &trace));

    const uint64_t num = pst_trace_num_tensors(trace);
    const pst_trace_tensor *from = pst_trace_tensors(trace);
    pst_plan_tensor *tensors = need(calloc(num, sizeof(*tensors)));
    uint64_t *offsets = need(calloc(num, sizeof(*offsets)));
    uint64_t most_id = 0;
    for (uint64_t i = 0; i < num; i++) {
        tensors[i] = (pst_plan_tensor){.bytes = from[i].bytes,
                                       .begin = from[i].begin,
                                       .end = from[i].end,
                                       .pin = PST_PLAN_FREE,
                                       .block = PST_PLAN_NO_BLOCK};
        most_id = from[i].id > most_id ? from[i].id : most_id;
    }

    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    problem.tensors = tensors;
    problem.num_tensors = num;
    const pst_plan_config config = PST_PLAN_CONFIG_INIT;
    pst_plan plan;
    CHECK(pst_plan_run(&problem, &config, offsets, &plan));
    printf("%llu tensors, peak %llu bytes, %s\n", (unsigned long long)num,
           (unsigned long long)plan.peak, pst_plan_status_name(plan.status));

    pst_device *device = NULL;
    pst_arena *arena = NULL;
    CHECK(pst_device_open(argc > 1 ? argv[1] : "auto", 0, &device));
    pst_plan_file *file = make_file(trace, offsets);
    CHECK(pst_arena_create(device, file, NULL, &arena));
    void **addresses = need(calloc(most_id + 1, sizeof(*addresses)));
    for (int iteration = 0; iteration < 3; iteration++)
        run_iteration(arena, trace, addresses);

    pst_arena_stats stats;
    CHECK(pst_arena_get_stats(arena, &stats));
    printf("%llu of %llu requests at planned addresses, arena of %llu bytes\n",
           (unsigned long long)stats.planned, (unsigned long long)stats.requests,
           (unsigned long long)stats.arena_bytes);
    const int failed = stats.planned != stats.requests || plan.status != PST_PLAN_OPTIMAL;

    CHECK(pst_arena_destroy(arena));
    pst_plan_file_destroy(file);
    pst_trace_destroy(trace);
    CHECK(pst_device_close(device));
    free(addresses);
    free(tensors);
    free(offsets);
    return failed;
}
