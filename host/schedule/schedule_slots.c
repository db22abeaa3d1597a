/* How much lives at once, in which order lives end, and the slots in which they are kept. */
#include "host/schedule/schedule.h"

/* Of a chunk while its passes are walked. */
typedef struct walk {
    uint32_t begun, ended, live;
    uint32_t *numbers; /* room for num_micro_batches */
    uint32_t num;
} walk;

typedef struct colors {
    pst_schedule *self;
    walk *walks;
    uint32_t *numbers; /* of all walks */
} colors;

/* The life that ends with pass n, or NULL. */
static psti_life *ends_with(const pst_schedule *self, uint64_t n)
{
    const pst_pass *pass = &self->passes[n];
    psti_life *life = &self->chunks[pass->chunk].lives[pass->micro_batch];
    return pass->kind != PST_PASS_FORWARD && life->last_backward == n ? life : NULL;
}

/* The n-th pass, but of a pair the forward first: while its passes interleave, what ends in the one
 * lives as long as what begins in the other. */
static uint64_t in_order(const pst_schedule *self, uint64_t n)
{
    const pst_pass *pass = &self->passes[n];
    if (pass->pairs && pass->kind != PST_PASS_FORWARD)
        return n + 1;
    return n > 0 && pass[-1].pairs && pass->kind == PST_PASS_FORWARD ? n - 1 : n;
}

static void restart(colors *all)
{
    uint32_t *next = all->numbers;
    for (uint32_t c = 0; c < all->self->num_chunks; c++) {
        all->walks[c] = (walk){.numbers = next};
        next += all->self->chunks[c].num_micro_batches;
    }
}

/* Here numbers is the stack of what lives, while lives end in reverse. */
static void measure(colors *all)
{
    pst_schedule *self = all->self;
    pst_schedule_info *info = &self->info;
    uint32_t live = 0;
    info->is_fifo = info->is_lifo = true;
    for (uint64_t i = 0; i < self->num_passes; i++) {
        const uint64_t n = in_order(self, i);
        const pst_pass *pass = &self->passes[n];
        psti_schedule_chunk *chunk = &self->chunks[pass->chunk];
        walk *at = &all->walks[pass->chunk];
        const psti_life *ended = ends_with(self, n);
        if (pass->kind == PST_PASS_FORWARD) {
            at->numbers[at->live++] = pass->micro_batch;
            chunk->lives[pass->micro_batch].slot = at->begun++; /* until slots are known */
            chunk->num_slots = at->live > chunk->num_slots ? at->live : chunk->num_slots;
            if (++live > info->peak) {
                info->peak = live;
                info->peak_at = (uint32_t)n;
            }
        } else if (ended) {
            live--;
            info->is_lifo &= at->numbers[--at->live] == pass->micro_batch;
            info->is_fifo &= ended->slot == at->ended++;
        }
    }
}

/* ---- the least free slot: a heap of those that were given back ---- */

static void put_free(walk *at, uint32_t slot)
{
    uint32_t i = at->num++;
    for (; i > 0 && at->numbers[(i - 1) / 2] > slot; i = (i - 1) / 2)
        at->numbers[i] = at->numbers[(i - 1) / 2];
    at->numbers[i] = slot;
}

static uint32_t take_free(walk *at)
{
    if (at->num == 0)
        return at->begun++; /* slots used so far */
    const uint32_t least = at->numbers[0], last = at->numbers[--at->num];
    uint32_t i = 0;
    for (uint32_t child; (child = 2 * i + 1) < at->num; i = child) {
        child += child + 1 < at->num && at->numbers[child + 1] < at->numbers[child];
        if (at->numbers[child] >= last)
            break;
        at->numbers[i] = at->numbers[child];
    }
    at->numbers[i] = last;
    return least;
}

static void fit_first(colors *all)
{
    const pst_schedule *self = all->self;
    for (uint64_t i = 0; i < self->num_passes; i++) {
        const uint64_t n = in_order(self, i);
        const pst_pass *pass = &self->passes[n];
        walk *at = &all->walks[pass->chunk];
        const psti_life *ended = ends_with(self, n);
        if (pass->kind == PST_PASS_FORWARD)
            self->chunks[pass->chunk].lives[pass->micro_batch].slot = take_free(at);
        else if (ended)
            put_free(at, ended->slot);
    }
}

/* Micro-batches that begin and end in order live side by side, so that no two of those that do are
 * equal modulo their number. */
static void go_round(const pst_schedule *self)
{
    for (uint32_t c = 0; c < self->num_chunks; c++)
        for (uint32_t i = 0; i < self->chunks[c].num_micro_batches; i++)
            self->chunks[c].lives[i].slot = i % self->chunks[c].num_slots;
}

static void color(colors *all)
{
    pst_schedule *self = all->self;
    restart(all);
    measure(all);
    restart(all);
    if (self->config.kind != PST_SCHEDULE_LIST && self->info.is_fifo)
        go_round(self);
    else
        fit_first(all);
}

pst_status psti_schedule_color(pst_schedule *self)
{
    colors all = {.self = self};
    if (self->is_forward_only) {
        self->info.is_fifo = self->info.is_lifo = true;
        for (uint64_t i = 0; i < self->num_lives; i++)
            self->lives[i].slot = PST_SCHEDULE_NO_SLOT;
        return PST_OK;
    }
    all.walks = psti_calloc(self->num_chunks, sizeof(*all.walks));
    all.numbers = psti_calloc(self->num_lives, sizeof(*all.numbers));
    const bool has_memory = all.walks && all.numbers;
    if (has_memory)
        color(&all);
    psti_free(all.walks);
    psti_free(all.numbers);
    return has_memory ? PST_OK : PSTI_FAIL(PST_E_NOMEM, "out of memory for slots");
}
