/* Flags of a command as a table: what help shows, what is allowed, where the values go, and what
 * the JSON says of them. Every command also takes --json[=FILE], -h, --help, -V and --version, which
 * stand in flags.c alone.
 *
 * One list makes the members of a struct and the rows of a table:
 *
 *   #define TEA_FLAGS(F)                                                  \
 *       F(U32, num_cups, "N", 1, 99, "2", "cups to make")                 \
 *       F(CHOICE, kind, "green|black", 0, 0, "green", "of the leaves")
 *   typedef struct tea_options {
 *       TEA_FLAGS(FLAG_MEMBER)
 *       const char *json;
 *   } tea_options;
 *   #define FLAG_OPTIONS tea_options
 *   static const flag flags[] = {TEA_FLAGS(FLAG_ROW)};
 *
 * so that options.num_cups holds --num-cups, which is "num_cups" in JSON. */
#ifndef PAGESTASH_FLAGS_H
#define PAGESTASH_FLAGS_H

#include "tools/common/help.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct flag_range {
    uint64_t begin, end; /* half-open */
} flag_range;

typedef struct flag_fraction {
    uint32_t num, den;
} flag_fraction;

/* FLAG_MEMBER and FLAG_ROW are made for lists: F(KIND, member, argument, min, max, initial, help).
 */
#define FLAG_TYPE_TEXT const char *
#define FLAG_TYPE_OUTPUT const char *
#define FLAG_TYPE_U32 uint32_t
#define FLAG_TYPE_U64 uint64_t
#define FLAG_TYPE_FACTOR double
#define FLAG_TYPE_SIZE uint64_t
#define FLAG_TYPE_POWER_OF_2 uint64_t
#define FLAG_TYPE_RANGE flag_range
#define FLAG_TYPE_FRACTION flag_fraction
#define FLAG_TYPE_CHOICE int
#define FLAG_TYPE_SWITCH bool
#define FLAG_MEMBER(kind, member, ...) FLAG_TYPE_##kind member;
#define FLAG_ROW(kind, member, ...) \
    {#member, FLAG_##kind, offsetof(FLAG_OPTIONS, member), __VA_ARGS__},

typedef enum flag_kind {
    FLAG_TEXT,
    FLAG_OUTPUT, /* a file to write, "-" for stdout */
    FLAG_U32,
    FLAG_U64,
    FLAG_FACTOR, /* a number above 0, at most max */
    FLAG_SIZE,
    FLAG_POWER_OF_2, /* a size */
    FLAG_RANGE,
    FLAG_FRACTION,
    FLAG_CHOICE, /* `argument` lists the alternatives, the value is an index */
    FLAG_SWITCH,
} flag_kind;

/* An `initial` for U32, U64 and CHOICE: the member is -1 until the flag is given. */
#define FLAG_NOT_GIVEN "-"

typedef struct flag {
    const char *name; /* as in JSON; the command line has dashes for underscores */
    flag_kind kind;
    size_t offset; /* in the options */
    const char *argument;
    uint64_t min, max;
    const char *initial; /* the default, as it would be given; NULL: what stands there */
    const char *help;
} flag;

typedef struct flag_group {
    const flag *flags;
    int num_flags;
    size_t base; /* added to the offset of each */
} flag_group;

#define FLAG_GROUP(flags, base)                              \
    {                                                        \
        (flags), (int)(sizeof(flags) / sizeof(flag)), (base) \
    }

typedef struct flag_table {
    const char *command;
    const char *doc; /* what help shows above and, behind \v, below the flags */
    flag_group groups[3];
    size_t json; /* offset of a const char *: NULL, or where --json goes, "-" for stdout */
    const help_codes *codes; /* NULL: help does not say */
} flag_table;

/* Sets what the flags name, to the defaults first; says what is wrong with one, or that an argument
 * is no flag. Files to write are checked, and at most one is stdout. Returns a tool_exit. -h and -V
 * end the program. */
int flags_parse(const flag_table *table, int argc, char **argv, void *options);

/* The values as members of a JSON object; null for what was not given. */
void flags_put_json(json_t **object, const flag_group *group, const void *options);

/* For a command that reads its line without flags_parse. */
typedef enum flag_asked { FLAG_ASKED_NOTHING, FLAG_ASKED_HELP, FLAG_ASKED_VERSION } flag_asked;
flag_asked flags_asked(const char *word);
void flags_print_version(void);

#endif
