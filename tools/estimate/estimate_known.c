/* Flags that do not count here: those of Megatron-LM, as estimate_known.txt lists them, and misspelt ones. */
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

/* ---- misspelt ones ---- */

enum { MOST_CHARACTERS = 80, MOST_EDITS = 2, SHORTEST = 6 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters put in, left out, changed, or swapped with the next one: the optimal string alignment. */
static size_t num_edits(const char *a, const char *b)
{
    size_t rows[3][MOST_CHARACTERS + 1];
    const size_t length_a = strlen(a), length_b = strlen(b);
    for (size_t j = 0; j <= length_b; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= length_a; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= length_b; j++) {
            const size_t changed = above[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, changed);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[length_a % 3][length_b];
}

const char *estimate_meant(const char *name)
{
    const char *meant = NULL;
    size_t fewest = MOST_EDITS + 1;
    const size_t length = strlen(name);
    for (estimate_id id = 0;
         id < ESTIMATE_NUM_ROWS && length >= SHORTEST && length <= MOST_CHARACTERS; id++) {
        const char *other = estimate_flag(id);
        const size_t other_length = strlen(other);
        if (estimate_rows[id].kind == ESTIMATE_NO_FLAG || other_length > length + MOST_EDITS ||
            length > other_length + MOST_EDITS)
            continue;
        const size_t edits = num_edits(name, other);
        if (edits < fewest) {
            fewest = edits;
            meant = other;
        }
    }
    return meant;
}
