/* Matrices of tests: random elements in memory with gaps, and products of them in double. */
#ifndef PAGESTASH_TESTS_MATRICES_H
#define PAGESTASH_TESTS_MATRICES_H

#include <pagestash/product.h>

typedef struct test_matrix {
    pst_matrix at;
    uint64_t rows, columns; /* as the product has them */
    uint32_t num_experts;
    uint64_t bytes;
    void *memory;          /* in which it begins `gap` elements behind the start */
    unsigned char *before; /* a copy of all bytes, made by matrix_keep */
} test_matrix;

PST_BEGIN_DECLS

/* Where tests have what products read and write: malloc's, or memory that a GPU reaches, too, which
 * is that of a device until it is NULL again. Aligned to 256. */
void test_memory_of(pst_device *device);
void *test_memory(uint64_t bytes);
void test_memory_free(void *memory);

/* gap: elements between rows and in front of the first, and rows between experts. What lies between is filled, too. */
test_matrix matrix_make(uint64_t rows, uint64_t columns, pst_dtype dtype, bool is_transposed,
                        uint32_t num_experts, uint32_t gap, uint64_t *seed);
void matrix_free(test_matrix *matrix);
void matrix_keep(test_matrix *matrix);

double matrix_get(const test_matrix *matrix, uint32_t expert, uint64_t row, uint64_t column);
/* As it was when it was kept. */
double matrix_get_before(const test_matrix *matrix, uint32_t expert, uint64_t row, uint64_t column);
/* Whether the byte at this offset belongs to an element. */
bool matrix_owns(const test_matrix *matrix, uint64_t offset);

uint64_t dtype_bytes(pst_dtype dtype);
double element_get(const void *base, uint64_t index, pst_dtype dtype);
void element_set(void *base, uint64_t index, pst_dtype dtype, float value);
/* Between -1 and 1, of few digits. */
void elements_draw(void *base, uint64_t count, pst_dtype dtype, uint64_t *seed);
/* Half of the distance between neighbours of that type around 1. */
double dtype_error(pst_dtype dtype);

PST_END_DECLS

#endif
