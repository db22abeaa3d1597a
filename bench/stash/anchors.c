/* What stash and restore are compared with. */
#include "bench/stash/rig.h"

#include <stdlib.h>

#include "host/base/arith.h"

static const struct {
    const char *name;
    pst_backend backend; /* of our own copies, else auto */
    bool streaming;
} anchors[BENCH_NUM_ANCHORS] = {
    [BENCH_DRIVER_COPY] = {"driver_copy", PST_BACKEND_AUTO, false},
    [BENCH_OWN_LDG] = {"own_copy_ldg", PST_BACKEND_LDG, false},
    [BENCH_OWN_LDG_STREAMING] = {"own_copy_ldg_streaming", PST_BACKEND_LDG, true},
    [BENCH_OWN_BULK] = {"own_copy_bulk", PST_BACKEND_BULK, false},
    [BENCH_OWN_BULK_STREAMING] = {"own_copy_bulk_streaming", PST_BACKEND_BULK, true},
    [BENCH_OWN_SQUEEZE] = {"own_copy_squeeze", PST_BACKEND_SQUEEZE, false},
    [BENCH_OWN_SQUEEZE_STREAMING] = {"own_copy_squeeze_streaming", PST_BACKEND_SQUEEZE, true},
    [BENCH_CUB_TRANSFORM] = {"cub_transform", PST_BACKEND_AUTO, false},
    [BENCH_CUB_BATCHED] = {"cub_batched", PST_BACKEND_AUTO, false},
    [BENCH_FULL_CAPACITY] = {"full_capacity_copy", PST_BACKEND_AUTO, false},
    [BENCH_EMPTY_NODE] = {"empty_node", PST_BACKEND_AUTO, false},
};

const char *bench_anchor_name(const pst_device_info *device, bench_slot slot)
{
    if (device->kind == PST_DEVICE_HOST && slot == BENCH_DRIVER_COPY)
        return "memcpy";
    return anchors[slot].name;
}

bool bench_has_anchor(const pst_device_info *device, bench_slot slot)
{
    if (slot == BENCH_DRIVER_COPY || slot == BENCH_FULL_CAPACITY)
        return true;
    if (anchors[slot].backend != PST_BACKEND_AUTO)
        return device->backends & 1u << anchors[slot].backend;
    return device->kind == PST_DEVICE_CUDA;
}

uint32_t bench_own_copies(const pst_device_info *device, pst_backend backend, bool is_stash,
                          bench_slot *slots)
{
    uint32_t num = 0;
    if (device->kind == PST_DEVICE_HOST) {
        slots[0] = BENCH_DRIVER_COPY;
        return 1;
    }
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++) {
        const pst_backend own = anchors[slot].backend;
        const bool fits = backend == PST_BACKEND_AUTO ? own != PST_BACKEND_SQUEEZE : own == backend;
        if (own != PST_BACKEND_AUTO && fits && anchors[slot].streaming == is_stash &&
            bench_has_anchor(device, (bench_slot)slot))
            slots[num++] = (bench_slot)slot;
    }
    return num;
}

int bench_enqueue_copy(const bench_timer *timer, bench_slot slot, int num_sms, void *to,
                       const void *from, uint64_t bytes)
{
    if (slot == BENCH_DRIVER_COPY)
        return tool_status(pst_device_copy(timer->device, to, from, bytes, timer->stream));
    if (slot == BENCH_CUB_TRANSFORM)
        return bench_gpu_status(bench_gpu_transform(to, from, bytes, timer->stream));
    return bench_gpu_status(bench_gpu_copy(anchors[slot].backend, anchors[slot].streaming, num_sms,
                                           to, from, bytes, timer->stream));
}

/* ---- the pieces of pages, for a batch of copies ---- */

enum { TILE_BYTES = 16 << 10, VECTOR_BYTES = 16 };

typedef struct piece_list {
    const bench_rig *rig;
    unsigned char *arena, *target;
    void **rows, **pages; /* NULL to count only */
    uint32_t *sizes;
    uint32_t num;
} piece_list;

/* A run of rows that begins at `position` of the byte stream: cut where pages end. */
static void add_run(piece_list *list, unsigned char *rows, uint64_t position, uint64_t bytes)
{
    const uint64_t page_bytes = list->rig->what.page_bytes;
    while (bytes) {
        const uint64_t left = page_bytes - position % page_bytes;
        const uint64_t piece = bytes < left ? bytes : left;
        if (list->rows) {
            list->rows[list->num] = rows;
            list->pages[list->num] = list->target + position;
            list->sizes[list->num] = (uint32_t)piece;
        }
        list->num++;
        rows += piece;
        position += piece;
        bytes -= piece;
    }
}

/* As group.h lays out the byte stream. */
static void add_runs(piece_list *list)
{
    const bench_shape *shape = &list->rig->shape;
    uint64_t position = 0;
    for (uint32_t t = 0; t < shape->num_tensors; t++) {
        const uint64_t row_bytes = shape->tensors[t].row_bytes;
        const uint64_t slab = (uint64_t)shape->space.capacity * row_bytes;
        position = psti_round_up(position, TILE_BYTES);
        for (uint32_t e = 0; e < shape->num_counts; e++) {
            const uint64_t bytes = (uint64_t)shape->counts[e] * row_bytes;
            add_run(list, list->arena + shape->offsets[t] + e * slab, position, bytes);
            position += psti_round_up(bytes, VECTOR_BYTES);
        }
    }
}

static int to_device(const bench_rig *rig, const void *from, size_t bytes, void **address_out)
{
    TOOL_PST(pst_device_alloc(rig->device, bytes, address_out));
    TOOL_PST(pst_device_copy(rig->device, *address_out, from, bytes, NULL));
    return tool_status(pst_device_synchronize(rig->device));
}

static int copy_pieces(const bench_rig *rig, const piece_list *list, bench_pieces *pieces)
{
    pieces->num = list->num;
    TOOL_TRY(to_device(rig, list->rows, list->num * sizeof(list->rows[0]), &pieces->rows));
    TOOL_TRY(to_device(rig, list->pages, list->num * sizeof(list->pages[0]), &pieces->pages));
    TOOL_TRY(to_device(rig, list->sizes, list->num * sizeof(list->sizes[0]), &pieces->sizes));
    BENCH_GPU(bench_gpu_batched(NULL, &pieces->scratch_bytes, pieces->rows, pieces->pages,
                                pieces->sizes, pieces->num, rig->timer.stream));
    return tool_status(pst_device_alloc(rig->device, pieces->scratch_bytes + 1, &pieces->scratch));
}

int bench_make_pieces(const bench_rig *rig, bench_copy *copy)
{
    piece_list list = {.rig = rig, .arena = copy->arena, .target = copy->target};
    add_runs(&list);
    list.rows = calloc(list.num + 1, sizeof(list.rows[0]));
    list.pages = calloc(list.num + 1, sizeof(list.pages[0]));
    list.sizes = calloc(list.num + 1, sizeof(list.sizes[0]));
    int code = TOOL_NO;
    if (list.rows && list.pages && list.sizes) {
        list.num = 0;
        add_runs(&list);
        code = copy_pieces(rig, &list, &copy->pieces);
    } else {
        tool_fail(code, "out of memory");
    }
    free(list.rows);
    free(list.pages);
    free(list.sizes);
    return code;
}

int bench_free_pieces(const bench_rig *rig, bench_copy *copy)
{
    bench_pieces *pieces = &copy->pieces;
    TOOL_PST(pst_device_free(rig->device, pieces->rows));
    TOOL_PST(pst_device_free(rig->device, pieces->pages));
    TOOL_PST(pst_device_free(rig->device, pieces->sizes));
    return tool_status(pst_device_free(rig->device, pieces->scratch));
}

int bench_enqueue_pieces(const bench_rig *rig, const bench_pieces *pieces, bool back)
{
    size_t scratch_bytes = pieces->scratch_bytes;
    return bench_gpu_status(bench_gpu_batched(
        pieces->scratch, &scratch_bytes, back ? pieces->pages : pieces->rows,
        back ? pieces->rows : pieces->pages, pieces->sizes, pieces->num, rig->timer.stream));
}
