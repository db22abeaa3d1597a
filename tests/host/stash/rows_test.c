/* The copy between a page and rows with gaps: widths, gaps and places around lines and blocks of
 * streaming stores, against a loop over bytes. */
#include "kernels/host/rows.h"

#include "tests/harness.h"
#include "tests/random.h"

enum { PAGE = 80000, MEMORY = 400000, GUARD = 64 };

static unsigned char page[PAGE], expected[MEMORY];
static unsigned char memory[MEMORY] __attribute__((aligned(64)));

/* Rows from some byte of the first of them on. */
typedef struct span {
    uint64_t row_bytes, row_stride, in_row, base, bytes;
} span;

static uint64_t place_of(const span *self, uint64_t byte)
{
    const uint64_t at = self->in_row + byte;
    return self->base + at / self->row_bytes * self->row_stride + at % self->row_bytes;
}

/* So many bytes of the rows lie in memory. */
static uint64_t most_bytes(const span *self)
{
    const uint64_t rows = (MEMORY - 3 * GUARD - self->row_stride) / self->row_stride;
    return rows * self->row_bytes - self->in_row;
}

static span make_span(uint64_t *random)
{
    static const uint64_t widths[] = {1,   16,  63,   64,   65,   127,   128,  192,
                                      256, 289, 1000, 1024, 4096, 16384, 20000};
    static const uint64_t gaps[] = {1, 7, 16, 64, 128, 4000};
    span made = {.row_bytes = widths[random_below(random, 15)]};
    made.row_stride = made.row_bytes + gaps[random_below(random, 6)];
    if (random_below(random, 3) == 0) /* whole lines */
        made.row_stride = (made.row_bytes + 63) / 64 * 64 + 64;
    made.in_row = random_below(random, 2) * random_below(random, made.row_bytes);
    made.base = GUARD + random_below(random, 2) * random_below(random, GUARD);
    made.bytes = random_below(random, PAGE - 2 * GUARD);
    if (made.bytes > most_bytes(&made))
        made.bytes = most_bytes(&made);
    return made;
}

static psti_rows rows_of(const span *self)
{
    return (psti_rows){memory + self->base, self->in_row, self->row_bytes, self->row_stride};
}

static void fill(unsigned char *bytes, uint64_t count, uint64_t *random)
{
    for (uint64_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)random_below(random, 256);
}

/* Whether the rows go on where `bytes` bytes of them end; the next of no row is as good. */
static bool goes_on(const psti_rows *rows, const span *of)
{
    const uint64_t at = of->in_row + of->bytes;
    const uint64_t row = ((uint64_t)(rows->row - memory) - of->base) / of->row_stride;
    return row * of->row_bytes + rows->in_row == at;
}

static void try_gather(const span *of, uint64_t offset, uint64_t total)
{
    psti_rows rows = rows_of(of);
    memset(page, 0xa5, sizeof(page));
    psti_gather(page + offset, &rows, of->bytes, total);
    for (uint64_t i = 0; i < PAGE; i++) {
        const bool inside = i >= offset && i < offset + of->bytes;
        CHECK_MSG(page[i] == (inside ? memory[place_of(of, i - offset)] : 0xa5),
                  "byte %llu of %llu to offset %llu: rows of %llu every %llu, from %llu on",
                  (unsigned long long)i, (unsigned long long)of->bytes, (unsigned long long)offset,
                  (unsigned long long)of->row_bytes, (unsigned long long)of->row_stride,
                  (unsigned long long)of->in_row);
    }
    CHECK(goes_on(&rows, of));
}

static void try_scatter(const span *of, uint64_t offset, uint64_t total)
{
    psti_rows rows = rows_of(of);
    memset(memory, 0x5a, sizeof(memory));
    memset(expected, 0x5a, sizeof(expected));
    for (uint64_t i = 0; i < of->bytes; i++)
        expected[place_of(of, i)] = page[offset + i];
    psti_scatter(&rows, page + offset, of->bytes, total);
    for (uint64_t i = 0; i < MEMORY; i++)
        CHECK_MSG(memory[i] == expected[i],
                  "byte %llu of memory: %llu bytes, rows of %llu every %llu, from %llu on",
                  (unsigned long long)i, (unsigned long long)of->bytes,
                  (unsigned long long)of->row_bytes, (unsigned long long)of->row_stride,
                  (unsigned long long)of->in_row);
}

PST_TEST(Rows, EveryWayToCopyThem)
{
    static const uint64_t totals[] = {0, PSTI_STREAM_MIN_BYTES};
    uint64_t random = 1;
    for (uint32_t i = 0; i < psti_test_cases(PSTI_UNDER_TSAN ? 100 : 1000) && !psti_test_failed();
         i++) {
        const span of = make_span(&random);
        const uint64_t offset = random_below(&random, GUARD);
        fill(memory, MEMORY, &random);
        try_gather(&of, offset, totals[i % 2]);
        fill(page, PAGE, &random);
        try_scatter(&of, offset, totals[i / 2 % 2]);
    }
}

PST_TEST(Rows, ClearsRowsAndNothingElse)
{
    uint64_t random = 2;
    for (uint32_t i = 0; i < psti_test_cases(300) && !psti_test_failed(); i++) {
        const span of = make_span(&random);
        psti_rows rows = rows_of(&of);
        memset(memory, 0x5a, sizeof(memory));
        memset(expected, 0x5a, sizeof(expected));
        for (uint64_t byte = 0; byte < of.bytes; byte++)
            expected[place_of(&of, byte)] = 0;
        psti_zero_rows(&rows, of.bytes);
        CHECK(memcmp(memory, expected, MEMORY) == 0);
    }
}

#ifdef PSTI_STREAM_LINE
/* A block in one part and in four, of rows of any length: this machine uses one of both. */
PST_TEST(Rows, ABlockInAnyNumberOfParts)
{
    static unsigned char block[PSTI_STREAM_BLOCK] __attribute__((aligned(64)));
    uint64_t random = 3;
    for (uint32_t i = 0; i < psti_test_cases(600) && !psti_test_failed(); i++) {
        const uint32_t num = i % 2 ? 4 : 1;
        span of = make_span(&random);
        if (of.row_bytes < PSTI_STREAM_LINE || most_bytes(&of) < PSTI_STREAM_BLOCK)
            continue;
        of.bytes = PSTI_STREAM_BLOCK;
        const uint64_t part = PSTI_STREAM_BLOCK / num;
        psti_rows rows = rows_of(&of);
        fill(memory, MEMORY, &random);
        psti_gather_block(block, &rows, num, part / of.row_bytes, part % of.row_bytes);
        _mm_sfence();
        for (uint64_t byte = 0; byte < PSTI_STREAM_BLOCK; byte++)
            CHECK_MSG(block[byte] == memory[place_of(&of, byte)], "byte %llu, %u parts",
                      (unsigned long long)byte, num);
        CHECK(goes_on(&rows, &of));
    }
}

PST_TEST(Rows, ABlockOfWholeLinesInAnyNumberOfParts)
{
    static const uint64_t widths[] = {128, 192, 256, 1024, 4096, 16384, 20032};
    uint64_t random = 4;
    for (uint32_t i = 0; i < psti_test_cases(400) && !psti_test_failed(); i++) {
        const uint32_t num = i % 2 ? 4 : 1;
        const uint64_t part = PSTI_STREAM_BLOCK / num;
        span of = {.row_bytes = widths[random_below(&random, 7)], .base = GUARD};
        of.row_stride = of.row_bytes + 64 * (1 + random_below(&random, 4));
        of.in_row = 64 * random_below(&random, of.row_bytes / 64);
        psti_rows rows = rows_of(&of);
        fill(page, PAGE, &random);
        memset(memory, 0x5a, sizeof(memory));
        memset(expected, 0x5a, sizeof(expected));
        for (uint64_t byte = 0; byte < PSTI_STREAM_BLOCK; byte++)
            expected[place_of(&of, byte)] = page[byte];
        psti_scatter_block(&rows, page, num, part / of.row_bytes, part % of.row_bytes);
        _mm_sfence();
        CHECK(memcmp(memory, expected, MEMORY) == 0);
    }
}
#endif
