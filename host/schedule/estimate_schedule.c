/* The order in which a stage runs its micro-batches, and how many it holds at the peak. */
#include "host/estimate/estimate.h"

#include <string.h>

psti_passes psti_passes_of(const pst_estimate_config *config, uint64_t stage)
{
    const uint64_t after = config->pipeline_parallel - 1 - stage;
    psti_passes self = {.group = config->micro_batch_group_size,
                        .num_chunks = config->virtual_stages};
    self.num_passes = psti_times(psti_num_micro_batches(config), self.num_chunks);
    self.warm_up = after;
    if (self.num_chunks > 1)
        self.warm_up = 2 * after + (self.num_chunks - 1) * self.group + config->overlaps_exchange;
    self.warm_up = psti_min(self.warm_up, self.num_passes);
    return self;
}

/* Of the n-th forward; the n-th backward is of the chunk as far from the last. Every chunk in turn
 * runs a group of micro-batches, and then every chunk the next group. */
static psti_pass pass_at(const psti_passes *self, uint64_t n)
{
    const uint64_t turns = self->group * self->num_chunks;
    return (psti_pass){.chunk = n / self->group % self->num_chunks,
                       .micro_batch = n / turns * self->group + n % self->group};
}

/* One forward after the other, from the warm-up's end a backward after each, and in the end one
 * backward after the other. */
bool psti_passes_next(psti_passes *self, psti_pass *pass_out)
{
    const bool is_ahead = self->num_forwards - self->num_backwards > self->warm_up;
    if (self->num_backwards == self->num_passes)
        return false;
    if (!is_ahead && self->num_forwards < self->num_passes) {
        *pass_out = pass_at(self, self->num_forwards++);
        return true;
    }
    *pass_out = pass_at(self, self->num_backwards++);
    pass_out->is_backward = true;
    pass_out->chunk = self->num_chunks - 1 - pass_out->chunk;
    return true;
}

/* Up to so many forwards, the last of which is the last pass. Returns that one of them after which
 * all is highest, the first time. */
static uint64_t run(const pst_estimate_config *config, psti_passes self,
                    const psti_chunk_saved *chunks, uint64_t num_forwards, uint64_t *live)
{
    const bool pages = psti_pages(config);
    const pst_estimate_moe moe = pages ? psti_moe_of(config) : (pst_estimate_moe){0};
    uint64_t bytes = 0, num_moe = 0, highest = 0, highest_at = 0;
    psti_pass pass;
    while (self.num_forwards < num_forwards && psti_passes_next(&self, &pass)) {
        if (pass.is_backward) {
            live[pass.chunk]--;
            bytes -= chunks[pass.chunk].bytes;
            num_moe -= chunks[pass.chunk].num_moe;
            continue;
        }
        live[pass.chunk]++;
        bytes += chunks[pass.chunk].bytes;
        num_moe += chunks[pass.chunk].num_moe;
        const uint64_t all =
            pages ? psti_plus(bytes, psti_paging_bytes(config, &moe, num_moe)) : bytes;
        if (highest_at != 0 && all <= highest)
            continue;
        highest = all;
        highest_at = self.num_forwards;
    }
    return highest_at;
}

pst_status psti_passes_peak(const pst_estimate_config *config, uint64_t stage,
                            const psti_chunk_saved *chunks, uint64_t *live)
{
    const psti_passes self = psti_passes_of(config, stage);
    const uint64_t most = psti_min(self.warm_up + 1, self.num_passes);
    if (self.num_chunks <= 1) {
        live[0] = most;
        return PST_OK;
    }
    for (uint64_t i = 0; i < self.num_chunks; i++)
        PSTI_CHECK(psti_times(chunks[i].bytes, most) != PSTI_TOO_MUCH, PST_E_INVALID,
                   "config: saved activations exceed 64 bits");
    /* the turns repeat after group * num_chunks of forwards and backwards, and so does what is live */
    const uint64_t turns = self.group * self.num_chunks;
    const uint64_t end = psti_min(self.num_passes, self.warm_up + turns);
    const uint64_t highest_at = run(config, self, chunks, end, live);
    memset(live, 0, self.num_chunks * sizeof(*live));
    run(config, self, chunks, highest_at, live);
    return PST_OK;
}
