/* kernels/host/glu_rows.h: every level, layout and length does what the elements' functions do, and
 * writes nothing else. */
#include "tests/harness.h"
#include "tests/random.h"

#include "kernels/host/glu_rows.h"
#include "tests/core/glu_exact.h"

enum { MOST = 1024, GUARD = 64, ROOM = 2 * MOST * 4 + 2 * GUARD + 4, NUM_KINDS = 6 };
static const unsigned char guard_byte = 0xa5;

/* A row, and what it becomes: bytes with guards around them, `from` behind the alignment. */
typedef struct row {
    uint32_t dtype, interleave;
    uint64_t n, size, from;
    psti_activation how;
    unsigned char in[ROOM], gradient[ROOM], out[ROOM], again[ROOM], by[ROOM];
    float gate[MOST], up[MOST], dout[MOST], sum[PSTI_GLU_SUMS];
} row;

static const float row_p = 0.7f;

/* Where element i of the gate or of up stands among the 2 n. */
static uint64_t place_of(const row *at, bool is_up, uint64_t i)
{
    const uint64_t run = at->interleave ? at->interleave : at->n;
    return i / run * 2 * run + (is_up ? run : 0) + i % run;
}

static unsigned char *element(const row *at, unsigned char *bytes, uint64_t i)
{
    return bytes + GUARD + at->from + i * at->size;
}

static void put(const row *at, unsigned char *bytes, uint64_t i, float value)
{
    const uint32_t bits = bits_as(at->dtype, value);
    memcpy(element(at, bytes, i), &bits, at->size); /* little endian */
}

static float get(const row *at, const unsigned char *bytes, uint64_t i)
{
    uint32_t bits = 0;
    memcpy(&bits, element(at, (unsigned char *)(uintptr_t)bytes, i), at->size);
    return read_as(at->dtype, bits);
}

static float some_value(const row *at, uint64_t *state)
{
    const float value = ((float)random_below(state, 40001) - 20000) / 2000;
    return (float)round_as(at->dtype, value);
}

static void fill(row *at, uint64_t *state)
{
    memset(at->out, guard_byte, ROOM);
    memset(at->again, guard_byte, ROOM);
    memset(at->by, guard_byte, ROOM);
    memset(at->sum, 0, sizeof at->sum);
    for (uint64_t i = 0; i < at->n; i++) {
        put(at, at->in, place_of(at, false, i), at->gate[i] = some_value(at, state));
        put(at, at->in, place_of(at, true, i), at->up[i] = some_value(at, state));
        put(at, at->gradient, i, at->dout[i] = some_value(at, state));
    }
}

/* Of elements [first, first + n). */
static void run_forward(const psti_glu_rows *rows, row *at, uint64_t first, uint64_t n)
{
    const bool halves = at->interleave == 0;
    const uint64_t gate = halves ? first : 2 * first;
    rows->forward(&at->how, at->dtype, at->interleave, element(at, at->in, gate),
                  halves ? element(at, at->in, at->n + first) : NULL, n, row_p,
                  element(at, at->out, first));
}

static void run_backward(const psti_glu_rows *rows, row *at, uint64_t first, uint64_t n,
                         bool with_output)
{
    const bool halves = at->interleave == 0;
    const uint64_t gate = halves ? first : 2 * first;
    rows->backward(&at->how, at->dtype, at->interleave, element(at, at->in, gate),
                   halves ? element(at, at->in, at->n + first) : NULL,
                   element(at, at->gradient, first), n, row_p, element(at, at->by, gate),
                   halves ? element(at, at->by, at->n + first) : NULL,
                   with_output ? element(at, at->again, first) : NULL, at->sum);
}

static void check_guards(const row *at, const unsigned char *bytes, uint64_t elements)
{
    const uint64_t begin = GUARD + at->from, end = begin + elements * at->size;
    for (uint64_t i = 0; i < ROOM; i++)
        CHECK_MSG((i >= begin && i < end) || bytes[i] == guard_byte,
                  "byte %lld beside the row was written", (long long)(i - begin));
}

/* Twice the bound for p and the gradient, by which it is multiplied. */
static void check_near(const row *at, const char *what, uint64_t i, float found, exact_sum exact,
                       double factor, double c)
{
    exact.is *= factor;
    exact.terms *= fabs(factor);
    const double share = share_of_bound(at->dtype, (double)found, exact, c + 2);
    CHECK_MSG(share <= 1, "%s %llu of %llu, kind %u, dtype %u, interleave %u: %g, not %g", what,
              (unsigned long long)i, (unsigned long long)at->n, at->how.kind, at->dtype,
              at->interleave, (double)found, exact.is);
}

static void check_elements(const row *at)
{
    const glu_bound bound = bound_of(at->how.kind);
    const double p = (double)row_p;
    for (uint64_t i = 0; i < at->n && !psti_test_failed(); i++) {
        const double dout = (double)at->dout[i];
        const exact_gate gate = exact_gate_of(&at->how, (double)at->gate[i]);
        const exact_glu exact = exact_glu_of(&at->how, gate, (double)at->up[i]);
        check_near(at, "out", i, get(at, at->out, i), exact.value, p, bound.value);
        check_near(at, "gate gradient", i, get(at, at->by, place_of(at, false, i)), exact.by_gate,
                   p * dout, bound.by_gate);
        check_near(at, "up gradient", i, get(at, at->by, place_of(at, true, i)), exact.by_up,
                   p * dout, bound.by_up);
    }
}

/* One after another, each sum by itself. */
static void check_sums(const row *at)
{
    double sum = 0, terms = 0;
    for (uint64_t i = 0; i < at->n; i++) {
        const exact_gate gate = exact_gate_of(&at->how, (double)at->gate[i]);
        const exact_sum value = exact_glu_of(&at->how, gate, (double)at->up[i]).value;
        sum += value.is * (double)at->dout[i];
        terms += fabs(value.terms * (double)at->dout[i]);
    }
    const double room = (20 + (double)at->n / PSTI_GLU_SUMS) * 0x1p-24 * terms;
    const double found = (double)psti_glu_sum(at->sum);
    CHECK_MSG(fabs(found - sum) <= room, "kind %u, %llu elements: the sum is %g, not %g",
              at->how.kind, (unsigned long long)at->n, found, sum);
}

static row shared;

static void check_row(const psti_glu_rows *rows, uint64_t *state)
{
    row *at = &shared;
    fill(at, state);
    run_forward(rows, at, 0, at->n);
    run_backward(rows, at, 0, at->n, true);
    CHECK_MSG(memcmp(at->out, at->again, ROOM) == 0, "the backward's output is another one");
    check_guards(at, at->out, at->n);
    check_guards(at, at->by, 2 * at->n);
    if (!psti_test_failed())
        check_elements(at);
    if (!psti_test_failed())
        check_sums(at);
}

static void check_level(psti_glu_level level, uint32_t interleave)
{
    static const uint64_t lengths[] = {0,  1,  15,  16,  17,  32,   63,  64,
                                       65, 96, 127, 128, 129, 1000, 1024};
    const psti_glu_rows *rows = psti_glu_rows_of(level);
    uint64_t state = 7;
    if (rows == NULL) /* another processor has it */
        return;
    for (uint32_t kind = 0; kind < NUM_KINDS; kind++)
        for (uint32_t dtype = 0; dtype < 3; dtype++)
            for (uint32_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
                if (interleave != 0 && lengths[i] % interleave != 0)
                    continue;
                shared.how = activation_of(kind);
                shared.dtype = dtype;
                shared.size = dtype == PST_GLU_FP32 ? 4 : 2;
                shared.interleave = interleave;
                shared.n = lengths[i];
                shared.from = (i % 4) * shared.size;
                check_row(rows, &state);
                if (psti_test_failed())
                    return;
            }
}

static void check_levels(uint32_t interleave)
{
    for (uint32_t level = 0; level < PSTI_NUM_GLU_LEVELS && !psti_test_failed(); level++)
        check_level((psti_glu_level)level, interleave);
}

PST_TEST(CoreGluRows, Halves)
{
    check_levels(0);
}

PST_TEST(CoreGluRows, InterleavedByOne)
{
    check_levels(1);
}

PST_TEST(CoreGluRows, InterleavedBy32)
{
    check_levels(32);
}

static bool same_sums(const float *a, const float *b)
{
    bool same = true;
    for (uint32_t i = 0; i < PSTI_GLU_SUMS; i++)
        same = same && psti_bits_of(a[i]) == psti_bits_of(b[i]);
    return same;
}

/* Wherever a multiple of 16 ends, and with or without the output. */
PST_TEST(CoreGluRows, PiecesGiveTheSameBits)
{
    static const uint64_t cuts[][4] = {
        {16, 16, 0, 0}, {64, 32, 496, 16}, {128, 256, 96, 128}, {400, 0, 16, 144}};
    uint64_t state = 3;
    for (uint32_t level = 0; level < PSTI_NUM_GLU_LEVELS; level++)
        for (uint32_t interleave = 0; interleave < 2; interleave++)
            for (uint32_t i = 0; i < 4; i++) {
                const psti_glu_rows *rows = psti_glu_rows_of((psti_glu_level)level);
                row *at = &shared;
                if (rows == NULL)
                    continue;
                at->how = activation_of(i % NUM_KINDS);
                at->dtype = i % 3;
                at->size = at->dtype == PST_GLU_FP32 ? 4 : 2;
                at->interleave = interleave;
                at->n = 1000;
                at->from = 0;
                fill(at, &state);
                run_forward(rows, at, 0, at->n);
                run_backward(rows, at, 0, at->n, false);
                static row whole;
                whole = *at;
                memset(at->sum, 0, sizeof at->sum);
                uint64_t first = 0;
                for (uint32_t j = 0; j <= 4; first += j < 4 ? cuts[i][j] : 0, j++) {
                    const uint64_t n = j < 4 ? cuts[i][j] : at->n - first;
                    run_forward(rows, at, first, n);
                    run_backward(rows, at, first, n, true);
                }
                CHECK(memcmp(at->out, whole.out, ROOM) == 0);
                CHECK(memcmp(at->again, whole.out, ROOM) == 0);
                CHECK(memcmp(at->by, whole.by, ROOM) == 0);
                CHECK(same_sums(at->sum, whole.sum));
            }
}

/* Elements of one sum follow one another; then come halves of the 16. */
PST_TEST(CoreGluRows, SumsAreAddedInOneOrder)
{
    enum { N = 512 };
    static float gate[N], up[N], gradient[N], by_gate[N], by_up[N];
    uint64_t state = 11;
    for (uint32_t i = 0; i < N; i++) {
        gate[i] = 1;
        up[i] = 1;
        gradient[i] = (float)random_below(&state, 1u << 24) * (i % 3 ? 1.0f : -4096.0f);
    }
    const psti_activation relu = activation_of(PST_GLU_REGLU);
    float expected[PSTI_GLU_SUMS] = {0};
    for (uint32_t i = 0; i < N; i++)
        expected[i % PSTI_GLU_SUMS] += gradient[i];
    for (uint32_t level = 0; level < PSTI_NUM_GLU_LEVELS; level++) {
        const psti_glu_rows *rows = psti_glu_rows_of((psti_glu_level)level);
        float sum[PSTI_GLU_SUMS] = {0};
        if (rows == NULL)
            continue;
        rows->backward(&relu, PST_GLU_FP32, 0, gate, up, gradient, N, 1, by_gate, by_up, NULL, sum);
        CHECK(same_sums(sum, expected));
    }
    const float *s = expected;
    float folded[8];
    for (uint32_t i = 0; i < 8; i++)
        folded[i] = s[i] + s[i + 8];
    const float tree = ((folded[0] + folded[4]) + (folded[2] + folded[6])) +
                       ((folded[1] + folded[5]) + (folded[3] + folded[7]));
    CHECK(psti_bits_of(psti_glu_sum(expected)) == psti_bits_of(tree));
}

/* Infinities, NaN and what overflows on the way, in a block that is not full. */
PST_TEST(CoreGluRows, SpecialsPassThrough)
{
    static const float specials[] = {INFINITY, -INFINITY, NAN, 0.0f, -0.0f, 1e38f, -1e38f, 1e-40f};
    enum { N = 8 };
    for (uint32_t level = 0; level < PSTI_NUM_GLU_LEVELS; level++)
        for (uint32_t kind = 0; kind < NUM_KINDS; kind++) {
            const psti_glu_rows *rows = psti_glu_rows_of((psti_glu_level)level);
            const psti_activation how = activation_of(kind);
            const float up[N] = {1, 1, 1, 1, 1, 1, 1, 1}, one[N] = {1, 1, 1, 1, 1, 1, 1, 1};
            float out[N], by_gate[N], by_up[N], sum[PSTI_GLU_SUMS] = {0};
            if (rows == NULL)
                continue;
            rows->backward(&how, PST_GLU_FP32, 0, specials, up, one, N, 1, by_gate, by_up, out,
                           sum);
            for (uint32_t i = 0; i < N; i++) {
                const psti_glu_slopes at = psti_glu_slopes_of(&how, specials[i], 1);
                const float pairs[][2] = {
                    {out[i], at.value}, {by_gate[i], at.by_gate}, {by_up[i], at.by_up}};
                for (uint32_t j = 0; j < 3; j++)
                    CHECK(isnan(pairs[j][1]) ? isnan(pairs[j][0])
                                             : pairs[j][0] == pairs[j][1] ||
                                                   fabsf(pairs[j][0] - pairs[j][1]) < 1e-6f);
            }
        }
}

PST_TEST(CoreGluRows, TheBestLevelIsThere)
{
    const psti_glu_rows *best = psti_glu_rows_of(PSTI_GLU_BASELINE);
    CHECK(best != NULL);
    for (uint32_t level = 1; level < PSTI_NUM_GLU_LEVELS; level++)
        if (psti_glu_rows_of((psti_glu_level)level) != NULL)
            best = psti_glu_rows_of((psti_glu_level)level);
    CHECK(psti_glu_rows_best() == best);
}
