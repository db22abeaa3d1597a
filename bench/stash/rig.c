/* The buffers, groups, pool and graphs of one configuration. */
#include "bench/stash/rig.h"

#include <stdlib.h>

#include "host/base/arith.h"

enum { MAX_COPIES = 256, CACHES_BETWEEN = 4, ALIGNMENT = 256 };

uint64_t bench_flush_bytes(const bench_rig *rig)
{
    return CACHES_BETWEEN * rig->machine->cache_bytes;
}

/* Of a group that is gone again: a configuration that is prepared may never be opened. */
static int measure_pages(bench_rig *rig)
{
    pst_group *group = NULL;
    pst_group_usage usage = {0};
    TOOL_TRY(
        bench_make_group(&rig->shape.space, rig->shape.tensors, rig->shape.num_tensors, &group));
    const pst_status measured =
        pst_group_measure(group, rig->shape.counts, rig->what.page_bytes, &usage);
    rig->pages = usage.pages;
    TOOL_PST(measured);
    return tool_status(pst_group_destroy(group));
}

/* ---- how much is made ---- */

static void choose_slots(bench_rig *rig)
{
    const pst_device_info *info = &rig->machine->device;
    const bool has_rows = rig->shape.live_bytes > 0;
    rig->wanted[BENCH_STASH] = rig->wanted[BENCH_RESTORE] = true;
    for (int is_stash = 0; has_rows && is_stash < 2; is_stash++) {
        bench_slot own[BENCH_NUM_ANCHORS];
        const uint32_t num = bench_own_copies(info, rig->what.backend, is_stash, own);
        for (uint32_t i = 0; i < num; i++)
            rig->wanted[own[i]] = true;
    }
    if (rig->what.peers) {
        rig->wanted[BENCH_FULL_CAPACITY] = true;
        rig->wanted[BENCH_CUB_BATCHED] = has_rows && bench_has_anchor(info, BENCH_CUB_BATCHED);
        rig->wanted[BENCH_DRIVER_COPY] |= has_rows;
    }
    rig->wanted[BENCH_EMPTY_NODE] = !has_rows && bench_has_anchor(info, BENCH_EMPTY_NODE);
}

/* In a pass over all copies each moves its live bytes twice, in and out. */
static uint32_t copies_for(const bench_rig *rig)
{
    const uint64_t moved = 2 * rig->shape.live_bytes;
    if (moved == 0 || rig->what.host_bytes)
        return 1;
    const uint64_t copies = (bench_flush_bytes(rig) + moved - 1) / moved;
    return copies < MAX_COPIES ? (uint32_t)copies : MAX_COPIES;
}

int bench_rig_prepare(bench_rig *rig, pst_device *device, const bench_machine *machine,
                      const bench_case *what)
{
    *rig = (bench_rig){.machine = machine, .device = device, .what = *what};
    bench_shape_of(what, &rig->shape);
    TOOL_TRY(measure_pages(rig));
    choose_slots(rig);
    rig->num_copies = copies_for(rig);
    uint64_t most = rig->shape.live_bytes;
    if (what->peers && rig->shape.arena_bytes > most)
        most = rig->shape.arena_bytes;
    if (rig->wanted[BENCH_CUB_BATCHED] && rig->pages * what->page_bytes > most)
        most = rig->pages * what->page_bytes;
    rig->target_bytes = psti_round_up(most ? most : 1, ALIGNMENT);
    return TOOL_OK;
}

/* The pool has just the pages that are wanted, so that every page is in use in every round. To
 * arrange the ring takes a ticket for each page, too. */
static pst_pool_config pool_config(const bench_rig *rig)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = rig->what.page_bytes;
    config.num_pages = rig->pages ? rig->pages * rig->num_copies : 1;
    config.num_host_pages = rig->what.host_bytes / rig->what.page_bytes;
    config.max_tickets = rig->num_copies;
    if (rig->what.ring != BENCH_FRESH)
        config.max_tickets += (uint32_t)config.num_pages;
    return config;
}

/* Where the copies do not come to four times the cache. Nobody asks what an empty stash costs on
 * host, whose cache may take seconds to flush. */
static bool needs_flush(const bench_rig *rig)
{
    return rig->num_copies == MAX_COPIES ||
           (rig->shape.live_bytes == 0 && rig->machine->device.kind == PST_DEVICE_CUDA);
}

int bench_rig_bytes(const bench_rig *rig, uint64_t *bytes_out)
{
    const pst_pool_config config = pool_config(rig);
    uint64_t bytes = 0;
    TOOL_PST(pst_pool_bytes(&config, &bytes));
    bytes += rig->num_copies * (rig->shape.arena_bytes + rig->target_bytes);
    if (rig->machine->device.kind == PST_DEVICE_HOST)
        bytes += rig->what.host_bytes;
    *bytes_out = bytes + (needs_flush(rig) ? bench_flush_bytes(rig) : 0);
    return TOOL_OK;
}

/* ---- open ---- */

static int allocate(const bench_rig *rig, uint64_t bytes, void **address_out)
{
    return tool_status(pst_device_alloc(rig->device, bytes, address_out));
}

static int make_buffers(bench_rig *rig)
{
    const size_t counts_bytes = rig->shape.num_counts * sizeof(rig->shape.counts[0]);
    rig->copies = calloc(rig->num_copies, sizeof(rig->copies[0]));
    if (rig->copies == NULL)
        return tool_fail(TOOL_NO, "out of memory");
    TOOL_TRY(allocate(rig, rig->num_copies * rig->shape.arena_bytes, &rig->arenas));
    TOOL_TRY(allocate(rig, rig->num_copies * rig->target_bytes, &rig->targets));
    TOOL_TRY(allocate(rig, counts_bytes, &rig->counts));
    if (needs_flush(rig))
        TOOL_TRY(allocate(rig, bench_flush_bytes(rig), &rig->flush));
    TOOL_PST(pst_device_copy(rig->device, rig->counts, rig->shape.counts, counts_bytes, NULL));
    /* touched once, so that no sample does it first */
    TOOL_PST(pst_device_fill(rig->device, rig->targets, BENCH_POISON,
                             rig->num_copies * rig->target_bytes, NULL));
    TOOL_PST(pst_device_synchronize(rig->device));
    for (uint32_t k = 0; k < rig->num_copies; k++) {
        bench_copy *copy = &rig->copies[k];
        copy->arena = (unsigned char *)rig->arenas + k * rig->shape.arena_bytes;
        copy->target = (unsigned char *)rig->targets + k * rig->target_bytes;
        copy->counts = rig->counts;
        for (uint32_t t = 0; t < rig->shape.num_tensors; t++)
            copy->bases[t] = copy->arena + rig->shape.offsets[t];
    }
    return TOOL_OK;
}

static int make_pool(bench_rig *rig)
{
    const pst_pool_config config = pool_config(rig);
    const double begin = bench_now();
    TOOL_PST(pst_pool_create(rig->device, &config, &rig->pool));
    rig->pool_seconds = bench_now() - begin;
    TOOL_TRY(bench_make_group(&rig->shape.space, rig->shape.tensors, rig->shape.num_tensors,
                              &rig->group));
    for (uint32_t k = 0; k < rig->num_copies; k++)
        TOOL_PST(pst_ticket_create(rig->pool, rig->group, &rig->copies[k].ticket));
    return TOOL_OK;
}

/* order[i] is the page that is given back as number i. */
static void order_pages(bench_ring ring, uint32_t *order, uint32_t num)
{
    uint64_t seed = BENCH_FIRST_DRAW;
    for (uint32_t i = 0; i < num; i++)
        order[i] = ring == BENCH_REVERSED ? num - 1 - i : i;
    for (uint32_t i = num; ring == BENCH_SHUFFLED && i > 1; i--) {
        const uint32_t j = (uint32_t)(bench_draw(&seed) % i), other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
}

/* Every page is taken by a ticket of its own; the order in which they are released is that of the
 * ring. */
static int take_and_release(const bench_rig *rig, const pst_group *page, pst_ticket *tickets,
                            const uint32_t *order, uint32_t num)
{
    const pst_buffers at = bench_flat_at(&rig->arenas);
    for (uint32_t i = 0; i < num; i++) {
        TOOL_PST(pst_ticket_create(rig->pool, page, &tickets[i]));
        TOOL_PST(pst_ticket_stash(tickets[i], page, &at, NULL, rig->timer.stream));
    }
    for (uint32_t i = 0; i < num; i++)
        TOOL_PST(pst_ticket_release(tickets[order[i]], rig->timer.stream));
    TOOL_PST(pst_stream_synchronize(rig->device, rig->timer.stream));
    for (uint32_t i = 0; i < num; i++)
        TOOL_PST(pst_ticket_destroy(tickets[i]));
    return TOOL_OK;
}

static int arrange_ring(bench_rig *rig)
{
    const uint32_t num = (uint32_t)pool_config(rig).num_pages;
    pst_group *page = NULL;
    if (rig->what.ring == BENCH_FRESH)
        return TOOL_OK;
    TOOL_TRY(bench_make_flat(1, &page));
    pst_ticket *tickets = calloc(num + 1u, sizeof(tickets[0]));
    uint32_t *order = calloc(num + 1u, sizeof(order[0]));
    int code = TOOL_NO;
    if (tickets && order) {
        order_pages(rig->what.ring, order, num);
        code = take_and_release(rig, page, tickets, order, num);
    } else {
        tool_fail(code, "out of memory");
    }
    free(tickets);
    free(order);
    return code == TOOL_OK ? tool_status(pst_group_destroy(page)) : code;
}

/* ---- graphs ---- */

pst_buffers bench_copy_at(const bench_copy *copy)
{
    pst_buffers buffers = PST_BUFFERS_INIT;
    buffers.bases = copy->bases;
    buffers.counts = &copy->counts;
    return buffers;
}

int bench_rig_enqueue(const bench_rig *rig, const bench_copy *copy, bench_slot slot)
{
    const pst_buffers at = bench_copy_at(copy);
    const pst_launch_options launch = {.num_sms = rig->what.num_sms, .backend = rig->what.backend};
    pst_stash_options stash = PST_STASH_OPTIONS_INIT;
    pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    switch (slot) {
    case BENCH_STASH:
        stash.launch = launch;
        return tool_status(
            pst_ticket_stash(copy->ticket, rig->group, &at, &stash, rig->timer.stream));
    case BENCH_RESTORE:
        restore.launch = launch;
        return tool_status(
            pst_ticket_restore(copy->ticket, rig->group, &at, &restore, rig->timer.stream));
    case BENCH_CUB_BATCHED:
        return bench_enqueue_pieces(rig, &copy->pieces, false);
    case BENCH_FULL_CAPACITY:
        return bench_enqueue_copy(&rig->timer, BENCH_DRIVER_COPY, 0, copy->target, copy->arena,
                                  rig->shape.arena_bytes);
    case BENCH_EMPTY_NODE:
        return bench_gpu_status(bench_gpu_empty(&rig->grid, rig->timer.stream));
    default:
        return bench_enqueue_copy(&rig->timer, slot, rig->what.num_sms, copy->target, copy->arena,
                                  rig->shape.live_bytes);
    }
}

static int probe_grid(bench_rig *rig)
{
    if (rig->timer.is_host)
        return TOOL_OK;
    BENCH_GPU(bench_gpu_probe_begin(rig->timer.stream));
    const int code = bench_rig_enqueue(rig, &rig->copies[0], BENCH_STASH);
    const char *error = bench_gpu_probe_end(rig->timer.stream, &rig->grid);
    TOOL_TRY(code);
    return bench_gpu_status(error);
}

/* Kernels are loaded when they are first launched, which a capture might not allow. */
static int launch_once(const bench_rig *rig)
{
    for (int slot = 0; slot < BENCH_NUM_ANCHORS; slot++)
        if (rig->wanted[slot])
            TOOL_TRY(bench_rig_enqueue(rig, &rig->copies[0], (bench_slot)slot));
    return tool_status(pst_stream_synchronize(rig->device, rig->timer.stream));
}

static int record_graphs(bench_rig *rig)
{
    for (uint32_t k = 0; k < rig->num_copies; k++) {
        bench_copy *copy = &rig->copies[k];
        if (rig->wanted[BENCH_CUB_BATCHED])
            TOOL_TRY(bench_make_pieces(rig, copy));
        if (k == 0)
            TOOL_TRY(launch_once(rig));
        for (int slot = 0; slot < BENCH_NUM_SLOTS; slot++)
            if (rig->wanted[slot])
                BENCH_RECORD(&rig->timer, bench_rig_enqueue(rig, copy, (bench_slot)slot),
                             &copy->graphs[slot]);
    }
    return TOOL_OK;
}

int bench_rig_open(bench_rig *rig)
{
    TOOL_TRY(bench_timer_open(&rig->timer, rig->device));
    TOOL_TRY(make_buffers(rig));
    TOOL_TRY(make_pool(rig));
    TOOL_TRY(arrange_ring(rig));
    TOOL_TRY(probe_grid(rig));
    return record_graphs(rig);
}

static int close_copy(const bench_rig *rig, bench_copy *copy)
{
    for (int slot = 0; slot < BENCH_NUM_SLOTS; slot++)
        TOOL_PST(pst_graph_destroy(copy->graphs[slot]));
    TOOL_PST(pst_ticket_destroy(copy->ticket));
    return bench_free_pieces(rig, copy);
}

/* Nothing is freed after an earlier failure: the process ends. */
int bench_rig_close(bench_rig *rig, int code)
{
    pst_device *device = rig->device;
    TOOL_TRY(code);
    TOOL_PST(pst_device_synchronize(device));
    for (uint32_t k = 0; k < rig->num_copies; k++)
        TOOL_TRY(close_copy(rig, &rig->copies[k]));
    free(rig->copies);
    TOOL_PST(pst_group_destroy(rig->group));
    TOOL_PST(pst_pool_destroy(rig->pool));
    TOOL_TRY(bench_timer_close(&rig->timer));
    TOOL_PST(pst_device_free(device, rig->flush));
    TOOL_PST(pst_device_free(device, rig->counts));
    TOOL_PST(pst_device_free(device, rig->targets));
    return tool_status(pst_device_free(device, rig->arenas));
}
