/* The figures of a trace, by hand and against a naive online allocator. */
#include "host/trace/trace.h"
#include "tests/host/trace/trace_scene.h"
#include "tests/random.h"

static void sums_up(pst_trace_format format, const char *text, uint64_t align,
                    pst_trace_summary expected)
{
    enum { NUM_FIGURES = sizeof(pst_trace_summary) / sizeof(uint64_t) };
    pst_trace_config config = config_of(format);
    pst_trace *trace = NULL;
    pst_trace_summary summary;
    uint64_t found[NUM_FIGURES], wanted[NUM_FIGURES];
    config.keep_unfreed = true;
    CHECK_OK(read_text(&config, text, &trace));
    CHECK_OK(pst_trace_get_summary(trace, align, &summary));
    pst_trace_destroy(trace);
    memcpy(found, &summary, sizeof(found));
    memcpy(wanted, &expected, sizeof(wanted));
    for (int i = 0; i < NUM_FIGURES; i++)
        CHECK_MSG(found[i] == wanted[i], "%s: figure %d is %llu, not %llu", text, i,
                  (unsigned long long)found[i], (unsigned long long)wanted[i]);
}

PST_TEST(TraceSummary, EveryFigure)
{
    /* as MEMO's paper says: best fit in the order of the requests reaches 2688 */
    sums_up(PST_TRACE_MEMO, papers_example, 1,
            (pst_trace_summary){.num_requests = 24,
                                .num_tensors = 12,
                                .num_sizes = 4,
                                .most_live_bytes = 2432,
                                .most_live_instant = 18,
                                .most_live_tensors = 5,
                                .online_peak = 2688,
                                .align = 1});
    /* sizes are rounded up, and dynamic tensors left out */
    sums_up(PST_TRACE_CSV,
            CSV_HEADER "malloc,1,513,,,,,,\nmalloc,2,1,,,,,,\nmalloc,3,100,,,,,,dynamic\n"
                       "malloc,4,100,,,,,,dynamic\nfree,3,,,,,,,\nfree,1,,,,,,,\n",
            0,
            (pst_trace_summary){.num_requests = 6,
                                .num_tensors = 2,
                                .num_dynamic = 2,
                                .num_unfreed = 1,
                                .num_sizes = 2,
                                .most_live_bytes = 1536,
                                .most_live_instant = 1,
                                .most_live_tensors = 2,
                                .online_peak = 1536,
                                .most_live_dynamic_bytes = 1024,
                                .align = 512});
    /* of two peaks the first */
    sums_up(PST_TRACE_MEMO, "malloc 1 5\nmalloc 2 7\nfree 1\nmalloc 3 5\n", 1,
            (pst_trace_summary){.num_requests = 4,
                                .num_tensors = 3,
                                .num_unfreed = 2,
                                .num_sizes = 2,
                                .most_live_bytes = 12,
                                .most_live_instant = 1,
                                .most_live_tensors = 2,
                                .online_peak = 12,
                                .align = 1});
}

PST_TEST(TraceSummary, Refusals)
{
    static const char two[] = "malloc 1 4611686018427387904\nmalloc 2 1\n";
    pst_trace_config config = config_of(PST_TRACE_MEMO);
    pst_trace_summary summary = {.align = 77};
    pst_trace *trace = NULL;
    config.keep_unfreed = true;
    CHECK_OK(read_text(&config, two, &trace));
    CHECK_STATUS(pst_trace_get_summary(trace, 1, &summary), PST_E_INVALID);
    CHECK_STATUS(pst_trace_get_summary(trace, 3, &summary), PST_E_INVALID);
    CHECK_STATUS(pst_trace_get_summary(trace, UINT64_C(1) << 33, &summary), PST_E_INVALID);
    CHECK_STATUS(pst_trace_get_summary(NULL, 0, &summary), PST_E_INVALID);
    CHECK_STATUS(pst_trace_get_summary(trace, 0, NULL), PST_E_INVALID);
    CHECK_EQ(summary.align, 77);
    pst_trace_destroy(trace);
    trace = NULL;
    /* the live size stays below 2^62, what goes on top does not */
    CHECK_OK(read_text(&config,
                       "malloc 1 2305843009213693952\nmalloc 2 1\nfree 1\n"
                       "malloc 3 2305843009213693953\n",
                       &trace));
    CHECK_STATUS(pst_trace_get_summary(trace, 1, &summary), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "tensor 3 of 2305843009213693953 bytes ends above") != NULL);
    for (int n = 0; n < 5; n++) {
        psti_fail_allocation_after(n);
        const pst_status status = pst_trace_get_summary(trace, 1, &summary);
        psti_fail_allocation_after(-1);
        CHECK(status == (n < 3 ? PST_E_NOMEM : PST_E_INVALID));
    }
    pst_trace_destroy(trace);
    CHECK_EQ(summary.align, 77);
}

enum { MOST = 24, SLOTS = 4096 };

/* Best fit by looking at every gap between what lives, which is kept in order of address. */
typedef struct naive {
    uint64_t address[MOST], bytes[MOST], id[MOST];
    int num;
} naive;

static uint64_t naive_place(naive *self, uint64_t id, uint64_t size)
{
    uint64_t best = UINT64_MAX, at = 0, end = 0;
    int where = self->num;
    for (int i = 0; i < self->num; i++) {
        const uint64_t gap = self->address[i] - end;
        if (gap >= size && gap < best) {
            best = gap;
            at = end;
            where = i;
        }
        end = self->address[i] + self->bytes[i];
    }
    if (best == UINT64_MAX)
        at = end;
    for (int i = self->num++; i > where; i--) {
        self->address[i] = self->address[i - 1];
        self->bytes[i] = self->bytes[i - 1];
        self->id[i] = self->id[i - 1];
    }
    self->address[where] = at;
    self->bytes[where] = size;
    self->id[where] = id;
    return at + size;
}

static void naive_release(naive *self, int which)
{
    self->num--;
    for (int i = which; i < self->num; i++) {
        self->address[i] = self->address[i + 1];
        self->bytes[i] = self->bytes[i + 1];
        self->id[i] = self->id[i + 1];
    }
}

PST_TEST(TraceSummary, OnlinePeakAsTheNaiveOne)
{
    static pst_trace_request rows[SLOTS];
    const pst_trace_config config = {
        .struct_size = sizeof(config), .name = "t", .keep_unfreed = true};
    for (uint64_t seed = 1; seed <= 20; seed++) {
        uint64_t state = seed * 77, peak = 0, id = 0;
        naive self = {.num = 0};
        for (int i = 0; i < SLOTS; i++) {
            const uint64_t draw = random_below(&state, UINT64_C(1) << 31);
            rows[i] = (pst_trace_request){.line = (uint64_t)i, .op = PST_TRACE_FREE};
            if (self.num > 0 && (self.num == MOST || draw % 2 == 0)) {
                const int which = (int)(draw / 2 % (uint64_t)self.num);
                rows[i].id = self.id[which];
                naive_release(&self, which);
                continue;
            }
            rows[i].op = PST_TRACE_MALLOC;
            rows[i].id = id++;
            rows[i].bytes = 1 + draw / 2 % (seed % 2 == 0 ? 9 : 1000);
            const uint64_t top = naive_place(&self, rows[i].id, rows[i].bytes);
            peak = top > peak ? top : peak;
        }
        pst_trace *trace = NULL;
        pst_trace_summary summary;
        CHECK_OK(pst_trace_make(&config, rows, SLOTS, &trace));
        CHECK_OK(pst_trace_get_summary(trace, 1, &summary));
        pst_trace_destroy(trace);
        CHECK_EQ(summary.online_peak, peak);
    }
}
