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

uint32_t oracle_num_inputs(const pst_row_space *space)
{
    return space->kind == PST_ROWS_PREFIX ? 1 : space->num_segments;
}

uint32_t oracle_first_count(const oracle_group *group, uint32_t space)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < space; i++)
        first += oracle_num_segments(&group->spaces[i]);
    return first;
}

uint32_t oracle_first_input(const oracle_group *group, uint32_t space)
{
    uint32_t first = 0;
    for (uint32_t i = 0; i < space; i++)
        first += oracle_num_inputs(&group->spaces[i]);
    return first;
}

uint32_t oracle_num_counts(const oracle_group *group)
{
    return oracle_first_count(group, group->num_spaces);
}

uint32_t oracle_all_inputs(const oracle_group *group)
{
    return oracle_first_input(group, group->num_spaces);
}

/* One number after the other; a number below 0 is told before a sum that is too large. */
static bool add_up(const int64_t *inputs, uint32_t count, int64_t capacity, int64_t *result)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        if (inputs[i] < 0) {
            *result = inputs[i];
            return false;
        }
    for (uint32_t i = 0; i < count && sum <= (uint64_t)capacity; i++)
        sum += (uint64_t)inputs[i];
    *result = (int64_t)sum;
    return sum <= (uint64_t)capacity;
}

bool oracle_read_counts(const oracle_group *group, const int64_t *inputs, int64_t *counts,
                        int64_t *misfit)
{
    for (uint32_t i = 0; i < group->num_spaces; i++) {
        const pst_row_space *space = &group->spaces[i];
        const uint32_t summed = space->kind == PST_ROWS_SUM ? space->num_segments : 1;
        for (uint32_t s = 0; s < oracle_num_segments(space); s++, inputs += summed, counts++) {
            if (!add_up(inputs, summed, oracle_capacity(group, i), counts)) {
                *misfit = *counts;
                return false;
            }
        }
    }
    return true;
}

uint64_t oracle_rows(const pst_tensor *tensor, uint64_t rows)
{
    if (tensor->den == 0)
        return rows;
    const wide product = (wide)rows * tensor->num;
    uint64_t result = (uint64_t)(product / tensor->den);
    while (tensor->rounding == PST_ROUND_UP && (wide)result * tensor->den < product)
        result++;
    return result;
}

int64_t oracle_capacity(const oracle_group *group, uint32_t space)
{
    return group->capacities[space] ? group->capacities[space] : group->spaces[space].capacity;
}

static uint64_t rows_at_capacity(const oracle_group *group, uint32_t t)
{
    const pst_tensor *tensor = &group->tensors[t];
    return oracle_rows(tensor, (uint64_t)oracle_capacity(group, tensor->space));
}

uint64_t oracle_segment_bytes(const oracle_group *group, uint32_t t)
{
    return rows_at_capacity(group, t) * group->tensors[t].row_bytes;
}

uint64_t oracle_row_stride(const oracle_group *group, uint32_t t)
{
    const pst_tensor *tensor = &group->tensors[t];
    if (group->row_strides[t])
        return group->row_strides[t];
    return tensor->row_stride ? tensor->row_stride : tensor->row_bytes;
}

uint64_t oracle_stride(const oracle_group *group, uint32_t t)
{
    if (group->segment_strides[t])
        return group->segment_strides[t];
    if (group->tensors[t].segment_stride)
        return group->tensors[t].segment_stride;
    return rows_at_capacity(group, t) * oracle_row_stride(group, t);
}

uint64_t oracle_byte_at(const oracle_group *group, uint32_t t, uint32_t segment, uint64_t byte)
{
    const uint64_t row_bytes = group->tensors[t].row_bytes;
    if (group->at[t] == ORACLE_NOWHERE)
        return ORACLE_NOWHERE;
    return group->at[t] + segment * oracle_stride(group, t) +
           byte / row_bytes * oracle_row_stride(group, t) + byte % row_bytes;
}

/* As cross products: 2/64 is 1/32, and 0/0 is 1/1. */
static bool same_ratio(const pst_tensor *a, const pst_tensor *b)
{
    const uint64_t a_num = a->den ? a->num : 1, a_den = a->den ? a->den : 1;
    const uint64_t b_num = b->den ? b->num : 1, b_den = b->den ? b->den : 1;
    return a_num * b_den == b_num * a_den && (a_num == a_den || a->rounding == b->rounding);
}

bool oracle_same_form(const oracle_group *a, const oracle_group *b)
{
    bool same = a->num_spaces == b->num_spaces && a->num_tensors == b->num_tensors;
    for (uint32_t i = 0; same && i < a->num_spaces; i++)
        same = oracle_num_segments(&a->spaces[i]) == oracle_num_segments(&b->spaces[i]);
    for (uint32_t t = 0; same && t < a->num_tensors; t++)
        same = a->tensors[t].row_bytes == b->tensors[t].row_bytes &&
               a->tensors[t].space == b->tensors[t].space &&
               same_ratio(&a->tensors[t], &b->tensors[t]);
    return same;
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
        position = next_multiple(position, TILE);
        for (uint32_t s = 0; s < oracle_num_segments(&group->spaces[tensor->space]); s++) {
            const uint64_t rows = oracle_rows(tensor, (uint64_t)counts[first + s]);
            const uint64_t start = oracle_byte_at(group, t, s, 0);
            const uint64_t stride = oracle_row_stride(group, t);
            const bool is_there = start != ORACLE_NOWHERE;
            position = next_multiple(position, SEGMENT_STEP);
            for (uint64_t row = 0; row < rows; row++)
                for (uint64_t byte = 0; byte < tensor->row_bytes; byte++)
                    visit(context, t, is_there ? start + row * stride + byte : ORACLE_NOWHERE,
                          position++);
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
