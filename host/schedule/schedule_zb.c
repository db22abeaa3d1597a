/* Zero-bubble schedules: backwards split into that of the input and that of the weights. */
#include "host/schedule/schedule.h"

#include "host/base/arith.h"

/* ---- H1 and H2: a rule for each rank by itself ---- */

/* Warm-up forwards; then for each micro-batch its input backward, a weight backward that lags, and
 * the next forward. Without a forward left a weight backward takes its place. */
void psti_schedule_zb_h(const pst_schedule_config *config, psti_pass_list *list)
{
    const uint64_t m = config->num_micro_batches, r = config->stage, after = config->num_stages - r;
    const bool is_h1 = config->kind == PST_SCHEDULE_ZB_H1;
    const uint64_t lag = is_h1 ? r : 2 * r;
    uint64_t num_forwards = 0, num_weights = 0;
    while (num_forwards < psti_min(m, is_h1 ? after : 2 * after - 1))
        psti_pass_put(list, PST_PASS_FORWARD, 0, num_forwards++);
    for (uint64_t b = 0; b < m; b++) {
        psti_pass_put(list, PST_PASS_BACKWARD_INPUT, 0, b);
        if (b >= lag || num_forwards == m)
            psti_pass_put(list, PST_PASS_BACKWARD_WEIGHT, 0, num_weights++);
        if (num_forwards < m)
            psti_pass_put(list, PST_PASS_FORWARD, 0, num_forwards++);
    }
    while (num_weights < m)
        psti_pass_put(list, PST_PASS_BACKWARD_WEIGHT, 0, num_weights++);
}

/* ---- V: all ranks together, where every pass takes one unit ---- */

enum { F0, F1, B0, B1, W, IDLE };

/* A rank of the V, which goes down the ranks with chunk 0 and back up with chunk 1. */
typedef struct v_rank {
    uint32_t done[4];    /* passes F0 to B1 that have ended; each kind goes by rising micro-batch */
    uint32_t weights[2]; /* weight backwards that have ended, of each chunk */
    uint8_t
        *waiting; /* chunks of the input backwards whose weights are due, oldest first: a ring */
    uint32_t first, num_waiting;
    uint8_t next; /* what it does in this unit */
} v_rank;

typedef struct v_shape {
    v_rank *ranks;
    uint32_t num_ranks, num_micro_batches, limit, ring;
} v_shape;

static bool runs_next(const v_shape *self, uint32_t r, int kind)
{
    const v_rank *own = &self->ranks[r];
    const uint32_t i = own->done[kind], last = self->num_ranks - 1;
    if (i == self->num_micro_batches)
        return false;
    switch (kind) {
    case F0:
        return i - psti_min(own->weights[0], own->weights[1]) < self->limit &&
               (r == 0 || self->ranks[r - 1].done[F0] > i);
    case F1:
        return (r == last ? own->done[F0] : self->ranks[r + 1].done[F1]) > i;
    case B0:
        return (r == last ? own->done[B1] : self->ranks[r + 1].done[B0]) > i;
    default:
        return (r == 0 ? own->done[F1] : self->ranks[r - 1].done[B1]) > i;
    }
}

static uint8_t choose(const v_shape *self, uint32_t r)
{
    static const uint8_t order[] = {B1, B0, F1, F0};
    for (int i = 0; i < 4; i++)
        if (runs_next(self, r, order[i]))
            return order[i];
    return self->ranks[r].num_waiting > 0 ? W : IDLE;
}

/* Ends what the rank does in this unit, and writes it to the list, where there is one. */
static void end_unit(const v_shape *self, v_rank *rank, psti_pass_list *list)
{
    const uint8_t kind = rank->next;
    uint32_t chunk = kind == F1 || kind == B1;
    if (kind == IDLE)
        return;
    if (kind == W) {
        chunk = rank->waiting[rank->first];
        rank->first = (rank->first + 1) % self->ring;
        rank->num_waiting--;
    }
    uint32_t *done = kind == W ? &rank->weights[chunk] : &rank->done[kind];
    if (list)
        psti_pass_put(list,
                      kind == W                  ? PST_PASS_BACKWARD_WEIGHT
                      : kind == F0 || kind == F1 ? PST_PASS_FORWARD
                                                 : PST_PASS_BACKWARD_INPUT,
                      chunk, *done);
    ++*done;
    if (kind == B0 || kind == B1)
        rank->waiting[(rank->first + rank->num_waiting++) % self->ring] = (uint8_t)chunk;
}

/* Every rank does, in each unit, the first that it can of: backward of chunk 1, of chunk 0, forward of
 * chunk 1, of chunk 0 while fewer than `limit` micro-batches are in flight, the oldest weights. */
pst_status psti_schedule_zb_v(const pst_schedule_config *config, psti_pass_list *list)
{
    const uint32_t p = config->num_stages, m = config->num_micro_batches;
    v_shape self = {.num_ranks = p,
                    .num_micro_batches = m,
                    .limit = config->limit,
                    .ring = 2 * (uint32_t)psti_min(config->limit, m)};
    uint8_t *rings = psti_calloc(p, self.ring);
    self.ranks = psti_calloc(p, sizeof(*self.ranks));
    if (!rings || !self.ranks) {
        psti_free(rings);
        psti_free(self.ranks);
        return PSTI_FAIL(PST_E_NOMEM, "out of memory for a ZB_V schedule of %u stages", p);
    }
    for (uint32_t r = 0; r < p; r++)
        self.ranks[r].waiting = rings + (size_t)r * self.ring;
    const uint64_t end = list->num + psti_schedule_count(config);
    while (list->num < end) {
        for (uint32_t r = 0; r < p; r++)
            self.ranks[r].next = choose(&self, r);
        for (uint32_t r = 0; r < p; r++)
            end_unit(&self, &self.ranks[r], r == config->stage ? list : NULL);
    }
    psti_free(rings);
    psti_free(self.ranks);
    return PST_OK;
}
