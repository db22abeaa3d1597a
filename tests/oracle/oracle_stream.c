/* The oracle's byte stream, and its random numbers. */
#include "tests/oracle/oracle.h"

#include <stdlib.h>

enum { TILE = 16384, SEGMENT_STEP = 16 };

__extension__ typedef unsigned __int128 wide;

void *oracle_calloc(uint64_t count, size_t size)
{
    void *memory = calloc(count ? (size_t)count : 1, size);
    if (!memory)
        abort();
    return memory;
}

uint32_t oracle_num_segments(const pst_row_space *space)
{
    return space->kind == PST_ROWS_SEGMENTS ? space->num_segments : 1;
}

uint32_t oracle_first_count(const oracle_group *group, uint32_t space)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < space; i++)
        first += oracle_num_segments(&group->spaces[i]);
    return first;
}

uint32_t oracle_num_counts(const oracle_group *group)
{
    return oracle_first_count(group, group->num_spaces);
}

uint64_t oracle_rows(const pst_tensor *tensor, uint64_t rows)
{
    if (tensor->den == 0)
        return rows;
    const wide product = (wide)rows * tensor->num;
    uint64_t result = (uint64_t)(product / tensor->den);
    while ((wide)result * tensor->den < product)
        result++;
    return result;
}

uint64_t oracle_segment_bytes(const oracle_group *group, uint32_t t)
{
    const pst_tensor *tensor = &group->tensors[t];
    return oracle_rows(tensor, (uint64_t)group->spaces[tensor->space].capacity) * tensor->row_bytes;
}

uint64_t oracle_stride(const oracle_group *group, uint32_t t)
{
    const uint64_t given = group->tensors[t].segment_stride;
    return given ? given : oracle_segment_bytes(group, t);
}

static uint64_t next_multiple(uint64_t value, uint64_t step)
{
    return value % step == 0 ? value : value - value % step + step;
}

void oracle_measure(const oracle_group *group, const int64_t *counts, uint64_t page_bytes,
                    pst_group_usage *usage_out)
{
    uint64_t payload = 0;
    uint64_t position = 0;
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        const pst_tensor *tensor = &group->tensors[t];
        const pst_row_space *space = &group->spaces[tensor->space];
        position = next_multiple(position, TILE);
        for (uint32_t s = 0; s < oracle_num_segments(space); s++) {
            const int64_t rows =
                counts ? counts[oracle_first_count(group, tensor->space) + s] : space->capacity;
            const uint64_t bytes = oracle_rows(tensor, (uint64_t)rows) * tensor->row_bytes;
            payload += bytes;
            position = next_multiple(position, SEGMENT_STEP) + bytes;
        }
    }
    position = next_multiple(position, TILE);
    usage_out->payload_bytes = payload;
    usage_out->stream_bytes = position;
    usage_out->pages = next_multiple(position, page_bytes) / page_bytes;
}

uint64_t oracle_each_byte(const oracle_group *group, const int64_t *counts, oracle_visit visit,
                          void *context)
{
    uint64_t position = 0;
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        const pst_tensor *tensor = &group->tensors[t];
        const uint32_t first = oracle_first_count(group, tensor->space);
        const uint64_t base = (uint64_t)((uintptr_t)tensor->base - (uintptr_t)group->origin);
        while (position % TILE != 0)
            position++;
        for (uint32_t s = 0; s < oracle_num_segments(&group->spaces[tensor->space]); s++) {
            const uint64_t rows = oracle_rows(tensor, (uint64_t)counts[first + s]);
            const uint64_t start = base + s * oracle_stride(group, t);
            while (position % SEGMENT_STEP != 0)
                position++;
            for (uint64_t byte = 0; byte < rows * tensor->row_bytes; byte++)
                visit(context, start + byte, position++);
        }
    }
    return position;
}

/* ---- random numbers: xorshift64* ---- */

oracle_random oracle_random_seeded(uint64_t seed)
{
    oracle_random random = {.state = seed * 6364136223846793005u + 1442695040888963407u};
    for (int i = 0; i < 8; i++) /* near seeds shall not make near numbers */
        oracle_random_bits(&random);
    return random;
}

uint64_t oracle_random_bits(oracle_random *random)
{
    uint64_t x = random->state ? random->state : 88172645463325252u;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    random->state = x;
    return x * 2685821657736338717u;
}

uint64_t oracle_random_below(oracle_random *random, uint64_t bound)
{
    const uint64_t bits = oracle_random_bits(random) >> 11;
    return bound ? bits % bound : 0;
}

uint64_t oracle_random_in(oracle_random *random, uint64_t low, uint64_t high)
{
    return low + oracle_random_below(random, high - low + 1);
}

bool oracle_random_one_in(oracle_random *random, uint64_t n)
{
    return oracle_random_below(random, n) == 0;
}
