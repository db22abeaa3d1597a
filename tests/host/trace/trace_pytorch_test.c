/* Snapshots of PyTorch's allocator, written here as pickles. */
#include "tests/host/trace/trace_scene.h"

#define PICKLE(text) text, sizeof(text) - 1

/* A pickle of protocol 2, written as it grows. */
typedef struct writer {
    char data[4096];
    size_t num;
} writer;

static void put(writer *to, const void *data, size_t num_bytes)
{
    memcpy(to->data + to->num, data, num_bytes);
    to->num += num_bytes;
}

static void put_text(writer *to, const char *text)
{
    const uint32_t length = (uint32_t)strlen(text);
    put(to, "X", 1);
    put(to, &length, 4);
    put(to, text, length);
}

/* A number of 9 bytes, so that it may have all 64 bits. */
static void put_number(writer *to, uint64_t number)
{
    put(to, "\x8a\x09", 2);
    put(to, &number, 8);
    put(to, "", 1);
}

static void put_event(writer *to, const char *action, uint64_t address, uint64_t size,
                      uint64_t stream)
{
    put(to, "}(", 2);
    put_text(to, "action");
    put_text(to, action);
    put_text(to, "addr");
    put_number(to, address);
    put_text(to, "frames");
    put(to, "]", 1);
    put_text(to, "size");
    put_number(to, size);
    put_text(to, "stream");
    put_number(to, stream);
    put(to, "u", 1);
}

static void begin(writer *to)
{
    to->num = 0;
    put(to, "\x80\x02}(", 4);
    put_text(to, "segments");
    put(to, "]", 1);
    put_text(to, "device_traces");
    put(to, "](](", 4);
}

static void end(writer *to)
{
    put(to, "eeu.", 4);
}

static pst_status read_snapshot(const pst_trace_config *config, const writer *from, size_t piece,
                                pst_trace **trace_out)
{
    byte_source source = {from->data, from->num, piece, 0};
    return pst_trace_read(config, read_bytes, &source, trace_out);
}

static void refuses(const writer *from, const char *message)
{
    const pst_trace_config config = config_of(PST_TRACE_PYTORCH);
    pst_trace *trace = NULL;
    CHECK_STATUS(read_snapshot(&config, from, 0, &trace), PST_E_INVALID);
    CHECK_MSG(strncmp(pst_last_message(), message, strlen(message)) == 0, "\"%s\" is not \"%s\"",
              pst_last_message(), message);
}

/* Fault rows 54, 62. */
PST_TEST(TracePytorch, LivesFromAllocToFreeCompleted)
{
    pst_trace_config config = config_of(PST_TRACE_PYTORCH);
    writer to;
    begin(&to);
    put_event(&to, "free_completed", 0x500, 512, 0); /* given out before the window */
    put_event(&to, "segment_alloc", 0x7f0000000000, 1 << 21, 0);
    put_event(&to, "alloc", 0x7f0000000000, 1024, 0x55aa00000000);
    put_event(&to, "alloc", UINT64_MAX, 512, 0);
    put_event(&to, "free_requested", 0x7f0000000000, 1024, 0x55aa00000000);
    put_event(&to, "free_completed", 0x7f0000000000, 1024, 0x55aa00000000);
    put_event(&to, "snapshot", 0, 0, 0);
    put_event(&to, "alloc", 0x7f0000000000, 2048, 0);
    put(&to, "e](", 3); /* the second device */
    put_event(&to, "alloc", 9, 99, 9);
    end(&to);
    for (size_t piece = 0; piece < 3; piece++) {
        pst_trace *trace = NULL;
        char shown[256];
        CHECK_OK(read_snapshot(&config, &to, piece * 700, &trace));
        describe(trace, shown, sizeof(shown));
        CHECK_STR(shown, "+3:1024 +4:512 -3 +8:2048");
        CHECK_EQ(pst_trace_num_streams(trace), 2);
        CHECK_EQ(pst_trace_tensors(trace)[0].stream, 0);
        CHECK_EQ(pst_trace_tensors(trace)[1].stream, 1);
        CHECK_EQ(pst_trace_tensors(trace)[2].stream, 1);
        CHECK(pst_trace_tensors(trace)[1].never_freed);
        CHECK(!pst_trace_tensors(trace)[0].never_freed);
        pst_trace_destroy(trace);
    }
    config.device = 1;
    pst_trace *trace = NULL;
    CHECK_OK(read_snapshot(&config, &to, 0, &trace));
    CHECK_EQ(pst_trace_tensors(trace)[0].bytes, 99);
    pst_trace_destroy(trace);
    trace = NULL;
    config.device = 2;
    CHECK_STATUS(read_snapshot(&config, &to, 0, &trace), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "t: device 2: the snapshot has 2 devices") != NULL);
}

/* Fault rows 55. */
PST_TEST(TracePytorch, Faults)
{
    writer to;
    begin(&to);
    put_event(&to, "alloc", 1, 8, 0);
    put_event(&to, "alloc", 1, 8, 0);
    end(&to);
    refuses(&to, "t: event 2: field addr: 0x1: alloc of what is live: alloc at event 1");
    begin(&to);
    put_event(&to, "alloc", 1, 8, 0);
    put_event(&to, "free_completed", 1, 8, 0);
    put_event(&to, "free_completed", 1, 8, 0);
    end(&to);
    refuses(&to, "t: event 3: field addr: 0x1: double free: free_completed at event 2");
    begin(&to);
    put_event(&to, "alloc", 1, 8, 0);
    put_event(&to, "free_completed", 1, 9, 0);
    end(&to);
    refuses(&to, "t: event 2: field size: 9: allowed is nothing or 8, as in the malloc at 1");
    begin(&to);
    put_event(&to, "alloc", 1, 0, 0);
    end(&to);
    refuses(&to, "t: event 1: field size: 0: allowed is 1..9223372036854775807");
    begin(&to);
    put(&to, "K\x01", 2);
    end(&to);
    refuses(&to, "t: event 1: field event: an int: allowed is a dict");
    begin(&to);
    put(&to, "}", 1);
    end(&to);
    refuses(&to, "t: event 1: field action: nothing: allowed is a str");
    begin(&to);
    put(&to, "}(", 2);
    put_text(&to, "action");
    put_text(&to, "alloc");
    put_text(&to, "addr");
    put(&to, "J\xff\xff\xff\xffu", 6);
    end(&to);
    refuses(&to, "t: event 1: field addr: an int out of range: allowed is 0..18446744073709551615");
    begin(&to);
    put(&to, "}(", 2);
    for (int i = 0; i < 65; i++)
        put(&to, "NN", 2);
    put(&to, "u", 1);
    end(&to);
    refuses(&to, "t: event 1: field event: more than 64 keys: allowed are fewer");
    begin(&to);
    end(&to);
    refuses(&to, "t: no malloc: allowed is at least one");
}

/* Fault rows 62. */
PST_TEST(TracePytorch, FilesThatAreNoSnapshots)
{
    static const struct {
        const char *data;
        size_t num_bytes;
        const char *message;
    } cases[] = {
        {PICKLE("\x80\x02]."), "t: the snapshot is a list: allowed is a dict with device_traces"},
        {PICKLE("\x80\x02}."), "t: field device_traces: nothing: allowed is a list"},
        {PICKLE("\x80\x04}\x8c\x0d"
                "device_traces]Nas."),
         "t: field device_traces[0]: None: allowed is a list"},
        {PICKLE("\x80\x04}\x8c\x0d"
                "device_traces]s."),
         "t: device 0: the snapshot has 0 devices"},
        {PICKLE("\x80\x04}\x8c\x0d"
                "device_tracesNs."),
         "t: field device_traces: None: allowed"},
        {PICKLE("\x80\x02"
                "cos\nsystem\n."),
         "t: byte 2: opcode GLOBAL (0x63)"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        writer to = {.num = 0};
        put(&to, cases[i].data, cases[i].num_bytes);
        refuses(&to, cases[i].message);
    }
}

static pst_status read_writer(const void *from, pst_trace **trace_out)
{
    const pst_trace_config config = config_of(PST_TRACE_PYTORCH);
    return read_snapshot(&config, from, 0, trace_out);
}

PST_TEST(TracePytorch, SurvivesEveryFailedAllocation)
{
    writer to;
    begin(&to);
    put_event(&to, "alloc", 1, 8, 0);
    put_event(&to, "free_completed", 1, 8, 0);
    end(&to);
    survives_failures(read_writer, &to, 9);
}
