/* The passes of one GPU of a pipeline, one after the other. */
#include "host/schedule/pipeline.h"

#include <string.h>

#include "host/base/arith.h"

psti_pipeline psti_pipeline_warmed_up(uint64_t num_micro_batches, uint64_t warm_up)
{
    return (psti_pipeline){.num_chunks = 1,
                           .group = 1,
                           .warm_up = psti_min(warm_up, num_micro_batches),
                           .num_passes = num_micro_batches};
}

psti_pipeline psti_pipeline_reversed(uint64_t num_micro_batches)
{
    psti_pipeline self = psti_pipeline_warmed_up(num_micro_batches, num_micro_batches);
    self.is_reversed = true;
    return self;
}

psti_pipeline psti_pipeline_1f1b(const psti_pipeline_shape *shape)
{
    const uint64_t after = shape->num_stages - 1 - shape->stage;
    const uint64_t num_chunks = shape->num_chunks;
    if (num_chunks <= 1)
        return psti_pipeline_warmed_up(shape->num_micro_batches, after);
    const uint64_t warm_up = 2 * after + (num_chunks - 1) * shape->group + shape->overlaps_exchange;
    psti_pipeline self = {.num_chunks = num_chunks, .group = shape->group};
    self.num_passes = psti_times(shape->num_micro_batches, num_chunks);
    self.warm_up = psti_min(warm_up, self.num_passes);
    return self;
}

/* The n-th forward. Every chunk in turn runs a group of micro-batches, and then every chunk the
 * next group; the last one may be smaller. */
static psti_pipeline_pass forward_at(const psti_pipeline *self, uint64_t n)
{
    const uint64_t turns = self->group * self->num_chunks;
    const uint64_t first = n / turns * self->group; /* micro-batch of the group */
    const uint64_t size = psti_min(self->group, self->num_passes / self->num_chunks - first);
    return (psti_pipeline_pass){.chunk = n % turns / size, .micro_batch = first + n % turns % size};
}

/* The n-th backward: as the n-th forward, but of the chunk as far from the last. */
static psti_pipeline_pass backward_at(const psti_pipeline *self, uint64_t n)
{
    psti_pipeline_pass pass = forward_at(self, self->is_reversed ? self->num_passes - 1 - n : n);
    pass.kind = PST_PASS_BACKWARD;
    pass.chunk = self->num_chunks - 1 - pass.chunk;
    return pass;
}

bool psti_pipeline_next(psti_pipeline *self, psti_pipeline_pass *pass_out)
{
    const bool is_ahead = self->num_forwards - self->num_backwards > self->warm_up;
    if (self->num_backwards == self->num_passes)
        return false;
    if (!is_ahead && self->num_forwards < self->num_passes)
        *pass_out = forward_at(self, self->num_forwards++);
    else
        *pass_out = backward_at(self, self->num_backwards++);
    return true;
}

uint64_t psti_pipeline_most_live(const psti_pipeline *self)
{
    return psti_min(self->warm_up + 1, self->num_passes);
}

/* The forward, counted from 1, after which most is live. What is live repeats with the turns of the
 * chunks. */
static uint64_t highest_at(psti_pipeline self, psti_live_fn live_after, void *user)
{
    const uint64_t end = psti_min(self.num_passes, self.warm_up + self.group * self.num_chunks);
    uint64_t highest = 0, at = 0;
    psti_pipeline_pass pass;
    while (self.num_forwards < end && psti_pipeline_next(&self, &pass)) {
        const uint64_t now = live_after(user, &pass);
        if (pass.kind == PST_PASS_BACKWARD || (at != 0 && now <= highest))
            continue;
        highest = now;
        at = self.num_forwards;
    }
    return at;
}

void psti_pipeline_peak(const psti_pipeline *self, psti_live_fn live_after, void *user,
                        uint64_t *live)
{
    psti_pipeline again = *self;
    psti_pipeline_pass pass;
    memset(live, 0, self->num_chunks * sizeof(*live));
    if (self->num_chunks == 1) {
        live[0] = psti_pipeline_most_live(self);
        return;
    }
    const uint64_t end = highest_at(*self, live_after, user);
    while (again.num_forwards < end && psti_pipeline_next(&again, &pass))
        if (pass.kind == PST_PASS_FORWARD)
            live[pass.chunk]++;
        else
            live[pass.chunk]--;
}
