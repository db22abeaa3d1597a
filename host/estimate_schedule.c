/* How many micro-batches a stage holds at the peak of its schedule. */
#include "host/estimate.h"

typedef struct schedule {
    uint64_t group;      /* micro-batches per turn of a chunk */
    uint64_t num_chunks; /* of the stage */
    uint64_t warm_up;    /* forwards before the first backward */
    uint64_t num_passes; /* forwards of an iteration */
} schedule;

static uint64_t min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static schedule schedule_of(const pst_estimate_config *config, uint64_t stage)
{
    const uint64_t after = config->pipeline_parallel - 1 - stage;
    schedule self = {.group = config->interleave_group, .num_chunks = config->virtual_stages};
    self.num_passes = psti_times(psti_num_micro_batches(config), self.num_chunks);
    self.warm_up = after;
    if (self.num_chunks > 1)
        self.warm_up = 2 * after + (self.num_chunks - 1) * self.group;
    self.warm_up = min(self.warm_up, self.num_passes);
    return self;
}

/* Of the n-th forward. The n-th backward is of the chunk as far from the last. */
static uint64_t chunk_at(const schedule *self, uint64_t n)
{
    return n / self->group % self->num_chunks;
}

/* One forward after the other, and from the warm-up's end a backward after each. The turns repeat
 * after group * num_chunks of both, and so does what is live. */
static void run(const schedule *self, const uint64_t *chunk_bytes, uint64_t *live,
                uint64_t *highest_live)
{
    const uint64_t turns = self->group * self->num_chunks;
    const uint64_t end = min(self->num_passes, self->warm_up + turns);
    uint64_t bytes = 0, highest = 0;
    for (uint64_t n = 0; n < end; n++) {
        const uint64_t forward = chunk_at(self, n);
        live[forward]++;
        bytes += chunk_bytes[forward];
        if (n == 0 || bytes > highest) {
            highest = bytes;
            for (uint64_t i = 0; i < self->num_chunks; i++)
                highest_live[i] = live[i];
        }
        if (n < self->warm_up)
            continue;
        const uint64_t backward = self->num_chunks - 1 - chunk_at(self, n - self->warm_up);
        live[backward]--;
        bytes -= chunk_bytes[backward];
    }
}

pst_status psti_schedule_peak(const pst_estimate_config *config, uint64_t stage,
                              const uint64_t *chunk_bytes, uint64_t *live)
{
    const schedule self = schedule_of(config, stage);
    const uint64_t most = min(self.warm_up + 1, self.num_passes);
    if (self.num_chunks <= 1) {
        live[0] = most;
        return PST_OK;
    }
    for (uint64_t i = 0; i < self.num_chunks; i++)
        PSTI_CHECK(psti_times(chunk_bytes[i], most) != PSTI_TOO_MUCH, PST_E_INVALID,
                   "config: saved activations exceed 64 bits");
    uint64_t *now = psti_calloc(self.num_chunks, sizeof(*now));
    PSTI_CHECK(now, PST_E_NOMEM, "no memory for the counts of %u chunks",
               (unsigned)self.num_chunks);
    run(&self, chunk_bytes, now, live);
    psti_free(now);
    return PST_OK;
}
