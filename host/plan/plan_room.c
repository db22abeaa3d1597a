/* Which addresses are taken when, so that a gap is found without looking at every conflict.
 *
 * A segment tree over the slots. Of a node, `cover` holds the addresses of what lives throughout the
 * node's slots (and was cut up to end there), `any` those of what lives in any of them. What an
 * interval may collide with is then `any` of the nodes it is cut into, and `cover` of those above.
 * Each set is a sorted array of runs; runs that touch are one, and in a tight placement most do, so
 * the sets stay short. With several streams there is a tree for each pair: the lives of one stream's
 * items as another stream sees them. */
#include "host/plan/plan.h"

#include <string.h>

typedef struct run_set {
    uint32_t count, capacity;
    pst_plan_range *runs;
} run_set;

typedef struct tree {
    run_set *any, *cover; /* [2 * leaves], the root is 1 */
} tree;

typedef struct cursor {
    const run_set *set;
    uint32_t at; /* first run that ends above the address in work */
} cursor;

struct psti_room {
    const psti_items *items;
    uint32_t leaves;
    tree *trees; /* [num_streams][num_streams]: of the taker, of who asks */
    cursor *cursors;
    size_t num_cursors;
    uint64_t limit; /* what find needs not exceed */
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
    uint32_t levels = 1;
    for (; room->leaves < items->num_slots; levels++)
        room->leaves *= 2;
    uint32_t most = 1;
    for (uint32_t i = 0; i < items->n; i++)
        if (items->first[i + 1] - items->first[i] > most)
            most = items->first[i + 1] - items->first[i];
    room->cursors = psti_calloc((size_t)4 * levels * most * streams + 1, sizeof(*room->cursors));
    room->trees = psti_calloc((size_t)streams * streams, sizeof(*room->trees));
    bool right = room->cursors != NULL && room->trees != NULL;
    for (uint32_t t = 0; right && t < streams * streams; t++) {
        room->trees[t].any = take_sets(room->leaves);
        room->trees[t].cover = take_sets(room->leaves);
        right = room->trees[t].any != NULL && room->trees[t].cover != NULL;
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

static bool grow(run_set *set)
{
    const uint32_t capacity = set->capacity != 0 ? 2 * set->capacity : 4;
    pst_plan_range *runs = psti_calloc(capacity, sizeof(*runs));
    if (runs == NULL)
        return false;
    if (set->count > 0)
        memcpy(runs, set->runs, set->count * sizeof(*runs));
    psti_free(set->runs);
    set->runs = runs;
    set->capacity = capacity;
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
        if (set->count == set->capacity && !grow(set))
            return false;
        memmove(set->runs + at + 1, set->runs + at, (set->count - at) * sizeof(*set->runs));
        set->count++;
    } else if (past > at + 1) {
        memmove(set->runs + at + 1, set->runs + past, (set->count - past) * sizeof(*set->runs));
        set->count -= past - at - 1;
    }
    set->runs[at] = range;
    return true;
}

/* Nodes that [begin, end) is cut into, and those above, go through one of these. */
typedef bool (*visit_fn)(psti_room *room, tree *of, uint32_t node, bool is_whole,
                         pst_plan_range range);

static bool visit_nodes(psti_room *room, tree *of, uint32_t begin, uint32_t end, visit_fn visit,
                        pst_plan_range range)
{
    const uint32_t first = room->leaves + begin;
    const uint32_t last = room->leaves + end - 1;
    uint32_t low = first;
    uint32_t high = last + 1;
    bool right = true;
    for (uint32_t level = 0; right && first >> level != 0; level++) {
        if (low < high && (low & 1) != 0)
            right = visit(room, of, low++, true, range);
        if (right && low < high && (high & 1) != 0)
            right = visit(room, of, --high, true, range);
        /* A node on either path up is above unless the whole of it is inside. */
        const uint32_t a = first >> level;
        const uint32_t b = last >> level;
        const bool is_a_inside = a << level == first && ((a + 1) << level) - 1 <= last;
        const bool is_b_inside = b << level >= first && ((b + 1) << level) - 1 == last;
        if (right && !is_a_inside)
            right = visit(room, of, a, false, range);
        if (right && b != a && !is_b_inside)
            right = visit(room, of, b, false, range);
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
        room->cursors[room->num_cursors++] = (cursor){set, 0};
    return true;
}

static tree *tree_of(const psti_room *room, uint32_t taker, uint32_t asker)
{
    return &room->trees[(size_t)taker * room->items->num_streams + asker];
}

bool psti_room_take(psti_room *room, uint32_t item, uint64_t address)
{
    const psti_items *items = room->items;
    const pst_plan_range range = {address, address + items->size[item]};
    for (uint32_t k = items->first[item]; k < items->first[item + 1]; k++)
        for (uint32_t r = 0; r < items->num_streams; r++)
            if (!visit_nodes(room, tree_of(room, items->stream[item], r), items->begin[k],
                             items->end[(size_t)k * items->num_streams + r], visit_take, range))
                return false;
    return true;
}

/* Collects the sets that hold all that the item may collide with. */
static void gather(psti_room *room, uint32_t item)
{
    const psti_items *items = room->items;
    const pst_plan_range none = {0, 0};
    room->num_cursors = 0;
    for (uint32_t k = items->first[item]; k < items->first[item + 1]; k++)
        for (uint32_t q = 0; q < items->num_streams; q++)
            visit_nodes(room, tree_of(room, q, items->stream[item]), items->begin[k],
                        items->end[(size_t)k * items->num_streams + q], visit_ask, none);
}

/* The end of the run of the cursor's set that is in the way of [address, address + size), or the
 * address itself. */
static uint64_t step_over(cursor *at, uint64_t address, uint64_t size)
{
    const run_set *set = at->set;
    while (at->at < set->count && set->runs[at->at].end <= address)
        at->at++;
    return at->at < set->count && set->runs[at->at].begin < address + size ? set->runs[at->at].end
                                                                           : address;
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
static uint64_t gap_end(const psti_room *room, uint64_t address)
{
    uint64_t end = UINT64_MAX;
    for (size_t k = 0; k < room->num_cursors; k++) {
        const cursor *at = &room->cursors[k];
        if (at->at < at->set->count && at->set->runs[at->at].begin < end &&
            at->set->runs[at->at].begin >= address)
            end = at->set->runs[at->at].begin;
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
