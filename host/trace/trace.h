/* Room trace: allocation traces: readers of their formats, passes, expansion, derivation from a shape.
 * Uses base, schedule and model. Used by plan and arena.
 *
 * What its files share, grouped under the file that defines it. */
#ifndef PSTI_HOST_TRACE_H
#define PSTI_HOST_TRACE_H

#include <pagestash/trace.h>

#include "host/base/arith.h"
#include "host/base/handle.h"
#include "host/base/lines.h"
#include "host/base/table.h"
#include "host/schedule/pipeline.h"

/* ---- trace_reader.c ---- */

typedef struct psti_trace_kind {
    pst_status (*next)(pst_trace_reader *reader, pst_trace_request *request_out);
    void (*close)(pst_trace_reader *reader); /* frees what state points to; NULL: nothing */
    size_t state_bytes;
    bool has_lines;
    bool keeps_unfreed; /* what is never freed lives to the end, asked or not */
} psti_trace_kind;

struct pst_trace_reader {
    psti_handle handle;
    pst_trace_config config;
    const char *name;
    pst_trace_read_fn read;
    void *source;
    const psti_trace_kind *kind;
    psti_lines *lines; /* NULL for a pickle */
    void *state;       /* state_bytes, zero at first */
    bool is_over;
};

/* psti_trace_by_FLAG, one in the file of each format; and all of them. */
#define PSTI_TRACE_DECLARE(name, flag, align, text) \
    extern const psti_trace_kind psti_trace_by_##flag;
PST_TRACE_FORMAT_LIST(PSTI_TRACE_DECLARE)
#undef PSTI_TRACE_DECLARE
extern const psti_trace_kind *const psti_trace_kinds[PST_TRACE_NUM_FORMATS];

/* A row that belongs to no layer, micro-batch or phase. */
pst_trace_request psti_trace_row(uint64_t line, pst_trace_op op);
pst_status psti_trace_take_config(const pst_trace_config *given, pst_trace_config *config_out);
const char *psti_trace_name(const pst_trace_config *config);

/* Streams that are pointers, numbered by first appearance. */
typedef struct psti_stream_names {
    uint64_t names[PST_TRACE_MAX_STREAMS];
    uint32_t num;
} psti_stream_names;

/* PST_TRACE_MAX_STREAMS where the name is new and there is no room. */
uint32_t psti_stream_number(psti_stream_names *streams, uint64_t name);

/* Pointers, which come back. What is malloc'ed at one gets as id the line where that stands. */
typedef struct psti_addresses {
    psti_map
        map; /* address: twice the line, plus 1 if it is live since that line, else freed there */
} psti_addresses;

/* Of an address: whether it is live, and the line since when; 0 for an address never seen. */
uint64_t psti_address_line(const psti_addresses *addresses, uint64_t address, bool *is_live_out);
pst_status psti_address_set(psti_addresses *addresses, uint64_t address, uint64_t line,
                            bool is_live);

/* ---- trace_pickle.c: what python's pickle writes for dicts, lists, tuples, texts and numbers ----
 *
 * Executes nothing: whatever names a class, calls, or refers outside is refused. A value is a word
 * that says where in the file it stands, so that a file takes at most about 24 bytes for each of
 * its own, and nothing is copied however often it is shared. */

#define PSTI_PICKLE_BYTES ((uint64_t)1 << 32) /* the largest file */

typedef enum psti_pickle_type {
    PSTI_PICKLE_NOTHING = 0, /* no value */
    PSTI_PICKLE_NONE,
    PSTI_PICKLE_BOOL,
    PSTI_PICKLE_INT,
    PSTI_PICKLE_FLOAT,
    PSTI_PICKLE_TEXT,
    PSTI_PICKLE_LIST,
    PSTI_PICKLE_TUPLE,
    PSTI_PICKLE_DICT,
} psti_pickle_type;

typedef uint64_t psti_value; /* the type in the topmost bits */

/* Words that never move. */
typedef struct psti_words {
    uint64_t **blocks;
    uint64_t num_words, num_blocks, block_capacity;
} psti_words;

typedef struct psti_pickle {
    const char *name;
    const unsigned char *bytes; /* the caller's */
    uint64_t num_bytes;
    psti_words items, memo;
    psti_value root;
} psti_pickle;

typedef struct psti_cursor {
    uint64_t chunk, index;
} psti_cursor;

#define PSTI_PICKLE_TYPE_SHIFT 56

/* ---- trace_pickle_value.c ---- */

/* A block of num_words words; its index is never 0. Fails: NOMEM. */
pst_status psti_words_take(psti_words *words, uint64_t num_words, uint64_t *index_out);
uint64_t *psti_words_at(const psti_words *words, uint64_t index);
void psti_words_free(psti_words *words);
/* Values in a chunk: the index of the next, how many, and the values. None make no chunk: 0. */
pst_status psti_pickle_chunk(psti_pickle *pickle, const psti_value *values, uint64_t num_values,
                             uint64_t *chunk_out);
/* To a list or dict: two words, its first and its last chunk (0: none). */
pst_status psti_pickle_add(psti_pickle *pickle, psti_value container, const psti_value *values,
                           uint64_t num_values);

/* ---- trace_pickle.c ---- */

/* Fails: INVALID ("FILE: byte N: ..."), NOMEM. To be closed in either case. */
pst_status psti_pickle_parse(psti_pickle *pickle);
void psti_pickle_close(psti_pickle *pickle);
psti_pickle_type psti_pickle_type_of(psti_value value);
const char *psti_pickle_type_name(psti_pickle_type type);
/* False for a number outside 0..2^64-1. */
bool psti_pickle_u64(const psti_pickle *pickle, psti_value value, uint64_t *out);
psti_field psti_pickle_text(const psti_pickle *pickle, psti_value value);
/* The items of a list, a tuple or a dict (keys and values in turn). */
psti_cursor psti_pickle_first(const psti_pickle *pickle, psti_value container);
bool psti_pickle_next(const psti_pickle *pickle, psti_cursor *cursor, psti_value *out);
/* The value of a key, or a value of type NOTHING. */
psti_value psti_pickle_find(const psti_pickle *pickle, psti_value dict, const char *key);

/* ---- trace_rows.c: rows, packed ---- */

typedef struct psti_rows {
    unsigned char *bytes;
    uint64_t num_bytes, capacity;
    uint64_t num;
    pst_trace_request last;
} psti_rows;

/* One row after another: { .of = &rows } is before the first. */
typedef struct psti_rows_reader {
    const psti_rows *of;
    uint64_t at, num; /* bytes and rows that were read */
    pst_trace_request row;
} psti_rows_reader;

pst_status psti_rows_add(psti_rows *rows, const pst_trace_request *row); /* Fails: NOMEM. */
void psti_rows_free(psti_rows *rows);
bool psti_rows_next(psti_rows_reader *reader); /* false: there was no other */

/* ---- trace.c ---- */

struct pst_trace {
    psti_handle handle;
    pst_trace_tensor *tensors;
    uint64_t num_tensors, tensor_capacity;
    pst_trace_pass *passes;
    uint64_t num_passes, pass_capacity;
    psti_rows rows;
    pst_trace_request *unpacked; /* atomic: the rows as pst_trace_rows gives them, or NULL */
    uint64_t num_requests;
    psti_stream_names streams;
    uint64_t *releases;
};

/* "trace.csv:12", or "trace.pickle: event 12". */
enum { PSTI_WHERE_BYTES = 256 };
/* "trace.csv:12: field id: ..." */
__attribute__((format(printf, 6, 7))) pst_status psti_trace_bad(const char *file, int source_line,
                                                                const pst_trace_config *config,
                                                                uint64_t line, const char *field,
                                                                const char *format, ...);
#define PSTI_TRACE_BAD(config, line, field, ...) \
    psti_trace_bad(__FILE__, __LINE__, config, line, field, __VA_ARGS__)

/* ---- trace_clocks.c ---- */

/* Checks the marks of a trace whose tensors are complete; fills releases if it has streams. `ids`
 * gives the tensor of an id. */
pst_status psti_trace_clocks(pst_trace *trace, const pst_trace_config *config, const psti_map *ids);

/* ---- trace_tape.c: rows written one after another ---- */

/* A failure sticks: what follows it does nothing. */
typedef struct psti_tape {
    pst_trace_request *rows;
    uint64_t num_rows, capacity;
    uint64_t num_ids;        /* ids are 0, 1, ... in the order of the mallocs */
    pst_trace_request label; /* phase, layer, micro_batch and rank of what is written */
    pst_status status;
} psti_tape;

void psti_tape_open(psti_tape *tape);
void psti_tape_label(psti_tape *tape, pst_trace_phase phase, uint32_t layer, uint32_t micro_batch);
uint64_t psti_tape_malloc(psti_tape *tape, uint64_t bytes); /* its id */
void psti_tape_free(psti_tape *tape, uint64_t id);
void psti_tape_add(psti_tape *tape, const pst_trace_request *row); /* as it is, but for the line */
/* The trace of all rows, whatever is not freed kept; takes the rows away in any case. */
pst_status psti_tape_close(psti_tape *tape, const char *name, pst_trace **trace_out);

/* ---- trace_layers.c: where the layers of a profile are ---- */

typedef struct psti_layers {
    uint32_t num; /* of them, in a row: forward 0 .. num-1, backward num-1 .. 0 */
    uint64_t forward, forward_length; /* instants: of layer 0, and of each */
    uint64_t backward, backward_length;
    uint32_t num_before; /* layers beside them: so many in front, and as many behind */
} psti_layers;

enum { PSTI_LAYERS_ENDS = 3 }; /* layers at either end that may be others: 0, 1, 2 */

/* By the labels or, if there are none, by repetition. [ends]: the layers without so many at either end,
 * num 0 where these have not the same number of requests; one there is. Fails: INVALID, NOMEM. */
pst_status psti_layers_find(const pst_trace *trace, psti_layers layers_out[PSTI_LAYERS_ENDS]);

/* ---- trace_profile.c: one layer of a profile, and what lies around it ---- */

/* In the order of time. */
typedef enum psti_part {
    PSTI_BEFORE = 0,
    PSTI_FORWARD,
    PSTI_BETWEEN,
    PSTI_BACKWARD,
    PSTI_AFTER,
    PSTI_NEVER, /* freed */
} psti_part;

typedef struct psti_profile_row {
    const pst_trace_request *row;
    uint64_t tensor; /* malloc, free, use and grow: of the profile */
    uint8_t part;
    uint64_t
        run; /* outside the layers: of rows that are there for each layer, from 1; 0: of none */
} psti_profile_row;

typedef struct psti_profile_tensor {
    uint8_t born, dies; /* psti_part */
    bool is_input;      /* of a chain: layers hand it on */
    bool is_forward_chain;
    uint64_t born_run, death_run; /* in which it is born and freed */
    uint64_t partner; /* of an input: the output; of an output: the input; or PSTI_MAP_NONE */
    uint64_t grow;    /* bytes, for each layer more */
} psti_profile_tensor;

typedef struct psti_profile {
    psti_profile_row *rows;
    uint64_t num_rows;
    uint64_t first[PSTI_NEVER + 1]; /* row of each part; at the end num_rows */
    psti_profile_tensor *tensors;   /* as many as the trace has; those left out are born NEVER */
    uint64_t num_tensors;
    uint32_t num_layers; /* of the trace, without those beside */
    uint32_t num_before;
} psti_profile;

/* To be closed in either case. Fails: INVALID, NOMEM. */
pst_status psti_profile_open(psti_profile *profile, const pst_trace *trace,
                             const psti_layers *layers);
void psti_profile_close(psti_profile *profile);

/* ---- trace_chains.c ---- */

/* Finds partners, and refuses what has none and wants one. Fails: INVALID, NOMEM. */
pst_status psti_profile_link(psti_profile *profile, const pst_trace *trace);

/* ---- trace_summary.c ---- */

#define PSTI_ORDER_NONE UINT64_MAX

/* ---- trace_online.c ---- */

/* The highest address in use when requests are placed as they come. order[instant]: twice the
 * tensor, plus 1 where it begins, or PSTI_ORDER_NONE. Fails: INVALID (above 2^62), NOMEM. */
pst_status psti_trace_online(const pst_trace *trace, const uint64_t *order, uint64_t most_live,
                             uint64_t align, uint64_t *peak_out);

#endif
