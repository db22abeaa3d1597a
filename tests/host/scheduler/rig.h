/* A model for tests of the scheduler: layers whose forward writes a pattern, whose backward checks it
 * and then spoils the memory. It drives any schedule through the hooks, on any device, eagerly, inside
 * a captured iteration, or beside graphs of single layers.
 *
 *   rig_config config = RIG_CONFIG;  config.schedule.kind = ...
 *   rig_open(&rig, &config);  rig_step(&rig);  rig_check(&rig);  rig_close(&rig);
 */
#ifndef PAGESTASH_TESTS_RIG_H
#define PAGESTASH_TESTS_RIG_H

#include "tests/harness.h"

#include <pagestash/pagestash.h>

#include "host/scheduler/scheduler.h"

enum {
    RIG_ROW = 1024,
    RIG_ROWS_OF_PAGE = 16,
    RIG_MAX_PAGES = 3, /* of a part */
    RIG_CAPACITY = RIG_ROWS_OF_PAGE * RIG_MAX_PAGES,
    RIG_PART_BYTES = RIG_ROW * RIG_CAPACITY,
    RIG_WHOLE_ROWS = 4, /* SWAPPED, rows of RIG_TOKEN */
    RIG_TOKENS = 32,
    RIG_TOKEN = 64,
    RIG_SWAP_BYTES = (RIG_WHOLE_ROWS + RIG_TOKENS) * RIG_TOKEN,
    RIG_MAX_LAYERS = 64,
    RIG_MAX_CHUNKS = 4,
    RIG_STREAMS = 2
};

typedef struct rig rig;

typedef struct rig_config {
    pst_device *device; /* closed with the rig; NULL: host */
    pst_schedule_config schedule;
    bool records; /* the scheduler gets no schedule */
    uint32_t num_layers[RIG_MAX_CHUNKS];
    pst_keep keep[RIG_MAX_LAYERS];           /* layers of all chunks, one after the other */
    pst_layer_policy policy[RIG_MAX_LAYERS]; /* the same */
    uint32_t num_parts;                      /* of PAGED layers; 0: 1 */
    uint32_t uses[PST_MAX_PARTS];
    uint32_t glus; /* bits of the parts that the layer itself stashes and restores */
    bool own;      /* the caller's own form */
    pst_pool_mode mode;
    uint64_t num_pages, num_host_pages, max_pages; /* 0: 4096, none */
    uint32_t max_tickets;
    uint32_t two_streams; /* pairs run on two streams */
    uint32_t announces;   /* percent of parts that are announced early */
    uint32_t defers;      /* percent of destinations that cannot be had at first */
    uint64_t seed;
    pst_scheduler_config scheduler; /* what is set here stays */
} rig_config;

typedef struct rig_memory {
    unsigned char *bytes;
    int32_t *count;
} rig_memory;

/* The caller's own memory of one visit's part. */
typedef struct rig_cell {
    uint32_t source, destinations[2]; /* index, or RIG_NONE; [1] of weight passes */
} rig_cell;
#define RIG_NONE UINT32_MAX

/* Of a (chunk, layer, slot), in graphs of layers: what its graphs read and write. */
typedef struct rig_seat {
    uint64_t *word;       /* on the device: which visit it is */
    int32_t *counts;      /* on the device: of each part, and of swapped rows */
    pst_graph *graphs[4]; /* by pst_pass_kind */
    pst_visit visits[4];  /* what the captures were told */
    uint32_t aliases[4];  /* the caller's own form */
} rig_seat;

enum { RIG_SLOTS = 16 };

struct rig {
    rig_config config;
    pst_device *device;
    pst_pool *pool;
    pst_group *group, *glu_group, *swap_group; /* glu_group: of the same form as group */
    pst_schedule *schedule;                    /* the order that is run */
    pst_scheduler *scheduler;
    pst_stream streams[RIG_STREAMS];
    uint32_t num_chunks, num_layers, first_layer[RIG_MAX_CHUNKS];
    pst_layer layers[RIG_MAX_LAYERS];
    pst_part parts[PST_MAX_PARTS];
    uint32_t num_micro_batches; /* of each chunk at most: room for */
    unsigned char *block;       /* device memory */
    uint64_t used_bytes, block_bytes;
    rig_memory sources[PST_MAX_PARTS][PST_MAX_SETS], destinations[PST_MAX_PARTS][PST_MAX_SETS];
    pst_buffers source_buffers[PST_MAX_PARTS][PST_MAX_SETS];
    pst_buffers destination_buffers[PST_MAX_PARTS][PST_MAX_SETS];
    const pst_buffers *source_list[PST_MAX_PARTS][PST_MAX_SETS];
    const pst_buffers *destination_list[PST_MAX_PARTS][PST_MAX_SETS];
    unsigned char *swap[2];
    int32_t *counts;      /* [visit][part] on the device */
    int32_t *swap_counts; /* rows that leave with so many tokens */
    uint64_t *words;      /* [visit] on the device: its number */
    uint64_t *step;       /* on the device; the step's number, in the pattern */
    uint64_t *mismatches; /* on the device */
    uint64_t num_steps;
    /* what buffers point to */
    void *bases[2 * PST_MAX_PARTS * PST_MAX_SETS];
    const void *count_of[2 * PST_MAX_PARTS * PST_MAX_SETS];
    /* the caller's own form */
    unsigned char *cells;
    uint32_t num_cells;
    uint32_t *free_cells[RIG_STREAMS], num_free[RIG_STREAMS]; /* by the stream that freed them */
    rig_cell *cell_of;                                        /* [visit][part] */
    void *asked_base;
    const pst_visit_key *due; /* backward_begin of this visit is being called */
    /* graphs of layers */
    rig_seat *seats;
    uint64_t random;
    pst_visit visit; /* of the last begin */
};

#define RIG_CONFIG                                               \
    {                                                            \
        .schedule = PST_SCHEDULE_CONFIG_INIT, .num_layers = {4}, \
        .scheduler = PST_SCHEDULER_CONFIG_INIT                   \
    }

/* 1 + (5 micro_batch + 3 layer + 7 chunk) mod 3, as the vectors have it. */
uint32_t rig_pages(uint32_t chunk, uint32_t layer, uint32_t micro_batch);

void rig_open(rig *self, const rig_config *config);
void rig_close(rig *self);
/* Another number of micro-batches is run from now on; at most four times the first. */
void rig_set_micro_batches(rig *self, uint32_t num);

/* New rows for every visit, from a seed; the device is idle. */
void rig_set_counts(rig *self, uint64_t seed);
/* One step, eagerly or into a capture. Answers the first status that is not OK. */
pst_status rig_step(rig *self);
/* Parts of a step: hooks of passes [from, to). */
pst_status rig_begin(rig *self);
pst_status rig_passes(rig *self, uint64_t from, uint64_t to);
pst_status rig_end(rig *self);
/* One visit, with its hooks. */
pst_status rig_visit(rig *self, const pst_pass *pass, uint32_t layer, uint32_t stream);
/* A step into a graph. */
pst_status rig_capture(rig *self, pst_graph **graph_out);
/* Graphs of all layers that have slots, in an order that the seed makes; percent: how many of them. */
pst_status rig_capture_layers(rig *self, uint32_t percent);
/* Between the hooks of a visit: whether there is a graph of it, which was launched. */
bool rig_launches(rig *self, const pst_visit_key *key, uint32_t slot, pst_stream stream,
                  pst_status *status_out);
/* Synchronises; no mismatched byte, no page in use, none lost, the step was valid. */
void rig_check(rig *self);
/* One step, and that check. */
void rig_is_right(rig *self);
/* After a check of the pool. */
pst_pool_status rig_status(rig *self);

/* The first of four stages of 1F1B. */
rig_config rig_first_of_four(uint32_t micro_batches);
/* A device of its own for the configuration, that does its work late, or not (eager). */
void rig_make_lazy(rig_config *config, bool eager);

/* ---- inside ---- */

#define RIG_TRY(call)                    \
    do {                                 \
        const pst_status rig_s = (call); \
        if (rig_s != PST_OK)             \
            return rig_s;                \
    } while (0)

uint32_t rig_visit_of(const rig *self, uint32_t chunk, uint32_t layer, uint32_t micro_batch);
uint32_t rig_take_cell(rig *self, uint32_t stream);
unsigned char *rig_cell_bytes(const rig *self, uint32_t cell);
pst_status rig_give_cell(rig *self, uint32_t *cell, uint32_t stream);
rig_cell *rig_cell_of(rig *self, const pst_visit_key *key, uint32_t part);
pst_status rig_free_sources(rig *self, const pst_visit *visit, uint32_t stream);

bool rig_is_glu(const rig *self, uint32_t part);
/* What the layer does with a part that a GLU writes, in a visit or in the capture of a layer. */
pst_status rig_stash_glu(rig *self, const pst_visit_key *key, uint32_t slot, uint32_t part,
                         const pst_buffers *source, pst_stream stream);
/* in_pages_out: where pages were restored, which goes to the destination; else that is untouched. */
pst_status rig_restore_glu(rig *self, const pst_visit_key *key, uint32_t slot, uint32_t part,
                           const pst_buffers *destination, bool *in_pages_out, pst_stream stream);
uint32_t rig_draw(rig *self, uint32_t below);
uint32_t rig_visit_number(const rig *self, const pst_visit_key *key);
bool rig_reads(const rig *self, pst_pass_kind kind, uint32_t part);

#endif
