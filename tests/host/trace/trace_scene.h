/* What the tests of traces share: text as a source of bytes, in pieces of any size. */
#ifndef PAGESTASH_TESTS_TRACE_SCENE_H
#define PAGESTASH_TESTS_TRACE_SCENE_H

#include <stdio.h>
#include <stdlib.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/bytes.h"
#include "tests/harness.h"

#define CSV_HEADER "op,id,size,stream,phase,layer,micro_batch,rank,tag\n"

static inline pst_trace_config config_of(pst_trace_format format)
{
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    config.format = format;
    config.name = "t";
    return config;
}

static inline pst_status read_text(const pst_trace_config *config, const char *text,
                                   pst_trace **trace_out)
{
    byte_source source = {text, strlen(text), 0, 0};
    return pst_trace_read(config, read_bytes, &source, trace_out);
}

/* The text must be refused with a message that begins with `message`. */
static inline void refuses_text(const pst_trace_config *config, const char *text,
                                const char *message)
{
    pst_trace *const none = (pst_trace *)(uintptr_t)1;
    pst_trace *trace = none;
    const pst_status status = read_text(config, text, &trace);
    const char *last = pst_last_message();
    if (status == PST_OK)
        pst_trace_destroy(trace);
    CHECK_MSG(status == PST_E_INVALID && trace == none, "%s is %s", text, pst_status_name(status));
    CHECK_MSG(strncmp(last, message, strlen(message)) == 0, "%s: \"%s\" is not \"%s\"", text, last,
              message);
    CHECK(strchr(last, '\n') == NULL);
}

typedef struct refusal {
    const char *text, *message;
} refusal;

static inline void refuses_each(const pst_trace_config *config, const refusal *cases, size_t num)
{
    for (size_t i = 0; i < num; i++)
        refuses_text(config, cases[i].text, cases[i].message);
}
#define REFUSES_EACH(config, cases) refuses_each(config, cases, sizeof(cases) / sizeof((cases)[0]))

/* "+7:100 -7 ..." for a trace: mallocs with id and bytes, frees, marks. */
static inline void describe(const pst_trace *trace, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint64_t i = 0; i < pst_trace_num_rows(trace) && used < room; i++) {
        const pst_trace_request *row = &pst_trace_rows(trace)[i];
        const char *space = i > 0 ? " " : "";
        if (row->op == PST_TRACE_MALLOC)
            used += (size_t)snprintf(out + used, room - used, "%s+%llu:%llu", space,
                                     (unsigned long long)row->id, (unsigned long long)row->bytes);
        else
            used += (size_t)snprintf(out + used, room - used, "%s%c%llu", space,
                                     row->op == PST_TRACE_FREE ? '-' : '#',
                                     (unsigned long long)row->id);
    }
}

/* What the text says, as describe() shows it. */
static inline void reads_as(const pst_trace_config *config, const char *text, const char *expected)
{
    pst_trace *trace = NULL;
    char shown[2048];
    CHECK_OK(read_text(config, text, &trace));
    describe(trace, shown, sizeof(shown));
    pst_trace_destroy(trace);
    CHECK_MSG(strcmp(shown, expected) == 0, "%s: \"%s\" is not \"%s\"", text, shown, expected);
}

/* Makes a trace until no allocation fails; every failure is said, and leaves nothing behind. */
static inline void survives_failures(pst_status (*make)(const void *from, pst_trace **trace_out),
                                     const void *from, int fewest)
{
    for (int n = 0;; n++) {
        pst_trace *trace = NULL;
        psti_fail_allocation_after(n);
        const pst_status status = make(from, &trace);
        psti_fail_allocation_after(-1);
        if (status == PST_OK) {
            pst_trace_destroy(trace);
            CHECK_MSG(n >= fewest, "only %d allocations", n);
            return;
        }
        CHECK_STATUS(status, PST_E_NOMEM);
        CHECK(trace == NULL && n < 1000);
    }
}

/* The example of MEMO's paper: 12 tensors, sizes in MB. */
static const char papers_example[] __attribute__((unused)) =
    "malloc 13 128\nmalloc 14 128\nfree 14\nmalloc 15 256\nfree 13\nmalloc 16 512\n"
    "malloc 17 128\nmalloc 18 128\nmalloc 19 256\nfree 17\nfree 19\nfree 18\nmalloc 20 512\n"
    "free 20\nmalloc 21 1024\nmalloc 22 256\nfree 15\nmalloc 23 128\nmalloc 24 512\nfree 21\n"
    "free 22\nfree 23\nfree 24\nfree 16\n";

#endif
