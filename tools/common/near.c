#include "tools/common/near.h"

#include <string.h>

enum { MOST_LETTERS = 80, MOST_EDITS = 2, SHORTEST = 6 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The optimal string alignment distance. */
static size_t num_edits(const char *a, const char *b)
{
    size_t rows[3][MOST_LETTERS + MOST_EDITS + 1];
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

void near_pick(const char *word, const char *other, size_t *fewest, const char **meant)
{
    const size_t length = strlen(word), other_length = strlen(other);
    if (length < SHORTEST || length > MOST_LETTERS || other_length > length + MOST_EDITS ||
        length > other_length + MOST_EDITS)
        return;
    const size_t edits = num_edits(word, other);
    if (edits > MOST_EDITS || edits >= *fewest)
        return;
    *fewest = edits;
    *meant = other;
}
