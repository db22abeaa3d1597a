/* A second way through the tree: tensors are placed in rising order of their offsets, each on what is
 * below it (the canonical placements of MiniMalloc, ASPLOS 2023). Among the placements with the
 * lowest sum of offsets, in the order of offset and rank, there is one that
 *   - never skips a tensor which would end below the offset of the next one,
 *   - has of equal tensors the first one lower,
 *   - and goes on after a tensor with nothing above it, or not at all.
 * Where the unplaced tensors fall apart in time, each part is searched alone, with ranks of its own.
 * Not for instances with pins. */
#include "host/plan/plan_exact.h"
#include "kernels/core/mix.h"

#include <stdlib.h>
#include <string.h>

#define NO_FRAME UINT32_MAX
#define NO_RANK UINT32_MAX
#define STEP_WORK 16384 /* slots that make a step as long as another */

typedef struct change {
    uint32_t tensor;
    uint64_t lowest;
} change;

typedef struct rank_change {
    uint32_t tensor, rank;
} rank_change;

/* A part of the slots, and the tensor of it that is placed. */
typedef struct frame {
    uint32_t low, high;  /* slots */
    uint32_t first, num; /* its unplaced tensors: perm[first .. first + num) */
    uint32_t parent;
    uint32_t placed;    /* or NO_TENSOR */
    uint32_t last_rank; /* of the tensor before, NO_RANK: none at `least` */
    uint32_t tried_rank, tried_tensor;
    bool is_closed; /* nothing else can help */
    bool has_ranks; /* it made the ranks of its tensors */
    uint64_t least; /* offsets below are behind us */
    uint64_t limit; /* the lowest end of any: no next offset is as high */
    uint64_t tried; /* offset of `placed`, or of what was placed last */
    size_t num_changes, num_ranks;
} frame;

typedef struct entry {
    uint64_t key[3]; /* descending */
    uint32_t tensor;
} entry;

struct psti_exact_rise {
    psti_exact_instance *p;
    uint64_t shuffle;
    uint32_t num_unplaced, num_frames;
    bool is_denied;
    uint64_t bytes;                                /* of memory */
    uint64_t *lowest, *offset, *live_size, *floor; /* [n], [n], [slots], [slots] */
    uint32_t *rank, *perm, *cross;                 /* [n], [n], [slots + 1] */
    entry *entries;                                /* [n] */
    frame *frames;                                 /* [n + 1] */
    change *changes;
    rank_change *ranks;
    size_t num_changes, max_changes, num_ranks, max_ranks;
    uint64_t work; /* slots and tensors looked at in a step */
};

/* ---- memory ---- */

static psti_verdict reserve(psti_exact_rise *s, uint32_t num)
{
    void *changes = s->changes;
    void *ranks = s->ranks;
    psti_verdict verdict =
        psti_exact_grow(s->p, &changes, &s->max_changes, s->num_changes + num, sizeof(*s->changes));
    s->changes = changes;
    if (verdict == PSTI_FOUND)
        verdict =
            psti_exact_grow(s->p, &ranks, &s->max_ranks, s->num_ranks + num, sizeof(*s->ranks));
    s->ranks = ranks;
    s->is_denied |= verdict == PSTI_STOPPED;
    return verdict;
}

psti_verdict psti_exact_rise_open(psti_exact_instance *p, psti_exact_rise **rise_out)
{
    const uint64_t n = p->num_tensors;
    const uint64_t slots = p->num_slots;
    const uint64_t bytes = sizeof(psti_exact_rise) + 2 * n * 8 + 2 * slots * 8 + n * sizeof(entry) +
                           (n + 1) * sizeof(frame) + (2 * n + slots + 1) * 4;
    void *memory;
    const psti_verdict verdict = psti_exact_take(p, bytes, &memory);
    if (verdict != PSTI_FOUND)
        return verdict;
    psti_exact_rise *s = memory;
    s->p = p;
    s->bytes = bytes;
    s->lowest = (uint64_t *)(s + 1);
    s->offset = s->lowest + n;
    s->live_size = s->offset + n;
    s->floor = s->live_size + slots;
    s->entries = (entry *)(s->floor + slots);
    s->frames = (frame *)(s->entries + n);
    s->rank = (uint32_t *)(s->frames + n + 1);
    s->perm = s->rank + n;
    s->cross = s->perm + n;
    *rise_out = s;
    return PSTI_FOUND;
}

void psti_exact_rise_close(psti_exact_rise *s)
{
    if (s == NULL)
        return;
    psti_exact_give(s->p, s->changes, s->max_changes * sizeof(*s->changes));
    psti_exact_give(s->p, s->ranks, s->max_ranks * sizeof(*s->ranks));
    psti_exact_give(s->p, s, s->bytes);
}

bool psti_exact_rise_is_denied(const psti_exact_rise *s)
{
    return s->is_denied;
}

uint64_t psti_exact_rise_offset(const psti_exact_rise *s, uint32_t tensor)
{
    return s->offset[tensor];
}

void psti_exact_rise_reset(psti_exact_rise *s, uint64_t shuffle)
{
    const psti_exact_instance *p = s->p;
    s->shuffle = shuffle;
    s->num_unplaced = p->num_tensors;
    s->num_frames = 0;
    s->num_changes = s->num_ranks = 0;
    memset(s->lowest, 0, p->num_tensors * sizeof(*s->lowest));
    memset(s->live_size, 0, p->num_slots * sizeof(*s->live_size));
    memset(s->cross, 0, (p->num_slots + 1) * sizeof(*s->cross));
    for (uint32_t r = 0; r < p->num_tensors; r++) {
        s->perm[r] = r;
        s->rank[r] = r;
        s->offset[r] = UINT64_MAX;
        for (uint32_t t = p->begin[r]; t < p->end[r]; t++) {
            s->live_size[t] += p->size[r];
            s->cross[t] += t > p->begin[r];
        }
    }
}

/* ---- parts ---- */

/* Moves the unplaced tensors of a part to the front of those around it. */
static void gather(psti_exact_rise *s, frame *part, uint32_t first, uint32_t num)
{
    const psti_exact_instance *p = s->p;
    part->first = first;
    part->num = 0;
    for (uint32_t k = first; k < first + num; k++) {
        const uint32_t r = s->perm[k];
        if (s->offset[r] != UINT64_MAX || p->begin[r] < part->low || p->end[r] > part->high)
            continue;
        s->perm[k] = s->perm[first + part->num];
        s->perm[first + part->num++] = r;
    }
}

static int by_keys(const void *a, const void *b)
{
    const entry *x = a;
    const entry *y = b;
    for (int k = 0; k < 3; k++)
        if (x->key[k] != y->key[k])
            return x->key[k] > y->key[k] ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static uint64_t live_size_of(const psti_exact_rise *s, uint32_t r)
{
    uint64_t most = 0;
    for (uint32_t t = s->p->begin[r]; t < s->p->end[r]; t++)
        most = s->live_size[t] > most ? s->live_size[t] : most;
    return most;
}

/* Ranks the tensors of a part by what is left to be placed. */
static void make_ranks(psti_exact_rise *s, frame *part)
{
    const psti_exact_instance *p = s->p;
    for (uint32_t k = 0; k < part->num; k++) {
        const uint32_t r = s->perm[part->first + k];
        const uint64_t length = p->length[r];
        const uint64_t area = p->size[r] > UINT64_MAX / length ? UINT64_MAX : p->size[r] * length;
        s->entries[k] = (entry){
            {live_size_of(s, r), length, s->shuffle != 0 ? psti_mix(s->shuffle + r) : area}, r};
    }
    qsort(s->entries, part->num, sizeof(*s->entries), by_keys);
    for (uint32_t k = 0; k < part->num; k++) {
        const uint32_t r = s->entries[k].tensor;
        s->ranks[s->num_ranks++] = (rank_change){r, s->rank[r]};
        s->rank[r] = k;
    }
    part->has_ranks = true;
    part->last_rank = NO_RANK;
}

static uint64_t lowest_of(const psti_exact_rise *s, uint32_t r, uint64_t least)
{
    return s->lowest[r] > least ? s->lowest[r] : least;
}

/* Whether what is left in every slot fits above the lowest place that any of it can have. */
static bool can_fit(psti_exact_rise *s, const frame *part)
{
    const psti_exact_instance *p = s->p;
    for (uint32_t t = part->low; t < part->high; t++)
        s->floor[t] = UINT64_MAX;
    for (uint32_t k = part->first; k < part->first + part->num; k++) {
        const uint32_t r = s->perm[k];
        const uint64_t at = lowest_of(s, r, part->least);
        if (at + p->size[r] > p->target)
            return false;
        s->work += p->end[r] - p->begin[r];
        for (uint32_t t = p->begin[r]; t < p->end[r]; t++)
            s->floor[t] = at < s->floor[t] ? at : s->floor[t];
    }
    for (uint32_t t = part->low; t < part->high; t++)
        if (s->live_size[t] > 0 && s->floor[t] + s->live_size[t] > p->target)
            return false;
    return true;
}

/* The next part with something unplaced: within the last frame's slots, or, where that is done,
 * around them. False: there is none. */
static bool find_part(const psti_exact_rise *s, frame *part, uint32_t *first, uint32_t *num)
{
    uint32_t around = s->num_frames > 0 ? s->num_frames - 1 : NO_FRAME;
    for (;;) {
        const frame *in = around != NO_FRAME ? &s->frames[around] : NULL;
        const uint32_t end = in != NULL ? in->high : s->p->num_slots;
        uint32_t low = in != NULL ? in->low : 0;
        while (low < end && s->live_size[low] == 0)
            low++;
        if (low < end) {
            uint32_t high = low + 1;
            while (high < end && s->cross[high] > 0)
                high++;
            *part = (frame){.low = low,
                            .high = high,
                            .parent = around,
                            .placed = PSTI_EXACT_NO_TENSOR,
                            .tried_rank = NO_RANK,
                            .least = in != NULL ? in->tried : 0,
                            .last_rank = in != NULL ? in->tried_rank : NO_RANK,
                            .num_changes = s->num_changes,
                            .num_ranks = s->num_ranks};
            *first = in != NULL ? in->first : 0;
            *num = in != NULL ? in->num : s->p->num_tensors;
            return true;
        }
        if (in == NULL)
            return false;
        around = in->parent;
    }
}

/* ---- the search ---- */

static void undo(psti_exact_rise *s, frame *at)
{
    const psti_exact_instance *p = s->p;
    const uint32_t r = at->placed;
    if (r == PSTI_EXACT_NO_TENSOR)
        return;
    while (s->num_changes > at->num_changes) {
        const change *last = &s->changes[--s->num_changes];
        s->lowest[last->tensor] = last->lowest;
    }
    for (uint32_t t = p->begin[r]; t < p->end[r]; t++) {
        s->live_size[t] += p->size[r];
        s->cross[t] += t > p->begin[r];
    }
    s->offset[r] = UINT64_MAX;
    s->num_unplaced++;
    at->placed = PSTI_EXACT_NO_TENSOR;
}

static void pop(psti_exact_rise *s)
{
    frame *at = &s->frames[--s->num_frames];
    undo(s, at);
    while (s->num_ranks > at->num_ranks) {
        const rank_change *last = &s->ranks[--s->num_ranks];
        s->rank[last->tensor] = last->rank;
    }
}

static void place(psti_exact_rise *s, frame *at, uint32_t r)
{
    const psti_exact_instance *p = s->p;
    const uint64_t top = s->lowest[r] + p->size[r];
    at->placed = r;
    at->tried = s->offset[r] = s->lowest[r];
    at->tried_rank = s->rank[r];
    at->tried_tensor = r;
    at->is_closed = true;
    s->num_unplaced--;
    for (uint32_t t = p->begin[r]; t < p->end[r]; t++) {
        s->live_size[t] -= p->size[r];
        s->cross[t] -= t > p->begin[r];
    }
    for (uint32_t k = at->first; k < at->first + at->num; k++) {
        const uint32_t q = s->perm[k];
        if (s->offset[q] != UINT64_MAX || p->begin[q] >= p->end[r] || p->begin[r] >= p->end[q])
            continue;
        at->is_closed = false;
        if (s->lowest[q] < top) {
            s->changes[s->num_changes++] = (change){q, s->lowest[q]};
            s->lowest[q] = top;
        }
    }
}

static bool is_same(const psti_exact_instance *p, uint32_t a, uint32_t b)
{
    return p->begin[a] == p->begin[b] && p->end[a] == p->end[b] && p->size[a] == p->size[b];
}

/* Places the next tensor of a part in order of offset and rank. False: there is none left. */
static bool advance(psti_exact_rise *s, frame *at)
{
    undo(s, at);
    if (at->is_closed)
        return false;
    uint32_t next = PSTI_EXACT_NO_TENSOR;
    for (uint32_t k = at->first; k < at->first + at->num; k++) {
        const uint32_t r = s->perm[k];
        const uint64_t offset = s->lowest[r];
        const uint32_t rank = s->rank[r];
        if (s->offset[r] != UINT64_MAX || offset >= at->limit || offset < at->least ||
            (offset == at->least && at->last_rank != NO_RANK && rank < at->last_rank))
            continue;
        if (at->tried_rank != NO_RANK &&
            (offset < at->tried || (offset == at->tried && rank <= at->tried_rank) ||
             (offset == at->tried && is_same(s->p, r, at->tried_tensor))))
            continue;
        if (next != PSTI_EXACT_NO_TENSOR &&
            (offset > s->lowest[next] || (offset == s->lowest[next] && rank > s->rank[next])))
            continue;
        next = r;
    }
    if (next == PSTI_EXACT_NO_TENSOR)
        return false;
    place(s, at, next);
    return true;
}

/* Out of a dead end in the slots low..high-1: parts beside them did not cause it. */
static psti_verdict back_out(psti_exact_rise *s, uint32_t low, uint32_t high)
{
    while (s->num_frames > 0) {
        frame *at = &s->frames[s->num_frames - 1];
        if (at->high > low && at->low < high) {
            low = at->low;
            high = at->high;
            if (advance(s, at))
                return PSTI_FOUND;
        }
        pop(s);
    }
    return PSTI_NONE;
}

static psti_verdict step(psti_exact_rise *s)
{
    frame part;
    uint32_t first;
    uint32_t num;
    const psti_verdict verdict = reserve(s, s->p->num_tensors);
    if (verdict != PSTI_FOUND)
        return verdict;
    if (!find_part(s, &part, &first, &num))
        return PSTI_FOUND;
    gather(s, &part, first, num);
    if (!can_fit(s, &part))
        return back_out(s, part.low, part.high);
    if (part.parent == NO_FRAME || s->frames[part.parent].low != part.low ||
        s->frames[part.parent].high != part.high)
        make_ranks(s, &part);
    part.limit = UINT64_MAX;
    for (uint32_t k = part.first; k < part.first + part.num; k++) {
        const uint32_t r = s->perm[k];
        const uint64_t top = lowest_of(s, r, part.least) + s->p->size[r];
        part.limit = top < part.limit ? top : part.limit;
    }
    frame *at = s->frames + s->num_frames;
    *at = part;
    s->num_frames++;
    return advance(s, at) ? PSTI_FOUND : back_out(s, part.low, part.high);
}

psti_verdict psti_exact_rise_continue(psti_exact_rise *s, uint64_t max_steps, uint64_t *steps_out)
{
    for (*steps_out = 0; *steps_out < max_steps;) {
        s->work = 0;
        const psti_verdict verdict = step(s);
        *steps_out += 1 + s->work / STEP_WORK;
        if (verdict != PSTI_FOUND)
            return verdict;
        if (s->num_unplaced == 0)
            return PSTI_FOUND;
    }
    return PSTI_STOPPED;
}
