/* What the files share that read flags and turn them into a configuration. */
#ifndef PAGESTASH_TOOL_ESTIMATE_FLAGS_H
#define PAGESTASH_TOOL_ESTIMATE_FLAGS_H

#include "tools/estimate/estimate.h"
#include "tools/estimate/estimate_fields.h"

#include <jansson.h>

typedef enum estimate_kind {
    ESTIMATE_SWITCH,
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

#define ESTIMATE_NAME(id, group, name, kind, argument, help) ESTIMATE_F_##id,
typedef enum estimate_flag {
    ESTIMATE_FLAGS(ESTIMATE_NAME) ESTIMATE_NUM_FLAGS,
    ESTIMATE_F_NONE = ESTIMATE_NUM_FLAGS
} estimate_flag;
#undef ESTIMATE_NAME

typedef enum estimate_flag_group {
    ESTIMATE_MODEL,
    ESTIMATE_EXPERTS,
    ESTIMATE_PARALLEL,
    ESTIMATE_TRAINING,
    ESTIMATE_MEMORY,
    ESTIMATE_OUTPUT,
    ESTIMATE_NUM_GROUPS,
} estimate_flag_group;

typedef struct estimate_flag_entry {
    const char *name, *argument, *help;
    estimate_flag_group group;
    estimate_kind kind;
} estimate_flag_entry;

extern const estimate_flag_entry estimate_flag_table[ESTIMATE_NUM_FLAGS];

/* What a flag was given. value: NULL where it was not; "" of a switch. */
typedef struct estimate_given {
    const char *value;
    char **more; /* of ESTIMATE_WORDS, the rest */
    int num_more;
} estimate_given;

typedef struct estimate_line {
    estimate_given flags[ESTIMATE_NUM_FLAGS];
    const json_t *file; /* the model's object in the config.json, or NULL */
} estimate_line;

static inline bool estimate_has(const estimate_line *line, estimate_flag id)
{
    return line->flags[id].value != NULL;
}

static inline const char *estimate_text(const estimate_line *line, estimate_flag id)
{
    return line->flags[id].value;
}

/* Each leaves *out alone where the flag was not given. The value was checked when it was read. */
void estimate_take_number(const estimate_line *line, estimate_flag id, uint64_t *out);
void estimate_take_decimal(const estimate_line *line, estimate_flag id, uint64_t *num_out,
                           uint64_t *den_out);
/* The index of the alternative; fallback where the flag was not given. */
int estimate_choice(const estimate_line *line, estimate_flag id, int fallback);

/* Digits, perhaps a point, at most 18 of them: in lowest terms. False for anything else. */
bool estimate_decimal(const char *text, uint64_t *num_out, uint64_t *den_out);
/* Bytes, with KiB, MiB or GiB also of a decimal number, up to 2^63 - 1. */
bool estimate_size(const char *text, uint64_t *bytes_out);

/* estimate_fields.c: the table of fields as rows. */
typedef enum estimate_field_group {
    ESTIMATE_OF_MODEL,
    ESTIMATE_OF_LATENTS,
    ESTIMATE_OF_EXPERTS,
    ESTIMATE_OF_SPLIT,
    ESTIMATE_OF_BATCH,
    ESTIMATE_OF_SAVED,
    ESTIMATE_OF_ROWS,
    ESTIMATE_OF_LISTS,
} estimate_field_group;

typedef enum estimate_field_kind {
    ESTIMATE_IS_WHOLE,
    ESTIMATE_IS_SWITCH,
    ESTIMATE_IS_CHOICE, /* an enum */
    ESTIMATE_IS_BITS,   /* of the words, from the lowest bit */
    ESTIMATE_IS_LAYERS, /* a flag for each layer, or NULL */
    ESTIMATE_IS_CHUNKS, /* a number for each chunk, or NULL */
} estimate_field_kind;

typedef enum estimate_field_from { ESTIMATE_OWN, ESTIMATE_TAKE, ESTIMATE_TAKE_OFF } estimate_from;

typedef struct estimate_field {
    const char *name, *words;
    size_t offset;
    estimate_field_group group;
    estimate_field_kind kind;
    estimate_flag flag;
    estimate_from from;
} estimate_field;

#define ESTIMATE_INDEX(group, kind, member, flag, from, words) ESTIMATE_INDEX_##member,
enum { ESTIMATE_FIELDS(ESTIMATE_INDEX) ESTIMATE_NUM_FIELDS };
#undef ESTIMATE_INDEX
extern const estimate_field estimate_field_table[ESTIMATE_NUM_FIELDS];

/* A number, 0 or 1 of a switch, the index of a choice, bits; 0 of a list. */
uint64_t estimate_field_value(const pst_estimate_config *config, const estimate_field *field);
void estimate_set_field(pst_estimate_config *config, const estimate_field *field, uint64_t value);
/* The word of "first|second|third" with this index; returns out. */
#define ESTIMATE_WORD 32
const char *estimate_word(const char *words, uint64_t index, char out[ESTIMATE_WORD]);
/* Words of the bits that are set, with separators between them; returns how many characters. */
size_t estimate_bits_text(const char *words, uint64_t bits, const char *separator, char *out,
                          size_t bytes);
/* Sets the group's fields whose flags were given and say all. */
void estimate_take_fields(const estimate_line *line, estimate_field_group group,
                          pst_estimate_config *config);

/* estimate_known.c: flags of Megatron-LM that do not count here. */
typedef enum estimate_effect {
    ESTIMATE_UNKNOWN,
    ESTIMATE_HARMLESS,
    ESTIMATE_CHANGES_MEMORY,
} estimate_effect;

typedef struct estimate_known {
    estimate_effect effect;
    int arity; /* 0 or 1; 2: any number */
    int index; /* of its own */
} estimate_known;

estimate_known estimate_find_known(const char *name);

/* ---- estimate_near.c ---- */

/* The flag that counts whose name is at most two letters away, or NULL. */
const char *estimate_meant(const char *name);
int estimate_num_known(void);

void estimate_free_notes(estimate_notes *notes);

/* estimate_read.c: fills line, and the notes and modes of options that need no model. */
int estimate_read_line(int argc, char **argv, estimate_line *line, estimate_options *options);

/* What a model is before flags say otherwise. */
typedef struct estimate_model {
    pst_estimate_config config; /* is_moe is the caller's to free */
    const char *source;         /* NULL: Megatron's defaults */
    uint64_t max_positions;     /* the most the model was made for; 0: not known */
    uint64_t mtp_layers;        /* there are as published, counted only if asked for */
} estimate_model;

/* estimate_presets.c */
int estimate_preset(const char *name, estimate_model *model_out);

/* estimate_hf.c: of the line's file. Notes go to the options. model_out may own is_moe whatever
 * happened. */
int estimate_hf(const estimate_line *line, estimate_options *options, estimate_model *model_out);
#define ESTIMATE_HF_BYTES ((size_t)1 << 20)

/* estimate_layout.c: entries for num_layers layers, the caller's; NULL if all have experts. */
int estimate_moe_layers(const char *text, uint64_t num_layers, bool **is_moe_out);
/* estimate_chunks.c: layers of every chunk, and how many chunks a stage has; NULL if all have as
 * many. */
int estimate_chunks(const estimate_line *line, estimate_options *options);

/* estimate_resolve.c: the configuration, and the assumptions that it took. */
int estimate_resolve(const estimate_line *line, estimate_options *options);

/* estimate_model.c: what the flags say of the model, into the config. */
int estimate_take_model(const estimate_line *line, estimate_options *options);

/* estimate_buffers.c: of experts, into the config of a known model. */
int estimate_take_buffers(const estimate_line *line, estimate_options *options);

/* estimate_words.c: the message names fields of the configuration, and is printed with the names of
 * flags for them, or those of the config.json. TOOL_INPUT if what it says is of that file alone,
 * else TOOL_USAGE. */
int estimate_refuse(const estimate_line *line, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* estimate_file.c: an object, no key twice, of at most max_bytes; the caller's. TOOL_INPUT. */
int estimate_load_json(const char *path, size_t max_bytes, json_t **root_out);
/* Keys of a vocabulary. */
int estimate_count_words(const char *path, uint64_t *words_out);

#endif
