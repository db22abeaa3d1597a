/* Derived traces: their tensors and sizes by hand, and what is refused. */
#include "tests/host/trace/trace_scene.h"

typedef struct expected {
    pst_trace_part part;
    uint32_t layers, tp, cp, alpha_num, alpha_den;
    bool full, fused;
    uint32_t num_micro_batches, warmup;
    uint32_t online_percent; /* over the load, times 100; 0: not looked at */
    uint64_t tensors, most_live, live_kib;
} expected;

static void derives(const expected *want)
{
    pst_trace_derivation from = PST_TRACE_DERIVATION_INIT;
    pst_trace_summary summary;
    pst_trace *trace = NULL;
    from.part = want->part;
    from.num_layers = want->layers;
    from.tensor_parallel = want->tp;
    from.context_parallel = want->cp;
    from.alpha_num = want->alpha_num;
    from.alpha_den = want->alpha_den;
    from.full = want->full;
    from.fused_loss = want->fused;
    from.num_micro_batches = want->num_micro_batches;
    from.warmup = want->warmup;
    CHECK_OK(pst_trace_derive(&from, &trace));
    CHECK_OK(pst_trace_get_summary(trace, 512, &summary));
    pst_trace_destroy(trace);
    CHECK_EQ(summary.num_tensors, want->tensors);
    CHECK_EQ(summary.num_unfreed, 0);
    if (want->most_live != 0)
        CHECK_EQ(summary.most_live_tensors, want->most_live);
    CHECK_EQ(summary.most_live_bytes, want->live_kib << 10);
    const double over = (double)summary.online_peak / (double)summary.most_live_bytes - 1;
    if (want->online_percent != 0)
        CHECK_EQ((int)(over * 10000 + 0.5), want->online_percent);
}

/* Tensors, most live at once and load of published traces of this shape (their loads were given in
 * MiB with one digit, here to the KiB); best fit in request order where it came out the same. */
PST_TEST(TraceDerive, ShapesWithKnownFigures)
{
    const bool memo = false, full = true, head = false, fused = true;
    const expected cases[] = {
        {PST_TRACE_LAYER_FORWARD, 1, 4, 2, 1, 4, memo, head, 1, 0, 0, 23, 8, 917632},
        {PST_TRACE_LAYER_BACKWARD, 1, 4, 2, 1, 4, memo, head, 1, 0, 656, 41, 11, 1968128},
        {PST_TRACE_LAYER, 1, 4, 2, 1, 4, memo, head, 1, 0, 0, 64, 0, 2099200},
        {PST_TRACE_LAYER, 1, 4, 2, 1, 4, full, head, 1, 0, 0, 66, 20, 3311872},
        {PST_TRACE_MODEL, 32, 4, 2, 1, 4, memo, head, 1, 0, 2589, 2040, 15, 7276672},
        {PST_TRACE_MODEL, 80, 4, 2, 1, 4, memo, head, 1, 0, 2589, 5064, 15, 7276672},
        {PST_TRACE_MODEL, 32, 4, 2, 1, 4, full, head, 1, 0, 0, 2104, 491, 74459264},
        {PST_TRACE_MODEL, 80, 4, 2, 1, 4, full, head, 1, 0, 0, 5224, 1211, 175233152},
        {PST_TRACE_MODEL, 32, 4, 2, 1, 4, memo, fused, 1, 0, 1320, 2040, 15, 1969920},
        {PST_TRACE_MODEL, 80, 2, 4, 1, 4, full, fused, 1, 0, 0, 5224, 0, 169071488},
        {PST_TRACE_MODEL, 80, 4, 2, 1, 4, full, head, 10, 0, 0, 52240, 1211, 175233152},
        {PST_TRACE_MODEL, 80, 4, 2, 1, 4, full, head, 12, 4, 0, 62688, 6027, 847589504},
        /* without the ring; and what lies between the two is linear in tp */
        {PST_TRACE_MODEL, 32, 8, 1, 0, 1, memo, head, 1, 0, 0, 1656, 0, 7868544},
        {PST_TRACE_MODEL, 32, 8, 1, 1, 1, memo, head, 1, 0, 0, 1400, 0, 7868544},
        {PST_TRACE_MODEL, 32, 2, 4, 1, 2, memo, head, 1, 0, 0, 2040, 0, 6980736},
        {PST_TRACE_MODEL, 32, 8, 1, 0, 1, memo, fused, 1, 0, 0, 1656, 0, 3148800},
        {PST_TRACE_MODEL, 32, 2, 4, 1, 2, memo, fused, 1, 0, 0, 2040, 0, 1969024},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]) && !psti_test_failed(); i++)
        derives(&cases[i]);
}

PST_TEST(TraceDerive, SequenceOfALayersForward)
{
    pst_trace_derivation from = PST_TRACE_DERIVATION_INIT;
    pst_trace *trace = NULL;
    char shown[1024];
    /* one shard is 2048 bytes */
    from.part = PST_TRACE_LAYER_FORWARD;
    from.sequence_size = 128;
    from.hidden_size = 64;
    from.num_heads = 4;
    CHECK_OK(pst_trace_derive(&from, &trace));
    describe(trace, shown, sizeof(shown));
    pst_trace_destroy(trace);
    CHECK_STR(shown, "+0:512 +1:512 +2:8192 +3:6144 -2 -3 +4:4096 +5:4096 +6:2048 +7:512 +8:2048 "
                     "+9:512 -4 -5 +10:4096 -6 -8 +11:512 -7 -9 -11 -10 +12:8192 +13:2048 -12 "
                     "+14:2048 -13 -14 +15:512 +16:512 +17:8192 -17 +18:8192 -18 +19:8192 +20:2048 "
                     "-19 +21:2048 +22:2048 -20 -21 -0 -1 -15 -16 -22");
}

PST_TEST(TraceDerive, PassesOfLayers)
{
    pst_trace_derivation from = PST_TRACE_DERIVATION_INIT;
    pst_trace *trace = NULL;
    from.num_layers = 2;
    from.num_micro_batches = 3;
    from.warmup = 1;
    CHECK_OK(pst_trace_derive(&from, &trace));
    static const struct {
        uint8_t phase;
        uint32_t layer, micro_batch;
    } want[] = {
#define F(m) \
    {PST_PHASE_OTHER, PST_TRACE_NONE, m}, {PST_PHASE_FORWARD, 0, m}, {PST_PHASE_FORWARD, 1, m}
#define B(m)                                                                                      \
    {PST_PHASE_OTHER, PST_TRACE_NONE, m}, {PST_PHASE_BACKWARD, 1, m}, {PST_PHASE_BACKWARD, 0, m}, \
    {                                                                                             \
        PST_PHASE_OTHER, PST_TRACE_NONE, m                                                        \
    }
        F(0), F(1), B(0), F(2), B(1), B(2),
    };
    const uint64_t num_passes = pst_trace_num_passes(trace);
    CHECK_EQ(num_passes, sizeof(want) / sizeof(want[0]));
    for (uint64_t i = 0; i < num_passes; i++) {
        const pst_trace_pass *pass = &pst_trace_passes(trace)[i];
        CHECK_MSG(pass->phase == want[i].phase && pass->layer == want[i].layer &&
                      pass->micro_batch == want[i].micro_batch,
                  "pass %llu", (unsigned long long)i);
    }
    pst_trace_destroy(trace);
}

PST_TEST(TraceDerive, Refusals)
{
    pst_trace_derivation from = PST_TRACE_DERIVATION_INIT;
    const pst_trace_derivation right = from;
    pst_trace *trace = NULL;
#define REFUSES(field, value, message)                                        \
    do {                                                                      \
        from = right;                                                         \
        from.field = value;                                                   \
        CHECK_STATUS(pst_trace_derive(&from, &trace), PST_E_INVALID);         \
        CHECK_MSG(strncmp(pst_last_message(), message, strlen(message)) == 0, \
                  "\"%s\" is not \"%s\"", pst_last_message(), message);       \
    } while (0)
    REFUSES(struct_size, 1, "struct_size 1: pst_trace_");
    REFUSES(part, PST_TRACE_NUM_PARTS, "part 4: allowed is 0..3");
    REFUSES(micro_batch, (1u << 30) + 1, "micro_batch 1073741825: allowed is 1..1073741824");
    REFUSES(sequence_size, 1001, "sequence_size 1001: allowed is a multiple of 8");
    REFUSES(hidden_size, 4098, "hidden_size 4098: allowed is a multiple of 4");
    REFUSES(num_heads, 30, "num_heads 30: allowed is a multiple of 4");
    REFUSES(ffn_size, 3, "ffn_size 3: allowed is a multiple of 4");
    REFUSES(vocab_size, 1u << 31, "vocab_size 2147483648: allowed");
    REFUSES(tensor_parallel, 65537, "tensor_parallel 65537: allowed is 1..65536");
    REFUSES(context_parallel, 65537, "context_parallel 65537: allowed is 1..65536");
    REFUSES(num_layers, 1u << 21, "num_layers 2097152: allowed is 1..1048576");
    REFUSES(alpha_num, (from.alpha_den = 4) + 1, "alpha_num 5: allowed is 0..4");
    REFUSES(alpha_num, 1, "alpha_den 0: allowed is 1..4294967295");
    REFUSES(num_micro_batches, 1u << 21, "num_micro_batches 2097152: allowed");
    REFUSES(warmup, 1u << 21, "warmup 2097152: allowed");
    REFUSES(sequence_size, UINT64_C(1) << 41,
            "sequence_size 2199023255552: allowed is 1..1099511627776");
    from = right;
    from.sequence_size = UINT64_C(1) << 40;
    from.micro_batch = 1u << 30;
    CHECK_STATUS(pst_trace_derive(&from, &trace), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "a tensor of more than 2^62 bytes") != NULL);
    CHECK_STATUS(pst_trace_derive(NULL, &trace), PST_E_INVALID);
    CHECK_STATUS(pst_trace_derive(&right, NULL), PST_E_INVALID);
    CHECK(trace == NULL);
}

static pst_status derive(const void *from, pst_trace **trace_out)
{
    return pst_trace_derive(from, trace_out);
}

PST_TEST(TraceDerive, SurvivesEveryFailedAllocation)
{
    pst_trace_derivation from = PST_TRACE_DERIVATION_INIT;
    from.num_layers = 2;
    from.num_micro_batches = 2;
    from.warmup = 1;
    survives_failures(derive, &from, 13);
}
