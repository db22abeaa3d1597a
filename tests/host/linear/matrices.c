/* What matrices.h says. */
#include "tests/host/linear/matrices.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/core/float.h"
#include "tests/random.h"

static pst_device *device_of_memory;

void test_memory_of(pst_device *device)
{
    device_of_memory = device;
}

void *test_memory(uint64_t bytes)
{
    void *memory = NULL;
    const uint64_t rounded = (bytes + 256) & ~UINT64_C(255); /* never none */
    if (!device_of_memory)
        memory = aligned_alloc(256, rounded);
    else if (pst_device_alloc_pinned(device_of_memory, rounded, &memory) != PST_OK)
        memory = NULL;
    if (!memory)
        abort();
    return memory;
}

void test_memory_free(void *memory)
{
    if (!device_of_memory)
        free(memory);
    else if (pst_device_free_pinned(device_of_memory, memory) != PST_OK)
        abort();
}

uint64_t dtype_bytes(pst_dtype dtype)
{
    return dtype == PST_DTYPE_FP32 ? 4 : 2;
}

double dtype_error(pst_dtype dtype)
{
    static const double errors[] = {1.0 / (1 << 9), 1.0 / (1 << 12), 1.0 / (1 << 25)};
    return 2 * errors[dtype];
}

double element_get(const void *base, uint64_t index, pst_dtype dtype)
{
    const unsigned char *at = (const unsigned char *)base + index * dtype_bytes(dtype);
    float value = 0;
    uint16_t bits = 0;
    memcpy(dtype == PST_DTYPE_FP32 ? (void *)&value : (void *)&bits, at, dtype_bytes(dtype));
    if (dtype == PST_DTYPE_BF16)
        value = psti_bf16_to_float(bits);
    if (dtype == PST_DTYPE_FP16)
        value = psti_half_to_float(bits);
    return value;
}

void element_set(void *base, uint64_t index, pst_dtype dtype, float value)
{
    unsigned char *at = (unsigned char *)base + index * dtype_bytes(dtype);
    const uint16_t bits =
        dtype == PST_DTYPE_BF16 ? psti_float_to_bf16(value) : psti_float_to_half(value);
    memcpy(at, dtype == PST_DTYPE_FP32 ? (const void *)&value : (const void *)&bits,
           dtype_bytes(dtype));
}

void elements_draw(void *base, uint64_t count, pst_dtype dtype, uint64_t *seed)
{
    for (uint64_t i = 0; i < count; i++)
        element_set(base, i, dtype, (float)((double)random_below(seed, 2048) / 1024 - 1));
}

test_matrix matrix_make(uint64_t rows, uint64_t columns, pst_dtype dtype, bool is_transposed,
                        uint32_t num_experts, uint32_t gap, uint64_t *seed)
{
    const uint64_t size = dtype_bytes(dtype);
    const uint64_t stored = is_transposed ? columns : rows;
    const uint64_t stride = ((is_transposed ? rows : columns) + gap) * size;
    test_matrix made = {.rows = rows, .columns = columns, .num_experts = num_experts};
    made.at.row_stride = stride;
    made.at.expert_stride = num_experts > 1 ? (stored + gap) * stride : 0;
    made.at.dtype = dtype;
    made.at.is_transposed = is_transposed;
    made.bytes = (stored + gap) * stride * num_experts + size; /* never none */
    made.memory = test_memory(gap * size + made.bytes);
    made.at.base = (char *)made.memory + gap * size;
    made.before = test_memory(made.bytes);
    elements_draw(made.at.base, made.bytes / size, dtype, seed);
    matrix_keep(&made);
    return made;
}

void matrix_free(test_matrix *matrix)
{
    test_memory_free(matrix->memory);
    test_memory_free(matrix->before);
}

void matrix_keep(test_matrix *matrix)
{
    memcpy(matrix->before, matrix->at.base, matrix->bytes);
}

static double get(const test_matrix *matrix, const unsigned char *base, uint32_t expert,
                  uint64_t row, uint64_t column)
{
    const pst_matrix *at = &matrix->at;
    const uint64_t i = at->is_transposed ? column : row, j = at->is_transposed ? row : column;
    return element_get(base + expert * at->expert_stride + i * at->row_stride, j, at->dtype);
}

double matrix_get(const test_matrix *matrix, uint32_t expert, uint64_t row, uint64_t column)
{
    return get(matrix, matrix->at.base, expert, row, column);
}

double matrix_get_before(const test_matrix *matrix, uint32_t expert, uint64_t row, uint64_t column)
{
    return get(matrix, matrix->before, expert, row, column);
}

bool matrix_owns(const test_matrix *matrix, uint64_t offset)
{
    const pst_matrix *at = &matrix->at;
    const uint64_t stored = at->is_transposed ? matrix->columns : matrix->rows;
    const uint64_t width =
        (at->is_transposed ? matrix->rows : matrix->columns) * dtype_bytes(at->dtype);
    const uint64_t expert = at->expert_stride ? offset / at->expert_stride : 0;
    const uint64_t inside = at->expert_stride ? offset % at->expert_stride : offset;
    return expert < matrix->num_experts && at->row_stride && inside / at->row_stride < stored &&
           inside % at->row_stride < width;
}
