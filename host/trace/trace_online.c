/* The peak of an online best-fit allocator: every request goes into the smallest gap that holds it,
 * the lowest among equals, or on top of all that lives. */
#include <inttypes.h>

#include "host/trace/trace.h"

#define NONE UINT32_MAX
#define MAX_TOP (UINT64_C(1) << 62)

/* A range of addresses, used or a gap. All of them form a list in order of address; the gaps a
 * treap in order of size and address (Seidel, Aragon 1996) with the node's number as the source of
 * its priority. */
typedef struct block {
    uint64_t address, bytes;
    uint32_t before, behind;
    uint32_t left, right;
    bool is_free;
} block;

typedef struct heap {
    block *blocks; /* [0, num) were taken; those given back hang on `spare` by `behind` */
    uint32_t num, spare;
    uint32_t root, last;
} heap;

static uint64_t priority(uint32_t at)
{
    return psti_mix(at);
}

static bool is_less(const heap *self, uint32_t a, uint32_t b)
{
    const block *left = &self->blocks[a];
    const block *right = &self->blocks[b];
    return left->bytes != right->bytes ? left->bytes < right->bytes
                                       : left->address < right->address;
}

/* Parts the tree at a node that is not in it, and hangs the parts on it. */
static void split(heap *self, uint32_t tree, uint32_t at)
{
    uint32_t *left = &self->blocks[at].left;
    uint32_t *right = &self->blocks[at].right;
    while (tree != NONE) {
        if (is_less(self, tree, at)) {
            *left = tree;
            left = &self->blocks[tree].right;
            tree = *left;
        } else {
            *right = tree;
            right = &self->blocks[tree].left;
            tree = *right;
        }
    }
    *left = *right = NONE;
}

static void insert(heap *self, uint32_t at)
{
    uint32_t *place = &self->root;
    while (*place != NONE && priority(*place) > priority(at))
        place =
            is_less(self, at, *place) ? &self->blocks[*place].left : &self->blocks[*place].right;
    const uint32_t below = *place;
    *place = at;
    split(self, below, at);
}

static void take_out(heap *self, uint32_t at)
{
    uint32_t *place = &self->root;
    while (*place != at)
        place =
            is_less(self, at, *place) ? &self->blocks[*place].left : &self->blocks[*place].right;
    uint32_t left = self->blocks[at].left;
    uint32_t right = self->blocks[at].right;
    while (left != NONE && right != NONE) {
        const bool is_left = priority(left) > priority(right);
        *place = is_left ? left : right;
        place = is_left ? &self->blocks[left].right : &self->blocks[right].left;
        if (is_left)
            left = *place;
        else
            right = *place;
    }
    *place = left != NONE ? left : right;
}

/* The smallest free block of at least so many bytes. */
static uint32_t best_fit(const heap *self, uint64_t bytes)
{
    uint32_t best = NONE;
    for (uint32_t at = self->root; at != NONE;) {
        const bool fits = self->blocks[at].bytes >= bytes;
        best = fits ? at : best;
        at = fits ? self->blocks[at].left : self->blocks[at].right;
    }
    return best;
}

static uint32_t new_block(heap *self)
{
    const uint32_t at = self->spare;
    if (at == NONE)
        return self->num++;
    self->spare = self->blocks[at].behind;
    return at;
}

/* Takes a block out of the list for ever. */
static void drop(heap *self, uint32_t at)
{
    const block *dead = &self->blocks[at];
    if (dead->before != NONE)
        self->blocks[dead->before].behind = dead->behind;
    if (dead->behind != NONE)
        self->blocks[dead->behind].before = dead->before;
    else
        self->last = dead->before;
    self->blocks[at].behind = self->spare;
    self->spare = at;
}

/* A new block in the list, behind block `before`; NONE: the first. */
static uint32_t add_behind(heap *self, uint32_t before, uint64_t address, uint64_t bytes)
{
    const uint32_t at = new_block(self);
    const uint32_t behind = before != NONE ? self->blocks[before].behind : NONE;
    self->blocks[at] =
        (block){.address = address, .bytes = bytes, .before = before, .behind = behind};
    if (before != NONE)
        self->blocks[before].behind = at;
    if (behind != NONE)
        self->blocks[behind].before = at;
    else
        self->last = at;
    return at;
}

/* Its block; NONE: it would end too high. */
static uint32_t place(heap *self, uint64_t bytes)
{
    const uint32_t gap = best_fit(self, bytes);
    if (gap == NONE) {
        const block *last = self->last != NONE ? &self->blocks[self->last] : NULL;
        const uint64_t top = last != NULL ? last->address + last->bytes : 0;
        return bytes <= MAX_TOP - top ? add_behind(self, self->last, top, bytes) : NONE;
    }
    take_out(self, gap);
    const uint64_t left = self->blocks[gap].bytes - bytes;
    self->blocks[gap].bytes = bytes;
    self->blocks[gap].is_free = false;
    if (left > 0) {
        const uint32_t rest = add_behind(self, gap, self->blocks[gap].address + bytes, left);
        self->blocks[rest].is_free = true;
        insert(self, rest);
    }
    return gap;
}

/* A gap is never the last block: what is free on top is no block. */
static void release(heap *self, uint32_t at)
{
    const uint32_t before = self->blocks[at].before;
    const uint32_t behind = self->blocks[at].behind;
    if (behind != NONE && self->blocks[behind].is_free) {
        take_out(self, behind);
        self->blocks[at].bytes += self->blocks[behind].bytes;
        drop(self, behind);
    }
    if (before != NONE && self->blocks[before].is_free) {
        take_out(self, before);
        self->blocks[before].bytes += self->blocks[at].bytes;
        drop(self, at);
        at = before;
    }
    if (at == self->last) {
        drop(self, at);
        return;
    }
    self->blocks[at].is_free = true;
    insert(self, at);
}

static pst_status run(heap *self, const pst_trace *trace, const uint64_t *order, uint64_t align,
                      uint32_t *block_of, uint64_t *peak_out)
{
    uint64_t peak = 0;
    for (uint64_t i = 0; i < trace->num_requests; i++) {
        if (order[i] == PSTI_ORDER_NONE)
            continue;
        const uint32_t tensor = (uint32_t)(order[i] >> 1);
        if ((order[i] & 1) == 0) {
            release(self, block_of[tensor]);
            continue;
        }
        const uint64_t bytes = trace->tensors[tensor].bytes;
        const uint32_t at = place(self, psti_round_up(bytes, align));
        PSTI_CHECK(at != NONE, PST_E_INVALID,
                   "tensor %" PRIu64 " of %" PRIu64 " bytes ends above 2^62: allowed is below",
                   trace->tensors[tensor].id, bytes);
        block_of[tensor] = at;
        const uint64_t top = self->blocks[at].address + self->blocks[at].bytes;
        peak = top > peak ? top : peak;
    }
    *peak_out = peak;
    return PST_OK;
}

pst_status psti_trace_online(const pst_trace *trace, const uint64_t *order, uint64_t most_live,
                             uint64_t align, uint64_t *peak_out)
{
    heap self = {.spare = NONE, .root = NONE, .last = NONE};
    /* between two that live there is at most one gap; one more while a block is split */
    self.blocks = psti_calloc((size_t)(2 * most_live + 2), sizeof(*self.blocks));
    uint32_t *block_of = psti_calloc((size_t)trace->num_tensors, sizeof(*block_of));
    pst_status status = PST_OK;
    if (self.blocks == NULL || block_of == NULL)
        status = PSTI_FAIL(PST_E_NOMEM, "out of memory for %" PRIu64 " live tensors", most_live);
    else
        status = run(&self, trace, order, align, block_of, peak_out);
    psti_free(self.blocks);
    psti_free(block_of);
    return status;
}
