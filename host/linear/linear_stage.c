/* One call of a layer or block: its scope of the scratch, its leases, and the exchanges that it
 * has started. */
#include <stdio.h>

#include "host/linear/linear.h"

pst_status psti_stage_begin(psti_stage *stage, const pst_linear *linear, const char *place,
                            pst_stream stream)
{
    void *workspace = NULL;
    const uint64_t bytes = linear->config.workspace_bytes;
    *stage = (psti_stage){.linear = linear, .place = place, .stream = stream};
    PSTI_TRY(pst_scratch_scope_begin(linear->config.scratch, place));
    if (bytes == 0)
        return PST_OK;
    const pst_status status = psti_stage_lease(stage, PSTI_LENT_WORKSPACE, bytes, &workspace);
    return status == PST_OK ? PST_OK : psti_stage_end(stage, status);
}

/* What the first of several calls to fail has answered and said. */
typedef struct first_failure {
    pst_status status;
    char message[PSTI_MESSAGE_BYTES];
} first_failure;

static void note(first_failure *first, pst_status status)
{
    if (status == PST_OK || first->status != PST_OK)
        return;
    first->status = status;
    snprintf(first->message, sizeof(first->message), "%s", pst_last_message());
}

pst_status psti_stage_end(psti_stage *stage, pst_status status)
{
    first_failure first = {.status = PST_OK};
    note(&first, status);
    note(&first, psti_stage_finish(stage, stage->started));
    /* twice: a lease whose release was refused lives on */
    for (int i = 0; i < 2 * PSTI_NUM_LENT; i++)
        note(&first, psti_stage_release(stage, (psti_lent)(i % PSTI_NUM_LENT)));
    note(&first, pst_scratch_scope_end(stage->linear->config.scratch));
    if (first.status != PST_OK)
        psti_restore_message(first.message);
    return first.status;
}

pst_status psti_stage_lease(psti_stage *stage, psti_lent what, uint64_t bytes, void **address_out)
{
    pst_lease *lease = &stage->leases[what];
    PSTI_TRY(pst_scratch_lease(stage->linear->config.scratch, psti_lent_name(what), bytes,
                               stage->place, stage->stream, lease));
    *address_out = lease->address;
    return PST_OK;
}

pst_status psti_stage_release(psti_stage *stage, psti_lent what)
{
    pst_lease *lease = &stage->leases[what];
    if (lease->id == 0)
        return PST_OK;
    return pst_scratch_release(stage->linear->config.scratch, lease, stage->place, stage->stream);
}

static pst_exchange exchange_of(const psti_stage *stage, pst_exchange_kind kind, const void *from,
                                void *to, uint64_t count)
{
    pst_exchange exchange = PST_EXCHANGE_INIT;
    exchange.kind = kind;
    exchange.dtype = stage->linear->config.dtype;
    exchange.from = from;
    exchange.to = to;
    exchange.count = count;
    return exchange;
}

pst_status psti_stage_exchange(psti_stage *stage, pst_exchange_kind kind, const void *from,
                               void *to, uint64_t count)
{
    const pst_exchange exchange = exchange_of(stage, kind, from, to, count);
    return pst_comm_run(stage->linear->config.comm, &exchange, stage->stream);
}

pst_status psti_stage_start(psti_stage *stage, pst_exchange_kind kind, const void *from, void *to,
                            uint64_t count, uint64_t *number_out)
{
    const pst_exchange exchange = exchange_of(stage, kind, from, to, count);
    PSTI_TRY(pst_comm_start(stage->linear->config.comm, &exchange, stage->stream, number_out));
    stage->started = *number_out;
    return PST_OK;
}

pst_status psti_stage_finish(psti_stage *stage, uint64_t number)
{
    if (number <= stage->finished)
        return PST_OK;
    stage->finished = number; /* also where it fails: it is tried once */
    return pst_comm_finish(stage->linear->config.comm, number, stage->stream);
}
