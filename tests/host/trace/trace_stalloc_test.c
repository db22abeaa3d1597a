/* STAlloc's trace: pointers that come back, what each marker says, and every refusal. */
#include "tests/host/trace/trace_scene.h"

PST_TEST(TraceStalloc, PointersComeBack)
{
    const pst_trace_config config = config_of(PST_TRACE_STALLOC);
    reads_as(&config,
             "1 0x7f00 512 0\n1 4096 1024 0\n0 0x7F00 512 0\n1 32512 256 0\n0 0x7f00 256 0\n"
             "0 0x1000 0 0\n",
             "+1:512 +2:1024 -1 +4:256 -4 -2");
}

/* torch asks for no bytes, too: cudaMalloc gives no pointer, STAlloc's own cache one of its blocks. */
PST_TEST(TraceStalloc, NothingIsNoRequest)
{
    const pst_trace_config config = config_of(PST_TRACE_STALLOC);
    reads_as(&config,
             "1 0 0 0\n1 0x200 512 0\n1 0x400 0 0x9\n0 0 0 0\n0 0x400 0 0x9\n1 0x400 512 0\n"
             "0 0 512 0\n0 0x200 512 0\n0 0x400 512 0\n",
             "+2:512 +6:512 -2 -6");
}

#define NONE PST_TRACE_NONE

typedef struct expected_row {
    uint64_t line, id;
    uint32_t stream, layer, micro_batch;
    uint8_t op, phase, tag;
} expected_row;

static void gives(const char *text, const expected_row *expected, size_t num)
{
    const pst_trace_config config = config_of(PST_TRACE_STALLOC);
    byte_source source = {text, strlen(text), 3, 0};
    pst_trace_reader *reader = NULL;
    pst_trace_request row;
    CHECK_OK(pst_trace_reader_open(&config, read_bytes, &source, &reader));
    for (size_t i = 0; i < num; i++) {
        const expected_row *want = &expected[i];
        CHECK_OK(pst_trace_reader_next(reader, &row));
        CHECK_MSG(row.line == want->line && row.id == want->id && row.stream == want->stream &&
                      row.layer == want->layer && row.micro_batch == want->micro_batch &&
                      row.op == want->op && row.phase == want->phase && row.tag == want->tag,
                  "row %zu: line %llu", i, (unsigned long long)row.line);
    }
    CHECK(pst_trace_reader_next(reader, &row) == PST_E_AGAIN);
    pst_trace_reader_close(reader);
}
#define GIVES(text, expected) gives(text, expected, sizeof(expected) / sizeof((expected)[0]))

PST_TEST(TraceStalloc, MicroBatchesAreCounted)
{
    static const expected_row expected[] = {
        {1, 1, 0, NONE, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_STATIC},
        {2, 0, 0, NONE, NONE, PST_TRACE_MARK, PST_PHASE_NONE, PST_TAG_ITERATION},
        {4, 4, 1, NONE, 0, PST_TRACE_MALLOC, PST_PHASE_FORWARD, PST_TAG_STATIC},
        {6, 6, 1, NONE, 1, PST_TRACE_MALLOC, PST_PHASE_FORWARD, PST_TAG_STATIC},
        {8, 4, 1, NONE, 0, PST_TRACE_FREE, PST_PHASE_BACKWARD, PST_TAG_STATIC},
        {10, 6, 1, NONE, 0, PST_TRACE_FREE, PST_PHASE_WEIGHT, PST_TAG_STATIC},
        {11, 7, 0, NONE, NONE, PST_TRACE_MARK, PST_PHASE_NONE, PST_TAG_ITERATION},
        {12, 12, 1, NONE, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_STATIC},
        {14, 12, 1, NONE, 0, PST_TRACE_FREE, PST_PHASE_FORWARD, PST_TAG_STATIC},
        {15, 8, 0, NONE, NONE, PST_TRACE_MARK, PST_PHASE_NONE, PST_TAG_ITERATION},
        {16, 1, 0, NONE, NONE, PST_TRACE_FREE, PST_PHASE_NONE, PST_TAG_STATIC},
    };
    GIVES("1 0x200 8 0\n"
          "Iteration Index : 0\n"
          "micro-batch : F\n"
          "1 0x400 8 0xff\n"
          "micro-batch : F\n"
          "1 0x600 8 255\n"
          "micro-batch : B\n"
          "0 0x400 8 0xff\n"
          "micro-batch : W\n"
          "0 0x600 8 0xff\n"
          "Iteration Index : 7\n"
          "1 0x400 8 0xff\n"
          "micro-batch : F\n"
          "0 0x400 8 0xff\n"
          "Iteration Index : end\n"
          "0 0x200 8 0\n",
          expected);
}

#define LAYER "module.decoder.layers.12.mlp"

PST_TEST(TraceStalloc, ExpertsAreDynamic)
{
    static const expected_row expected[] = {
        {2, 2, 0, 12, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_DYNAMIC}, /* the layer */
        {4, 4, 0, 12, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_STATIC},  /* its router */
        {7, 7, 0, 12, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_DYNAMIC}, /* experts */
        {9, 9, 0, 12, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_DYNAMIC},
        {13, 13, 0, 12, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_STATIC}, /* shared */
        {15, 2, 0, 12, NONE, PST_TRACE_FREE, PST_PHASE_NONE, PST_TAG_STATIC},
        {17, 17, 0, NONE, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_STATIC}, /* outside */
        {19, 19, 0, 12, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_DYNAMIC},  /* backward */
        {22, 22, 0, NONE, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_DYNAMIC},
        {24, 24, 0, 4, NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, PST_TAG_STATIC},
    };
    GIVES(LAYER "->MoELayer Layer : F-start\n"
                "1 0x200 8 0\n" LAYER ".router->TopKRouter Layer : F-start\n"
                "1 0x400 8 0\n" LAYER ".router->TopKRouter Layer : F-end\n" LAYER
                ".experts->SequentialMLP Layer : F-start\n"
                "1 0x600 8 0\n" LAYER
                ".experts.local_experts.0.linear_fc2->RowParallelLinear Layer : F-start\n"
                "1 0x800 8 0\n" LAYER
                ".experts.local_experts.0.linear_fc2->RowParallelLinear Layer : F-end\n" LAYER
                ".experts->SequentialMLP Layer : F-end\n" LAYER
                ".shared_experts->SharedExpertMLP Layer : F-start\n"
                "1 0xa00 8 0\n" LAYER ".shared_experts->SharedExpertMLP Layer : F-end\n"
                "0 0x200 8 0\n" LAYER "->MoELayer Layer : F-end\n"
                "1 0x200 8 0\n" LAYER "->MoELayer Layer : B-start\n"
                "1 0xc00 8 0\n" LAYER "->MoELayer Layer : B-end\n"
                "layers.x.mlp->SwitchMLP Layer : W-start\n"
                "1 0xe00 8 0\n"
                "layers.4.shared_expert->MLP Layer : F-start\n"
                "1 0xf00 8 0\n",
          expected);
}

PST_TEST(TraceStalloc, Faults)
{
    static const refusal cases[] = {
        {"2 1 8 0\n", "t:1: field op: \"2\": allowed is 1, 0, \"Iteration Index : \", "
                      "\"micro-batch : \" or \"NAME->CLASS Layer : \""},
        {"\n", "t:1: field op: \"\": allowed is 1, 0, "},
        {"phase F 1\n", "t:1: field op: \"phase\": allowed is 1, 0, "},
        {"a->b Layer: F-start\n", "t:1: field op: \"a->b\": allowed is 1, 0, "},
        {"1\n", "t:1: field pointer: missing: allowed is an integer, or hexadecimal"},
        {"1 0x 8 0\n", "t:1: field pointer: \"0x\": allowed is an integer, or hexadecimal"},
        {"1 0xg 8 0\n", "t:1: field pointer: \"0xg\""},
        {"1 0x12345678123456781 8 0\n", "t:1: field pointer: \"0x12345678123456781\""},
        {"1 18446744073709551616 8 0\n", "t:1: field pointer: \"18446744073709551616\""},
        {"1 1\n", "t:1: field size: missing: allowed is an integer 0.."},
        {"1 1 -1 0\n", "t:1: field size: \"-1\": allowed is an integer 0.."},
        {"1 1 9223372036854775808 0\n", "t:1: field size: \"9223372036854775808\": allowed is"},
        {"1 1 8\n", "t:1: field stream: missing: allowed is an integer, or hexadecimal"},
        {"1 1 8 -1\n", "t:1: field stream: \"-1\""},
        {"1 1 8 0 0\n", "t:1: field 5: \"0\": allowed is a line of 4 fields"},
        {"1 1 8 0\n1 0x1 8 0\n", "t:2: field pointer: \"0x1\": allowed is a pointer that is not "
                                 "live (it is since line 1)"},
        {"1 1 0 0\n1 1 0 0\n", "t:2: field pointer: \"1\": allowed is a pointer that is not live "
                               "(it is since line 1)"},
        {"0 1 8 0\n", "t:1: field pointer: \"1\": allowed is a live pointer (free before malloc"},
        {"1 1 8 0\n0 1 8 0\n0 1 8 0\n", "t:3: field pointer: \"1\": allowed is a live pointer "
                                        "(double free: freed at line 2)"},
        {"1 1 8 0\n0 1 9 0\n", "t:2: field size: 9: allowed is nothing or 8, as in the malloc at"},
        {"Iteration Index : \n", "t:1: field iteration: \"\": allowed is an integer 0..2^63 - 2, "
                                 "or end"},
        {"Iteration Index : 1 2\n", "t:1: field iteration: \"1 2\""},
        {"Iteration Index : 9223372036854775807\n", "t:1: field iteration: \"9223372036854775807"},
        {"micro-batch : f\n", "t:1: field micro-batch: \"f\": allowed is F, B or W"},
        {"micro-batch : F 1\n", "t:1: field micro-batch: \"F 1\": allowed is F, B or W"},
        {"mlp Layer : F-start\n", "t:1: field module: \"mlp\": allowed is NAME->CLASS"},
        {"->A Layer : F-start\n", "t:1: field module: \"->A\": allowed is NAME->CLASS"},
        {"mlp-> Layer : F-start\n", "t:1: field module: \"mlp->\": allowed is NAME->CLASS"},
        {"mlp->A Layer : X-start\n", "t:1: field layer: \"X-start\": allowed is F, B or W, and "
                                     "-start or -end"},
        {"mlp->A Layer : F-begin\n", "t:1: field layer: \"F-begin\": allowed is F, B or W, and"},
        {"mlp->A Layer : F\n", "t:1: field layer: \"F\": allowed is F, B or W, and"},
        {"mlp->A Layer : F-end\n",
         "t:1: field module: \"mlp\": allowed is a module that has begun"},
        {"mlp->A Layer : F-start\nb.mlp->A Layer : F-end\n",
         "t:2: field module: \"b.mlp\": allowed is mlp, whose F began at line 1"},
        {"mlp->A Layer : F-start\nmlp->A Layer : B-end\n",
         "t:2: field module: \"mlp\": allowed is mlp, whose F began at line 1"},
    };
    const pst_trace_config config = config_of(PST_TRACE_STALLOC);
    REFUSES_EACH(&config, cases);
    char text[65 * 32] = "";
    for (int i = 0; i < 65; i++)
        sprintf(text + strlen(text), "1 %d 8 %d\n", i + 1, i);
    refuses_text(&config, text, "t:65: field stream: \"64\": allowed is one of at most 64 streams");
    *text = '\0';
    for (int i = 0; i < 17; i++)
        sprintf(text + strlen(text), "mlp->A Layer : F-start\n");
    refuses_text(&config, text,
                 "t:17: field module: \"mlp\": allowed is a name of less than 256 "
                 "bytes, within at most 15 others");
    sprintf(text, "%0300d.mlp->A Layer : F-start\n", 0);
    refuses_text(&config, text, "t:1: field module: \"0000");
}
