/* Whole traces: lives, passes, ranks, iterations, streams, and what makes no sense. */
#include "tests/host/trace/trace_scene.h"

PST_TEST(Trace, LivesOfThePapersExample)
{
    const pst_trace_config config = config_of(PST_TRACE_MEMO);
    pst_trace *trace = NULL;
    CHECK_OK(read_text(&config, papers_example, &trace));
    CHECK_EQ(pst_trace_num_tensors(trace), 12);
    CHECK_EQ(pst_trace_num_requests(trace), 24);
    CHECK_EQ(pst_trace_num_rows(trace), 24);
    CHECK_EQ(pst_trace_num_streams(trace), 1);
    CHECK_EQ(pst_trace_num_passes(trace), 1);
    CHECK(pst_trace_releases(trace) == NULL);
    const pst_trace_tensor *tensor = &pst_trace_tensors(trace)[2];
    CHECK_EQ(tensor->id, 15);
    CHECK_EQ(tensor->bytes, 256);
    CHECK_EQ(tensor->begin, 3);
    CHECK_EQ(tensor->end, 16);
    CHECK_EQ(tensor->line, 4);
    CHECK(!tensor->never_freed);
    pst_trace_destroy(trace);
    pst_trace_destroy(NULL);
}

PST_TEST(Trace, RequestsThatMakeNoSense)
{
    static const refusal cases[] = {
        {"malloc 1 5\nfree 2\n", "t:2: field id: 2: free before malloc: allowed is"},
        {"malloc 1 5\nfree 1\nfree 1\n", "t:3: field id: 1: double free: freed at 2, malloc'ed at"
                                         " 1"},
        {"malloc 1 5\nmalloc 1 5\n", "t:2: field id: 1: used twice: the other malloc is at 1"},
        {"malloc 1 5\nfree 1\nmalloc 1 5\n", "t:3: field id: 1: used twice: the other malloc is"},
        {"malloc 1 5\nfree 1 6\n", "t:2: field size: 6: allowed is nothing or 5, as in the malloc "
                                   "at 1"},
        {"malloc 1 5\nmalloc 2 5\nmalloc 3 5\nfree 1\n",
         "t:2: field id: 2: never freed, like 1 others: allowed is a free of each, or "
         "keep_unfreed (--keep-unfreed)"},
    };
    const pst_trace_config config = config_of(PST_TRACE_MEMO);
    REFUSES_EACH(&config, cases);
}

PST_TEST(Trace, KeepsTheUnfreed)
{
    pst_trace_config config = config_of(PST_TRACE_MEMO);
    pst_trace *trace = NULL;
    config.keep_unfreed = true;
    CHECK_OK(read_text(&config, "malloc 1 5\nmalloc 2 5\nfree 2\n", &trace));
    const pst_trace_tensor *tensors = pst_trace_tensors(trace);
    CHECK(tensors[0].never_freed && !tensors[1].never_freed);
    CHECK_EQ(tensors[0].end, 3);
    CHECK_EQ(tensors[0].last_pass, PST_TRACE_NONE);
    CHECK_EQ(tensors[1].end, 2);
    pst_trace_destroy(trace);
}

PST_TEST(Trace, PassesAreRunsOfOneLabel)
{
    const pst_trace_config config = config_of(PST_TRACE_CSV);
    pst_trace *trace = NULL;
    CHECK_OK(read_text(&config,
                       CSV_HEADER "malloc,1,5,,forward,0,0,,\nmalloc,2,6,,forward,0,0,,\n"
                                  "mark,9,,,backward,3,3,,iteration\nfree,2,,,forward,0,0,,\n"
                                  "malloc,3,7,,forward,1,0,,dynamic\nfree,1,,,backward,1,0,,\n"
                                  "free,3,,,backward,1,1,,\n",
                       &trace));
    static const pst_trace_pass expected[] = {{0, 3, 0, 0, PST_PHASE_FORWARD},
                                              {3, 4, 1, 0, PST_PHASE_FORWARD},
                                              {4, 5, 1, 0, PST_PHASE_BACKWARD},
                                              {5, 6, 1, 1, PST_PHASE_BACKWARD}};
    CHECK_EQ(pst_trace_num_passes(trace), 4);
    for (int i = 0; i < 4; i++) {
        const pst_trace_pass *pass = &pst_trace_passes(trace)[i];
        CHECK_MSG(pass->begin == expected[i].begin && pass->end == expected[i].end &&
                      pass->layer == expected[i].layer && pass->phase == expected[i].phase &&
                      pass->micro_batch == expected[i].micro_batch,
                  "pass %d: [%llu, %llu)", i, (unsigned long long)pass->begin,
                  (unsigned long long)pass->end);
    }
    const pst_trace_tensor *tensors = pst_trace_tensors(trace);
    CHECK_EQ(tensors[0].first_pass, 0);
    CHECK_EQ(tensors[0].last_pass, 2);
    CHECK_EQ(tensors[1].last_pass, 0);
    CHECK_EQ(tensors[2].first_pass, 1);
    CHECK_EQ(tensors[2].last_pass, 3);
    CHECK_EQ(tensors[2].tag, PST_TAG_DYNAMIC);
    CHECK_EQ(tensors[2].layer, 1);
    CHECK_EQ(pst_trace_num_rows(trace), 7);
    CHECK_EQ(pst_trace_num_requests(trace), 6);
    pst_trace_destroy(trace);
}

PST_TEST(Trace, OneRank)
{
    static const char text[] = CSV_HEADER "malloc,1,5,,,,,0,\nmalloc,1,6,,,,,1,\nfree,1,,,,,,0,\n"
                                          "free,1,,,,,,1,\n";
    pst_trace_config config = config_of(PST_TRACE_CSV);
    refuses_text(&config, text, "t:3: field rank: 1: allowed is 0 as at 2, or choose one rank");
    config.has_rank = true;
    reads_as(&config, text, "+1:5 -1");
    config.rank = 1;
    reads_as(&config, text, "+1:6 -1");
    config.rank = 2;
    refuses_text(&config, text, "t: rank 2: the trace has no malloc of it");
}

PST_TEST(Trace, OneIteration)
{
    static const char text[] =
        CSV_HEADER "malloc,1,5,,,,,,\nmark,0,,,,,,,iteration\nmalloc,2,6,,,,,,\nfree,2,,,,,,,\n"
                   "free,1,,,,,,,\nmalloc,9,7,,,,,,\nmark,1,,,,,,,iteration\nmalloc,2,6,,,,,,\n"
                   "mark,9,,,,,,,use\nfree,2,,,,,,,\nfree,9,,,,,,,\nmalloc,1,5,,,,,,\n"
                   "free,1,,,,,,,\n";
    pst_trace_config config = config_of(PST_TRACE_CSV);
    config.has_iteration = true;
    config.iteration = 1; /* what is from before is neither freed nor used in it */
    reads_as(&config, text, "#1 +2:6 -2 +1:5 -1");
    config.iteration = 0;
    refuses_text(&config, text, "t:7: field id: 9: never freed, like 0 others");
    config.keep_unfreed = true;
    reads_as(&config, text, "#0 +2:6 -2 +9:7");
    config.iteration = 2;
    refuses_text(&config, text, "t: iteration 2: the trace has 2 iteration marks");
    config.iteration = 0;
    refuses_text(&config, CSV_HEADER "malloc,1,5,,,,,,\nmark,0,,,,,,,iteration\nmalloc,1,6,,,,,,\n",
                 "t:4: field id: 1: used twice: a tensor from before the iteration lives");
    refuses_text(&config,
                 CSV_HEADER "malloc,1,5,,,,,,\nfree,1,,,,,,,\nmark,0,,,,,,,iteration\nfree,1,,,,,,,"
                            "\n",
                 "t:5: field id: 1: double free: freed before the iteration already");
}

PST_TEST(Trace, StreamsByFirstAppearance)
{
    const pst_trace_config config = config_of(PST_TRACE_CSV);
    pst_trace *trace = NULL;
    CHECK_OK(read_text(&config,
                       CSV_HEADER "mark,1,,9,,,,,record\nmalloc,1,5,4,,,,,\nmark,1,,7,,,,,use\n"
                                  "free,1,,9,,,,,\nmark,,,3,,,,,sync\n",
                       &trace));
    CHECK_EQ(pst_trace_num_streams(trace), 3);
    CHECK_EQ(pst_trace_stream_name(trace, 0), 9);
    CHECK_EQ(pst_trace_stream_name(trace, 1), 4);
    CHECK_EQ(pst_trace_stream_name(trace, 2), 7);
    CHECK_EQ(pst_trace_stream_name(trace, 3), PST_TRACE_NONE);
    CHECK_EQ(pst_trace_tensors(trace)[0].stream, 1);
    CHECK_EQ(pst_trace_rows(trace)[1].stream, 4);
    pst_trace_destroy(trace);

    char text[65 * 32 + sizeof(CSV_HEADER)] = CSV_HEADER;
    for (int i = 0; i < 65; i++)
        sprintf(text + strlen(text), "malloc,%d,5,%d,,,,,\n", i, i + 100);
    refuses_text(&config, text, "t:66: field stream: 164: allowed are at most 64 streams");
}

PST_TEST(Trace, MadeOfRequestsInMemory)
{
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    pst_trace *trace = NULL;
    pst_trace_request rows[] = {{.line = 5, .id = 1, .bytes = 8, .op = PST_TRACE_MALLOC},
                                {.line = 6, .id = 1, .op = PST_TRACE_FREE}};
    CHECK_OK(pst_trace_make(&config, rows, 2, &trace));
    CHECK_EQ(pst_trace_tensors(trace)[0].bytes, 8);
    pst_trace_destroy(trace);
    trace = NULL;
    CHECK_STATUS(pst_trace_make(&config, NULL, 0, &trace), PST_E_INVALID);
    CHECK_STATUS(pst_trace_make(&config, NULL, 1, &trace), PST_E_INVALID);
    CHECK_STATUS(pst_trace_make(&config, rows, 2, NULL), PST_E_INVALID);
    static const struct {
        pst_trace_request row;
        const char *message;
    } cases[] = {
        {{.line = 5, .op = 3}, "trace:5: field op: 3: allowed is 0..2"},
        {{.bytes = 1, .phase = 5}, "trace:0: field phase: 5: allowed is 0..4"},
        {{.bytes = 1, .tag = PST_TAG_USE}, "trace:0: field tag: 5: allowed is 0..1 for op 0"},
        {{.op = PST_TRACE_MARK, .tag = 0}, "trace:0: field tag: 0: allowed is 2..7 for op 2"},
        {{.op = PST_TRACE_MARK, .tag = 8}, "trace:0: field tag: 8: allowed is 2..7 for op 2"},
        {{.bytes = 0}, "trace:0: field size: 0: allowed is 1..9223372036854775807"},
        {{.bytes = UINT64_MAX}, "trace:0: field size: 18446744073709551615: allowed is 1.."},
        {{.op = PST_TRACE_MARK, .tag = PST_TAG_SYNC, .bytes = 1},
         "trace:0: field size: 1: allowed is 0..0"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        CHECK_STATUS(pst_trace_make(&config, &cases[i].row, 1, &trace), PST_E_INVALID);
        CHECK_MSG(strncmp(pst_last_message(), cases[i].message, strlen(cases[i].message)) == 0,
                  "\"%s\" is not \"%s\"", pst_last_message(), cases[i].message);
    }
    CHECK(trace == NULL);
}

typedef struct source {
    pst_trace_format format;
    const char *text;
} source;

static pst_status read_source(const void *from, pst_trace **trace_out)
{
    const source *self = from;
    const pst_trace_config config = config_of(self->format);
    return read_text(&config, self->text, trace_out);
}

PST_TEST(Trace, SurvivesEveryFailedAllocation)
{
    survives_failures(read_source, &(source){PST_TRACE_MEMO, papers_example}, 8);
    survives_failures(read_source,
                      &(source){PST_TRACE_MINIMALLOC, "id,lower,upper,size\n1,0,5,9\n2,3,7,9\n"},
                      10);
    survives_failures(read_source,
                      &(source){PST_TRACE_CSV, CSV_HEADER
                                "malloc,1,5,0,,,,,\nmark,3,,0,,,,,record\nmark,3,,1,,,,,wait\n"
                                "mark,1,,1,,,,,use\nfree,1,,,,,,,\n"},
                      14);
}
