/* The reader of routing traces over arbitrary bytes, given in two ways: all at once, and in pieces
 * whose size depends on the input. Both must say the same. */
#include "tools/common/routing.c"

#include "tests/fuzz/pieces.h"

/* What the reader said, in a form that can be compared. */
typedef struct summary {
    pst_status status;
    uint64_t rows, hash;
    char message[512];
} summary;

static summary read_all(const uint8_t *data, size_t size, size_t piece)
{
    byte_source source = {.data = (const char *)data, .left = size, .piece = piece};
    summary out = {.status = PST_E_INVALID};
    routing_row row = {.line = 0};
    routing_reader *reader = routing_open("fuzz", read_bytes, &source);
    require(reader != NULL);
    while ((out.status = routing_next(reader, &row)) == PST_OK) {
        out.rows++;
        require(row.line == out.rows + 1);
        require(row.num_experts > 0 && row.step <= ROUTING_STEP_MAX);
        out.hash = fold(fold(out.hash, row.step), row.layer);
        for (uint32_t e = 0; e < row.num_experts; e++) {
            require(row.counts[e] <= ROUTING_COUNT_MAX);
            out.hash = fold(out.hash, row.counts[e]);
        }
    }
    if (out.status != PST_E_AGAIN)
        snprintf(out.message, sizeof(out.message), "%s", pst_last_message());
    require(out.status == PST_E_AGAIN ? out.rows > 0 : strncmp(out.message, "fuzz:", 5) == 0);
    require(strchr(out.message, '\n') == NULL);
    routing_close(reader);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        data = (const uint8_t *)"";
    const summary whole = read_all(data, size, 0);
    const summary pieces = read_all(data, size, 1 + size % MAX_PIECE);
    require(whole.status == pieces.status && whole.rows == pieces.rows);
    require(whole.hash == pieces.hash && strcmp(whole.message, pieces.message) == 0);
    return 0;
}
