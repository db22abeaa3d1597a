/* The readers of CSV, MEMO and MiniMalloc files: every field, and every refusal. */
#include "tests/host/trace/trace_scene.h"

PST_TEST(TraceReader, EveryFieldOfOurCsv)
{
    static const char text[] = CSV_HEADER "malloc,7,100,3,forward,1,2,0,dynamic\n"
                                          "free,7,,4294967295,,,,,\n"
                                          "mark,5,,2,weight,,4294967294,,record\n"
                                          "mark,,0,0,other,0,0,4294967294,sync";
    static const pst_trace_request expected[] = {
        {2, 7, 100, 3, 1, 2, 0, PST_TRACE_MALLOC, PST_PHASE_FORWARD, PST_TAG_DYNAMIC, 0},
        {3, 7, 0, UINT32_MAX, PST_TRACE_NONE, PST_TRACE_NONE, 0, PST_TRACE_FREE, PST_PHASE_NONE,
         PST_TAG_STATIC, 0},
        {4, 5, 0, 2, PST_TRACE_NONE, PST_TRACE_NONE - 1, 0, PST_TRACE_MARK, PST_PHASE_WEIGHT,
         PST_TAG_RECORD, 0},
        {5, 0, 0, 0, 0, 0, PST_TRACE_NONE - 1, PST_TRACE_MARK, PST_PHASE_OTHER, PST_TAG_SYNC, 0},
    };
    const pst_trace_config config = config_of(PST_TRACE_CSV);
    for (size_t piece = 0; piece < 70; piece++) {
        byte_source source = {text, sizeof(text) - 1, piece, 0};
        pst_trace_reader *reader = NULL;
        pst_trace_request row;
        CHECK_OK(pst_trace_reader_open(&config, read_bytes, &source, &reader));
        for (int i = 0; i < 4; i++) {
            const pst_trace_request *want = &expected[i];
            CHECK_OK(pst_trace_reader_next(reader, &row));
            CHECK_MSG(row.line == want->line && row.id == want->id && row.bytes == want->bytes &&
                          row.stream == want->stream && row.layer == want->layer &&
                          row.micro_batch == want->micro_batch && row.rank == want->rank &&
                          row.op == want->op && row.phase == want->phase && row.tag == want->tag,
                      "row %d with pieces of %zu", i, piece);
        }
        CHECK_STATUS(pst_trace_reader_next(reader, &row), PST_E_AGAIN);
        CHECK_STATUS(pst_trace_reader_next(reader, &row), PST_E_INVALID);
        pst_trace_reader_close(reader);
    }
    pst_trace_reader_close(NULL);
}

/* Fault rows 52. */
PST_TEST(TraceReader, LineEndsAndByteOrderMark)
{
    const pst_trace_config csv = config_of(PST_TRACE_CSV);
    const pst_trace_config memo = config_of(PST_TRACE_MEMO);
    reads_as(&csv,
             "\xef\xbb\xbfop,id,size,stream,phase,layer,micro_batch,rank,tag\r\n"
             "malloc,1,5,,,,,,\r\nfree,1,5,,,,,,",
             "+1:5 -1");
    reads_as(&memo, "\xef\xbb\xbfmalloc 1 5\r\nfree 1", "+1:5 -1");
    refuses_text(&memo,
                 "malloc 1 5\n\xef\xbb\xbf"
                 "free 1\n",
                 "t:2: field op: \"???free\"");
    refuses_text(&memo, "malloc 1 5\n\nfree 1\n", "t:2: field op: \"\": allowed is malloc or free");
    refuses_text(&memo, "malloc 1 5\r\r\nfree 1\n", "t:1: field size: \"5?\": allowed is an int");
}

/* Fault rows 53. */
PST_TEST(TraceReader, FaultsOfOurCsv)
{
    static const struct {
        const char *row, *message;
    } cases[] = {
        {"", "t:2: field op: missing: allowed is a line of 9 fields"},
        {"malloc,1,5,,,,,", "t:2: field tag: missing: allowed is a line of 9 fields"},
        {"malloc,1,5,,,,,,,", "t:2: field 10: \"\": allowed is a line of 9 fields"},
        {"alloc,1,5,,,,,,", "t:2: field op: \"alloc\": allowed is malloc, free or mark"},
        {"malloc,,5,,,,,,", "t:2: field id: \"\": allowed is an integer 0..9223372036854775807"},
        {"malloc,-1,5,,,,,,", "t:2: field id: \"-1\""},
        {"malloc,9223372036854775808,5,,,,,,", "t:2: field id: \"9223372036854775808\""},
        {"malloc,18446744073709551617,5,,,,,,", "t:2: field id: \"18446744073709551617\""},
        {"malloc,1,,,,,,,", "t:2: field size: \"\": allowed is an integer 1..922"},
        {"malloc,1,0,,,,,,", "t:2: field size: \"0\": allowed is an integer 1..922"},
        {"malloc,1,9223372036854775808,,,,,,", "t:2: field size: \"9223372036854775808\""},
        {"malloc,1,18446744073709551616,,,,,,", "t:2: field size: \"18446744073709551616\""},
        {"malloc,1,-1,,,,,,", "t:2: field size: \"-1\": allowed is an integer 1..922"},
        {"malloc,1,0x1,,,,,,", "t:2: field size: \"0x1\": allowed is an integer 1..922"},
        {"malloc,1,5k,,,,,,", "t:2: field size: \"5k\": allowed is an integer 1..922"},
        {"malloc,1, 5,,,,,,", "t:2: field size: \" 5\""},
        {"malloc,1,5,x\x1b,,,,,", "t:2: field stream: \"x?\": allowed is an integer 0..4294967295"},
        {"malloc,1,5,4294967296,,,,,", "t:2: field stream: \"4294967296\""},
        {"malloc,1,5,,Forward,,,,", "t:2: field phase: \"Forward\": allowed is forward, backw"},
        {"malloc,1,5,,,4294967295,,,", "t:2: field layer: \"4294967295\": allowed is an integer"},
        {"malloc,1,5,,,,-,,", "t:2: field micro_batch: \"-\""},
        {"malloc,1,5,,,,,0x1,", "t:2: field rank: \"0x1\""},
        {"malloc,1,5,,,,,,sync", "t:2: field tag: \"sync\": allowed is static, dynamic or nothing"},
        {"mark,1,5,,,,,,use", "t:2: field size: \"5\": allowed is an integer 0..0"},
        {"mark,,,,,,,,use", "t:2: field id: \"\""},
        {"mark,1,,,,,,,",
         "t:2: field tag: \"\": allowed is iteration, record, wait, use, sync or grow"},
        {"mark,1,,,,,,,grow", "t:2: field size: \"\": allowed is an integer 1..922"},
        {"malloc,1,5,,,,,,static\"", "t:2: field tag: \"static\"\""},
        {"malloc,1,55555555555555555555555555555555555555555555555555,,,,,,",
         "t:2: field size: \"5555555555555555555555555555555555555555...\": allowed"},
    };
    const pst_trace_config config = config_of(PST_TRACE_CSV);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), CSV_HEADER "%s\n", cases[i].row);
        refuses_text(&config, text, cases[i].message);
    }
}

/* Fault rows 52. */
PST_TEST(TraceReader, FaultsOfTheHeader)
{
    const pst_trace_config csv = config_of(PST_TRACE_CSV);
    const pst_trace_config mini = config_of(PST_TRACE_MINIMALLOC);
    refuses_text(&csv, "", "t:1: empty file: allowed is the header op,id,");
    refuses_text(&csv, "op,id\n", "t:1: field 3 of the header: missing: allowed is size (the");
    refuses_text(&csv, "op,size\n", "t:1: field 2 of the header: \"size\": allowed is id (the");
    refuses_text(&csv, "op,id,size,stream,phase,layer,micro_batch,rank,tag,x\n",
                 "t:1: field 10 of the header: \"x\": allowed is no more");
    refuses_text(&csv, CSV_HEADER, "t: no malloc: allowed is at least one");
    refuses_text(&mini, "", "t:1: empty file: allowed is a header id,lower,upper,size");
    refuses_text(&mini, "id,lower,upper\n", "t:1: field 4 of the header: missing: allowed is id,");
    refuses_text(&mini, "id,begin,end,size\n", "t:1: field 2 of the header: \"begin\": allowed is");
    refuses_text(&mini, "id,id,upper,size\n", "t:1: field 2 of the header: \"id\": allowed is");
    refuses_text(&mini, "id,lower,upper,size,x\n", "t:1: field 5 of the header: \"x\": allowed");
}

PST_TEST(TraceReader, MemoLines)
{
    static const refusal cases[] = {
        {"malloc 1\n", "t:1: field size: missing: allowed is an integer 1..922"},
        {"malloc\n", "t:1: field id: missing"},
        {"malloc 1 0\n", "t:1: field size: \"0\": allowed is an integer 1.."},
        {"malloc 1  5\n", "t:1: field size: \"\""},
        {" malloc 1 5\n", "t:1: field op: \"\""},
        {"malloc 1 5 \n", "t:1: field 4: \"\": allowed is a line of at most 3 fields"},
        {"malloc 1 5\nfree 1 -5\n", "t:2: field size: \"-5\": allowed is an integer 0.."},
        {"malloc 1 5\nfree\t1\n", "t:2: field op: \"free?1\": allowed is malloc or free"},
        {"", "t: no malloc"},
    };
    const pst_trace_config config = config_of(PST_TRACE_MEMO);
    REFUSES_EACH(&config, cases);
    reads_as(&config, "malloc 1 5\nmalloc 9 70\nfree 9 70\nfree 1\n", "+1:5 +9:70 -9 -1");
}

/* Fault rows 55. */
PST_TEST(TraceReader, MiniMallocInOrderOfTime)
{
    const pst_trace_config config = config_of(PST_TRACE_MINIMALLOC);
    /* at 3 the first dies before the third is born; at 9 two die in order of the file */
    reads_as(&config, "lower,size,id,upper\n5,40,8,9\n3,20,2,9\n0,10,7,3\n",
             "+7:10 -7 +2:20 +8:40 -8 -2");
    reads_as(&config, "id,lower,upper,size\nb1,0,3,4\nb2,0,2,4\n", "+1:4 +2:4 -2 -1");
    static const struct {
        const char *row, *message;
    } cases[] = {
        {"1,5,5,9", "t:2: field upper: \"5\": allowed is more than lower, which is 5"},
        {"1,5,4,9", "t:2: field upper: \"4\": allowed is more than lower, which is 5"},
        {"1,5,9223372036854775808,9", "t:2: field upper: \"9223372036854775808\""},
        {"1,-5,4,9", "t:2: field lower: \"-5\""},
        {"1,0,4,0", "t:2: field size: \"0\""},
        {"1,0,4", "t:2: field size: missing: allowed is a line of 4 fields"},
        {"1,0,4,5,6", "t:2: field 5: \"6\": allowed is a line of 4 fields"},
        {"", "t:2: field id: missing: allowed is a line of 4 fields"},
        {"b1b,0,4,5", "t:2: field id: \"b1b\": allowed is an integer 0..922"},
        {"abcdefghijklmnopq1,0,4,5", "t:2: field id: \"abcdefghijklmnopq1\""},
        {"b1,0,4,5\n1,0,4,5", "t:3: field id: \"1\": allowed is an integer 0..9223372036854775807 "
                              "after the letters b"},
        {"1,0,4,5\n1,9,14,5", "t:3: field id: 1: used twice: the other malloc is at 2"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[256];
        snprintf(text, sizeof(text), "id,lower,upper,size\n%s\n", cases[i].row);
        refuses_text(&config, text, cases[i].message);
    }
}

/* A line of PSTI_LINE_BYTES is held, a longer one refused, wherever the pieces end. */
PST_TEST(TraceReader, LongLines)
{
    enum { MIB = 1 << 20 };
    const pst_trace_config config = config_of(PST_TRACE_MEMO);
    char *text = malloc(MIB + 3);
    snprintf(text, MIB + 3, "malloc %0*d 5\n", MIB - 9, 0);
    for (int i = 0; i < 2; i++) {
        byte_source source = {text, strlen(text), i == 0 ? 0 : 4097, 0};
        pst_trace_reader *reader = NULL;
        pst_trace_request row = {0};
        CHECK_OK(pst_trace_reader_open(&config, read_bytes, &source, &reader));
        CHECK_OK(pst_trace_reader_next(reader, &row));
        CHECK_EQ(row.bytes, 5);
        pst_trace_reader_close(reader);
    }
    strcpy(text + MIB, "0\n");
    refuses_text(&config, text, "t:1: line of more than 1048576 bytes");
    free(text);
}

PST_TEST(TraceReader, ASourceThatFails)
{
    const pst_trace_config config = config_of(PST_TRACE_MEMO);
    byte_source source = {"malloc 1 5\nfr", 13, 0, 5};
    pst_trace_reader *reader = NULL;
    pst_trace_request row = {0};
    CHECK_OK(pst_trace_reader_open(&config, read_bytes, &source, &reader));
    CHECK_OK(pst_trace_reader_next(reader, &row));
    CHECK_STATUS(pst_trace_reader_next(reader, &row), PST_E_INVALID);
    CHECK(strncmp(pst_last_message(), "t:2: cannot be read: ", 21) == 0);
    CHECK_EQ(row.id, 1);
    pst_trace_reader_close(reader);
}

PST_TEST(TraceReader, BadConfigs)
{
    pst_trace_reader *reader = NULL;
    pst_trace_config config = config_of(PST_TRACE_MEMO);
    config.struct_size--;
    CHECK_STATUS(pst_trace_reader_open(&config, read_bytes, NULL, &reader), PST_E_INVALID);
    config.struct_size++;
    config.format = PST_TRACE_NUM_FORMATS;
    CHECK_STATUS(pst_trace_reader_open(&config, read_bytes, NULL, &reader), PST_E_INVALID);
    config.format = PST_TRACE_CSV;
    CHECK_STATUS(pst_trace_reader_open(&config, NULL, NULL, &reader), PST_E_INVALID);
    CHECK_STATUS(pst_trace_reader_open(NULL, read_bytes, NULL, &reader), PST_E_INVALID);
    CHECK(reader == NULL);
}
