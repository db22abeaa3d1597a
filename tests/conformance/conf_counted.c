/* Products that the device counts: the kernel of a GPU gives the bits of the plain loops on the CPU. Elements
 * have few digits, so that no product is rounded, whether it is fused with its sum or not. */
#include "tests/conformance/conf.h"

#include "host/linear/linear.h"
#include "kernels/core/product.h"
#include "tests/host/linear/product_case.h"

/* What lies in the device's memory: the same bytes. */
static void *on_device(const conf_run *conf, const void *from, uint64_t bytes)
{
    void *to = NULL;
    if (pst_device_alloc(conf->device, bytes, &to) != PST_OK ||
        pst_device_copy(conf->device, to, from, bytes, NULL) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return to;
}

static pst_product place(const conf_run *conf, const product_scene *self)
{
    pst_product product = self->product;
    const bool is_in_place = product.c.base == product.d.base;
    product.a.base = on_device(conf, self->a.at.base, self->a.bytes);
    product.b.base = on_device(conf, self->b.at.base, self->b.bytes);
    product.d.base = on_device(conf, self->d.at.base, self->d.bytes);
    if (is_in_place)
        product.c.base = product.d.base;
    else if (product.c.base)
        product.c.base = on_device(conf, self->c.at.base, self->c.bytes);
    if (product.counts)
        product.counts =
            on_device(conf, product.counts, PRODUCT_EXPERTS * (product.count_type ? 8 : 4));
    return product;
}

static void take_away(const conf_run *conf, const pst_product *product)
{
    void *const all[] = {product->a.base, product->b.base, product->d.base,
                         product->c.base == product->d.base ? NULL : product->c.base,
                         (void *)(uintptr_t)product->counts};
    for (int i = 0; i < 5; i++)
        if (all[i])
            CHECK_OK(pst_device_free(conf->device, all[i]));
}

static void check_case(const conf_run *conf, pst_device *host, const product_case *what,
                       uint64_t seed)
{
    product_scene self;
    product_open(&self, what, seed);
    if (self.product.num_experts == 0)
        self.product.num_experts = 1;
    const pst_product there = place(conf, &self);
    CHECK_OK(pst_device_synchronize(conf->device)); /* the copies, before D changes here */
    CHECK_OK(psti_product_enqueue_counted(conf->device, &there, NULL));
    CHECK_OK(psti_product_enqueue_counted(host, &self.product, NULL));
    CHECK(product_is_right(&self));
    CHECK_OK(pst_device_copy(conf->device, self.d.before, there.d.base, self.d.bytes, NULL));
    CHECK_OK(pst_device_synchronize(conf->device));
    CHECK(memcmp(self.d.before, self.d.at.base, self.d.bytes) == 0);
    take_away(conf, &there);
    product_close(&self);
}

CONFORMANCE(Counted, BitsAreThoseOfTheCpu)
{
    pst_device *host = NULL;
    const uint32_t cases = conf_cases(conf, 200);
    CHECK_OK(pst_device_open("host", 0, &host));
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++) {
        uint64_t seed = conf_seed(i);
        conf_vary(conf, seed);
        product_case what = product_draw(&seed);
        what.m = what.m ? what.m : 1;
        what.n = what.n ? what.n : 1;
        check_case(conf, host, &what, i);
    }
    CHECK_OK(pst_device_close(host));
}

CONFORMANCE(Counted, EachDtypeWithAndWithoutC)
{
    pst_device *host = NULL;
    CHECK_OK(pst_device_open("host", 0, &host));
    for (uint32_t i = 0; i < 6 * C_FORMS && !psti_test_failed(); i++) {
        const pst_dtype dtype = (pst_dtype)(i % 3);
        const product_case what = {.m = 5,
                                   .n = 3,
                                   .k = 2,
                                   .dtype = dtype,
                                   .of_d = i / 3 % 2 ? PST_DTYPE_FP32 : dtype,
                                   .c = (c_form)(i / 6)};
        check_case(conf, host, &what, i);
    }
    CHECK_OK(pst_device_close(host));
}

/* Sums that lie halfway between two elements, of which every other one is the even one, in all places that a thread
 * has. ulp: of an element from 1 on. */
static void check_ties(const conf_run *conf, pst_dtype dtype, float ulp)
{
    enum { ROWS = 8, COLUMNS = 4 };
    const product_case what = {.m = ROWS, .n = COLUMNS, .k = 2, .dtype = dtype, .of_d = dtype};
    product_scene self;
    product_open(&self, &what, 1);
    self.product.num_experts = 1;
    unsigned char *a = self.a.at.base, *b = self.b.at.base;
    for (uint32_t i = 0; i < ROWS; i++) {
        psti_product_put(a + i * self.a.at.row_stride, dtype, 1 + (float)i * ulp);
        psti_product_put(a + i * self.a.at.row_stride + 2, dtype, ulp / 2);
    }
    for (uint32_t i = 0; i < 2 * COLUMNS; i++)
        psti_product_put(b + i / COLUMNS * self.b.at.row_stride + i % COLUMNS * 2, dtype, 1);
    const pst_product there = place(conf, &self);
    CHECK_OK(psti_product_enqueue_counted(conf->device, &there, NULL));
    CHECK_OK(pst_device_copy(conf->device, self.d.at.base, there.d.base, self.d.bytes, NULL));
    CHECK_OK(pst_device_synchronize(conf->device));
    for (uint32_t i = 0; i < ROWS; i++)
        for (uint32_t j = 0; j < COLUMNS; j++)
            CHECK(matrix_get(&self.d, 0, i, j) == 1 + (double)(i + i % 2) * (double)ulp);
    take_away(conf, &there);
    product_close(&self);
}

CONFORMANCE(Counted, TiesAreRoundedToEven)
{
    check_ties(conf, PST_DTYPE_FP16, 0x1p-10f);
    check_ties(conf, PST_DTYPE_BF16, 0x1p-7f);
}

/* More than a tile of rows, columns and terms, and experts with nothing. */
CONFORMANCE(Counted, ManyTiles)
{
    const product_case rows = {.m = 70,
                               .n = 66,
                               .k = 18,
                               .dtype = PST_DTYPE_BF16,
                               .of_d = PST_DTYPE_BF16,
                               .b_transposed = true,
                               .num_experts = 4,
                               .live = PST_LIVE_M,
                               .counts = {65, 0, 70, -1}};
    const product_case terms = {.m = 66,
                                .n = 20,
                                .k = 40,
                                .dtype = PST_DTYPE_FP16,
                                .of_d = PST_DTYPE_FP32,
                                .a_transposed = true,
                                .c = C_IS_D,
                                .num_experts = 4,
                                .live = PST_LIVE_K,
                                .count_type = PST_COUNT_INT64,
                                .counts = {33, 0, 41, 16}};
    pst_device *host = NULL;
    CHECK_OK(pst_device_open("host", 0, &host));
    check_case(conf, host, &rows, 1);
    check_case(conf, host, &terms, 2);
    CHECK_OK(pst_device_close(host));
}
