/* Which addresses are taken when, so that a gap is found without looking at every conflict.
 *
 * A segment tree over blocks of slots. Of a node, `cover` holds the addresses of what lives throughout
 * the node's slots (and was cut up to end there), `any` those of what lives in any of them. What an
 * interval may collide with is then `any` of the nodes it is cut into, and `cover` of those above.
 * Each set is a sorted array of runs; runs that touch are one, and in a tight placement most do, so
 * the sets stay short. Where an interval begins or ends within a block, the block's `pieces` are looked
 * at one by one. With several streams there is a tree for each pair: the lives of one stream's items as
 * another stream sees them. */
#include "host/plan/plan.h"

#include <string.h>

enum {
    MANY_BLOCKS =
        1024, /* from which on they get larger: a tree over single slots takes much memory */
    BLOCK_MAX = 512,
};

typedef struct run_set {
    uint32_t count, capacity;
    pst_plan_range *runs;
} run_set;

/* What lives in a part of a block. */
typedef struct piece {
    pst_plan_range range; /* addresses */
    uint32_t begin, end;  /* slots */
} piece;

/* By the begin of the range. */
typedef struct piece_set {
    uint32_t count, capacity;
    piece *list;
} piece_set;

typedef struct tree {
    run_set *any, *cover; /* [2 * leaves], the root is 1 */
    piece_set *pieces;    /* [leaves] */
} tree;

/* A set that is gone through with rising addresses. */
typedef struct cursor {
    const run_set *set;      /* or */
    const piece_set *pieces; /* those that live in slots begin..end-1 */
    uint32_t begin, end;
    uint32_t at; /* first that ends above the address in work */
} cursor;

struct psti_room {
    const psti_items *items;
    uint32_t block; /* slots of one, a power of two */
    uint32_t leaves;
    tree *trees; /* [num_streams][num_streams]: of the taker, of who asks */
    cursor *cursors;
    size_t num_cursors;
};

static run_set *take_sets(uint32_t leaves)
{
    return psti_calloc((size_t)2 * leaves, sizeof(run_set));
}

static void drop_sets(run_set *sets, uint32_t leaves)
{
    for (uint32_t v = 0; sets != NULL && v < 2 * leaves; v++)
        psti_free(sets[v].runs);
    psti_free(sets);
}

void psti_room_close(psti_room *room)
{
    if (room == NULL)
        return;
    const uint32_t streams = room->items->num_streams;
    for (uint32_t t = 0; room->trees != NULL && t < streams * streams; t++) {
        drop_sets(room->trees[t].any, room->leaves);
        drop_sets(room->trees[t].cover, room->leaves);
        for (uint32_t b = 0; room->trees[t].pieces != NULL && b < room->leaves; b++)
            psti_free(room->trees[t].pieces[b].list);
        psti_free(room->trees[t].pieces);
    }
    psti_free(room->trees);
    psti_free(room->cursors);
    psti_free(room);
}

psti_room *psti_room_open(const psti_items *items)
{
    psti_room *room = psti_calloc(1, sizeof(*room));
    if (room == NULL)
        return NULL;
    const uint32_t streams = items->num_streams;
    room->items = items;
    room->leaves = 1;
    room->block = 1;
    while (room->block < BLOCK_MAX && items->num_slots / room->block > MANY_BLOCKS)
        room->block *= 2;
    uint32_t levels = 1;
    for (; (uint64_t)room->leaves * room->block < items->num_slots; levels++)
        room->leaves *= 2;
    uint32_t most = 1;
    for (uint32_t i = 0; i < items->n; i++)
        if (items->first[i + 1] - items->first[i] > most)
            most = items->first[i + 1] - items->first[i];
    room->cursors =
        psti_calloc((size_t)(4 * levels + 2) * most * streams + 1, sizeof(*room->cursors));
    room->trees = psti_calloc((size_t)streams * streams, sizeof(*room->trees));
    bool right = room->cursors != NULL && room->trees != NULL;
    for (uint32_t t = 0; right && t < streams * streams; t++) {
        room->trees[t].any = take_sets(room->leaves);
        room->trees[t].cover = take_sets(room->leaves);
        room->trees[t].pieces = psti_calloc(room->leaves, sizeof(piece_set));
        right = room->trees[t].any != NULL && room->trees[t].cover != NULL &&
                room->trees[t].pieces != NULL;
    }
    if (right)
        return room;
    psti_room_close(room);
    return NULL;
}

/* The first run that ends at or above the address. */
static uint32_t first_at(const run_set *set, uint64_t address)
{
    uint32_t low = 0;
    uint32_t count = set->count;
    while (count > 0) {
        const uint32_t half = count / 2;
        if (set->runs[low + half].end < address) {
            low += half + 1;
            count -= half + 1;
        } else {
            count = half;
        }
    }
    return low;
}

/* Makes room for one more. */
static bool grow(void **items, uint32_t count, uint32_t *capacity, size_t bytes)
{
    if (count < *capacity)
        return true;
    const uint32_t more = *capacity != 0 ? *capacity + (*capacity + 1) / 2 : 2;
    void *larger = psti_enlarge(*items, *capacity * bytes, more * bytes);
    if (larger == NULL)
        return false;
    *items = larger;
    *capacity = more;
    return true;
}

/* Adds a range, joined with all runs that it touches. */
static bool add_run(run_set *set, pst_plan_range range)
{
    const uint32_t at = first_at(set, range.begin);
    uint32_t past = at;
    while (past < set->count && set->runs[past].begin <= range.end) {
        range.begin = set->runs[past].begin < range.begin ? set->runs[past].begin : range.begin;
        range.end = set->runs[past].end > range.end ? set->runs[past].end : range.end;
        past++;
    }
    if (past == at) {
        void *runs = set->runs;
        if (!grow(&runs, set->count, &set->capacity, sizeof(*set->runs)))
            return false;
        set->runs = runs;
        memmove(set->runs + at + 1, set->runs + at, (set->count - at) * sizeof(*set->runs));
        set->count++;
    } else if (past > at + 1) {
        memmove(set->runs + at + 1, set->runs + past, (set->count - past) * sizeof(*set->runs));
        set->count -= past - at - 1;
    }
    set->runs[at] = range;
    return true;
}

/* The blocks from `first` on that [begin, end) lives in throughout, and in part before and after. */
typedef struct cut {
    uint32_t first, end;   /* in any part */
    uint32_t whole, after; /* throughout: whole..after-1, if any */
} cut;

static cut cut_of(const psti_room *room, uint32_t begin, uint32_t end)
{
    const uint32_t shift = (uint32_t)__builtin_ctz(room->block);
    return (cut){begin >> shift, ((end - 1) >> shift) + 1, (begin + room->block - 1) >> shift,
                 end >> shift};
}

/* Nodes that the whole blocks are cut into, and those above all blocks, go through one of these. */
typedef bool (*visit_fn)(psti_room *room, tree *of, uint32_t node, bool is_whole,
                         pst_plan_range range);

static bool visit_nodes(psti_room *room, tree *of, cut blocks, visit_fn visit, pst_plan_range range)
{
    const uint32_t first = room->leaves + blocks.first;
    const uint32_t last = room->leaves + blocks.end - 1;
    const uint64_t whole = room->leaves + blocks.whole;
    const uint64_t after = room->leaves + blocks.after;
    uint64_t low = whole;
    uint64_t high = after;
    bool right = true;
    for (uint32_t level = 0; right && first >> level != 0; level++) {
        if (low < high && (low & 1) != 0)
            right = visit(room, of, (uint32_t)low++, true, range);
        if (right && low < high && (high & 1) != 0)
            right = visit(room, of, (uint32_t)--high, true, range);
        /* A node on either path up is above unless the whole of it is inside. */
        const uint64_t a = first >> level;
        const uint64_t b = last >> level;
        const bool is_a_inside = a << level >= whole && (a + 1) << level <= after;
        const bool is_b_inside = b << level >= whole && (b + 1) << level <= after;
        if (right && !is_a_inside)
            right = visit(room, of, (uint32_t)a, false, range);
        if (right && b != a && !is_b_inside)
            right = visit(room, of, (uint32_t)b, false, range);
        low /= 2;
        high /= 2;
    }
    return right;
}

static bool visit_take(psti_room *room, tree *of, uint32_t node, bool is_whole,
                       pst_plan_range range)
{
    (void)room;
    return add_run(&of->any[node], range) && (!is_whole || add_run(&of->cover[node], range));
}

static bool visit_ask(psti_room *room, tree *of, uint32_t node, bool is_whole, pst_plan_range range)
{
    (void)range;
    const run_set *set = is_whole ? &of->any[node] : &of->cover[node];
    if (set->count > 0)
        room->cursors[room->num_cursors++] = (cursor){.set = set};
    return true;
}

static bool add_piece(piece_set *set, piece added)
{
    void *list = set->list;
    if (!grow(&list, set->count, &set->capacity, sizeof(*set->list)))
        return false;
    set->list = list;
    uint32_t at = set->count++;
    for (; at > 0 && set->list[at - 1].range.begin > added.range.begin; at--)
        set->list[at] = set->list[at - 1];
    set->list[at] = added;
    return true;
}

/* The blocks at either end that are not whole. */
static uint32_t partial_blocks(cut blocks, uint32_t partial[2])
{
    uint32_t num = 0;
    if (blocks.first < blocks.whole || blocks.first >= blocks.after)
        partial[num++] = blocks.first;
    if (blocks.end - 1 != blocks.first && blocks.end > blocks.after)
        partial[num++] = blocks.end - 1;
    return num;
}

static tree *tree_of(const psti_room *room, uint32_t taker, uint32_t asker)
{
    return &room->trees[(size_t)taker * room->items->num_streams + asker];
}

static bool take_interval(psti_room *room, tree *of, uint32_t begin, uint32_t end,
                          pst_plan_range range)
{
    const cut blocks = cut_of(room, begin, end);
    uint32_t partial[2];
    const uint32_t num = partial_blocks(blocks, partial);
    bool right = visit_nodes(room, of, blocks, visit_take, range);
    for (uint32_t k = 0; k < num && right; k++)
        right = add_piece(&of->pieces[partial[k]], (piece){range, begin, end});
    return right;
}

bool psti_room_take(psti_room *room, uint32_t item, uint64_t address)
{
    const psti_items *items = room->items;
    const pst_plan_range range = {address, address + items->size[item]};
    for (uint32_t k = items->first[item]; k < items->first[item + 1]; k++)
        for (uint32_t r = 0; r < items->num_streams; r++)
            if (!take_interval(room, tree_of(room, items->stream[item], r), items->begin[k],
                               items->end[(size_t)k * items->num_streams + r], range))
                return false;
    return true;
}

static void ask_interval(psti_room *room, tree *of, uint32_t begin, uint32_t end)
{
    const pst_plan_range none = {0, 0};
    const cut blocks = cut_of(room, begin, end);
    uint32_t partial[2];
    const uint32_t num = partial_blocks(blocks, partial);
    visit_nodes(room, of, blocks, visit_ask, none);
    for (uint32_t k = 0; k < num; k++)
        if (of->pieces[partial[k]].count > 0)
            room->cursors[room->num_cursors++] =
                (cursor){.pieces = &of->pieces[partial[k]], .begin = begin, .end = end};
}

/* Collects the sets that hold all that the item may collide with. */
static void gather(psti_room *room, uint32_t item)
{
    const psti_items *items = room->items;
    room->num_cursors = 0;
    for (uint32_t k = items->first[item]; k < items->first[item + 1]; k++)
        for (uint32_t q = 0; q < items->num_streams; q++)
            ask_interval(room, tree_of(room, q, items->stream[item]), items->begin[k],
                         items->end[(size_t)k * items->num_streams + q]);
}

/* What comes next in the cursor's set above the address, or NULL. */
static const pst_plan_range *range_at(cursor *at, uint64_t address)
{
    if (at->set != NULL) {
        while (at->at < at->set->count && at->set->runs[at->at].end <= address)
            at->at++;
        return at->at < at->set->count ? &at->set->runs[at->at] : NULL;
    }
    for (; at->at < at->pieces->count; at->at++) {
        const piece *of = &at->pieces->list[at->at];
        if (of->range.end > address && of->begin < at->end && at->begin < of->end)
            return &of->range;
    }
    return NULL;
}

/* The end of what is in the way of [address, address + size), or the address itself. */
static uint64_t step_over(cursor *at, uint64_t address, uint64_t size)
{
    const pst_plan_range *range = range_at(at, address);
    return range != NULL && range->begin < address + size ? range->end : address;
}

/* The lowest free address at or above `address`. */
static uint64_t first_fit(psti_room *room, uint64_t address, uint64_t size)
{
    size_t quiet = 0; /* sets in a row that had nothing in the way */
    for (size_t k = 0; quiet < room->num_cursors; k = k + 1 < room->num_cursors ? k + 1 : 0) {
        const uint64_t next = step_over(&room->cursors[k], address, size);
        quiet = next == address ? quiet + 1 : 0;
        address = next;
    }
    return address;
}

/* Where the gap that holds `address` ends. */
static uint64_t gap_end(psti_room *room, uint64_t address)
{
    uint64_t end = UINT64_MAX;
    for (size_t k = 0; k < room->num_cursors; k++) {
        const pst_plan_range *range = range_at(&room->cursors[k], address);
        if (range != NULL && range->begin < end && range->begin >= address)
            end = range->begin;
    }
    return end;
}

uint64_t psti_room_find(psti_room *room, uint32_t item, bool best_fit)
{
    const uint64_t size = room->items->size[item];
    gather(room, item);
    uint64_t best = first_fit(room, 0, size);
    if (!best_fit)
        return best;
    uint64_t end = gap_end(room, best);
    uint64_t smallest = end - best;
    while (end != UINT64_MAX && smallest > size) {
        const uint64_t address = first_fit(room, end, size);
        end = gap_end(room, address);
        if (end != UINT64_MAX && end - address < smallest) {
            best = address;
            smallest = end - address;
        }
    }
    return best;
}

/* Whether the item fits at the address. */
static bool is_free(psti_room *room, uint32_t item, uint64_t address)
{
    gather(room, item);
    return first_fit(room, address, room->items->size[item]) == address;
}

static void clear(run_set *sets, uint32_t leaves)
{
    for (uint32_t v = 0; v < 2 * leaves; v++)
        sets[v].count = 0;
}

psti_room_result psti_room_reset(psti_room *room, uint32_t *item_out)
{
    const psti_items *items = room->items;
    for (uint32_t t = 0; t < items->num_streams * items->num_streams; t++) {
        clear(room->trees[t].any, room->leaves);
        clear(room->trees[t].cover, room->leaves);
        for (uint32_t b = 0; b < room->leaves; b++)
            room->trees[t].pieces[b].count = 0;
        for (uint32_t r = 0; r < items->num_reserved; r++)
            if (!add_run(&room->trees[t].cover[1], items->reserved[r]) ||
                !add_run(&room->trees[t].any[1], items->reserved[r]))
                return PSTI_ROOM_NO_MEMORY;
    }
    for (uint32_t i = 0; i < items->n; i++) {
        if (items->pin[i] == PST_PLAN_FREE)
            continue;
        *item_out = i;
        if (!is_free(room, i, items->pin[i]))
            return PSTI_ROOM_TAKEN;
        if (!psti_room_take(room, i, items->pin[i]))
            return PSTI_ROOM_NO_MEMORY;
    }
    return PSTI_ROOM_READY;
}
