/* Profiles of a layer expanded to many layers and micro-batches. */
#include "tests/host/trace/trace_scene.h"

/* F, B and what lies around them in a few letters: rows of CSV without their header. */
#define M(id, size) "malloc," #id "," #size ",0,,,,,\n"
#define D(id) "free," #id ",,0,,,,,\n"
#define FM(id, size) "malloc," #id "," #size ",0,forward,0,0,,\n"
#define FD(id) "free," #id ",,0,forward,0,0,,\n"
#define BM(id, size) "malloc," #id "," #size ",0,backward,0,0,,\n"
#define BD(id) "free," #id ",,0,backward,0,0,,\n"
#define WD(id) "free," #id ",,0,weight,0,0,,\n"
#define LAYER(op, id, size, phase, layer) #op "," #id "," #size ",0," #phase "," #layer ",0,,\n"

static void open_profile(const char *rows, pst_trace **trace_out)
{
    pst_trace_config config = config_of(PST_TRACE_CSV);
    char text[8192];
    snprintf(text, sizeof(text), CSV_HEADER "%s", rows);
    config.keep_unfreed = true;
    CHECK_OK(read_text(&config, text, trace_out));
}

static void expands_as(const char *rows, const pst_trace_expansion *how, const char *expected)
{
    pst_trace *profile = NULL;
    pst_trace *trace = NULL;
    char shown[4096];
    open_profile(rows, &profile);
    CHECK(profile != NULL);
    const pst_status status = pst_trace_expand(profile, how, &trace);
    pst_trace_destroy(profile);
    CHECK_MSG(status == PST_OK, "%s: %s", rows, pst_last_message());
    describe(trace, shown, sizeof(shown));
    pst_trace_destroy(trace);
    CHECK_STR(shown, expected);
}

static void refuses(const char *rows, const pst_trace_expansion *how, const char *message)
{
    pst_trace *profile = NULL;
    pst_trace *trace = NULL;
    open_profile(rows, &profile);
    CHECK(profile != NULL);
    const pst_status status = pst_trace_expand(profile, how, &trace);
    pst_trace_destroy(profile);
    CHECK_MSG(status == PST_E_INVALID && trace == NULL, "%s: %s", message, pst_status_name(status));
    CHECK_MSG(strncmp(pst_last_message(), message, strlen(message)) == 0, "\"%s\" is not \"%s\"",
              pst_last_message(), message);
}

static pst_trace_expansion layers_of(uint32_t layers)
{
    pst_trace_expansion how = PST_TRACE_EXPANSION_INIT;
    how.num_layers = layers;
    return how;
}

static bool is_same_row(const pst_trace_request *a, const pst_trace_request *b)
{
    return a->id == b->id && a->bytes == b->bytes && a->stream == b->stream &&
           a->layer == b->layer && a->micro_batch == b->micro_batch && a->rank == b->rank &&
           a->op == b->op && a->phase == b->phase && a->tag == b->tag && a->line == b->line;
}

static void same_rows(const pst_trace *a, const pst_trace *b)
{
    CHECK_EQ(pst_trace_num_rows(a), pst_trace_num_rows(b));
    for (uint64_t i = 0; i < pst_trace_num_rows(a); i++)
        CHECK_MSG(is_same_row(&pst_trace_rows(a)[i], &pst_trace_rows(b)[i]), "row %llu",
                  (unsigned long long)i);
}

PST_TEST(TraceExpand, EveryKindOfTensor)
{
    const pst_trace_expansion two = layers_of(2);
    /* transient, skeletal; and outside */
    expands_as(
        M(9, 90) FM(1, 10) FM(2, 20) FD(2) D(9) M(8, 80) D(8) BM(3, 30) BD(1) BD(3) M(7, 70) D(7),
        &two, "+0:90 +1:10 +2:20 -2 +3:10 +4:20 -4 -0 +5:80 -5 +6:30 -3 -6 +7:30 -1 -7 +8:70 -8");
    /* the input is freed in the forward, and the output takes its place */
    expands_as(M(9, 90) FM(1, 90) FD(9) D(1) BM(2, 5) BD(2), &two,
               "+0:90 +1:90 -0 +2:90 -1 -2 +3:5 -3 +4:5 -4");
    /* the same with an input that is freed in the backward */
    expands_as(M(9, 90) FM(1, 90) D(1) BM(2, 5) BD(9) BD(2), &two,
               "+0:90 +1:90 +2:90 -2 +3:5 -1 -3 +4:5 -0 -4");
    /* gradients go from layer to layer */
    expands_as(FM(1, 10) FD(1) M(8, 40) BM(2, 40) BD(8) D(2), &two,
               "+0:10 -0 +1:10 -1 +2:40 +3:40 -2 +4:40 -3 -4");
    /* an output of each layer that nobody takes: freed as they were born */
    expands_as(FM(1, 10) BM(2, 20) D(2) D(1), &two, "+0:10 +1:10 +2:20 +3:20 -2 -3 -0 -1");
    expands_as(FM(1, 10) M(5, 50) D(1) D(5) BM(2, 20) BD(2), &two,
               "+0:10 +1:10 +2:50 -0 -1 -2 +3:20 -3 +4:20 -4");
    /* never freed */
    expands_as(M(9, 90) FM(1, 10) FM(3, 7) FD(3) BM(2, 20) BD(2), &two,
               "+0:90 +1:10 +2:7 -2 +3:10 +4:7 -4 +5:20 -5 +6:20 -6");
}

PST_TEST(TraceExpand, OutputsAreMatchedBySize)
{
    const pst_trace_expansion two = layers_of(2);
    /* two inputs, two outputs that stand in the other order */
    expands_as(M(8, 80) M(9, 90) FM(1, 90) FM(2, 80) FD(8) FD(9) D(1) D(2) BM(3, 5) BD(3), &two,
               "+0:80 +1:90 +2:90 +3:80 -0 -1 +4:90 +5:80 -3 -2 -4 -5 +6:5 -6 +7:5 -7");
    /* of two outputs of one size the first is handed on, the other is there twice */
    expands_as(M(9, 90) FM(1, 90) FM(2, 90) FD(9) D(1) D(2) BM(3, 5) BD(3), &two,
               "+0:90 +1:90 +2:90 -0 +3:90 +4:90 -1 -3 -2 -4 +5:5 -5 +6:5 -6");
}

PST_TEST(TraceExpand, OrdersOfMicroBatches)
{
    static const char rows[] = M(9, 1) D(9) FM(1, 2) BD(1) M(8, 3) D(8);
    pst_trace_expansion how = layers_of(1);
    how.num_micro_batches = 3;
    expands_as(rows, &how,
               "+0:1 -0 +1:2 -1 +2:3 -2 +3:1 -3 +4:2 -4 +5:3 -5 +6:1 -6 +7:2 -7 +8:3 "
               "-8");
    how.order = PST_ORDER_1F1B;
    how.num_stages = 2; /* F0, F1 B0, F2 B1, B2 */
    expands_as(rows, &how,
               "+0:1 -0 +1:2 +2:1 -2 +3:2 -1 +4:3 -4 +5:1 -5 +6:2 -3 +7:3 -7 -6 +8:3 "
               "-8");
    how.num_stages = 9;
    /* weights and gradients that stay are there once */
    expands_as(M(9, 1) FM(1, 2) BD(1) BM(2, 4), &how, "+0:1 +1:2 +2:2 +3:2 -1 +4:4 -2 -3");
}

PST_TEST(TraceExpand, LabelsOfTheRows)
{
    pst_trace *profile = NULL;
    pst_trace *trace = NULL;
    pst_trace_expansion how = layers_of(2);
    how.num_micro_batches = 2;
    open_profile(M(9, 1) FM(1, 2) "malloc,7,7,0,backward,,,,\n" BM(2, 2) BD(1) WD(2) D(9) D(7),
                 &profile);
    CHECK_OK(pst_trace_expand(profile, &how, &trace));
    pst_trace_destroy(profile);
    static const struct {
        uint8_t phase;
        uint32_t layer, num;
    } want[] = {
        {PST_PHASE_OTHER, PST_TRACE_NONE, 1},
        {PST_PHASE_FORWARD, 0, 1},
        {PST_PHASE_FORWARD, 1, 1},
        {PST_PHASE_BACKWARD, PST_TRACE_NONE, 1},
        {PST_PHASE_BACKWARD, 1, 2},
        {PST_PHASE_WEIGHT, 1, 1},
        {PST_PHASE_BACKWARD, 0, 2},
        {PST_PHASE_WEIGHT, 0, 1},
        {PST_PHASE_OTHER, PST_TRACE_NONE, 2},
    };
    CHECK_EQ(pst_trace_num_passes(trace), 18);
    for (uint64_t i = 0; i < 18; i++) {
        const pst_trace_pass *pass = &pst_trace_passes(trace)[i];
        CHECK_MSG(pass->phase == want[i % 9].phase && pass->layer == want[i % 9].layer &&
                      pass->micro_batch == i / 9 && pass->end - pass->begin == want[i % 9].num,
                  "pass %llu", (unsigned long long)i);
    }
    CHECK_EQ(pst_trace_rows(trace)[5].line, 6);
    pst_trace_destroy(trace);
}

#define EVENT(id, stream, phase, tag) "mark," #id ",," #stream "," phase "," #tag "\n"
#define IN_F "forward,0,0,"
#define IN_B "backward,0,0,"
#define OUT ",,,"

PST_TEST(TraceExpand, MarksGoWithTheirLayers)
{
    static const char rows[] = EVENT(0, 0, OUT, iteration) M(9, 9) EVENT(4, 1, OUT, record) FM(1, 2)
        EVENT(4, 0, IN_F, wait) EVENT(5, 0, IN_F, record) EVENT(1, 1, IN_F, use) FM(3, 3) FD(3)
            EVENT(7, 0, OUT, sync) BM(2, 2) EVENT(5, 1, IN_B, wait) BD(1) BD(2)
                EVENT(6, 1, IN_B, record) D(9) EVENT(6, 0, OUT, wait);
    const pst_trace_expansion two = layers_of(2);
    /* two layers and three events: outside 0.., layers forward 3.., 6.., backward 9.., 12.. */
    expands_as(rows, &two,
               "#0 +0:9 #0 +1:2 #0 #4 #1 +2:3 -2 #7 +3:2 #0 #7 #3 +4:3 -4 #7 +5:2 #7 -3 -5 #14 "
               "+6:2 #4 -1 -6 #11 -0 #11");
}

#define OM(id, size, layer) "malloc," #id "," #size ",0,other," #layer ",0,,\n"
#define OD(id, layer) "free," #id ",,0,other," #layer ",0,,\n"
#define GROW(id, bytes) "mark," #id "," #bytes ",0,,,,,grow\n"

PST_TEST(TraceExpand, WhatIsThereForEachLayer)
{
    const pst_trace_expansion three = layers_of(3);
    static const char layer[] = FM(1, 10) BD(1) BM(2, 20);
    char rows[1024];
    /* a list of temporaries, and the gradients freed layer by layer */
    snprintf(rows, sizeof(rows), "%s%s", layer,
             M(3, 3) OM(4, 4, 0) OM(5, 5, 0) M(6, 6) D(6) OD(5, 0) OD(4, 0) D(3) OD(2, 0));
    expands_as(rows, &three,
               "+0:10 +1:10 +2:10 -2 +3:20 -1 +4:20 -0 +5:20 +6:3 +7:4 +8:5 +9:4 +10:5 +11:4 +12:5 "
               "+13:6 -13 -8 -7 -10 -9 -12 -11 -6 -5 -4 -3");
    /* freed outside: those of all layers; of outside: once; of none: a tensor of its own each time */
    snprintf(rows, sizeof(rows), "%s%s", layer, M(3, 3) OM(4, 4, 0) OD(3, 0) D(2) D(4));
    expands_as(rows, &three,
               "+0:10 +1:10 +2:10 -2 +3:20 -1 +4:20 -0 +5:20 +6:3 +7:4 -6 +8:4 -7 +9:4 -8 -3 -4 -5 "
               "-9");
    snprintf(rows, sizeof(rows), "%s%s", layer, M(3, 3) OD(3, 0) D(2));
    expands_as(rows, &three, "+0:10 +1:10 +2:10 -2 +3:20 -1 +4:20 -0 +5:20 +6:3 -6 -3 -4 -5");
    /* from parameter to parameter: each frees what the one before left; the size decides first */
    snprintf(rows, sizeof(rows), "%s%s", layer,
             M(3, 3) OM(4, 4, 0) OM(5, 3, 0) OD(3, 0) OD(4, 0) M(6, 6) D(5) D(6) D(2));
    expands_as(rows, &three,
               "+0:10 +1:10 +2:10 -2 +3:20 -1 +4:20 -0 +5:20 +6:3 +7:4 +8:3 -6 -7 +9:4 +10:3 -8 -9 "
               "+11:4 +12:3 -10 -11 +13:6 -12 -13 -3 -4 -5");
    /* before and between, in every micro-batch */
    pst_trace_expansion two = layers_of(2);
    two.num_micro_batches = 2;
    expands_as(OM(7, 7, 0) OD(7, 0) FM(1, 10) OM(8, 8, 0) BD(1) D(8), &two,
               "+0:7 -0 +1:7 -1 +2:10 +3:10 +4:8 +5:8 -3 -2 -4 -5 +6:7 -6 +7:7 -7 +8:10 +9:10 "
               "+10:8 +11:8 -9 -8 -10 -11");
    /* the layer's output, freed in its turn: only the last is still there */
    expands_as(M(9, 10) FM(1, 10) BD(9) BM(2, 2) BD(2) OD(1, 0), &three,
               "+0:10 +1:10 +2:10 +3:10 -2 +4:2 -4 -1 +5:2 -5 -0 +6:2 -6 -3");
    /* of several layers the first stands for all, and runs beside each other stay two */
    expands_as(LAYER(malloc, 1, 10, forward, 0) LAYER(malloc, 2, 10, forward, 1)
                   LAYER(free, 2, , backward, 1) LAYER(free, 1, , backward, 0) OM(3, 3, 0)
                       OM(4, 3, 1) OD(3, 0) OD(4, 1),
               &three, "+0:10 +1:10 +2:10 -2 -1 -0 +3:3 +4:3 +5:3 -3 -4 -5");
}

PST_TEST(TraceExpand, TheFirstAndTheLastLayerMayBeOthers)
{
    static const char rows[] = LAYER(malloc, 1, 10, forward, 0) LAYER(malloc, 2, 20, forward, 0)
        LAYER(malloc, 3, 10, forward, 1) LAYER(malloc, 4, 10, forward, 2)
            LAYER(malloc, 5, 7, backward, 2) LAYER(free, 4, , backward, 2)
                LAYER(malloc, 6, 8, backward, 1) LAYER(free, 3, , backward, 1)
                    LAYER(malloc, 7, 9, backward, 0) LAYER(free, 1, , backward, 0)
                        LAYER(free, 2, , backward, 0) OM(8, 4, 0) OM(9, 4, 1) OM(10, 4, 2) D(8) D(9)
                            D(10);
    const pst_trace_expansion five = layers_of(5);
    expands_as(rows, &five,
               "+0:10 +1:20 +2:10 +3:10 +4:10 +5:10 +6:7 -5 +7:8 -4 +8:8 -3 +9:8 -2 +10:9 -0 -1 "
               "+11:4 +12:4 +13:4 +14:4 +15:4 -11 -12 -13 -14 -15");
    const pst_trace_expansion two = layers_of(2);
    refuses(rows, &two, "num_layers 2: allowed are 3 or more, as 1 at either end");
    /* the labels of the rows, so that what was expanded can be expanded again */
    const pst_trace_expansion four = layers_of(4);
    pst_trace *profile = NULL;
    pst_trace *long_one = NULL;
    pst_trace *twice = NULL;
    pst_trace *once = NULL;
    open_profile(rows, &profile);
    CHECK_OK(pst_trace_expand(profile, &five, &long_one));
    CHECK_OK(pst_trace_expand(long_one, &four, &twice));
    CHECK_OK(pst_trace_expand(profile, &four, &once));
    same_rows(once, twice);
    pst_trace_destroy(profile);
    pst_trace_destroy(long_one);
    pst_trace_destroy(twice);
    pst_trace_destroy(once);
}

PST_TEST(TraceExpand, TensorsThatGrow)
{
    const pst_trace_expansion three = layers_of(3);
    pst_trace_expansion many = layers_of(1u << 20);
    expands_as(FM(1, 10) BD(1) M(2, 100) GROW(2, 12) D(2), &three,
               "+0:10 +1:10 +2:10 -2 -1 -0 +3:124 #3 -3");
    /* of a profile of two layers, back to one */
    const pst_trace_expansion one = layers_of(1);
    expands_as(LAYER(malloc, 1, 10, forward, 0) LAYER(malloc, 2, 10, forward, 1)
                   LAYER(free, 2, , backward, 1) LAYER(free, 1, , backward, 0) M(3, 100) GROW(3, 12)
                       M(4, 5) GROW(4, 5),
               &one, "+0:10 -0 +1:88 #1 +2:1 #2");
    pst_trace *profile = NULL;
    pst_trace *trace = NULL;
    open_profile(FM(1, 10) BD(1) "malloc,2,9223372036854775807,0,,,,,\n" GROW(2, 9), &profile);
    many.num_layers = 2;
    CHECK_OK(pst_trace_expand(profile, &many, &trace));
    CHECK_EQ(pst_trace_tensors(trace)[2].bytes, INT64_MAX);
    pst_trace_destroy(profile);
    pst_trace_destroy(trace);
}

PST_TEST(TraceExpand, RangesInstantsOfTheCaller)
{
    pst_trace_expansion how = layers_of(2);
    how.forward_begin = 1;
    how.forward_end = 2;
    how.backward_begin = 3;
    how.backward_end = 5;
    expands_as(M(9, 90) M(1, 90) D(9) M(2, 5) D(2) D(1), &how,
               "+0:90 +1:90 +2:90 -0 +3:5 -3 +4:5 -4 -1 -2");
    how.backward_end = 7;
    refuses(M(9, 90) M(1, 90) D(9) M(2, 5) D(2) D(1), &how,
            "forward 1:2, backward 3:7: allowed are ranges of requests, one behind the other, up "
            "to 6");
    how.backward_end = 5;
    how.backward_begin = 1;
    refuses(M(9, 90) M(1, 90) D(9) M(2, 5) D(2) D(1), &how, "forward 1:2, backward 1:5: allowed");
}

PST_TEST(TraceExpand, Refusals)
{
    static const char fits[] = FM(1, 2) BD(1);
    pst_trace_expansion two = layers_of(2);
    /* what comes from outside and is freed by the layer, without an output of its size */
    refuses(M(9, 90) FM(1, 91) FD(9) D(1) BM(2, 5) BD(2), &two,
            "tensor 9 of line 2 comes from outside the layer, which frees it: allowed is one whose "
            "place an output of 90 bytes takes");
    refuses(M(9, 90) FM(1, 9) BD(9) BD(1), &two, "tensor 9 of line 2 comes from outside");
    refuses(FM(1, 9) M(9, 90) BD(9) BD(1), &two, "tensor 9 of line 3 comes from outside");
    /* labels that are no run of one layer */
    refuses(FM(1, 9) M(8, 1) FM(2, 9) BD(1) BD(2), &two,
            "the forward of layer 0 at request 2: allowed is one run of all layers");
    refuses(FM(1, 9) FD(1), &two, "the backward of the last layer has 0 requests: allowed are");
    refuses(BM(1, 9) BD(1), &two, "the forward of the last layer has 0 requests: allowed are");
    refuses(FM(1, 9) "malloc,2,9,0,forward,2,0,,\n" BD(1) BD(2), &two,
            "the forward of layer 2 follows that of layer 0: allowed is layer 1");
    refuses(FM(1, 9) "malloc,2,9,0,forward,1,0,,\n" BD(1) BD(2), &two,
            "1 layers backward: allowed are 2, as forward");
    refuses(FM(1, 9) FM(3, 9) "malloc,2,9,0,forward,1,0,,\nfree,2,,,backward,1,0,,\n" BD(1) BD(3),
            &two, "the forward of the last layer has 1 requests: allowed are as many as the first");
    refuses(FM(1, 9) "malloc,2,8,0,forward,1,0,,\nfree,2,,,backward,1,0,,\n" BD(1), &two,
            "request 1 of layer 1 is unlike request 0 of layer 0: allowed are layers that are");
    /* layers of the same sizes and other lives: 2 outlives its layer, 1 does not */
    refuses(FM(1, 9) FD(1) FM(2, 9) "malloc,3,9,0,forward,1,0,,\nfree,2,,0,forward,1,0,,\n"
                                    "malloc,4,9,0,forward,1,0,,\n" D(3) D(4)
                                        BM(5, 1) "malloc,6,1,0,backward,0,0,,\n",
            &two, "1 layers backward: allowed are 2, as forward");
    refuses(LAYER(malloc, 1, 9, forward, 0) LAYER(free, 1, 9, forward, 0)
                LAYER(malloc, 2, 9, forward, 0) LAYER(malloc, 3, 9, forward, 1)
                    LAYER(free, 2, 9, forward, 1) LAYER(malloc, 4, 9, forward, 1)
                        LAYER(malloc, 5, 1, backward, 1) LAYER(malloc, 6, 1, backward, 0) D(3) D(4),
            &two, "tensor 3 of line 5 is not freed where that of the first layer is: allowed");
    /* an output that is freed two layers on */
    refuses(LAYER(malloc, 1, 9, forward, 0) LAYER(malloc, 2, 9, forward, 1)
                LAYER(malloc, 3, 9, forward, 2) LAYER(free, 1, , backward, 2)
                    LAYER(free, 2, , backward, 1) LAYER(free, 3, , backward, 0),
            &two, "num_layers 2: allowed are 3 or more, as 1 at either end");
    /* freed in another layer's backward, or outside at another place */
    refuses(LAYER(malloc, 1, 9, forward, 0) LAYER(malloc, 2, 9, forward, 1)
                LAYER(malloc, 3, 9, forward, 2) LAYER(free, 2, , backward, 2)
                    LAYER(free, 3, , backward, 1) LAYER(free, 1, , backward, 0),
            &two, "tensor 2 of line 3 is not freed where");
    refuses(LAYER(malloc, 1, 9, forward, 0) LAYER(malloc, 2, 9, forward, 1) D(1)
                LAYER(malloc, 3, 1, backward, 1) LAYER(malloc, 4, 1, backward, 0) D(2),
            &two, "tensor 2 of line 3 is not freed where");
    /* a second run of repeats, but not of as many */
    refuses(M(1, 1) M(2, 2) M(3, 1) M(4, 2) M(5, 1) M(6, 2) D(1) D(2) D(3) D(4) M(7, 7) D(5) D(7)
                D(6),
            &two, "3 layers that repeat at request 0, and no second run of as many: label");
    /* no labels, nothing that repeats */
    refuses(M(1, 1) M(2, 2) D(1) D(2), &two, "no layers that repeat: label");
    refuses(M(1, 1) M(2, 1) M(3, 3) D(1) M(4, 4) D(2), &two, "2 layers that repeat at request 0, ");
    refuses(M(1, 1) M(2, 1) M(5, 5) M(6, 6) M(7, 7) D(7) D(6) D(5) M(9, 9) D(2) D(1) D(9), &two,
            "what repeats, at requests 0 and 9, is not half of the trace: label");
    two.struct_size = 0;
    refuses(fits, &two, "struct_size 0: pst_trace_");
    two = layers_of(1u << 21);
    refuses(fits, &two, "num_layers 2097152: allowed is 1..1048576");
    two = layers_of(1);
    two.num_micro_batches = 1u << 21;
    refuses(fits, &two, "num_micro_batches 2097152: allowed is 0..1048576");
    two = layers_of(1);
    two.order = (pst_trace_order)2;
    refuses(fits, &two, "order 2: allowed are sequential and 1f1b");
    two.order = PST_ORDER_1F1B;
    two.num_stages = 1u << 31;
    refuses(fits, &two, "num_stages 2147483648: allowed");
    two.num_stages = two.stage = 3;
    refuses(fits, &two, "stage 3: allowed is 0..2, below num_stages");
}

/* The same trace without labels of layers and phases. */
static void strip(pst_trace **trace)
{
    const pst_trace_config config = PST_TRACE_CONFIG_INIT;
    const uint64_t num_rows = pst_trace_num_rows(*trace);
    pst_trace *bare = NULL;
    pst_trace_request *rows = malloc(num_rows * sizeof(*rows));
    memcpy(rows, pst_trace_rows(*trace), num_rows * sizeof(*rows));
    for (uint64_t i = 0; i < num_rows; i++) {
        rows[i].layer = rows[i].micro_batch = PST_TRACE_NONE;
        rows[i].phase = PST_PHASE_NONE;
    }
    const pst_status status = pst_trace_make(&config, rows, num_rows, &bare);
    free(rows);
    CHECK_OK(status);
    pst_trace_destroy(*trace);
    *trace = bare;
}

/* A model of `profiled` layers, expanded, is the model of 7 layers. */
static void becomes_a_model(uint32_t profiled, bool full, bool is_stripped, uint32_t warmup)
{
    pst_trace_derivation from = PST_TRACE_DERIVATION_INIT;
    pst_trace_expansion how = layers_of(7);
    pst_trace *profile = NULL;
    pst_trace *trace = NULL;
    pst_trace *model = NULL;
    from.full = full;
    from.num_layers = profiled;
    CHECK_OK(pst_trace_derive(&from, &profile));
    if (is_stripped)
        strip(&profile);
    how.num_micro_batches = 4;
    how.order = PST_ORDER_1F1B;
    how.num_stages = 6;
    how.stage = 5 - warmup;
    const pst_status status = pst_trace_expand(profile, &how, &trace);
    pst_trace_destroy(profile);
    CHECK_MSG(status == PST_OK, "%u layers: %s", profiled, pst_last_message());
    from.num_layers = 7;
    from.num_micro_batches = 4;
    from.warmup = warmup;
    CHECK_OK(pst_trace_derive(&from, &model));
    if (is_stripped) {
        strip(&trace);
        strip(&model);
    }
    same_rows(trace, model);
    pst_trace_destroy(trace);
    pst_trace_destroy(model);
}

PST_TEST(TraceExpand, DerivedModelsGrow)
{
    for (int full = 0; full < 2; full++) {
        becomes_a_model(1, full, false, 0);
        becomes_a_model(1, full, false, 2);
        becomes_a_model(1, full, false, 5);
        becomes_a_model(2, full, false, 0);
        becomes_a_model(5, full, false, 3);
        becomes_a_model(2, full, true, 0);
        becomes_a_model(4, full, true, 2);
        becomes_a_model(7, full, true, 1);
        becomes_a_model(9, full, false, 1); /* fewer than were profiled */
    }
}

static pst_status expand_to_three(const void *profile, pst_trace **trace_out)
{
    const pst_trace_expansion how = layers_of(3);
    return pst_trace_expand(profile, &how, trace_out);
}

PST_TEST(TraceExpand, SurvivesEveryFailedAllocation)
{
    static const char rows[] = EVENT(4, 1, OUT, record) M(1, 1) M(2, 2) M(3, 1) M(4, 2) M(8, 8) D(8)
        D(4) D(3) EVENT(4, 0, OUT, wait) D(2) D(1);
    pst_trace *profile = NULL;
    open_profile(rows, &profile);
    survives_failures(expand_to_three, profile, 13);
    pst_trace_destroy(profile);
}
