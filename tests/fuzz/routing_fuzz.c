/* The reader of routing traces over arbitrary bytes, given in two ways: all at once, and in pieces
 * whose size depends on the input. Both must say the same. */
#include "tools/common/routing.c"

#include "tests/fuzz/pieces.h"

/* What the reader said, in a form that can be compared. */
typedef struct summary {
    routing_result result;
    uint64_t rows, hash;
    char message[512];
} summary;

static summary read_all(const uint8_t *data, size_t size, size_t piece)
{
    memory source = {.data = data, .left = size, .piece = piece};
    summary out = {.result = ROUTING_BAD};
    routing_row row = {.line = 0};
    routing_reader *reader = routing_open("fuzz", read_memory, &source);
    require(reader != NULL);
    while ((out.result = routing_next(reader, &row)) == ROUTING_ROW) {
        out.rows++;
        require(row.line == out.rows + 1);
        require(row.num_experts > 0 && row.step <= ROUTING_STEP_MAX);
        out.hash = fold(fold(out.hash, row.step), row.layer);
        for (uint32_t e = 0; e < row.num_experts; e++) {
            require(row.counts[e] <= ROUTING_COUNT_MAX);
            out.hash = fold(out.hash, row.counts[e]);
        }
    }
    snprintf(out.message, sizeof(out.message), "%s", routing_message(reader));
    require(out.result == ROUTING_END ? out.rows > 0 && out.message[0] == '\0'
                                      : strncmp(out.message, "fuzz:", 5) == 0);
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
    require(whole.result == pieces.result && whole.rows == pieces.rows);
    require(whole.hash == pieces.hash && strcmp(whole.message, pieces.message) == 0);
    return 0;
}
