/* The plan as the arena follows it, made once from a plan file. */
#include <inttypes.h>

#include "host/arena/arena.h"

/* How many pairs have a key below `key`. */
static uint32_t count_below(const psti_pair *pairs, uint32_t num_pairs, uint64_t key)
{
    uint32_t low = 0;
    uint32_t high = num_pairs;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (pairs[middle].key < key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- rows ---- */

static pst_status stream_of(pst_arena *arena, uint32_t name, uint32_t *stream_out)
{
    for (uint32_t i = 0; i < arena->num_streams; i++)
        if (arena->stream_names[i] == name) {
            *stream_out = i;
            return PST_OK;
        }
    PSTI_CHECK(arena->num_streams < PST_ARENA_MAX_STREAMS, PST_E_INVALID,
               "the plan has more than %d streams", PST_ARENA_MAX_STREAMS);
    arena->stream_names[arena->num_streams] = name;
    *stream_out = arena->num_streams++;
    return PST_OK;
}

static pst_status take_malloc(pst_arena *arena, const pst_plan_row *row, uint32_t index)
{
    const uint64_t align = arena->config.align;
    psti_entry *entry = &arena->entries[index];
    PSTI_CHECK(row->offset % align == 0, PST_E_INVALID,
               "tensor %" PRIu64 ", line %" PRIu64 ": offset %" PRIu64
               ": allowed are multiples of align, %" PRIu64,
               row->id, row->line, row->offset, align);
    entry->offset = row->offset;
    entry->bytes = (row->bytes + align - 1) & ~(align - 1);
    entry->freed_at = PSTI_NO_INDEX;
    arena->ids[index] = row->id;
    if (entry->offset + entry->bytes > arena->bytes)
        arena->bytes = entry->offset + entry->bytes;
    uint32_t stream = 0;
    PSTI_TRY(stream_of(arena, row->stream, &stream));
    entry->stream = (uint8_t)stream;
    return PST_OK;
}

/* The entries by id, sorted; all mallocs are taken. A mark without a malloc behind it is where a
 * recording ended: it begins no iteration, and what is freed behind it has no end. */
static pst_status take_ends(pst_arena *arena, const pst_plan_row *rows, uint64_t num_rows,
                            const psti_pair *by_id)
{
    uint32_t before = 0;
    bool is_over = false;
    for (uint64_t i = 0; i < num_rows; i++) {
        const pst_plan_row *row = &rows[i];
        if (row->op == PST_PLAN_OP_MALLOC) {
            before++;
        } else if (row->op == PST_PLAN_OP_MARK) {
            is_over = is_over || (before == arena->num_entries && arena->num_marks > 0);
            if (!is_over)
                arena->marks[arena->num_marks++] = before;
        } else {
            const uint32_t index = count_below(by_id, arena->num_entries, row->id);
            psti_entry *entry = &arena->entries[by_id[index].value];
            uint32_t stream = 0;
            if (row->op == PST_PLAN_OP_USE) {
                PSTI_TRY(stream_of(arena, row->stream, &stream));
                entry->uses |= UINT64_C(1) << stream;
            } else if (!is_over) {
                entry->freed_at = before;
            }
        }
    }
    if (arena->num_marks == 0)
        arena->num_marks = 1; /* at 0 */
    return PST_OK;
}

static pst_status take_rows(pst_arena *arena, const pst_plan_file *plan, psti_pair *pairs)
{
    const pst_plan_row *rows = pst_plan_file_rows(plan);
    const uint64_t num_rows = pst_plan_file_num_rows(plan);
    uint32_t index = 0;
    for (uint64_t i = 0; i < num_rows; i++) {
        if (rows[i].op != PST_PLAN_OP_MALLOC)
            continue;
        pairs[index] = (psti_pair){rows[i].id, index};
        PSTI_TRY(take_malloc(arena, &rows[i], index++));
    }
    psti_sort_pairs(pairs, arena->num_entries);
    return take_ends(arena, rows, num_rows, pairs);
}

/* ---- addresses ---- */

psti_slot *psti_arena_slot(const pst_arena *arena, uint64_t offset)
{
    const uint64_t index = psti_map_get(&arena->slot_at, offset);
    return index == PSTI_MAP_NONE ? NULL : &arena->slots[index];
}

static pst_status take_addresses(pst_arena *arena, psti_pair *pairs)
{
    for (uint32_t i = 0; i < arena->num_entries; i++)
        pairs[i] = (psti_pair){arena->entries[i].offset, i};
    psti_sort_pairs(pairs, arena->num_entries);
    for (uint32_t rank = 0; rank < arena->num_entries; rank++) {
        psti_entry *entry = &arena->entries[pairs[rank].value];
        arena->by_rank[rank] = (uint32_t)pairs[rank].value;
        if (rank == 0 || pairs[rank - 1].key != pairs[rank].key) {
            PSTI_TRY(psti_map_set(&arena->slot_at, entry->offset, arena->num_slots));
            arena->slots[arena->num_slots++].offset = entry->offset;
        }
        entry->rank = rank;
        entry->slot = arena->num_slots - 1;
        entry->upper = count_below(pairs, arena->num_entries, entry->offset + entry->bytes);
    }
    return PST_OK;
}

/* The addresses that `stream` ever has, as ranges in order that do not touch. */
static uint32_t ranges_of(const pst_arena *arena, uint32_t stream, pst_plan_range *ranges)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < arena->num_entries; rank++) {
        const psti_entry *entry = &arena->entries[arena->by_rank[rank]];
        const uint64_t end = entry->offset + entry->bytes;
        if (entry->stream != stream)
            continue;
        if (count == 0 || entry->offset > ranges[count - 1].end)
            ranges[count++] = (pst_plan_range){entry->offset, end};
        else if (end > ranges[count - 1].end)
            ranges[count - 1].end = end;
    }
    return count;
}

static bool touches(const psti_entry *entry, const pst_plan_range *ranges, uint32_t count)
{
    uint32_t low = 0;
    while (low < count) {
        const uint32_t middle = low + (count - low) / 2;
        if (ranges[middle].end <= entry->offset)
            low = middle + 1;
        else
            count = middle;
    }
    return ranges[low].begin < entry->offset + entry->bytes;
}

static pst_status take_sharing(pst_arena *arena)
{
    if (arena->num_streams < 2)
        return PST_OK;
    /* one more than there can be, which touches nothing */
    pst_plan_range *ranges = psti_calloc((size_t)arena->num_entries + 1, sizeof(*ranges));
    PSTI_CHECK(ranges, PST_E_NOMEM, "no memory for a plan of %u tensors", arena->num_entries);
    for (uint32_t stream = 0; stream < arena->num_streams; stream++) {
        const uint32_t count = ranges_of(arena, stream, ranges);
        ranges[count] = (pst_plan_range){UINT64_MAX, UINT64_MAX};
        for (uint32_t i = 0; i < arena->num_entries; i++)
            if (arena->entries[i].stream != stream && touches(&arena->entries[i], ranges, count))
                arena->entries[i].is_shared = true;
    }
    psti_free(ranges);
    return PST_OK;
}

/* ---- all ---- */

static pst_status allocate(pst_arena *arena, uint64_t num_marks)
{
    const uint64_t count = arena->num_entries ? arena->num_entries : 1;
    arena->entries = psti_calloc(count, sizeof(*arena->entries));
    arena->ids = psti_calloc(count, sizeof(*arena->ids));
    arena->by_rank = psti_calloc(count, sizeof(*arena->by_rank));
    arena->slots = psti_calloc(count, sizeof(*arena->slots));
    arena->marks = psti_calloc(num_marks + 1, sizeof(*arena->marks));
    PSTI_CHECK(arena->entries && arena->ids && arena->by_rank && arena->slots && arena->marks,
               PST_E_NOMEM, "no memory for a plan of %u tensors", arena->num_entries);
    return psti_bits_open(&arena->used, arena->num_entries);
}

pst_status psti_arena_take_plan(pst_arena *arena, const pst_plan_file *plan)
{
    uint64_t num_marks = 0;
    arena->has_plan = plan != NULL;
    if (!plan) {
        PSTI_TRY(allocate(arena, 0));
        arena->num_marks = 1;
        return PST_OK;
    }
    for (uint64_t i = 0; i < pst_plan_file_num_rows(plan); i++)
        num_marks += pst_plan_file_rows(plan)[i].op == PST_PLAN_OP_MARK;
    arena->num_entries = (uint32_t)pst_plan_file_num_tensors(plan);
    PSTI_TRY(allocate(arena, num_marks));
    psti_pair *pairs = psti_calloc((size_t)arena->num_entries + 1, sizeof(*pairs));
    PSTI_CHECK(pairs, PST_E_NOMEM, "no memory for a plan of %u tensors", arena->num_entries);
    pst_status status = take_rows(arena, plan, pairs);
    if (status == PST_OK)
        status = take_addresses(arena, pairs);
    psti_free(pairs);
    PSTI_TRY(status);
    return take_sharing(arena);
}

void psti_arena_drop_plan(pst_arena *arena)
{
    psti_bits_close(&arena->used);
    psti_free(arena->entries);
    psti_free(arena->ids);
    psti_free(arena->by_rank);
    psti_free(arena->slots);
    psti_map_free(&arena->slot_at);
    psti_free(arena->marks);
}
