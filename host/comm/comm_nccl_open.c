/* Communicators of NCCL: made, taken over, let go. */
#include <inttypes.h>
#include <stdio.h>

#include "host/comm/comm_nccl.h"

#define NUM_EVENTS (PST_COMM_MAX_STARTED + 1)

/* ---- what a communicator has beside NCCL's ---- */

static void free_parts(pst_comm *comm)
{
    psti_nccl_rank *self = comm->nccl;
    for (int i = 0; i < NUM_EVENTS; i++)
        (void)psti_part_event_destroy(comm->device, self->left[i]);
    (void)psti_part_event_destroy(comm->device, self->came);
    (void)psti_part_stream_destroy(comm->device, self->side);
    pthread_mutex_destroy(&self->lock);
    psti_free(self);
    comm->nccl = NULL;
}

static pst_status make_parts(pst_comm *comm, const psti_nccl *nccl, uint32_t timeout_ms)
{
    psti_nccl_rank *self = psti_calloc(1, sizeof(*self));
    PSTI_CHECK(self, PST_E_NOMEM, "no memory for a communicator");
    self->nccl = *nccl;
    self->timeout_ms = timeout_ms;
    pthread_mutex_init(&self->lock, NULL);
    comm->nccl = self;
    pst_status status = psti_part_stream_create(comm->device, &self->side);
    if (status == PST_OK)
        status = psti_part_event_create(comm->device, &self->came);
    for (int i = 0; status == PST_OK && i < NUM_EVENTS; i++)
        status = psti_part_event_create(comm->device, &self->left[i]);
    if (status != PST_OK)
        free_parts(comm);
    return status;
}

/* ---- the library's own ---- */

pst_status psti_nccl_make_id(pst_comm_id *id_out)
{
    psti_nccl nccl;
    pst_comm_id id;
    PSTI_TRY(psti_nccl_find(true, &nccl));
    PSTI_TRY(psti_nccl_translate(&nccl, nccl.get_unique_id(&id), NULL, "ncclGetUniqueId"));
    *id_out = id;
    return PST_OK;
}

typedef struct init_args {
    psti_nccl_rank *self;
    const pst_comm_config *config;
} init_args;

/* NCCL makes a communicator of the device that is the current one. */
static pst_status init(const void *opaque)
{
    const init_args *args = opaque;
    psti_nccl_rank *self = args->self;
    psti_nccl_config config = PSTI_NCCL_CONFIG_INIT;
    const psti_nccl_result result = self->nccl.comm_init_rank_config(
        &self->comm, args->config->num_ranks, args->config->id, args->config->rank, &config);
    return psti_nccl_translate(&self->nccl, result, NULL, "ncclCommInitRankConfig");
}

static void end_own(pst_comm *comm)
{
    psti_nccl_rank *self = comm->nccl;
    if (!self->comm)
        return;
    bool ended = !self->failed && !psti_nccl_failed(self->nccl.comm_finalize(self->comm)) &&
                 psti_nccl_settle(comm, "ncclCommFinalize") == PST_OK;
    ended = ended && !psti_nccl_failed(self->nccl.comm_destroy(self->comm));
    if (!ended)
        (void)self->nccl.comm_abort(self->comm);
    self->comm = NULL;
}

pst_status psti_nccl_open(pst_comm *comm, const pst_comm_config *config)
{
    psti_nccl nccl;
    pst_device *device = comm->device;
    PSTI_TRY(psti_nccl_find(true, &nccl));
    PSTI_CHECK(
        nccl.comm_init_rank_config && nccl.comm_finalize, PST_E_UNSUPPORTED,
        "PAGESTASH_NCCL_LIBRARY='%.256s' has no ncclCommInitRankConfig, which came with NCCL "
        "2.14: pst_comm_adopt takes a communicator that the program has made",
        psti_env_text("PAGESTASH_NCCL_LIBRARY"));
    PSTI_TRY(make_parts(comm, &nccl, config->timeout_ms));
    comm->nccl->is_own = true;
    const init_args args = {comm->nccl, config};
    pst_status status = device->ops->within(device, init, &args);
    if (status == PST_OK)
        status = psti_nccl_settle(comm, "ncclCommInitRankConfig, to which all ranks must come,");
    if (status == PST_OK)
        status = psti_nccl_check_device(&nccl, device, comm->nccl->comm);
    if (status == PST_OK)
        return PST_OK;
    comm->nccl->failed = true; /* not to be finalized */
    end_own(comm);
    free_parts(comm);
    return status;
}

/* ---- the caller's ---- */

static pst_status read_given(pst_comm *comm, pst_nccl_comm given)
{
    const psti_nccl *nccl = &comm->nccl->nccl;
    comm->nccl->comm = given;
    PSTI_TRY(psti_nccl_check_device(nccl, comm->device, given));
    PSTI_TRY(psti_nccl_translate(nccl, nccl->comm_count(given, &comm->info.num_ranks), given,
                                 "ncclCommCount"));
    PSTI_TRY(psti_nccl_translate(nccl, nccl->comm_user_rank(given, &comm->info.rank), given,
                                 "ncclCommUserRank"));
    PSTI_CHECK(comm->info.num_ranks <= PST_COMM_MAX_RANKS, PST_E_INVALID,
               "comm has %d ranks: allowed are 1 to %d", comm->info.num_ranks, PST_COMM_MAX_RANKS);
    return PST_OK;
}

pst_status psti_nccl_adopt(pst_comm *comm, pst_nccl_comm given, uint32_t timeout_ms)
{
    psti_nccl nccl;
    PSTI_TRY(psti_nccl_find(false, &nccl));
    PSTI_TRY(make_parts(comm, &nccl, timeout_ms));
    const pst_status status = read_given(comm, given);
    if (status != PST_OK)
        free_parts(comm);
    return status;
}

void psti_nccl_close(pst_comm *comm)
{
    if (comm->nccl->is_own)
        end_own(comm);
    free_parts(comm);
}
