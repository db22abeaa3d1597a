/* What the files share that read flags and turn them into a configuration. */
#ifndef PAGESTASH_TOOL_ESTIMATE_FLAGS_H
#define PAGESTASH_TOOL_ESTIMATE_FLAGS_H

#include "tools/estimate/estimate.h"
#include "tools/estimate/estimate_table.h"

/* ---- estimate_table.c: the table as rows ---- */

typedef enum estimate_group {
    ESTIMATE_MODEL,
    ESTIMATE_LATENTS,
    ESTIMATE_EXPERTS,
    ESTIMATE_ROWS,
    ESTIMATE_SPLIT,
    ESTIMATE_BATCH,
    ESTIMATE_SAVED,
    ESTIMATE_OUTPUT,
    ESTIMATE_NUM_GROUPS,
} estimate_group;

typedef enum estimate_kind {
    ESTIMATE_NO_FLAG,
    ESTIMATE_SWITCH,
    ESTIMATE_OFF,      /* a switch that sets false */
    ESTIMATE_COUNT,    /* an integer from 0 */
    ESTIMATE_POSITIVE, /* from 1 */
    ESTIMATE_DECIMAL,  /* 1.25, exactly */
    ESTIMATE_RATIO,    /* likewise, of terms that the library takes */
    ESTIMATE_BYTES,    /* bytes, or as 23.7GiB, from 0 */
    ESTIMATE_SIZE,     /* likewise, from 1 */
    ESTIMATE_CHOICE,   /* `argument` lists the alternatives */
    ESTIMATE_TEXT,
    ESTIMATE_WORDS, /* any number of values */
    ESTIMATE_JSON,  /* a file, or none for stdout; behind an equals sign, as in every command */
} estimate_kind;

typedef enum estimate_type {
    ESTIMATE_IS_NONE,
    ESTIMATE_IS_WHOLE,
    ESTIMATE_IS_SWITCH,
    ESTIMATE_IS_CHOICE, /* an enum */
    ESTIMATE_IS_BITS,   /* of the words, from the lowest bit */
    ESTIMATE_IS_LAYERS, /* a flag for each layer, or NULL */
    ESTIMATE_IS_CHUNKS, /* a number for each chunk, or NULL */
} estimate_type;

#define ESTIMATE_ID(name, ...) ESTIMATE_##name,
typedef enum estimate_id {
    ESTIMATE_TABLE(ESTIMATE_ID, ESTIMATE_ID, ESTIMATE_ID, ESTIMATE_ID, ESTIMATE_ID)
        ESTIMATE_NUM_ROWS
} estimate_id;
#undef ESTIMATE_ID

typedef enum estimate_use { ESTIMATE_READ, ESTIMATE_SETS, ESTIMATE_SETS_OPTION } estimate_use;

typedef struct estimate_row {
    const char *name;   /* with underscores for dashes */
    const char *member; /* of the config, or NULL */
    const char *words, *help;
    estimate_group group;
    estimate_use use;
    size_t offset;
    uint64_t fallback; /* 0: none */
    estimate_kind kind;
    estimate_type type; /* of the member */
    const char *argument;
} estimate_row;

extern const estimate_row estimate_rows[ESTIMATE_NUM_ROWS];

/* The sizes of a split, in the order that they are chosen and printed, as tables call them. */
enum { ESTIMATE_NUM_WAYS = 6 };
typedef struct estimate_way {
    estimate_id id;
    const char *name;
} estimate_way;

extern const estimate_way estimate_ways[ESTIMATE_NUM_WAYS];

/* As on the command line, without the dashes in front. */
const char *estimate_flag(estimate_id id);
/* A number, 0 or 1 of a switch, the index of a choice, bits; 0 of a list. */
uint64_t estimate_value(const pst_estimate_config *config, estimate_id id);
void estimate_set(pst_estimate_config *config, estimate_id id, uint64_t value);
/* The word of "first|second|third" with this index; returns out. */
#define ESTIMATE_WORD 32
const char *estimate_word(const char *words, uint64_t index, char out[ESTIMATE_WORD]);
/* Adds the bit of the word of "first|second|third" that the name is; false: it is none. */
bool estimate_add_bit(const char *name, const char *words, uint32_t *bits);
/* The row's key that the config.json has, or NULL. */
const char *estimate_key(const estimate_row *row, const json_t *file, char key[ESTIMATE_WORD]);

/* ---- what a launch line says ---- */

/* What a flag was given. text: NULL where it was not; "" of a switch. */
typedef struct estimate_given {
    const char *text;
    uint64_t num, den; /* the number, of a decimal in lowest terms, or the index of a choice */
    char **more;       /* of ESTIMATE_WORDS, the rest */
    int num_more;
} estimate_given;

typedef struct estimate_line {
    estimate_given flags[ESTIMATE_NUM_ROWS];
    json_t *file; /* the model's object in the config.json, owned, or NULL */
} estimate_line;

static inline bool estimate_has(const estimate_line *line, estimate_id id)
{
    return line->flags[id].text != NULL;
}

static inline const char *estimate_text(const estimate_line *line, estimate_id id)
{
    return line->flags[id].text;
}

static inline uint64_t estimate_number(const estimate_line *line, estimate_id id, uint64_t fallback)
{
    return estimate_has(line, id) ? line->flags[id].num : fallback;
}

/* Sets the members that flags set, and those that have a default where they are 0. */
void estimate_take_options(const estimate_line *line, estimate_options *options);
void estimate_take_fields(const estimate_line *line, pst_estimate_config *config);
/* To 0, false or none. */
void estimate_clear_group(pst_estimate_config *config, estimate_group group);

/* Prints a sentence, in which members of the config stand in braces, with the flags that set them, or the
 * keys of the config.json. TOOL_INPUT if what it says is of that file alone, else TOOL_USAGE. */
int estimate_refuse(const estimate_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* "--FLAG VALUE: WHY"; TOOL_USAGE. */
int estimate_refuse_flag(const estimate_line *line, estimate_id id, const char *why);

/* ---- the same file: flags that do not count here ---- */

typedef enum estimate_effect {
    ESTIMATE_UNKNOWN,
    ESTIMATE_HARMLESS,
    ESTIMATE_CHANGES_MEMORY,
    /* whole weights, gradients, optimizers or activations, from what is counted */
    ESTIMATE_MORE_STATES,
    ESTIMATE_LESS_STATES,
    ESTIMATE_OTHER_STATES,
} estimate_effect;

typedef struct estimate_known {
    estimate_effect effect;
    int arity; /* 0 or 1; 2: any number */
} estimate_known;

estimate_known estimate_find_known(const char *name);
/* Which way the effect is, from now on a part of the verdict. */
void estimate_take_effect(estimate_options *options, estimate_effect effect);
/* The flag that counts whose name is nearest, or NULL. */
const char *estimate_meant(const char *name);

/* ---- from the line to the options, in this order ---- */

/* estimate_read.c: fills line, and the notes of options that need no model. */
int estimate_read_line(int argc, char **argv, estimate_line *line, estimate_options *options);

/* estimate_hf.c: into the options' config. */
int estimate_hf(const json_t *object, estimate_options *options);

/* estimate_model.c: what the flags say of the model; it begins with the above. */
int estimate_take_model(const estimate_line *line, estimate_options *options);
/* estimate_chunks.c: which of config's layers have experts; and what they are where that is known. */
int estimate_moe_layers(const char *text, estimate_options *options);
void estimate_use_layers(estimate_options *options);
/* The same file: layers of every chunk, and how many chunks a stage has; NULL if all have as
 * many. */
int estimate_chunks(const estimate_line *line, estimate_options *options);

/* estimate_buffers.c: how many rows experts' buffers hold. */
int estimate_take_buffers(const estimate_line *line, estimate_options *options);
/* estimate_resolve.c: all of the configuration, and the assumptions that it took. */
int estimate_resolve(const estimate_line *line, estimate_options *options);

#endif
