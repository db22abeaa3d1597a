/* Which of the library's kinds has a given list. */
#include "host/schedule/schedule.h"

#include <inttypes.h>
#include <string.h>

#include "host/base/structs.h"

typedef struct search {
    const pst_schedule *list;
    pst_pass *passes; /* as many, of the kind that is tried */
    pst_schedule_config found;
} search;

static bool is_equal(const pst_pass *a, const pst_pass *b, uint64_t num)
{
    for (uint64_t n = 0; n < num; n++)
        if (a[n].kind != b[n].kind || a[n].chunk != b[n].chunk ||
            a[n].micro_batch != b[n].micro_batch || a[n].pairs != b[n].pairs)
            return false;
    return true;
}

/* AGAIN: no such schedule, or another list. Fails: NOMEM. */
static pst_status try_config(search *self, pst_schedule_config config)
{
    const uint64_t num_passes = self->list->num_passes;
    psti_pass_list list = {.passes = self->passes, .room = num_passes};
    if (!psti_schedule_resolve(&config, NULL) || psti_schedule_count(&config) != num_passes)
        return PST_E_AGAIN;
    PSTI_TRY(psti_schedule_generate(&config, &list));
    if (!is_equal(self->passes, self->list->passes, num_passes))
        return PST_E_AGAIN;
    self->found = config;
    return PST_OK;
}

/* Micro-batches that the first chunk runs before another has its turn. */
static uint32_t first_run(const pst_schedule *list)
{
    uint32_t run = 0;
    while (run < list->num_passes && list->passes[run].kind == PST_PASS_FORWARD &&
           list->passes[run].chunk == 0)
        run++;
    return run;
}

static pst_status try_interleaved(search *self, pst_schedule_config config)
{
    config.group = first_run(self->list);
    const pst_status status = try_config(self, config);
    if (status != PST_E_AGAIN)
        return status;
    config.overlaps_exchange = true;
    return try_config(self, config);
}

/* Most micro-batches between their first forward and their last backward of any chunk. */
static uint32_t most_in_flight(const pst_schedule *list)
{
    uint32_t most = 0, begun = 0, ended = 0;
    for (uint64_t n = 0; n < list->num_passes; n++) {
        const pst_pass *pass = &list->passes[n];
        begun += pass->kind == PST_PASS_FORWARD && pass->chunk == 0;
        most = begun - ended > most ? begun - ended : most;
        uint64_t last = 0;
        for (uint32_t c = 0; c < list->num_chunks; c++) {
            const uint64_t end = psti_schedule_life(list, c, pass->micro_batch)->last_backward;
            last = end > last ? end : last;
        }
        ended += last == n;
    }
    return most;
}

/* First the usual limit. Another one shows in every rank's list, which a test holds. */
static pst_status try_zb_v(search *self, pst_schedule_config config)
{
    const pst_status status = try_config(self, config);
    if (status != PST_E_AGAIN || config.num_chunks != 2)
        return status;
    config.limit = most_in_flight(self->list);
    return try_config(self, config);
}

static pst_status try_kind(search *self, pst_schedule_kind kind)
{
    const pst_schedule *list = self->list;
    pst_schedule_config config = {.struct_size = sizeof(config),
                                  .kind = kind,
                                  .num_stages = list->config.num_stages,
                                  .stage = list->config.stage,
                                  .num_chunks = list->num_chunks,
                                  .num_micro_batches = list->config.num_micro_batches};
    switch (kind) {
    case PST_SCHEDULE_INTERLEAVED:
        return try_interleaved(self, config);
    case PST_SCHEDULE_ZB_V:
        return try_zb_v(self, config);
    case PST_SCHEDULE_DUALPIPE:
        config.num_micro_batches *= 2;
        return try_config(self, config);
    default:
        return try_config(self, config);
    }
}

/* AGAIN: none. Fails: NOMEM. */
static pst_status try_all(search *self)
{
    const pst_schedule *list = self->list;
    for (uint32_t c = 1; c < list->num_chunks; c++)
        if (list->chunks[c].num_micro_batches != list->chunks[0].num_micro_batches)
            return PST_E_AGAIN;
    pst_status status = PST_E_AGAIN;
    for (int kind = 0; status == PST_E_AGAIN && kind < PST_SCHEDULE_LIST; kind++)
        status = try_kind(self, (pst_schedule_kind)kind);
    return status;
}

static pst_status try_list(search *self)
{
    PSTI_CHECK(self->passes, PST_E_NOMEM, "out of memory for %" PRIu64 " passes",
               self->list->num_passes);
    const pst_status status = self->list->is_forward_only ? PST_E_AGAIN : try_all(self);
    PSTI_CHECK(status != PST_E_AGAIN, PST_E_AGAIN, "no kind has this list of %" PRIu64 " passes",
               self->list->num_passes);
    return status;
}

pst_status pst_schedule_recognise_sized(const pst_pass *passes, uint64_t num_passes,
                                        uint32_t num_stages, uint32_t stage,
                                        pst_schedule_config *config_out, size_t config_bytes)
{
    PSTI_CHECK(passes && config_out, PST_E_INVALID, "passes or config_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_schedule_config, config_bytes));
    const pst_schedule_config config = {.struct_size = sizeof(config),
                                        .kind = PST_SCHEDULE_LIST,
                                        .num_stages = num_stages,
                                        .stage = stage,
                                        .passes = passes,
                                        .num_passes = num_passes};
    pst_schedule *list = NULL;
    PSTI_TRY(pst_schedule_create(&config, &list));
    search self = {.list = list, .passes = psti_calloc(num_passes, sizeof(*self.passes))};
    const pst_status status = try_list(&self);
    if (status == PST_OK) {
        self.found.struct_size = config_bytes;
        memcpy(config_out, &self.found, config_bytes);
    }
    psti_free(self.passes);
    pst_schedule_destroy(list);
    return status;
}
