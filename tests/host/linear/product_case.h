/* Products of tests: one of any form, with random elements, against sums in double. */
#ifndef PAGESTASH_TESTS_PRODUCT_CASE_H
#define PAGESTASH_TESTS_PRODUCT_CASE_H

#include <pagestash/product.h>

#include "tests/host/linear/matrices.h"

enum { PRODUCT_EXPERTS = 4 };

typedef enum c_form { C_NONE, C_APART, C_IS_D, C_BIAS, C_FORMS } c_form;

typedef struct product_case {
    uint64_t m, n, k;
    pst_dtype dtype, of_d;
    bool a_transposed, b_transposed;
    c_form c;
    uint32_t gap, num_experts;
    pst_live live;
    pst_count_type count_type;
    int64_t counts[PRODUCT_EXPERTS];
} product_case;

typedef struct product_scene {
    const product_case *what;
    test_matrix a, b, c, d;
    int64_t *wide; /* the counts, on the device */
    int32_t *narrow;
    pst_product product;
} product_scene;

PST_BEGIN_DECLS

void product_open(product_scene *self, const product_case *what, uint64_t seed);
void product_close(product_scene *self);
/* Whether D's live elements are those of sums in double, within what rounding allows, and the rest of
 * it is as it was. */
bool product_is_right(const product_scene *self);
/* Runs one and says what is wrong with it. */
bool product_case_is_right(pst_device *device, const product_case *what, uint64_t seed);
product_case product_draw(uint64_t *seed);

PST_END_DECLS

#endif
