/* Instances of the planner from files and from traces, for tests. */
#ifndef PAGESTASH_TESTS_PLAN_INSTANCE_H
#define PAGESTASH_TESTS_PLAN_INSTANCE_H

#include <pagestash/pagestash.h>

#include <stdio.h>
#include <stdlib.h>

#include "tests/harness.h"

static inline ptrdiff_t instance_read(void *file, void *buffer, size_t bytes)
{
    return (ptrdiff_t)fread(buffer, 1, bytes, file);
}

static inline pst_trace *instance_open(char letter)
{
    char path[512];
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    pst_trace *trace = NULL;
    snprintf(path, sizeof(path), "%s/minimalloc/%c.1048576.csv", PSTI_TEST_DATA, letter);
    FILE *file = fopen(path, "rb");
    config.format = PST_TRACE_MINIMALLOC;
    config.name = path;
    if (file == NULL || pst_trace_read(&config, instance_read, file, &trace) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s cannot be read", path);
    if (file != NULL)
        fclose(file);
    return trace;
}

/* MiniMalloc's instances of these letters, one after the other in time. The caller frees the tensors. */
static inline uint64_t instance_read_all(const char *letters, pst_plan_tensor **tensors_out)
{
    uint64_t num = 0;
    uint64_t after = 0;
    pst_plan_tensor *tensors = calloc(8192, sizeof(*tensors));
    for (; *letters != '\0' && !psti_test_failed(); letters++) {
        pst_trace *trace = instance_open(*letters);
        const pst_trace_tensor *from = pst_trace_tensors(trace);
        uint64_t last = 0;
        for (uint64_t i = 0; i < pst_trace_num_tensors(trace); i++) {
            tensors[num++] = (pst_plan_tensor){.bytes = from[i].bytes,
                                               .begin = after + from[i].begin_time,
                                               .end = after + from[i].end_time,
                                               .pin = PST_PLAN_FREE,
                                               .block = PST_PLAN_NO_BLOCK};
            last = from[i].end_time > last ? from[i].end_time : last;
        }
        after += last;
        pst_trace_destroy(trace);
    }
    *tensors_out = tensors;
    return num;
}

/* Plans a trace of one stream and passes the plan through the judge. Returns how many tensors. */
static inline uint64_t instance_plan_trace(const pst_trace *trace, const pst_plan_config *config,
                                           pst_plan *plan_out)
{
    const pst_trace_tensor *from = pst_trace_tensors(trace);
    const uint64_t num = pst_trace_num_tensors(trace);
    pst_plan_problem problem = PST_PLAN_PROBLEM_INIT;
    pst_plan_tensor *tensors = calloc(num + 1, sizeof(*tensors));
    uint64_t *offsets = calloc(num + 1, sizeof(*offsets));
    pst_plan_fault fault = {PST_PLAN_OVERLAP, 0, 0};
    uint64_t peak = 0;
    for (uint64_t i = 0; i < num; i++)
        tensors[i] = (pst_plan_tensor){.bytes = from[i].bytes,
                                       .begin = from[i].begin,
                                       .end = from[i].end,
                                       .pin = PST_PLAN_FREE,
                                       .block = PST_PLAN_NO_BLOCK};
    problem.tensors = tensors;
    problem.num_tensors = num;
    if (pst_plan_run(&problem, config, offsets, plan_out) != PST_OK ||
        pst_plan_check(&problem, offsets, &fault, &peak) != PST_OK ||
        fault.kind != PST_PLAN_RIGHT || peak != plan_out->peak)
        psti_test_fail(__FILE__, __LINE__, "the plan is wrong: %s", pst_last_message());
    free(offsets);
    free(tensors);
    return num;
}

#endif
