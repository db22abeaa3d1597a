/* What the tests of traces share: text as a source of bytes, in pieces of any size. */
#ifndef PAGESTASH_TESTS_TRACE_SCENE_H
#define PAGESTASH_TESTS_TRACE_SCENE_H

#include <stdio.h>
#include <stdlib.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/harness.h"

#define CSV_HEADER "op,id,size,stream,phase,layer,micro_batch,rank,tag\n"

typedef struct bytes {
    const char *data;
    size_t left, piece; /* 0: as many as are asked for */
    int error;          /* what the read after the last byte gives */
} bytes;

static ptrdiff_t read_bytes(void *source, void *buffer, size_t room)
{
    bytes *from = source;
    size_t length = from->left < room ? from->left : room;
    if (from->piece != 0 && length > from->piece)
        length = from->piece;
    if (length > 0)
        memcpy(buffer, from->data, length);
    from->data += length;
    from->left -= length;
    return length == 0 && room > 0 ? -from->error : (ptrdiff_t)length;
}

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
    bytes source = {text, strlen(text), 0, 0};
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

#endif
