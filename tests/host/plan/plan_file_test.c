/* Plan files: reading, what is refused and in which words, rows from memory, writing. */
#include "tests/bytes.h"
#include "tests/harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"

#define HEADER "op,id,size,stream,offset\n"

static pst_status read_file(const char *data, size_t piece, pst_plan_file **file_out)
{
    byte_source source = {.data = data, .left = strlen(data), .piece = piece};
    return pst_plan_file_read("p.csv", read_bytes, &source, file_out);
}

static void check_row(const pst_plan_row *row, pst_plan_row wanted)
{
    CHECK_EQ(row->line, wanted.line);
    CHECK_EQ(row->op, wanted.op);
    CHECK_EQ(row->id, wanted.id);
    CHECK_EQ(row->bytes, wanted.bytes);
    CHECK_EQ(row->stream, wanted.stream);
    CHECK_EQ(row->offset, wanted.offset);
}

static void check_example(const char *data, size_t piece)
{
    pst_plan_file *file = NULL;
    CHECK_OK(read_file(data, piece, &file));
    const pst_plan_row *rows = pst_plan_file_rows(file);
    CHECK_EQ(pst_plan_file_num_rows(file), 7);
    CHECK_EQ(pst_plan_file_num_tensors(file), 2);
    CHECK_EQ(pst_plan_file_bytes(file), 2048);
    check_row(&rows[0], (pst_plan_row){.line = 2, .op = PST_PLAN_OP_MARK, .id = 7});
    check_row(&rows[1], (pst_plan_row){.line = 3, .id = 1, .bytes = 1000});
    check_row(&rows[2], (pst_plan_row){.line = 4, .op = PST_PLAN_OP_USE, .id = 1, .stream = 4});
    check_row(&rows[3], (pst_plan_row){.line = 5, .op = PST_PLAN_OP_FREE, .id = 1});
    check_row(&rows[4],
              (pst_plan_row){
                  .line = 6, .id = UINT64_MAX, .bytes = 1025, .stream = UINT32_MAX, .offset = 512});
    check_row(&rows[5], (pst_plan_row){.line = 7,
                                       .op = PST_PLAN_OP_FREE,
                                       .id = UINT64_MAX,
                                       .bytes = 1025,
                                       .stream = UINT32_MAX,
                                       .offset = 512});
    check_row(&rows[6], (pst_plan_row){.line = 8, .op = PST_PLAN_OP_MARK, .id = 8});
    pst_plan_file_destroy(file);
}

PST_TEST(PlanFile, ReadsRowsInEveryPackaging)
{
    const char *plain = HEADER "mark,7,,,\nmalloc,1,1000,0,0\nuse,1,,4,\nfree,1,,,\n"
                               "malloc,18446744073709551615,1025,4294967295,512\n"
                               "free,18446744073709551615,1025,4294967295,512\nmark,8,,,\n";
    const char *windows = "\xef\xbb\xbf"
                          "op,id,size,stream,offset\r\nmark,7,,,\r\nmalloc,1,1000,0,0\r\n"
                          "use,1,,4,\r\nfree,1,,,\r\n"
                          "malloc,18446744073709551615,1025,4294967295,512\r\n"
                          "free,18446744073709551615,1025,4294967295,512\r\nmark,8,,,";
    for (size_t piece = 0; piece < 60; piece += 7) {
        check_example(plain, piece);
        check_example(windows, piece);
    }
}

PST_TEST(PlanFile, AHeaderAloneIsAPlan)
{
    pst_plan_file *file = NULL;
    CHECK_OK(read_file(HEADER, 0, &file));
    CHECK_EQ(pst_plan_file_num_rows(file), 0);
    CHECK_EQ(pst_plan_file_bytes(file), 0);
    pst_plan_file_destroy(file);
    pst_plan_file_destroy(NULL);
}

PST_TEST(PlanFile, ManyRowsKeepTheirOrder)
{
    enum { TENSORS = 3000 };
    char *data = malloc(TENSORS * 80u + 100);
    size_t used = (size_t)sprintf(data, HEADER);
    for (unsigned i = 0; i < TENSORS; i++)
        used += (size_t)sprintf(data + used, "malloc,%u,512,0,%u\n", i * 4096, i * 512);
    for (unsigned i = 0; i < TENSORS; i++)
        used += (size_t)sprintf(data + used, "free,%u,,,\n", i * 4096);
    pst_plan_file *file = NULL;
    CHECK_OK(read_file(data, 0, &file));
    CHECK_EQ(pst_plan_file_num_tensors(file), TENSORS);
    CHECK_EQ(pst_plan_file_bytes(file), TENSORS * 512);
    for (unsigned i = 0; i < 2 * TENSORS; i++)
        CHECK_EQ(pst_plan_file_rows(file)[i].id, i % TENSORS * 4096);
    pst_plan_file_destroy(file);
    free(data);
}

static void refused(const char *data, const char *message)
{
    pst_plan_file *file = NULL;
    char said[512] = "";
    CHECK_STATUS(read_file(data, 0, &file), PST_E_INVALID);
    CHECK(file == NULL);
    snprintf(said, sizeof(said), "%s", pst_last_message());
    char *place = strrchr(said, '['); /* of the check */
    CHECK(place > said);
    place[-1] = '\0';
    CHECK_STR(said, message);
}

/* Fault rows 57. */
PST_TEST(PlanFile, RefusesWithFileLineAndField)
{
    refused("", "p.csv:1: empty file: allowed is the header op,id,size,stream,offset");
    refused("op,id,size,stream\n",
            "p.csv:1: field 5 of the header: missing: allowed is offset (the header is "
            "op,id,size,stream,offset)");
    refused("# plan\n" HEADER,
            "p.csv:1: field 1 of the header: \"# plan\": allowed is op (the header is "
            "op,id,size,stream,offset)");
    refused(HEADER "\n", "p.csv:2: field op: missing: allowed is a line of 5 fields");
    refused(HEADER "mark,1,,\n", "p.csv:2: field offset: missing: allowed is a line of 5 fields");
    refused(HEADER "mark,1,,,,\n", "p.csv:2: field 6: \"\": allowed is a line of 5 fields");
    refused(HEADER "alloc,1,1,0,0\n",
            "p.csv:2: field op: \"alloc\": allowed is malloc, free, mark or use");
    refused(HEADER "mark,,,,\n",
            "p.csv:2: field id: \"\": allowed is an integer 0..18446744073709551615");
    refused(HEADER "mark,18446744073709551616,,,\n",
            "p.csv:2: field id: \"18446744073709551616\": allowed is an integer "
            "0..18446744073709551615");
    refused(HEADER "mark,100000000000000000000,,,\n",
            "p.csv:2: field id: \"100000000000000000000\": allowed is an integer "
            "0..18446744073709551615");
    refused(HEADER "\xef\xbb\xbfmark,1,,,\n",
            "p.csv:2: field op: \"???mark\": allowed is malloc, free, mark or use");
    refused(HEADER "mark,1,5,,\n",
            "p.csv:2: field size: \"5\": allowed is nothing in a row of op mark");
    refused(HEADER "mark,1,,0,\n",
            "p.csv:2: field stream: \"0\": allowed is nothing in a row of op mark");
    refused(HEADER "malloc,1,,0,0\n",
            "p.csv:2: field size: \"\": allowed is an integer 1..9223372036854775807");
    refused(HEADER "malloc,1,0,0,0\n",
            "p.csv:2: field size: \"0\": allowed is an integer 1..9223372036854775807");
    refused(HEADER "malloc,1,5,-1,0\n",
            "p.csv:2: field stream: \"-1\": allowed is an integer 0..4294967295");
    refused(HEADER "malloc,1,5,0, 0\n",
            "p.csv:2: field offset: \" 0\": allowed is an integer 0..4611686018427387904");
    refused(HEADER "malloc,1,5,0,\x01\n",
            "p.csv:2: field offset: \"?\": allowed is an integer 0..4611686018427387904");
}

/* Fault rows 58. */
PST_TEST(PlanFile, RefusesWhatMakesNoSenseTogether)
{
    refused(HEADER "malloc,1,1,0,4611686018427387904\n",
            "p.csv:2: field offset: 4611686018427387904: a tensor of 1 bytes ends above "
            "4611686018427387904");
    refused(HEADER "malloc,1,9223372036854775807,0,0\n",
            "p.csv:2: field offset: 0: a tensor of 9223372036854775807 bytes ends above "
            "4611686018427387904");
    refused(HEADER "malloc,1,5,0,0\nfree,1,,,\nmalloc,1,5,0,0\n",
            "p.csv:4: field id: 1: line 2 uses it for another tensor");
    refused(HEADER "free,3,,,\n",
            "p.csv:2: field id: 3: free of a tensor that has no malloc before");
    refused(HEADER "malloc,1,5,0,0\nfree,1,,,\nfree,1,,,\n",
            "p.csv:4: field id: 1: free of a tensor that was freed before");
    refused(HEADER "malloc,1,5,0,0\nfree,1,,,\nuse,1,,2,\n",
            "p.csv:4: field id: 1: use of a tensor that was freed before");
    refused(HEADER "malloc,1,5,0,0\nfree,1,6,,\n",
            "p.csv:3: field size: 6: allowed is nothing, or 5 as in line 2");
    refused(HEADER "malloc,1,5,0,0\nfree,1,5,1,\n",
            "p.csv:3: field stream: 1: allowed is nothing, or 0 as in line 2");
    refused(HEADER "malloc,1,5,0,512\nfree,1,,,0\n",
            "p.csv:3: field offset: 0: allowed is nothing, or 512 as in line 2");
}

PST_TEST(PlanFile, LinesAreAtMostAMebibyte)
{
    const size_t most = (size_t)1 << 20;
    char *data = malloc(most + 100);
    pst_plan_file *file = NULL;
    memset(data, '0', most + 100);
    memcpy(data, HEADER "mark,", sizeof(HEADER "mark,") - 1);
    strcpy(data + strlen(HEADER) + most - 3, ",,,\n");
    CHECK_OK(read_file(data, 0, &file));
    pst_plan_file_destroy(file);
    strcpy(data + strlen(HEADER) + most - 3, "0,,,\n");
    refused(data, "p.csv:2: line of more than 1048576 bytes: allowed are at most 1048576");
    free(data);
}

PST_TEST(PlanFile, AFailedReadIsSaid)
{
    pst_plan_file *file = NULL;
    byte_source source = {.data = HEADER, .left = strlen(HEADER), .error = EIO};
    CHECK_STATUS(pst_plan_file_read(NULL, read_bytes, &source, &file), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "plan:2: cannot be read: Input/output error"));
    CHECK_STATUS(pst_plan_file_read(NULL, NULL, NULL, &file), PST_E_INVALID);
    CHECK_STATUS(pst_plan_file_read(NULL, read_bytes, &source, NULL), PST_E_INVALID);
}

PST_TEST(PlanFile, MakesTheSameFromRows)
{
    const pst_plan_row rows[] = {{.line = 11, .id = 5, .bytes = 700, .offset = 512},
                                 {.line = 12, .op = PST_PLAN_OP_FREE, .id = 5, .bytes = 700}};
    pst_plan_file *file = NULL;
    CHECK_OK(pst_plan_file_make(rows, 2, &file));
    CHECK_EQ(pst_plan_file_bytes(file), 1536);
    check_row(pst_plan_file_rows(file), rows[0]);
    pst_plan_file_destroy(file);
    file = NULL;
    pst_plan_row wrong[] = {rows[0], rows[1]};
    wrong[1].bytes = 701;
    CHECK_STATUS(pst_plan_file_make(wrong, 2, &file), PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "plan:12: field size: 701"));
    wrong[0].op = 4;
    CHECK_STATUS(pst_plan_file_make(wrong, 1, &file), PST_E_INVALID);
    wrong[0] = rows[0];
    wrong[0].bytes = 0;
    CHECK_STATUS(pst_plan_file_make(wrong, 1, &file), PST_E_INVALID);
    CHECK_STATUS(pst_plan_file_make(NULL, 1, &file), PST_E_INVALID);
    CHECK(file == NULL);
}

/* ---- writing ---- */

typedef struct sink {
    char data[1024];
    size_t used;
    size_t most; /* bytes until it fails */
} sink;

static int write_text(void *to, const void *from, size_t bytes)
{
    sink *self = to;
    if (self->used + bytes > self->most)
        return -ENOSPC;
    memcpy(self->data + self->used, from, bytes);
    self->used += bytes;
    self->data[self->used] = '\0';
    return 0;
}

static pst_trace_request request(uint8_t op, uint8_t tag, uint64_t id, uint64_t bytes,
                                 uint32_t stream)
{
    return (pst_trace_request){.op = op, .tag = tag, .id = id, .bytes = bytes, .stream = stream};
}

PST_TEST(PlanFile, WritesWhatIsPlanned)
{
    const pst_trace_request requests[] = {
        request(PST_TRACE_MARK, PST_TAG_ITERATION, 3, 0, 0),
        request(PST_TRACE_MALLOC, 0, 1, 1000, 2),
        request(PST_TRACE_MALLOC, 0, 9, 64, 2), /* not planned */
        request(PST_TRACE_MARK, PST_TAG_RECORD, 1, 0, 2),
        request(PST_TRACE_MARK, PST_TAG_USE, 9, 0, 3),
        request(PST_TRACE_MARK, PST_TAG_USE, 1, 0, 3),
        request(PST_TRACE_FREE, 0, 9, 64, 2),
        request(PST_TRACE_MARK, PST_TAG_SYNC, 0, 0, 0),
        request(PST_TRACE_MALLOC, 0, 2, 5, 0),
        request(PST_TRACE_FREE, 0, 1, 1000, 2),
    };
    const uint64_t num_requests = sizeof(requests) / sizeof(requests[0]);
    uint64_t offsets[] = {512, PST_PLAN_FREE, 1536};
    sink out = {.most = sizeof(out.data) - 1};
    CHECK_OK(pst_plan_file_write(requests, num_requests, offsets, write_text, &out));
    CHECK_STR(out.data, HEADER "mark,3,,,\nmalloc,1,1000,2,512\nuse,1,,3,\nmalloc,2,5,0,1536\n"
                               "free,1,,,\n");
    pst_plan_file *file = NULL;
    CHECK_OK(read_file(out.data, 0, &file));
    CHECK_EQ(pst_plan_file_bytes(file), 2048);
    pst_plan_file_destroy(file);

    /* many that are not planned, in no order */
    const pst_trace_request others[] = {
        request(PST_TRACE_MALLOC, 0, 5, 1, 0), request(PST_TRACE_MALLOC, 0, 4, 1, 0),
        request(PST_TRACE_MALLOC, 0, 3, 1, 0), request(PST_TRACE_FREE, 0, 5, 1, 0),
        request(PST_TRACE_FREE, 0, 3, 1, 0)};
    const uint64_t none[] = {PST_PLAN_FREE, PST_PLAN_FREE, PST_PLAN_FREE};
    sink empty = {.most = sizeof(empty.data) - 1};
    CHECK_OK(pst_plan_file_write(others, 5, none, write_text, &empty));
    CHECK_STR(empty.data, HEADER);

    const size_t whole = out.used;
    for (size_t most = 0; most < whole; most++) {
        out = (sink){.most = most};
        CHECK_STATUS(pst_plan_file_write(requests, num_requests, offsets, write_text, &out),
                     PST_E_INVALID);
        CHECK(strstr(pst_last_message(), "the plan cannot be written: No space left on device"));
    }
    psti_fail_allocation_after(0);
    const pst_status status =
        pst_plan_file_write(requests, num_requests, offsets, write_text, &out);
    psti_fail_allocation_after(-1);
    CHECK_EQ(status, PST_E_NOMEM);
    offsets[2] = PST_PLAN_MAX_BYTES - 4;
    CHECK_STATUS(pst_plan_file_write(requests, num_requests, offsets, write_text, &out),
                 PST_E_INVALID);
    CHECK(strstr(pst_last_message(), "tensor 2: 5 bytes at 4611686018427387900 end above"));
    CHECK_STATUS(pst_plan_file_write(requests, 1, offsets, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_plan_file_write(NULL, 1, offsets, write_text, &out), PST_E_INVALID);
}

PST_TEST(PlanFile, EveryAllocationMayFail)
{
    char data[512] = HEADER;
    for (int id = 1; id <= 17; id++) /* rows and ids grow */
        snprintf(data + strlen(data), sizeof(data) - strlen(data), "malloc,%d,1,0,0\n", id);
    pst_plan_file *file = NULL;
    long successes = 0;
    pst_status status = PST_E_NOMEM;
    while (status == PST_E_NOMEM) {
        CHECK(file == NULL && successes < 100);
        psti_fail_allocation_after(successes++);
        status = read_file(data, 0, &file);
        psti_fail_allocation_after(-1);
    }
    CHECK_OK(status);
    CHECK(successes > 7);
    CHECK_EQ(pst_plan_file_num_tensors(file), 17);
    pst_plan_file_destroy(file);
}
