/* Packed rows come back as they were. */
#include "host/trace/trace.h"
#include "tests/harness.h"

static uint64_t value_of(uint64_t *random)
{
    *random = psti_mix(*random);
    return *random >> (*random % 64); /* of any number of bits */
}

static pst_trace_request row_of(uint64_t *random)
{
    pst_trace_request row = {.line = value_of(random), .id = value_of(random)};
    row.bytes = *random % 3 == 0 ? 0 : value_of(random);
    row.stream = (uint32_t)value_of(random);
    row.layer = *random % 4 == 0 ? PST_TRACE_NONE : (uint32_t)value_of(random) % 5;
    row.micro_batch = *random % 4 == 0 ? PST_TRACE_NONE : (uint32_t)value_of(random);
    row.rank = (uint32_t)value_of(random) % 3;
    row.op = (uint8_t)value_of(random) % (PST_TRACE_MARK + 1);
    row.phase = (uint8_t)value_of(random) % PST_NUM_PHASES;
    row.tag = (uint8_t)value_of(random) % PST_NUM_TAGS;
    row.time = *random % 2 == 0 ? 0 : value_of(random);
    return row;
}

static bool are_same(const pst_trace_request *a, const pst_trace_request *b)
{
    return a->line == b->line && a->id == b->id && a->bytes == b->bytes && a->stream == b->stream &&
           a->layer == b->layer && a->micro_batch == b->micro_batch && a->rank == b->rank &&
           a->op == b->op && a->phase == b->phase && a->tag == b->tag && a->time == b->time;
}

PST_TEST(TraceRows, ComeBackAsTheyWere)
{
    enum { N = 20000 };
    static pst_trace_request rows[N];
    psti_rows packed = {.bytes = NULL};
    uint64_t random = 1;
    for (uint32_t i = 0; i < N; i++) {
        rows[i] = row_of(&random);
        if (i % 5 == 1) { /* as most rows are: the next line, the next id */
            rows[i] = rows[i - 1];
            rows[i].line++;
            rows[i].id++;
        }
        CHECK_OK(psti_rows_add(&packed, &rows[i]));
    }
    psti_rows_reader reader = {.of = &packed};
    for (uint32_t i = 0; i < N; i++)
        CHECK_MSG(psti_rows_next(&reader) && are_same(&reader.row, &rows[i]), "row %u", i);
    CHECK(!psti_rows_next(&reader));
    psti_rows_free(&packed);
}

/* What a recorded step takes: less than a quarter of a row in memory. */
PST_TEST(TraceRows, AreSmall)
{
    pst_trace_derivation derivation = PST_TRACE_DERIVATION_INIT;
    pst_trace *trace;
    derivation.full = true;
    CHECK_OK(pst_trace_derive(&derivation, &trace));
    CHECK_MSG(trace->rows.num_bytes < 14 * trace->rows.num, "%llu bytes for %llu rows",
              (unsigned long long)trace->rows.num_bytes, (unsigned long long)trace->rows.num);
    pst_trace_destroy(trace);
}

PST_TEST(TraceRows, WithoutMemoryThereAreNone)
{
    pst_trace_derivation derivation = PST_TRACE_DERIVATION_INIT;
    pst_trace *trace;
    derivation.part = PST_TRACE_LAYER_FORWARD;
    CHECK_OK(pst_trace_derive(&derivation, &trace));
    psti_fail_allocation_after(0);
    CHECK(pst_trace_rows(trace) == NULL);
    CHECK(strstr(pst_last_message(), "out of memory") != NULL);
    psti_fail_allocation_after(-1);
    const pst_trace_request *rows = pst_trace_rows(trace);
    CHECK(rows != NULL && rows == pst_trace_rows(trace));
    CHECK_EQ(rows[0].op, PST_TRACE_MALLOC);
    pst_trace_destroy(trace);
}
