/* Flags that do not count here: those of Megatron-LM, as estimate_known.txt lists them, and misspelt ones. */
#include "tools/common/near.h"
#include "tools/estimate/estimate_flags.h"

#include <string.h>

#include "estimate_known.h" /* made by CMake of estimate_known.txt */

static const struct {
    const char *heading;
    estimate_effect effect;
    int arity;
} kinds[] = {
    {"harmless-switches:", ESTIMATE_HARMLESS, 0},
    {"harmless-values:", ESTIMATE_HARMLESS, 1},
    {"harmless-lists:", ESTIMATE_HARMLESS, 2},
    {"shards-switches:", ESTIMATE_SHARDS_STATES, 0},
    {"shards-values:", ESTIMATE_SHARDS_STATES, 1},
    {"states-switches:", ESTIMATE_CHANGES_STATES, 0},
    {"states-values:", ESTIMATE_CHANGES_STATES, 1},
    {"memory-switches:", ESTIMATE_CHANGES_MEMORY, 0},
    {"memory-values:", ESTIMATE_CHANGES_MEMORY, 1},
    {"memory-lists:", ESTIMATE_CHANGES_MEMORY, 2},
};

static bool is_word(const char *at, size_t length, const char *word)
{
    return strlen(word) == length && memcmp(at, word, length) == 0;
}

/* Goes over the names up to the wanted one; NULL: over all. How many those were. */
static int walk(const char *name, estimate_known *found)
{
    int num = 0, kind = -1;
    size_t length;
    for (const char *at = estimate_known_txt; *at != '\0';
         at += length + strspn(at + length, " \n")) {
        length = strcspn(at, *at == '#' ? "\n" : " \n");
        if (*at == '#')
            continue;
        if (at[length - 1] == ':') {
            for (kind = 0; !is_word(at, length, kinds[kind].heading);)
                kind++;
            continue;
        }
        if (name != NULL && is_word(at, length, name)) {
            *found = (estimate_known){kinds[kind].effect, kinds[kind].arity, num};
            return num;
        }
        num++;
    }
    return num;
}

int estimate_num_known(void)
{
    return walk(NULL, NULL);
}

estimate_known estimate_find_known(const char *name)
{
    estimate_known known = {.effect = ESTIMATE_UNKNOWN};
    (void)walk(name, &known);
    return known;
}

const char *estimate_meant(const char *name)
{
    const char *meant = NULL;
    size_t fewest = SIZE_MAX;
    for (estimate_id id = 0; id < ESTIMATE_NUM_ROWS; id++)
        if (estimate_rows[id].kind != ESTIMATE_NO_FLAG)
            near_pick(name, estimate_flag(id), &fewest, &meant);
    return meant;
}
