/* When a stream may reuse what another used: events, waits, uses and syncs. */
#include "tests/host/trace/trace_scene.h"

/* Rows without the header, and the releases of all tensors on all streams; N: never. */
static void releases_are(const char *rows, const char *expected)
{
    const pst_trace_config config = config_of(PST_TRACE_CSV);
    pst_trace *trace = NULL;
    char text[2048];
    char shown[512] = "";
    snprintf(text, sizeof(text), CSV_HEADER "%s", rows);
    CHECK_OK(read_text(&config, text, &trace));
    const uint64_t *releases = pst_trace_releases(trace);
    const uint32_t num_streams = pst_trace_num_streams(trace);
    CHECK(releases != NULL);
    for (uint64_t i = 0; i < pst_trace_num_tensors(trace) * num_streams; i++) {
        const char *space = i == 0 ? "" : i % num_streams == 0 ? " | " : " ";
        char number[32];
        snprintf(number, sizeof(number), "%llu", (unsigned long long)releases[i]);
        strcat(strcat(shown, space), releases[i] == pst_trace_num_requests(trace) ? "N" : number);
    }
    pst_trace_destroy(trace);
    CHECK_MSG(strcmp(shown, expected) == 0, "%s: \"%s\" is not \"%s\"", rows, shown, expected);
}

#define MALLOC(id, stream) "malloc," #id ",8," #stream ",,,,,\n"
#define FREE(id, stream) "free," #id ",," #stream ",,,,,\n"
#define RECORD(id, stream) "mark," #id ",," #stream ",,,,,record\n"
#define WAIT(id, stream) "mark," #id ",," #stream ",,,,,wait\n"
#define USE(id, stream) "mark," #id ",," #stream ",,,,,use\n"
#define SYNC "mark,,,,,,,,sync\n"
#define TAIL MALLOC(98, 0) FREE(98, 0) MALLOC(99, 1) FREE(99, 1)

/* With TAIL at instants 2..5: tensor 98 is free for its own stream at 3, 99 at 5. */
PST_TEST(TraceClocks, AnotherStreamMustWaitForTheFree)
{
    releases_are(MALLOC(1, 0) FREE(1, 0) TAIL, "1 N | 3 N | N 5");
    releases_are(MALLOC(1, 0) FREE(1, 0) RECORD(5, 0) WAIT(5, 1) TAIL, "1 2 | 3 N | N 5");
    releases_are(MALLOC(1, 0) FREE(1, 0) RECORD(5, 0) MALLOC(98, 0) WAIT(5, 1) FREE(98, 0)
                     MALLOC(99, 1) FREE(99, 1),
                 "1 3 | 3 N | N 5");
    /* recorded before the free: the wait says nothing about it */
    releases_are(MALLOC(1, 0) RECORD(5, 0) FREE(1, 0) WAIT(5, 1) TAIL, "1 N | 3 N | N 5");
    /* the last record before the wait counts, at the time of the wait */
    releases_are(MALLOC(1, 0) RECORD(5, 0) FREE(1, 0) RECORD(5, 0) WAIT(5, 1) TAIL,
                 "1 2 | 3 N | N 5");
    releases_are(MALLOC(1, 0) RECORD(5, 0) WAIT(5, 1) FREE(1, 0) RECORD(5, 0) TAIL,
                 "1 N | 3 N | N 5");
}

PST_TEST(TraceClocks, WaitsPassThroughOtherStreams)
{
    releases_are(MALLOC(1, 0) FREE(1, 0) RECORD(5, 0) WAIT(5, 1) RECORD(6, 1) WAIT(6, 2)
                     MALLOC(2, 2) FREE(2, 2),
                 "1 2 2 | N N 3");
    /* stream 1 recorded before it had waited */
    releases_are(MALLOC(1, 0) FREE(1, 0) RECORD(5, 0) RECORD(6, 1) WAIT(5, 1) WAIT(6, 2)
                     MALLOC(2, 2) FREE(2, 2),
                 "1 2 N | N N 3");
}

PST_TEST(TraceClocks, UsesDelayTheOwner)
{
    releases_are(MALLOC(1, 0) USE(1, 1) FREE(1, 0) TAIL, "N N | 3 N | N 5");
    releases_are(MALLOC(1, 0) USE(1, 1) FREE(1, 0) RECORD(5, 1) WAIT(5, 0) TAIL, "2 N | 3 N | N 5");
    /* the user needs the owner's event, the owner the user's */
    releases_are(MALLOC(1, 0) USE(1, 1) FREE(1, 0) RECORD(5, 0) RECORD(6, 1) WAIT(5, 1)
                     MALLOC(98, 0) WAIT(6, 0) FREE(98, 0) MALLOC(99, 1) FREE(99, 1),
                 "3 2 | 3 N | N 5");
    /* a third stream needs both */
    releases_are(MALLOC(1, 0) USE(1, 1) FREE(1, 0) RECORD(5, 0) RECORD(6, 1) WAIT(5, 2) MALLOC(2, 2)
                     WAIT(6, 2) FREE(2, 2),
                 "N N 3 | N N 3");
    /* freed by another stream: that is a use */
    releases_are(MALLOC(1, 0) FREE(1, 1) TAIL, "N N | 3 N | N 5");
}

PST_TEST(TraceClocks, TheHostWaitsForAll)
{
    releases_are(MALLOC(1, 0) USE(1, 1) FREE(1, 0) SYNC TAIL, "2 2 | 3 N | N 5");
    releases_are(MALLOC(1, 0) SYNC FREE(1, 0) TAIL, "1 N | 3 N | N 5");
    /* what a stream learns from a sync it passes on by an event recorded later */
    releases_are(MALLOC(1, 0) FREE(1, 0) MALLOC(2, 1) FREE(2, 1) RECORD(5, 2) SYNC RECORD(6, 2)
                     WAIT(5, 0) WAIT(6, 0) MALLOC(3, 0) FREE(3, 0),
                 "1 4 4 | 4 3 4 | 5 N N");
}

PST_TEST(TraceClocks, NeverFreedIsNeverReleased)
{
    pst_trace_config config = config_of(PST_TRACE_CSV);
    pst_trace *trace = NULL;
    config.keep_unfreed = true;
    CHECK_OK(read_text(&config, CSV_HEADER MALLOC(1, 0) MALLOC(2, 1) FREE(2, 1) SYNC, &trace));
    CHECK_EQ(pst_trace_releases(trace)[0], 3);
    CHECK_EQ(pst_trace_releases(trace)[1], 3);
    CHECK_EQ(pst_trace_releases(trace)[3], 2);
    pst_trace_destroy(trace);
}

PST_TEST(TraceClocks, MarksThatMakeNoSense)
{
    static const refusal cases[] = {
        {CSV_HEADER MALLOC(1, 0) WAIT(5, 0) FREE(1, 0), "t:3: field id: 5: wait before record"},
        {CSV_HEADER MALLOC(1, 0) WAIT(5, 1) FREE(1, 0), "t:3: field id: 5: wait before record"},
        {CSV_HEADER USE(1, 0) MALLOC(1, 0) FREE(1, 0), "t:2: field id: 1: use before malloc"},
        {CSV_HEADER MALLOC(1, 0) FREE(1, 0) USE(1, 1), "t:4: field id: 1: use after free: freed at "
                                                       "3, malloc'ed at 2"},
    };
    pst_trace_config config = config_of(PST_TRACE_CSV);
    REFUSES_EACH(&config, cases);
    config.has_iteration = true; /* the record may stand before the iteration */
    reads_as(&config,
             CSV_HEADER RECORD(5, 1) "mark,3,,,,,,,iteration\n" MALLOC(1, 0) WAIT(5, 0) FREE(1, 0),
             "#3 +1:8 #5 -1");
}
