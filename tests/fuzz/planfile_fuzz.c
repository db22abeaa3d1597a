/* The reader of plan files over arbitrary bytes, all at once and in pieces, which must say the same;
 * and an arena that replays what it made of them, right or wrong as a plan: no two live blocks may
 * overlap. The memory is never touched, so that any address will do. */
#include <pagestash/pagestash.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/fuzz/pieces.h"

enum { MAX_ROWS = 300 };

#define BASE ((unsigned char *)((uintptr_t)1 << 40))

static pst_plan_file *read_all(const uint8_t *data, size_t size, size_t piece, char message[1024])
{
    byte_source source = {.data = (const char *)data, .left = size, .piece = piece};
    pst_plan_file *file = NULL;
    const pst_status status = pst_plan_file_read("fuzz", read_bytes, &source, &file);
    require((status == PST_OK) == (file != NULL));
    message[0] = '\0';
    if (status != PST_OK) {
        require(status == PST_E_INVALID && strncmp(pst_last_message(), "fuzz:", 5) == 0);
        require(strchr(pst_last_message(), '\n') == NULL);
        snprintf(message, 1024, "%s", pst_last_message());
    }
    return file;
}

static void check_rows(const pst_plan_file *file)
{
    uint64_t num_tensors = 0;
    for (uint64_t i = 0; i < pst_plan_file_num_rows(file); i++) {
        const pst_plan_row *row = &pst_plan_file_rows(file)[i];
        require(row->line == i + 2 && row->op <= PST_PLAN_OP_USE);
        if (row->op != PST_PLAN_OP_MALLOC)
            continue;
        num_tensors++;
        require(row->bytes > 0 && row->offset + row->bytes <= pst_plan_file_bytes(file));
    }
    require(num_tensors == pst_plan_file_num_tensors(file));
}

static pst_status far_alloc(void *user, size_t bytes, void **address_out)
{
    uint64_t *next = user;
    *address_out = BASE + *next;
    *next += bytes;
    return PST_OK;
}

static pst_status far_free(void *user, void *address)
{
    (void)user;
    (void)address;
    return PST_OK;
}

typedef struct live {
    unsigned char *address; /* NULL: freed */
    uint64_t id, bytes;
} live;

static void ask(pst_arena *arena, const pst_plan_row *row, live *blocks, size_t *num_blocks)
{
    void *address = NULL;
    pst_stream stream = (pst_stream)(uintptr_t)(row->stream + 1u);
    if (row->bytes > UINT64_C(1) << 40)
        return;
    require(pst_arena_malloc(arena, row->bytes, &address, stream) == PST_OK);
    unsigned char *at = address;
    for (size_t i = 0; i < *num_blocks; i++)
        require(!blocks[i].address || at + row->bytes <= blocks[i].address ||
                blocks[i].address + blocks[i].bytes <= at);
    blocks[(*num_blocks)++] = (live){at, row->id, row->bytes};
}

static void drop(pst_arena *arena, live *block)
{
    if (!block->address)
        return;
    require(pst_arena_free(arena, block->address, NULL) == PST_OK);
    require(pst_arena_free(arena, block->address, NULL) == PST_E_INVALID);
    block->address = NULL;
}

/* Twice the requests of the plan, some of them left out. */
static void replay(const pst_plan_file *file, unsigned seed)
{
    static live blocks[2 * MAX_ROWS];
    size_t num_blocks = 0;
    uint64_t next = UINT64_C(1) << 62;
    pst_arena *arena = NULL;
    pst_arena_config config = PST_ARENA_CONFIG_INIT;
    config.mode = PST_ARENA_MEMORY;
    config.memory = BASE;
    config.memory_bytes = UINT64_MAX;
    config.align = 16;
    config.lookahead = 1 + seed % 8;
    config.fallback_alloc = far_alloc;
    config.fallback_free = far_free;
    config.user = &next;
    const uint64_t num_rows = pst_plan_file_num_rows(file);
    if (num_rows > MAX_ROWS || pst_arena_create(NULL, file, &config, &arena) != PST_OK)
        return;
    for (uint64_t i = 0; i < 2 * num_rows; i++) {
        const pst_plan_row *row = &pst_plan_file_rows(file)[i % num_rows];
        seed = seed * 1103515245u + 12345u;
        if (seed >> 16 & 7 && row->op == PST_PLAN_OP_MALLOC)
            ask(arena, row, blocks, &num_blocks);
        for (size_t k = 0; k < num_blocks && row->op == PST_PLAN_OP_FREE; k++)
            if (blocks[k].id == row->id)
                drop(arena, &blocks[k]);
        if (row->op == PST_PLAN_OP_MARK)
            require(pst_arena_iteration(arena) == PST_OK);
    }
    for (size_t k = 0; k < num_blocks; k++)
        drop(arena, &blocks[k]);
    require(pst_arena_destroy(arena) == PST_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char whole_said[1024];
    char pieces_said[1024];
    if (size == 0)
        data = (const uint8_t *)"";
    pst_plan_file *whole = read_all(data, size, 0, whole_said);
    pst_plan_file *pieces = read_all(data, size, 1 + size % MAX_PIECE, pieces_said);
    require((whole == NULL) == (pieces == NULL) && strcmp(whole_said, pieces_said) == 0);
    if (whole) {
        const uint64_t num_rows = pst_plan_file_num_rows(whole);
        check_rows(whole);
        require(num_rows == pst_plan_file_num_rows(pieces));
        require(num_rows == 0 || memcmp(pst_plan_file_rows(whole), pst_plan_file_rows(pieces),
                                        num_rows * sizeof(pst_plan_row)) == 0);
        replay(whole, (unsigned)size);
    }
    pst_plan_file_destroy(whole);
    pst_plan_file_destroy(pieces);
    return 0;
}
