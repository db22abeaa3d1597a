/* Lists of passes as text, both formats, both ways. */
#include "host/schedule/schedule_file.h"
#include "tests/bytes.h"
#include "tests/host/schedule/schedule_scene.h"
#include "tests/random.h"

typedef pst_status (*read_fn)(const char *name, pst_trace_read_fn read, void *source,
                              psti_schedule_lists *lists_out);
typedef pst_status (*write_fn)(const psti_schedule_lists *lists, pst_plan_write_fn write,
                               void *sink);

static pst_status read_text(read_fn read, const char *text, size_t piece,
                            psti_schedule_lists *lists_out)
{
    byte_source source = {.data = text, .left = strlen(text), .piece = piece};
    return read("lists.csv", read_bytes, &source, lists_out);
}

typedef struct text_sink {
    char text[1 << 16];
    size_t used;
    int error;
} text_sink;

static int write_text(void *sink, const void *text, size_t bytes)
{
    text_sink *self = sink;
    if (self->error || bytes >= sizeof(self->text) - self->used)
        return self->error ? -self->error : -28;
    memcpy(self->text + self->used, text, bytes);
    self->used += bytes;
    self->text[self->used] = '\0';
    return 0;
}

/* Passes of a rank as in schedule_scene.h. */
static void show(const psti_schedule_lists *lists, uint64_t rank, char *out, size_t room)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint64_t n = 0; n < lists->ranks[rank].num_passes; n++) {
        const pst_pass *pass = &lists->passes[lists->ranks[rank].first + n];
        used += (size_t)snprintf(out + used, room - used, "%s%s%c%u.%u", n > 0 ? " " : "",
                                 pass->pairs ? "[" : "", "FBIW"[pass->kind], pass -> chunk,
                                 pass -> micro_batch);
    }
}

static void reads_as(read_fn read, const char *text, uint64_t num_ranks, const char *last)
{
    psti_schedule_lists lists;
    char shown[512];
    CHECK_OK(read_text(read, text, 0, &lists));
    CHECK_EQ(lists.num_ranks, num_ranks);
    show(&lists, num_ranks - 1, shown, sizeof(shown));
    psti_schedule_lists_free(&lists);
    CHECK_STR(shown, last);
}

PST_TEST(ScheduleFile, Rows)
{
    reads_as(psti_schedule_read_list,
             "rank,kind,chunk,micro_batch\n0,F,0,0\n0,B,0,0\n1,F,0,0\n1,I,0,0\n1,W,0,0\n", 2,
             "F0.0 I0.0 W0.0");
    reads_as(psti_schedule_read_list,
             "\xef\xbb\xbfrank,kind,chunk,micro_batch,pair\r\n0,F,0,0,0\r\n0,F,1,0,1\r\n0,B,0,0,0",
             1, "F0.0 [F1.0 B0.0");
}

PST_TEST(ScheduleFile, Integers)
{
    reads_as(psti_schedule_read_megatron, "1 1 1 2 2 2 -2 1 -2 1 -2 2 -1 2 -1 -1 -2 -2 -1 -1\n", 1,
             "F0.0 F0.1 F0.2 F1.0 F1.1 F1.2 B1.0 F0.3 B1.1 F0.4 B1.2 F1.3 B0.0 F1.4 B0.1 B0.2 B1.3 "
             "B1.4 B0.3 B0.4");
    reads_as(psti_schedule_read_megatron, "1,-1\n +1, 1\t-1 ,-1 \r\n", 2, "F0.0 F0.1 B0.0 B0.1");
    reads_as(psti_schedule_read_megatron, "1048576", 1, "F1048575.0");
}

typedef struct refusal {
    const char *text, *message;
} refusal;

static void refuses(read_fn read, const refusal *cases, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        psti_schedule_lists lists;
        CHECK_MSG(read_text(read, cases[i].text, 0, &lists) == PST_E_INVALID, "%s", cases[i].text);
        CHECK_SAID(cases[i].message);
        CHECK(lists.passes == NULL && lists.ranks == NULL && lists.num_ranks == 0);
        CHECK(strchr(pst_last_message(), '\n') == NULL);
    }
}

#define HEADER "rank,kind,chunk,micro_batch\n"
#define WITH_PAIR "rank,kind,chunk,micro_batch,pair\n"

PST_TEST(ScheduleFile, RefusesRows)
{
    static const refusal cases[] = {
        {"", "lists.csv:1: empty file: allowed is the header rank,kind,chunk,micro_batch, or "
             "rank,kind,chunk,micro_batch,pair"},
        {"rank,kind\n", "lists.csv:1: field header: \"rank,kind\": allowed is "
                        "rank,kind,chunk,micro_batch, or"},
        {HEADER, "lists.csv:2: no rows: allowed is at least one"},
        {HEADER "x,F,0,0\n", "lists.csv:2: field rank: \"x\": allowed is an integer 0..1048575"},
        {HEADER "1,F,0,0\n",
         "lists.csv:2: field rank: 1: allowed is 0, ranks come in order and without a gap"},
        {HEADER "0,F,0,0\n2,F,0,0\n",
         "lists.csv:3: field rank: 2: allowed is 0 or 1, ranks come in order and without a gap"},
        {HEADER "0,F,0,0\n1,F,0,0\n0,B,0,0\n",
         "lists.csv:4: field rank: 0: allowed is 1 or 2, ranks come in order and without a gap"},
        {HEADER "0,f,0,0\n", "lists.csv:2: field kind: \"f\": allowed is F, B, I or W"},
        {HEADER "0,F,-1,0\n",
         "lists.csv:2: field chunk: \"-1\": allowed is an integer 0..4294967295"},
        {HEADER "0,F,0,1048576\n",
         "lists.csv:2: field micro_batch: \"1048576\": allowed is an integer 0..1048575"},
        {HEADER "0,F,0\n",
         "lists.csv:2: field micro_batch: missing: allowed is a line of 4 fields"},
        {HEADER "0,F,0,0,1\n", "lists.csv:2: field 5: \"1\": allowed is a line of 4 fields"},
        {HEADER "0,F,0,0\n\n", "lists.csv:3: field rank: missing: allowed is a line of 4 fields"},
        {WITH_PAIR "0,F,0,0\n", "lists.csv:2: field pair: missing: allowed is a line of 5 fields"},
        {WITH_PAIR "0,F,0,0,2\n", "lists.csv:2: field pair: \"2\": allowed is an integer 0..1"},
    };
    refuses(psti_schedule_read_list, cases, sizeof(cases) / sizeof(cases[0]));
}

PST_TEST(ScheduleFile, RefusesIntegers)
{
    static const refusal cases[] = {
        {"", "lists.csv:1: empty file: allowed is a line of integers for each rank"},
        {"1 -1\n\n", "lists.csv:2: field pass: \"\": allowed is an integer 1..2^20, or with - "},
        {"1 0", "lists.csv:1: field pass: \"0\": allowed is an integer 1..2^20, or with - before"},
        {"1 --1", "lists.csv:1: field pass: \"--1\": allowed is"},
        {"1 1048577", "lists.csv:1: field pass: \"1048577\": allowed is"},
        {"1 - 1", "lists.csv:1: field pass: \"-\": allowed is"},
        {"[1, -1]", "lists.csv:1: field pass: \"[1\": allowed is"},
        {"1,,-1", "lists.csv:1: field pass: \"\": allowed is"},
        {"1,-1,", "lists.csv:1: field pass: \"\": allowed is"},
        {",1", "lists.csv:1: field pass: \"\": allowed is"},
    };
    refuses(psti_schedule_read_megatron, cases, sizeof(cases) / sizeof(cases[0]));
}

static ptrdiff_t no_bytes(void *source, void *buffer, size_t room)
{
    (void)source, (void)buffer, (void)room;
    return -5;
}

PST_TEST(ScheduleFile, FailuresOfTheCaller)
{
    psti_schedule_lists lists;
    CHECK_STATUS(psti_schedule_read_list("a", no_bytes, NULL, &lists), PST_E_INVALID);
    CHECK_SAID("a:1: cannot be read: ");
    CHECK_STATUS(psti_schedule_read_megatron("a", no_bytes, NULL, &lists), PST_E_INVALID);
    CHECK_OK(read_text(psti_schedule_read_megatron, "1 -1", 0, &lists));
    text_sink sink = {.error = 28};
    CHECK_STATUS(psti_schedule_write_list(&lists, write_text, &sink), PST_E_INVALID);
    CHECK_SAID("the list cannot be written: No space");
    CHECK_STATUS(psti_schedule_write_megatron(&lists, write_text, &sink), PST_E_INVALID);
    psti_schedule_lists_free(&lists);
}

/* ---- a rank's list as a schedule ---- */

PST_TEST(ScheduleFile, SchedulesOfRanks)
{
    psti_schedule_lists lists;
    pst_schedule *schedule = NULL;
    CHECK_OK(read_text(psti_schedule_read_list,
                       HEADER "0,F,0,0\n0,B,0,0\n1,F,0,0\n1,B,0,0\n1,B,0,0\n", 0, &lists));
    CHECK_OK(psti_schedule_of_rank(&lists, "lists.csv", 0, &schedule));
    CHECK_EQ(schedule->config.kind, PST_SCHEDULE_LIST);
    CHECK_EQ(schedule->config.num_stages, 2);
    CHECK_EQ(schedule->num_passes, 2);
    pst_schedule_destroy(schedule);
    CHECK_STATUS(psti_schedule_of_rank(&lists, "lists.csv", 1, &schedule), PST_E_INVALID);
    CHECK_SAID("lists.csv:4: rank 1, which begins here: pass 2, backward of chunk 0, micro-batch "
               "0: it ran already, as pass 1 [schedule_file.c:");
    CHECK_STATUS(psti_schedule_of_rank(&lists, "lists.csv", 2, &schedule), PST_E_INVALID);
    CHECK_SAID("rank 2: lists.csv has ranks 0 to 1");
    psti_schedule_lists_free(&lists);
}

/* ---- there and back ---- */

static void make_lists(const shape *of, psti_schedule_lists *lists)
{
    for (uint32_t r = 0; r < of->p; r++) {
        pst_schedule *schedule = schedule_of(of, r);
        CHECK(schedule != NULL);
        const pst_status status = psti_schedule_lists_add(lists, schedule);
        pst_schedule_destroy(schedule);
        CHECK_OK(status);
    }
}

static void equal(const psti_schedule_lists *a, const psti_schedule_lists *b)
{
    CHECK_EQ(a->num_ranks, b->num_ranks);
    CHECK_EQ(a->num_passes, b->num_passes);
    for (uint64_t r = 0; r < a->num_ranks; r++) {
        CHECK_EQ(a->ranks[r].first, b->ranks[r].first);
        CHECK_EQ(a->ranks[r].num_passes, b->ranks[r].num_passes);
    }
    CHECK(memcmp(a->passes, b->passes, a->num_passes * sizeof(*a->passes)) == 0);
}

static void there_and_back(const shape *of, write_fn write, read_fn read)
{
    static text_sink sink;
    psti_schedule_lists lists = {0}, again;
    sink = (text_sink){.used = 0};
    make_lists(of, &lists);
    CHECK_OK(write(&lists, write_text, &sink));
    for (size_t piece = 0; piece < 4; piece++) {
        CHECK_OK(read_text(read, sink.text, piece * piece * 7, &again));
        equal(&lists, &again);
        psti_schedule_lists_free(&again);
    }
    psti_schedule_lists_free(&lists);
}

#define K(kind) PST_SCHEDULE_##kind

PST_TEST(ScheduleFile, ThereAndBack)
{
    static const shape shapes[] = {
        {K(1F1B), 4, 8, 0, 0, false},  {K(INTERLEAVED), 2, 5, 2, 3, false},
        {K(GPIPE), 1, 3, 0, 0, false}, {K(GPIPE_REVERSED), 2, 3, 0, 0, 0},
        {K(ZB_H1), 3, 4, 0, 0, false}, {K(ZB_V), 2, 4, 0, 0, false},
        {K(DUALPIPE), 4, 8, 0, 0, 0},  {K(DUALPIPE_V), 2, 5, 0, 0, false}};
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        there_and_back(&shapes[i], psti_schedule_write_list, psti_schedule_read_list);
        if (i < 3)
            there_and_back(&shapes[i], psti_schedule_write_megatron, psti_schedule_read_megatron);
    }
}

PST_TEST(ScheduleFile, WhatIsWritten)
{
    psti_schedule_lists lists = {0};
    text_sink sink = {.used = 0};
    make_lists(&(shape){K(1F1B), 2, 2, 0, 0, false}, &lists);
    CHECK_OK(psti_schedule_write_list(&lists, write_text, &sink));
    CHECK_STR(sink.text, HEADER "0,F,0,0\n0,F,0,1\n0,B,0,0\n0,B,0,1\n"
                                "1,F,0,0\n1,B,0,0\n1,F,0,1\n1,B,0,1\n");
    sink.used = 0;
    CHECK_OK(psti_schedule_write_megatron(&lists, write_text, &sink));
    CHECK_STR(sink.text, "1 1 -1 -1\n1 -1 1 -1\n");
    psti_schedule_lists_free(&lists);
    sink.used = 0;
    CHECK_OK(read_text(psti_schedule_read_list, WITH_PAIR "0,F,0,0,1\n0,B,1,0,0\n", 0, &lists));
    CHECK_OK(psti_schedule_write_list(&lists, write_text, &sink));
    CHECK_STR(sink.text, WITH_PAIR "0,F,0,0,1\n0,B,1,0,0\n");
    psti_schedule_lists_free(&lists);
}

PST_TEST(ScheduleFile, WhatIntegersCannotSay)
{
    static const struct {
        shape of;
        const char *message;
    } cases[] = {
        {{K(GPIPE_REVERSED), 1, 2, 0, 0, false},
         "rank 0, pass 2, backward of chunk 0, micro-batch 1: integers cannot say that "
         "micro-batches of a chunk come out of order"},
        {{K(ZB_H1), 1, 2, 0, 0, false},
         "rank 0, pass 1, input backward of chunk 0, micro-batch 0: integers cannot say that a "
         "backward is split"},
        {{K(DUALPIPE), 2, 4, 0, 0, false},
         "rank 0, pass 4, forward of chunk 1, micro-batch 1: integers cannot say that two passes "
         "are a pair"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        psti_schedule_lists lists = {0};
        text_sink sink = {.used = 0};
        make_lists(&cases[i].of, &lists);
        CHECK_STATUS(psti_schedule_write_megatron(&lists, write_text, &sink), PST_E_INVALID);
        CHECK_SAID(cases[i].message);
        psti_schedule_lists_free(&lists);
    }
}

/* ---- memory ---- */

static void survives(read_fn read, const char *text, long fewest)
{
    pst_status status = PST_E_NOMEM;
    long n = 0;
    for (; status != PST_OK; n++) {
        psti_schedule_lists lists;
        psti_fail_allocation_after(n);
        status = read_text(read, text, 0, &lists);
        psti_fail_allocation_after(-1);
        CHECK(status == PST_OK || (status == PST_E_NOMEM && lists.passes == NULL));
        psti_schedule_lists_free(&lists);
    }
    CHECK(n > fewest);
}

PST_TEST(ScheduleFile, AllocationFailures)
{
    survives(psti_schedule_read_list, HEADER "0,F,0,0\n0,B,0,0\n", 3);
    survives(psti_schedule_read_megatron, "1 2 3 4 5 6 7 8 9\n1 -1\n", 4);
}
