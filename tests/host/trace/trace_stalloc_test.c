/* STAlloc's lines: pointers that come back, markers, and every refusal. */
#include "tests/host/trace/trace_scene.h"

PST_TEST(TraceStalloc, PointersComeBack)
{
    const pst_trace_config config = config_of(PST_TRACE_STALLOC);
    reads_as(&config,
             "1 0x7f00 512 0\n1 4096 1024 0\n0 0x7F00 512 0\n1 32512 256 0\n0 0x7f00 256 0\n"
             "0 0x1000 0 0\n",
             "+1:512 +2:1024 -1 +4:256 -4 -2");
}

PST_TEST(TraceStalloc, MarkersLabelWhatFollows)
{
    const pst_trace_config config = config_of(PST_TRACE_STALLOC);
    static const char text[] = "1 1 8 0xff\n"
                               "iteration 3\n"
                               "phase F 2\n"
                               "layer start 0\n"
                               "1 2 8 7\n"
                               "layer end 0\n"
                               "1 3 8 7\n"
                               "phase B\n"
                               "layer start 9\n"
                               "0 2 8 7\n"
                               "phase W 1\n"
                               "0 3 8 7\n"
                               "layer end 9\n"
                               "phase O 5\n"
                               "0 1 8 255\n"
                               "layer start 6\n"
                               "iteration 4\n"
                               "1 1 16 7\n"
                               "0 1 16 7\n";
    static const struct {
        uint64_t line, id;
        uint32_t stream, layer, micro_batch;
        uint8_t op, phase, tag;
    } expected[] = {
        {1, 1, 0, PST_TRACE_NONE, PST_TRACE_NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, 0},
        {2, 3, 0, PST_TRACE_NONE, PST_TRACE_NONE, PST_TRACE_MARK, PST_PHASE_NONE,
         PST_TAG_ITERATION},
        {5, 5, 1, 0, 2, PST_TRACE_MALLOC, PST_PHASE_FORWARD, 0},
        {7, 7, 1, PST_TRACE_NONE, 2, PST_TRACE_MALLOC, PST_PHASE_FORWARD, 0},
        {10, 5, 1, 9, PST_TRACE_NONE, PST_TRACE_FREE, PST_PHASE_BACKWARD, 0},
        {12, 7, 1, 9, 1, PST_TRACE_FREE, PST_PHASE_WEIGHT, 0},
        {15, 1, 0, PST_TRACE_NONE, 5, PST_TRACE_FREE, PST_PHASE_OTHER, 0},
        {17, 4, 0, PST_TRACE_NONE, PST_TRACE_NONE, PST_TRACE_MARK, PST_PHASE_NONE,
         PST_TAG_ITERATION},
        {18, 18, 1, PST_TRACE_NONE, PST_TRACE_NONE, PST_TRACE_MALLOC, PST_PHASE_NONE, 0},
    };
    byte_source source = {text, sizeof(text) - 1, 3, 0};
    pst_trace_reader *reader = NULL;
    CHECK_OK(pst_trace_reader_open(&config, read_bytes, &source, &reader));
    for (size_t i = 0; i < sizeof(expected) / sizeof(expected[0]); i++) {
        pst_trace_request row;
        CHECK_OK(pst_trace_reader_next(reader, &row));
        CHECK_MSG(row.line == expected[i].line && row.id == expected[i].id &&
                      row.stream == expected[i].stream && row.layer == expected[i].layer &&
                      row.micro_batch == expected[i].micro_batch && row.op == expected[i].op &&
                      row.phase == expected[i].phase && row.tag == expected[i].tag,
                  "row %zu: line %llu", i, (unsigned long long)row.line);
    }
    pst_trace_reader_close(reader);
}

PST_TEST(TraceStalloc, Faults)
{
    static const refusal cases[] = {
        {"2 1 8 0\n", "t:1: field op: \"2\": allowed is 1, 0, iteration, phase or layer"},
        {"\n", "t:1: field op: \"\": allowed is 1, 0, iteration, phase or layer"},
        {"1 0x 8 0\n", "t:1: field pointer: \"0x\": allowed is an integer, or hexadecimal"},
        {"1 0xg 8 0\n", "t:1: field pointer: \"0xg\""},
        {"1 0x12345678123456781 8 0\n", "t:1: field pointer: \"0x12345678123456781\""},
        {"1 18446744073709551616 8 0\n", "t:1: field pointer: \"18446744073709551616\""},
        {"1 1\n", "t:1: field size: missing: allowed is an integer 1.."},
        {"1 1 0 0\n", "t:1: field size: \"0\": allowed is an integer 1.."},
        {"1 1 8\n", "t:1: field stream: missing: allowed is an integer, or hexadecimal"},
        {"1 1 8 -1\n", "t:1: field stream: \"-1\""},
        {"1 1 8 0 0\n", "t:1: field 5: \"0\": allowed is a line of 4 fields"},
        {"1 1 8 0\n1 0x1 8 0\n", "t:2: field pointer: \"0x1\": allowed is a pointer that is not "
                                 "live (it is since line 1)"},
        {"0 1 8 0\n", "t:1: field pointer: \"1\": allowed is a live pointer (free before malloc"},
        {"1 1 8 0\n0 1 8 0\n0 1 8 0\n", "t:3: field pointer: \"1\": allowed is a live pointer "
                                        "(double free: freed at line 2)"},
        {"1 1 8 0\n0 1 9 0\n", "t:2: field size: 9: allowed is nothing or 8, as in the malloc at"},
        {"phase\n", "t:1: field phase: missing: allowed is F, B, W or O"},
        {"phase f 1\n", "t:1: field phase: \"f\": allowed is F, B, W or O"},
        {"phase F x\n", "t:1: field micro_batch: \"x\": allowed is an integer 0..4294967294"},
        {"phase F 1 1\n", "t:1: field 4: \"1\": allowed is phase F|B|W|O [MICRO_BATCH]"},
        {"layer begin 1\n", "t:1: field layer: \"begin\": allowed is start or end"},
        {"layer start\n", "t:1: field layer: missing: allowed is an integer 0..4294967294"},
        {"layer start 1 2\n", "t:1: field 4: \"2\": allowed is layer start|end N"},
        {"layer end 1\n", "t:1: field layer: \"1\": allowed is the layer that was started"},
        {"layer start 1\nlayer end 2\n", "t:2: field layer: \"2\": allowed is the layer that was"},
        {"layer start 1\nlayer start 2\n", "t:2: field layer: \"2\": allowed is no start before"},
        {"iteration\n", "t:1: field iteration: missing"},
        {"iteration 1 2\n", "t:1: field 3: \"2\": allowed is iteration N"},
    };
    const pst_trace_config config = config_of(PST_TRACE_STALLOC);
    REFUSES_EACH(&config, cases);
    char text[65 * 16] = "";
    for (int i = 0; i < 65; i++)
        sprintf(text + strlen(text), "1 %d 8 %d\n", i + 1, i);
    refuses_text(&config, text, "t:65: field stream: \"64\": allowed is one of at most 64 streams");
}
