/* Schedules: from a config to an immutable list, and what can be asked of it. */
#include "host/schedule/schedule.h"

#include <inttypes.h>
#include <string.h>

#include "host/base/structs.h"
#include "kernels/core/mix.h"

/* ---- making ---- */

/* Of what all stages of a pipeline share. */
static uint64_t digest_of(const pst_schedule_config *config)
{
    const uint64_t shared[] = {(uint64_t)config->kind, config->num_stages,
                               config->num_chunks,     config->num_micro_batches,
                               config->group,          config->overlaps_exchange,
                               config->limit};
    uint64_t digest = 0;
    for (size_t i = 0; i < sizeof(shared) / sizeof(shared[0]); i++)
        digest = psti_mix(digest ^ shared[i]);
    return digest;
}

/* Fields of a pass that the library does not know become 0. */
static void copy_passes(const pst_schedule_config *config, pst_pass *passes)
{
    for (uint64_t n = 0; n < config->num_passes; n++) {
        const pst_pass *pass = &config->passes[n];
        passes[n] = (pst_pass){.micro_batch = pass->micro_batch,
                               .chunk = pass->chunk,
                               .kind = pass->kind,
                               .pairs = pass->pairs};
    }
}

static pst_status make_passes(pst_schedule *self, const pst_schedule_config *config)
{
    const bool is_list = config->kind == PST_SCHEDULE_LIST;
    psti_pass_list list = {.room = is_list ? config->num_passes : psti_schedule_count(config)};
    self->passes = list.passes = psti_calloc(list.room, sizeof(*list.passes));
    PSTI_CHECK(list.passes, PST_E_NOMEM, "out of memory for %" PRIu64 " passes", list.room);
    self->num_passes = list.room;
    if (!is_list)
        return psti_schedule_generate(config, &list);
    copy_passes(config, list.passes);
    return PST_OK;
}

/* The number of micro-batches of a list is the most that a chunk has. */
static pst_status count_micro_batches(pst_schedule *self)
{
    uint32_t most = 0, *said = &self->config.num_micro_batches;
    for (uint32_t c = 0; c < self->num_chunks; c++)
        most = self->chunks[c].num_micro_batches > most ? self->chunks[c].num_micro_batches : most;
    PSTI_CHECK(*said == 0 || *said == most, PST_E_INVALID,
               "num_micro_batches %" PRIu32 ": the list has %" PRIu32, *said, most);
    *said = most;
    self->config.num_chunks = self->num_chunks;
    return PST_OK;
}

static pst_status fill(pst_schedule *self, const pst_schedule_config *config)
{
    self->config = *config;
    self->config.passes = NULL;
    self->config.num_passes = 0;
    PSTI_TRY(make_passes(self, config));
    PSTI_TRY(psti_schedule_index(self));
    if (config->kind == PST_SCHEDULE_LIST)
        PSTI_TRY(count_micro_batches(self));
    PSTI_TRY(psti_schedule_color(self));
    self->info.num_passes = self->num_passes;
    self->info.splits_backward = self->splits_backward;
    self->info.is_forward_only = self->is_forward_only;
    self->info.digest = digest_of(&self->config);
    self->info.config = self->config;
    return PST_OK;
}

pst_status pst_schedule_create(const pst_schedule_config *given, pst_schedule **schedule_out)
{
    PSTI_CHECK(given && schedule_out, PST_E_INVALID, "config or schedule_out is NULL");
    PSTI_TAKE(pst_schedule_config, config, given);
    char why[PSTI_REFUSAL_BYTES];
    PSTI_CHECK(psti_schedule_resolve(&config, why), PST_E_INVALID, "%s", why);
    pst_schedule *self = psti_handle_new(sizeof(*self), PSTI_KIND_SCHEDULE);
    PSTI_CHECK(self, PST_E_NOMEM, "out of memory for a schedule");
    const pst_status status = fill(self, &config);
    if (status != PST_OK) {
        pst_schedule_destroy(self);
        return status;
    }
    *schedule_out = self;
    return PST_OK;
}

void pst_schedule_destroy(pst_schedule *schedule)
{
    if (!psti_handle_is(schedule, PSTI_KIND_SCHEDULE))
        return;
    psti_free(schedule->passes);
    psti_free(schedule->chunks);
    psti_free(schedule->lives);
    psti_handle_free(schedule);
}

/* ---- asking ---- */

pst_status pst_schedule_get_info_sized(const pst_schedule *schedule, pst_schedule_info *info_out,
                                       size_t info_bytes)
{
    PSTI_CHECK_HANDLE(schedule, SCHEDULE);
    PSTI_CHECK(info_out, PST_E_INVALID, "info_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_schedule_info, info_bytes));
    pst_schedule_info info = schedule->info;
    info.config.struct_size = info_bytes - offsetof(pst_schedule_info, config);
    memcpy(info_out, &info, info_bytes);
    return PST_OK;
}

pst_status pst_schedule_get_pass(const pst_schedule *schedule, uint64_t n, pst_pass *pass_out)
{
    PSTI_CHECK_HANDLE(schedule, SCHEDULE);
    PSTI_CHECK(pass_out, PST_E_INVALID, "pass_out is NULL");
    PSTI_CHECK(n < schedule->num_passes, PST_E_INVALID,
               "pass %" PRIu64 ": the schedule has %" PRIu64, n, schedule->num_passes);
    *pass_out = schedule->passes[n];
    return PST_OK;
}

pst_status pst_schedule_get_slots(const pst_schedule *schedule, uint32_t chunk,
                                  uint32_t *num_slots_out)
{
    PSTI_CHECK_HANDLE(schedule, SCHEDULE);
    PSTI_CHECK(num_slots_out, PST_E_INVALID, "num_slots_out is NULL");
    PSTI_CHECK(chunk < schedule->num_chunks, PST_E_INVALID,
               "chunk %" PRIu32 ": the schedule has %" PRIu32, chunk, schedule->num_chunks);
    *num_slots_out = schedule->chunks[chunk].num_slots;
    return PST_OK;
}

uint32_t pst_schedule_slot(const pst_schedule *schedule, uint32_t chunk, uint32_t micro_batch)
{
    if (!psti_handle_is(schedule, PSTI_KIND_SCHEDULE) || chunk >= schedule->num_chunks ||
        micro_batch >= schedule->chunks[chunk].num_micro_batches)
        return PST_SCHEDULE_NO_SLOT;
    return psti_schedule_life(schedule, chunk, micro_batch)->slot;
}
