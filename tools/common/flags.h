/* Flags of a command as a table: how argp shows them, what is allowed, where the values go. */
#ifndef PAGESTASH_FLAGS_H
#define PAGESTASH_FLAGS_H

#include <stddef.h>
#include <stdint.h>

typedef enum flag_kind {
    FLAG_TEXT,
    FLAG_U32,
    FLAG_U64,
    FLAG_FACTOR, /* a number above 0 */
    FLAG_SIZE,
    FLAG_POWER_OF_2, /* a size */
    FLAG_RANGE,      /* two uint64_t in a row, half-open */
    FLAG_FRACTION,   /* two uint32_t, numerator and denominator */
    FLAG_CHOICE,     /* `argument` lists the alternatives */
    FLAG_SWITCH,
} flag_kind;

typedef struct flag {
    const char *name, *argument;
    flag_kind kind;
    uint64_t min, max;
    size_t offset; /* in the options */
    const char *help;
} flag;

typedef struct flag_group {
    const flag *flags;
    int num_flags;
    size_t base; /* added to the offset of each */
} flag_group;

typedef struct flag_table {
    const char *command;
    const char *doc; /* what argp shows above and, behind \v, below the flags */
    flag_group groups[2];
} flag_table;

/* Fills what the flags name; a wrong one, or an argument that is no flag, is TOOL_USAGE. */
int flags_parse(const flag_table *table, int argc, char **argv, void *options);

#endif
