/* A random program of the scheduler and a caller of it: a schedule, layers, sets and a pool are drawn from
 * a seed; forwards write a pattern into random groups, backwards check it and spoil the memory. Memory
 * of the caller's own form comes from a heap so small that who reads late finds something else.
 *
 *   walk_draw(&walk, device, &wish);  walk_open(&walk);
 *   walk_new_counts(&walk);  walk_step(&walk);  walk_check(&walk);  walk_close(&walk);
 *
 * After a step every restored byte must be right but for those of stashes that failed, and the figures
 * of the pool must be those that pst_simulate counts. */
#ifndef PAGESTASH_TESTS_WALK_H
#define PAGESTASH_TESTS_WALK_H

#include "tests/conformance/conf.h"

#include "host/scheduler/scheduler.h"

enum {
    WALK_CHUNKS = 4,
    WALK_LAYERS = 16,
    WALK_GROUPS = 3,
    WALK_PASSES = 64,
    WALK_CELLS = 96, /* of each stream, at most all */
    WALK_STREAMS = 2,
    WALK_SETS = 4, /* in each direction; aliases are of PST_MAX_SETS */
    WALK_SLOTS = 16,
    WALK_PLACES = 2 * (PST_MAX_PARTS + 1), /* what a visit's backward and weight pass read */
    WALK_WHOLE = 3,                        /* rows of WALK_TOKEN that are swapped whole */
    WALK_TOKENS = 9,
    WALK_TOKEN = 48,
    WALK_SWAP_BYTES = (WALK_WHOLE + WALK_TOKENS) * WALK_TOKEN
};
#define WALK_NONE UINT32_MAX

/* A program that is not drawn: PAGED layers of one part. */
typedef struct walk_vector {
    pst_schedule_config schedule;
    uint32_t num_layers, num_sources, num_destinations; /* layers of each chunk */
    pst_restore_rule rule;
    bool keeps_nothing, is_list; /* the same passes as a list */
    /* rows of a visit; NULL: drawn */
    int64_t (*rows)(uint32_t chunk, uint32_t layer, uint32_t micro_batch);
    shape like;
    uint64_t page_bytes, num_pages;
} walk_vector;

/* What a test wants; the rest is drawn. */
typedef struct walk_wish {
    uint64_t seed;
    uint64_t bytes;            /* of a group at capacity, about */
    bool is_late;              /* the device draws its own order */
    bool own;                  /* the caller's own form; else drawn */
    bool lists;                /* only lists drawn at random */
    bool layers;               /* graphs of layers */
    const walk_vector *vector; /* NULL: drawn */
} walk_wish;

typedef struct walk_memory {
    unsigned char *bytes, *counts;
    pst_dirty *dirty[WALK_GROUPS]; /* of destinations; NULL: none */
} walk_memory;

/* Addresses of one part, and what they point to. */
typedef struct walk_place {
    void *bases[PST_MAX_TENSORS];
    const void *counts[PST_MAX_SPACES];
    pst_buffers buffers;
} walk_place;

/* Cells of one part of a micro-batch in the caller's own form. */
typedef struct walk_cells {
    uint32_t source, destinations[2]; /* of the backward, of the weight pass */
} walk_cells;

typedef struct walk_seat {
    unsigned char *record; /* as of a visit: what its graphs read and write */
    pst_graph *graphs[4];  /* by pst_pass_kind */
    uint32_t alias[4];
    pst_visit said[4];
} walk_seat;

typedef struct walk {
    walk_wish wish;
    oracle_random random;
    pst_device *device;
    pst_pool *pool;
    pst_schedule_config drawn;
    pst_pass list[WALK_PASSES];
    pst_schedule *schedule; /* that is run */
    pst_scheduler *scheduler;
    pst_scheduler_config config;
    pst_pool_config pool_config;
    pst_stream streams[WALK_STREAMS];
    pst_event turn;
    uint32_t num_chunks, num_layers, first_layer[WALK_CHUNKS], layers_of[WALK_CHUNKS];
    pst_layer layers[WALK_LAYERS];
    pst_part parts[WALK_LAYERS][PST_MAX_PARTS];
    uint32_t group_of[WALK_LAYERS][PST_MAX_PARTS];
    shape shapes[WALK_GROUPS];
    pst_group *groups[WALK_GROUPS], *swap_group;
    uint32_t num_micro_batches; /* of a chunk at most, with room for other numbers */
    bool own, two_streams, has_pairs, in_order, is_small, is_recorded, is_changed;
    bool gives_streams; /* side streams are the caller's */
    pst_stream side[4];
    uint32_t announces, defers; /* percent */
    /* device memory */
    void *block;
    uint64_t block_bytes, used_bytes;
    size_t arena_bytes, count_bytes, record_bytes;
    walk_memory sources[PST_MAX_PARTS][PST_MAX_SETS], destinations[PST_MAX_PARTS][PST_MAX_SETS];
    unsigned char *swap[2];
    int64_t *swap_counts;           /* rows with so many tokens */
    unsigned char *records, *image; /* [visit]; on the host */
    int64_t *values;                /* [visit][part][inputs], as they are now */
    uint32_t num_inputs;
    uint64_t num_steps;
    /* the caller's own form */
    unsigned char *cells;
    uint32_t free_cells[WALK_STREAMS][WALK_CELLS], num_free[WALK_STREAMS], num_sources;
    walk_cells *cells_of; /* [visit][part] */
    walk_place asked;
    const pst_visit_key *due;
    walk_seat *seats; /* [layer][WALK_SLOTS] */
} walk;

/* ---- walk_draw.c ---- */

void walk_draw(walk *self, pst_device *device, const walk_wish *wish);
/* Another number of micro-batches, drawn; false: the schedule is a list. */
bool walk_other_number(walk *self);
void walk_own_number(walk *self);
/* Another list over the same layers; false: none was found that needs no more slots. */
bool walk_other_list(walk *self);

/* ---- walk.c ---- */

void walk_open(walk *self);
void walk_close(walk *self);
/* Other rows for every visit; waits for the device. */
void walk_new_counts(walk *self);

/* ---- walk_step.c ---- */

/* The figures of the pool begin anew, then one step. Answers the first status that is not OK. */
pst_status walk_step(walk *self);
/* A step that ends after some passes. */
pst_status walk_part_of_step(walk *self, uint64_t num_passes);
pst_status walk_evaluate(walk *self);
/* What the caller still holds of a step that was given up. */
void walk_drop(walk *self);
/* Destinations in the caller's own form. */
pst_status walk_destination(void *user, const pst_visit_key *key, uint32_t part, pst_stream stream,
                            pst_buffers *destination_out);

/* ---- walk_layers.c ---- */

/* Graphs of some layers, in a random order. */
pst_status walk_capture_layers(walk *self);
/* False: the visit has no graph. */
bool walk_launch(walk *self, const pst_visit_key *key, uint32_t slot, pst_stream stream,
                 pst_status *status_out);

/* The caller's own memory that a captured forward writes; NULL: it was not captured. */
const walk_memory *walk_graph_source(const walk *self, const pst_visit_key *key, uint32_t slot,
                                     uint32_t part);

/* ---- walk_visit.c: what a layer does, eagerly or into its graph; record: its visit's or seat's ---- */

typedef struct walk_at {
    pst_visit_key key;
    uint32_t layer; /* of all */
    const pst_visit *said;
    unsigned char *record;
    pst_stream stream;
} walk_at;

bool walk_reads(const walk *self, uint32_t layer, pst_pass_kind kind, uint32_t part);
void walk_set_place(walk *self, uint32_t group, unsigned char *bytes, unsigned char *counts,
                    walk_place *place);
unsigned char *walk_counts_of(const walk *self, unsigned char *record, uint32_t part);
uint64_t *walk_mismatches_of(const walk *self, unsigned char *record, uint32_t part,
                             pst_pass_kind kind);
/* memory: NULL of the caller's own form, where bytes says where. */
pst_status walk_write(walk *self, const walk_at *at, uint32_t part, const walk_memory *memory,
                      unsigned char *bytes, walk_place *place);
pst_status walk_read(walk *self, const walk_at *at, uint32_t part, const walk_memory *memory,
                     unsigned char *bytes, bool stays, bool was_restored);
pst_status walk_swap(walk *self, const walk_at *at);

static inline uint32_t walk_number(const walk *self, const pst_visit_key *key)
{
    return (self->first_layer[key->chunk] + key->layer) * self->num_micro_batches +
           key->micro_batch;
}

static inline uint32_t walk_below(walk *self, uint32_t bound)
{
    return (uint32_t)oracle_random_below(&self->random, bound);
}

/* ---- walk_check.c ---- */

/* After a step: bytes, pages, figures. first: it was the recorded one. */
void walk_check(walk *self, bool first);

#define WALK_TRY(call)                    \
    do {                                  \
        const pst_status walk_s = (call); \
        if (walk_s != PST_OK)             \
            return walk_s;                \
    } while (0)

#endif
