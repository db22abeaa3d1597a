/* The rows of a trace in a few bytes each, as they differ from the row before; most are never asked for. */
#include "host/trace/trace.h"

#include <string.h>

/* Fields that are not as the row before lets expect; they follow in this order. */
enum {
    LINE = 1,
    ID = 2,
    BYTES = 4,
    STREAM = 8,
    LAYER = 16,
    MICRO_BATCH = 32,
    RANK = 64,
    TIME = 128
};

enum { MOST_BYTES = 2 + 8 * 10 };

_Static_assert(PST_TRACE_MARK < 4 && PST_NUM_TAGS <= 8 && PST_NUM_PHASES <= 8,
               "op, tag and phase are one byte");

/* 7 bits a byte, the lowest first. */
static void put(psti_rows *rows, uint64_t value)
{
    for (; value >= 128; value >>= 7)
        rows->bytes[rows->num_bytes++] = (unsigned char)(value | 128);
    rows->bytes[rows->num_bytes++] = (unsigned char)value;
}

static uint64_t take(const unsigned char **at)
{
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        const unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return value;
    }
}

/* Small where the difference is small, also downwards. */
static uint64_t fold(uint64_t difference)
{
    return difference << 1 ^ (0 - (difference >> 63));
}

static uint64_t unfold(uint64_t folded)
{
    return folded >> 1 ^ (0 - (folded & 1));
}

static void put_if(psti_rows *rows, unsigned fields, unsigned field, uint64_t value)
{
    if ((fields & field) != 0)
        put(rows, value);
}

pst_status psti_rows_add(psti_rows *rows, const pst_trace_request *row)
{
    const pst_trace_request *last = &rows->last;
    const unsigned fields = (row->line != last->line + 1) * LINE | (row->id != last->id + 1) * ID |
                            (row->bytes != 0) * BYTES | (row->stream != last->stream) * STREAM |
                            (row->layer != last->layer) * LAYER |
                            (row->micro_batch != last->micro_batch) * MICRO_BATCH |
                            (row->rank != last->rank) * RANK | (row->time != last->time) * TIME;
    PSTI_TRY(psti_grow((void **)&rows->bytes, &rows->capacity, rows->num_bytes + MOST_BYTES, 1));
    rows->bytes[rows->num_bytes++] = (unsigned char)(row->op | row->tag << 2 | row->phase << 5);
    rows->bytes[rows->num_bytes++] = (unsigned char)fields;
    put_if(rows, fields, LINE, fold(row->line - last->line));
    put_if(rows, fields, ID, fold(row->id - last->id));
    put_if(rows, fields, BYTES, row->bytes);
    put_if(rows, fields, STREAM, row->stream);
    put_if(rows, fields, LAYER, row->layer);
    put_if(rows, fields, MICRO_BATCH, row->micro_batch);
    put_if(rows, fields, RANK, row->rank);
    put_if(rows, fields, TIME, fold(row->time - last->time));
    rows->last = *row;
    rows->num++;
    return PST_OK;
}

void psti_rows_free(psti_rows *rows)
{
    psti_free(rows->bytes);
    *rows = (psti_rows){.bytes = NULL};
}

bool psti_rows_next(psti_rows_reader *reader)
{
    pst_trace_request *row = &reader->row;
    if (reader->num == reader->of->num)
        return false;
    const unsigned char *at = reader->of->bytes + reader->at;
    const unsigned kind = *at++;
    const unsigned fields = *at++;
    row->op = kind % 4;
    row->tag = kind / 4 % 8;
    row->phase = (uint8_t)(kind / 32);
    row->line += (fields & LINE) != 0 ? unfold(take(&at)) : 1;
    row->id += (fields & ID) != 0 ? unfold(take(&at)) : 1;
    row->bytes = (fields & BYTES) != 0 ? take(&at) : 0;
    row->stream = (fields & STREAM) != 0 ? (uint32_t)take(&at) : row->stream;
    row->layer = (fields & LAYER) != 0 ? (uint32_t)take(&at) : row->layer;
    row->micro_batch = (fields & MICRO_BATCH) != 0 ? (uint32_t)take(&at) : row->micro_batch;
    row->rank = (fields & RANK) != 0 ? (uint32_t)take(&at) : row->rank;
    row->time += (fields & TIME) != 0 ? unfold(take(&at)) : 0;
    reader->at = (uint64_t)(at - reader->of->bytes);
    reader->num++;
    return true;
}

const pst_trace_request *pst_trace_rows(const pst_trace *trace)
{
    if (!psti_handle_is(trace, PSTI_KIND_TRACE))
        return NULL;
    pst_trace_request **slot = &((pst_trace *)trace)->unpacked; /* whoever asks first fills it */
    pst_trace_request *rows = __atomic_load_n(slot, __ATOMIC_ACQUIRE);
    if (rows != NULL || trace->rows.num == 0)
        return rows;
    pst_trace_request *own = psti_calloc((size_t)trace->rows.num, sizeof(*own));
    psti_rows_reader reader = {.of = &trace->rows};
    if (own == NULL) {
        (void)PSTI_FAIL(PST_E_NOMEM, "out of memory for %llu rows",
                        (unsigned long long)trace->rows.num);
        return NULL;
    }
    while (psti_rows_next(&reader))
        own[reader.num - 1] = reader.row;
    if (__atomic_compare_exchange_n(slot, &rows, own, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        return own;
    psti_free(own);
    return rows;
}
