/* The flag that a misspelt one may mean. */
#include "tools/estimate/estimate_flags.h"

#include <string.h>

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
    for (int i = 0; i < ESTIMATE_NUM_FLAGS && length >= SHORTEST && length <= MOST_CHARACTERS;
         i++) {
        const char *other = estimate_flag_table[i].name;
        const size_t other_length = strlen(other);
        if (other_length > MOST_CHARACTERS || other_length > length + MOST_EDITS ||
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
