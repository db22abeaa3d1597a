/* What product_case.h says. */
#include "tests/host/linear/product_case.h"

#include <math.h>
#include <stdio.h>

#include "tests/harness.h"
#include "tests/random.h"

void product_open(product_scene *self, const product_case *what, uint64_t seed)
{
    const uint32_t experts = what->num_experts ? what->num_experts : 1;
    self->what = what;
    self->a =
        matrix_make(what->m, what->k, what->dtype, what->a_transposed, experts, what->gap, &seed);
    self->b = matrix_make(what->k, what->n, what->dtype, what->b_transposed, experts,
                          what->gap ? what->gap + 3 : 0, &seed);
    self->c = matrix_make(what->m, what->n, what->of_d, false, experts, what->gap, &seed);
    self->d = matrix_make(what->m, what->n, what->of_d, false, experts, 2 * what->gap, &seed);
    if (what->c == C_BIAS)
        self->c.at.row_stride = 0;
    self->wide = test_memory(PRODUCT_EXPERTS * sizeof(*self->wide));
    self->narrow = test_memory(PRODUCT_EXPERTS * sizeof(*self->narrow));
    for (int e = 0; e < PRODUCT_EXPERTS; e++) {
        self->wide[e] = what->counts[e];
        self->narrow[e] = (int32_t)what->counts[e];
    }
    self->product = (pst_product)PST_PRODUCT_INIT;
    self->product.m = what->m;
    self->product.n = what->n;
    self->product.k = what->k;
    self->product.a = self->a.at;
    self->product.b = self->b.at;
    self->product.d = self->d.at;
    if (what->c != C_NONE)
        self->product.c = what->c == C_IS_D ? self->d.at : self->c.at;
    self->product.num_experts = what->num_experts;
    self->product.live = what->live;
    self->product.count_type = what->count_type;
    if (what->live)
        self->product.counts =
            what->count_type == PST_COUNT_INT64 ? (void *)self->wide : (void *)self->narrow;
}

void product_close(product_scene *self)
{
    matrix_free(&self->a);
    matrix_free(&self->b);
    matrix_free(&self->c);
    matrix_free(&self->d);
    test_memory_free(self->wide);
    test_memory_free(self->narrow);
}

static uint64_t live_of(const product_case *what, uint32_t expert, pst_live live, uint64_t all)
{
    const int64_t count = what->counts[expert];
    if (what->live != live)
        return all;
    return count < 0 || (uint64_t)count > all ? 0 : (uint64_t)count;
}

static double c_of(const product_scene *self, uint32_t e, uint64_t i, uint64_t j)
{
    if (self->what->c == C_NONE)
        return 0;
    return matrix_get_before(self->what->c == C_IS_D ? &self->d : &self->c, e, i, j);
}

/* The error is that of k + 1 sums in float32 of these magnitudes, and of one rounding of the
 * result. */
static bool element_is_right(const product_scene *self, uint32_t e, uint64_t i, uint64_t j)
{
    const uint64_t k = live_of(self->what, e, PST_LIVE_K, self->what->k);
    const double c = c_of(self, e, i, j), found = matrix_get(&self->d, e, i, j);
    double sum = c, size = fabs(c);
    for (uint64_t q = 0; q < k; q++) {
        const double term = matrix_get(&self->a, e, i, q) * matrix_get(&self->b, e, q, j);
        sum += term;
        size += fabs(term);
    }
    const double bound = (double)(k + 1) * dtype_error(PST_DTYPE_FP32) * size +
                         dtype_error(self->what->of_d) * (fabs(sum) + 1e-6);
    if (fabs(found - sum) <= bound)
        return true;
    printf("expert %u, (%d, %d): %.9g, not %.9g within %.3g\n", e, (int)i, (int)j, found, sum,
           bound);
    return false;
}

/* What is no live element of D is as it was. */
static bool rest_is_left(const product_scene *self)
{
    const test_matrix *d = &self->d;
    const unsigned char *now = d->at.base;
    for (uint64_t at = 0; at < d->bytes; at++) {
        const uint32_t e = d->at.expert_stride ? (uint32_t)(at / d->at.expert_stride) : 0;
        const uint64_t row = (d->at.expert_stride ? at % d->at.expert_stride : at) /
                             (d->at.row_stride ? d->at.row_stride : 1);
        const bool is_live =
            matrix_owns(d, at) && row < live_of(self->what, e, PST_LIVE_M, self->what->m);
        if (!is_live && now[at] != d->before[at]) {
            printf("byte %d of d is written\n", (int)at);
            return false;
        }
    }
    return true;
}

bool product_is_right(const product_scene *self)
{
    const product_case *what = self->what;
    for (uint32_t e = 0; e < self->d.num_experts; e++)
        for (uint64_t i = 0; i < live_of(what, e, PST_LIVE_M, what->m); i++)
            for (uint64_t j = 0; j < what->n; j++)
                if (!element_is_right(self, e, i, j))
                    return false;
    return rest_is_left(self);
}

bool product_case_is_right(pst_device *device, const product_case *what, uint64_t seed)
{
    product_scene self;
    product_open(&self, what, seed);
    pst_status status = pst_product_run(device, &self.product, NULL);
    if (status == PST_OK)
        status = pst_device_synchronize(device);
    if (status != PST_OK)
        printf("%s: %s\n", pst_status_name(status), pst_last_message());
    const bool is_right = status == PST_OK && product_is_right(&self);
    if (!is_right)
        printf(
            "m %d n %d k %d, dtypes %d %d, transposed %d %d, c %d, gap %u, experts %u, live %d\n",
            (int)what->m, (int)what->n, (int)what->k, what->dtype, what->of_d, what->a_transposed,
            what->b_transposed, what->c, what->gap, what->num_experts, what->live);
    product_close(&self);
    return is_right;
}

/* ---- every form ---- */

static uint64_t draw_size(uint64_t *seed, uint64_t block)
{
    switch (random_below(seed, 5)) {
    case 0:
        return random_below(seed, 3);
    case 1:
        return block - 1 + random_below(seed, 3);
    default:
        return 1 + random_below(seed, 48);
    }
}

product_case product_draw(uint64_t *seed)
{
    product_case what = {.m = draw_size(seed, 64), .n = draw_size(seed, 128)};
    what.k = draw_size(seed, 64);
    what.dtype = (pst_dtype)random_below(seed, 3);
    what.of_d = random_below(seed, 3) ? what.dtype : PST_DTYPE_FP32;
    what.a_transposed = random_below(seed, 2) != 0;
    what.b_transposed = random_below(seed, 2) != 0;
    what.c = (c_form)random_below(seed, C_FORMS);
    what.gap = (uint32_t)random_below(seed, 3);
    what.num_experts = (uint32_t)random_below(seed, PRODUCT_EXPERTS + 1);
    what.live = (pst_live)random_below(seed, 3);
    what.count_type = (pst_count_type)random_below(seed, 2);
    for (int e = 0; e < PRODUCT_EXPERTS; e++)
        what.counts[e] = (int64_t)random_below(seed, 60) - 3;
    return what;
}
