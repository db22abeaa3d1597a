/* Products on host, by the system's CBLAS and by plain C, against sums in double. PAGESTASH_BLAS is
 * read once in a process, so each library is tried in a child. */
#include <pagestash/pagestash.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/base/base.h"
#include "tests/harness.h"
#include "tests/host/base/child.h"
#include "tests/host/linear/product_case.h"
#include "tests/random.h"

/* ---- every form, in a child for each library ---- */

PST_CHILD(product_cases)
{
    pst_device *device = NULL;
    uint64_t seed = 11;
    bool is_right = pst_device_open("host", 0, &device) == PST_OK;
    for (uint64_t i = 0; is_right && i < 300; i += psti_test_step(60)) {
        const product_case what = product_draw(&seed);
        is_right = product_case_is_right(device, &what, i);
    }
    /* more than one block of every kind; under ThreadSanitizer the smallest */
    const product_case large[] = {
        {.m = 33,
         .n = 260,
         .k = 131,
         .dtype = PST_DTYPE_FP32,
         .of_d = PST_DTYPE_FP32,
         .b_transposed = true,
         .c = C_BIAS},
        {.m = 130,
         .n = 129,
         .k = 257,
         .dtype = PST_DTYPE_FP16,
         .of_d = PST_DTYPE_FP16,
         .a_transposed = true,
         .c = C_APART},
        {.m = 67, .n = 259, .k = 515, .dtype = PST_DTYPE_BF16, .of_d = PST_DTYPE_FP32, .c = C_IS_D},
    };
    for (uint32_t i = 0; i < 3; i += psti_test_step(3))
        is_right = is_right && product_case_is_right(device, &large[i], 5);
    puts(is_right && pst_device_close(device) == PST_OK ? "right" : pst_last_message());
}

static void check_child(const char *name, const char *library, const char *out, const char *err)
{
    const char *const variables[] = {library, "PAGESTASH_LOG=info", NULL};
    child_result child;
    CHECK(child_run(name, variables, &child));
    CHECK_STR(child.out, out);
    CHECK_MSG(strstr(child.err, err) != NULL, "%s", child.err);
    CHECK(child.exited);
}

PST_TEST(Product, PlainSumsAreThoseOfDouble)
{
    check_child("product_cases", "PAGESTASH_BLAS=none", "right\n", "");
}

PST_TEST(Product, OpenBlasSumsAreThoseOfDouble)
{
    check_child("product_cases", "PAGESTASH_BLAS=libopenblas.so.0", "right\n",
                "products on host are by libopenblas.so.0, with one thread in this process");
}

/* ---- which library ---- */

PST_CHILD(product_library)
{
    pst_device *device = NULL;
    const product_case what = {
        .m = 2, .n = 2, .k = 2, .dtype = PST_DTYPE_FP32, .of_d = PST_DTYPE_FP32};
    product_scene self;
    if (pst_device_open("host", 0, &device) != PST_OK)
        return;
    product_open(&self, &what, 1);
    for (int i = 0; i < 2; i++) { /* what is wrong is said each time */
        const pst_status status = pst_product_run(device, &self.product, NULL);
        printf("%s %.*s\n", pst_status_name(status),
               (int)strcspn(status ? pst_last_message() : "", "["), pst_last_message());
    }
    product_close(&self);
}

PST_TEST(Product, TheLibraryThatIsNamedIsTakenOrRefused)
{
#define NOWHERE                                                                                  \
    "PST_E_UNSUPPORTED PAGESTASH_BLAS='/nowhere/libblas.so' cannot be loaded: it must be auto, " \
    "none or the file of a CBLAS \n"
#define NO_BLAS "PST_E_UNSUPPORTED PAGESTASH_BLAS='libc.so.6' has no cblas_sgemm \n"
    check_child("product_library", "PAGESTASH_BLAS=/nowhere/libblas.so", NOWHERE NOWHERE, "");
    check_child("product_library", "PAGESTASH_BLAS=libc.so.6", NO_BLAS NO_BLAS, "");
    check_child("product_library", "PAGESTASH_BLAS=none", "PST_OK \nPST_OK \n", "");
    check_child("product_library", "PAGESTASH_BLAS=auto", "PST_OK \nPST_OK \n",
                PSTI_UNDER_TSAN ? "products on host are by plain C" : "products on host are by ");
}

/* ---- what is refused ---- */

typedef struct refused_scene {
    pst_device *device;
    product_scene of;
    pst_product good;
} refused_scene;

static void open_refused(refused_scene *self)
{
    static const product_case what = {.m = 4,
                                      .n = 6,
                                      .k = 8,
                                      .dtype = PST_DTYPE_BF16,
                                      .of_d = PST_DTYPE_FP32,
                                      .c = C_APART,
                                      .gap = 2,
                                      .num_experts = 2,
                                      .live = PST_LIVE_M,
                                      .counts = {3, 4}};
    CHECK_OK(pst_device_open("host", 0, &self->device));
    product_open(&self->of, &what, 3);
    self->good = self->of.product;
    CHECK_OK(pst_product_run(self->device, &self->good, NULL));
    matrix_keep(&self->of.d);
}

static void close_refused(refused_scene *self)
{
    CHECK(memcmp(self->of.d.at.base, self->of.d.before, self->of.d.bytes) == 0);
    product_close(&self->of);
    CHECK_OK(pst_device_close(self->device));
}

/* A change of the good product, and how the message begins. */
#define REFUSES(change, message)                                               \
    do {                                                                       \
        pst_product bad = self.good;                                           \
        change;                                                                \
        CHECK_STATUS(pst_product_run(self.device, &bad, NULL), PST_E_INVALID); \
        CHECK_SAID(message);                                                   \
    } while (0)

PST_TEST(Product, WrongFieldsAreRefused)
{
    refused_scene self;
    open_refused(&self);
    CHECK_STATUS(pst_product_run(NULL, &self.good, NULL), PST_E_INVALID);
    CHECK_SAID("device is NULL");
    CHECK_STATUS(pst_product_run(self.device, NULL, NULL), PST_E_INVALID);
    CHECK_SAID("product is NULL");
    REFUSES(bad.struct_size--, "struct_size 199: pst_product has 200 bytes");
    REFUSES(bad.padding = 7, "padding 7: must be 0");
    REFUSES(bad.a.padding[0] = 1, "a: padding[0] 1: must be 0");
    REFUSES(bad.b.padding[1] = 1, "b: padding[1] 1: must be 0");
    REFUSES(bad.c.padding[2] = 1, "c: padding[2] 1: must be 0");
    REFUSES(bad.d.padding[0] = 255, "d: padding[0] 255: must be 0");
    REFUSES(bad.m = UINT64_C(1) << 31, "m 2147483648, n 6, k 8: each is at most 2147483647");
    REFUSES(bad.n = UINT64_MAX, "m 4, n 18446744073709551615, k 8: each is at most");
    REFUSES(bad.k = UINT64_C(1) << 31, "m 4, n 6, k 2147483648: each is at most");
    REFUSES(bad.a.dtype = PST_DTYPE_INT32, "a: dtype 3: allowed are bf16, fp16 and fp32");
    REFUSES(bad.b.dtype = PST_DTYPE_FP16, "b: dtype 1: a has 0");
    REFUSES(bad.d.dtype = PST_DTYPE_FP16, "d: dtype 1: allowed are that of a, 0, and fp32");
    REFUSES(bad.c.dtype = PST_DTYPE_BF16, "c: dtype 0: d has 2");
    REFUSES(bad.c.is_transposed = true, "c, d: is_transposed: of a and b only");
    REFUSES(bad.d.is_transposed = true, "c, d: is_transposed: of a and b only");
    REFUSES(bad.live = (pst_live)3, "live 3: allowed are 0 to 2");
    REFUSES(bad.live = PST_LIVE_ALL, "counts: must be NULL with live 0");
    REFUSES(bad.counts = NULL, "counts at (nil): must be an address that is a multiple of 4");
    REFUSES(bad.counts = (const char *)bad.counts + 2, "counts at 0x");
    REFUSES(bad.count_type = PST_COUNT_HOST, "count_type 2: allowed are int32 and int64");
    close_refused(&self);
}

PST_TEST(Product, WrongMatricesAreRefused)
{
    refused_scene self;
    open_refused(&self);
    REFUSES(bad.a.base = NULL, "a: base is NULL");
    REFUSES(bad.b.base = NULL, "b: base is NULL");
    REFUSES(bad.d.base = NULL, "d: base is NULL");
    REFUSES(bad.a.base = (char *)bad.a.base + 1, "a at 0x");
    REFUSES(bad.d.base = (char *)bad.d.base + 2, "d at 0x");
    REFUSES(bad.b.row_stride++, "b at 0x");
    REFUSES(bad.c.expert_stride += 2, "c at 0x");
    REFUSES(bad.a.row_stride = 14, "a: row_stride 14: a row has 16 bytes");
    REFUSES(bad.a.row_stride = 0, "a: row_stride 0: a row has 16 bytes");
    REFUSES(bad.d.row_stride = 0, "d: row_stride 0: a row has 24 bytes");
    REFUSES(bad.b.is_transposed = true;
            bad.b.row_stride = 12, "b: row_stride 12: a row has 16 bytes");
    REFUSES(bad.b.row_stride = UINT64_C(1) << 32, "b: row_stride 4294967296: at most 2147483647");
    REFUSES(bad.d.expert_stride = 0, "d: expert_stride 0: the matrix of an expert has 144 bytes");
    REFUSES(bad.d.expert_stride = 140, "d: expert_stride 140: the matrix of an expert has 144");
    REFUSES(bad.a.expert_stride = UINT64_MAX - 1, "a at 0x");
    REFUSES(bad.a.base = (char *)bad.d.base + 200, "d at 0x");
    REFUSES(bad.b.base = (char *)bad.d.base - 8, "d at 0x");
    REFUSES(bad.c.base = (char *)bad.d.base + 4, "d at 0x");
    REFUSES(bad.c = bad.d; bad.c.expert_stride = 0, "d at 0x");
    REFUSES(bad.c.base = bad.d.base; bad.c.row_stride = 0, "d at 0x");
    close_refused(&self);
}

/* Columns of one buffer: d beside a, in the same rows. */
PST_TEST(Product, MatricesMayLieBesideEachOther)
{
    pst_device *device = NULL;
    static float all[3][8] = {{1, 2}, {3, 4}, {5, 6}};
    static const float identity[2][2] = {{0, 1}, {1, 0}};
    pst_product product = PST_PRODUCT_INIT;
    product.m = 3;
    product.n = product.k = 2;
    product.a = (pst_matrix){.base = all, .row_stride = 32, .dtype = PST_DTYPE_FP32};
    product.b =
        (pst_matrix){.base = (void *)(uintptr_t)identity, .row_stride = 8, .dtype = PST_DTYPE_FP32};
    product.d = product.a;
    product.d.base = &all[0][2];
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_product_run(device, &product, NULL));
    for (int i = 0; i < 3; i++)
        CHECK(all[i][2] == all[i][1] && all[i][3] == all[i][0]);
    product.d.base = &all[0][1];
    CHECK_STATUS(pst_product_run(device, &product, NULL), PST_E_INVALID);
    product.d.base = &all[0][7]; /* its second column is that of a's next row */
    CHECK_STATUS(pst_product_run(device, &product, NULL), PST_E_INVALID);
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Product, WithoutElementsNoAddressIsNeeded)
{
    pst_device *device = NULL;
    float d[2] = {3, 4};
    pst_product product = PST_PRODUCT_INIT;
    product.a.dtype = product.b.dtype = product.c.dtype = product.d.dtype = PST_DTYPE_FP32;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_product_run(device, &product, NULL));
    product.m = 7;
    product.k = 9;
    product.a = (pst_matrix){.base = d, .row_stride = 36, .dtype = PST_DTYPE_FP32};
    CHECK_OK(pst_product_run(device, &product, NULL));
    product.m = 1;
    product.n = 2;
    product.k = 0;
    product.a.base = NULL;
    product.d.base = d;
    product.d.row_stride = 8;
    CHECK_OK(pst_product_run(device, &product, NULL));
    CHECK(d[0] == 0 && d[1] == 0);
    CHECK_OK(pst_device_close(device));
}

/* ---- capture ---- */

/* Replays read the counts and the elements anew. */
PST_TEST(Product, AGraphMultipliesAtEachLaunch)
{
    product_case what = {.m = 5,
                         .n = 7,
                         .k = 9,
                         .dtype = PST_DTYPE_FP16,
                         .of_d = PST_DTYPE_FP16,
                         .num_experts = 2,
                         .live = PST_LIVE_M,
                         .counts = {1, 5}};
    pst_device *device = NULL;
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    product_scene self;
    uint64_t seed = 4;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_stream_create(device, &stream));
    product_open(&self, &what, 3);
    CHECK_OK(pst_graph_begin(device, stream));
    CHECK_OK(pst_product_run(device, &self.product, stream));
    CHECK_OK(pst_graph_end(device, stream, &graph));
    CHECK(memcmp(self.d.at.base, self.d.before, self.d.bytes) == 0);
    memset(&self.product, 0xff, sizeof(self.product));
    for (int32_t count = 1; count < 6; count++) {
        what.counts[0] = self.narrow[0] = count;
        elements_draw(self.a.at.base, self.a.bytes / 2, what.dtype, &seed);
        matrix_keep(&self.d);
        CHECK_OK(pst_graph_launch(graph, stream));
        CHECK(product_is_right(&self));
    }
    CHECK_OK(pst_graph_destroy(graph));
    product_close(&self);
    CHECK_OK(pst_stream_destroy(device, stream));
    CHECK_OK(pst_device_close(device));
}

PST_TEST(Product, ANodeWithoutMemoryIsSaid)
{
    const product_case what = {
        .m = 2, .n = 2, .k = 2, .dtype = PST_DTYPE_FP32, .of_d = PST_DTYPE_FP32};
    pst_device *device = NULL;
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    product_scene self;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_stream_create(device, &stream));
    product_open(&self, &what, 3);
    CHECK_OK(pst_graph_begin(device, stream));
    psti_fail_allocation_after(0);
    const pst_status status = pst_product_run(device, &self.product, stream);
    psti_fail_allocation_after(-1);
    CHECK_EQ(status, PST_E_NOMEM);
    CHECK_STATUS(pst_graph_end(device, stream, &graph), PST_E_NOMEM);
    CHECK_OK(pst_product_run(device, &self.product, stream));
    CHECK(product_is_right(&self));
    product_close(&self);
    CHECK_OK(pst_stream_destroy(device, stream));
    CHECK_OK(pst_device_close(device));
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 6 };

typedef struct worker {
    pst_device *device;
    product_scene of;
    bool is_right;
} worker;

/* The bits of each round are those of the first. */
static void *work(void *arg)
{
    worker *self = arg;
    self->is_right = true;
    for (int round = 0; round < ROUNDS; round++) {
        self->is_right &= pst_product_run(self->device, &self->of.product, NULL) == PST_OK;
        if (round == 0)
            matrix_keep(&self->of.d);
        self->is_right &= memcmp(self->of.d.before, self->of.d.at.base, self->of.d.bytes) == 0;
    }
    return NULL;
}

PST_TEST(Product, BitsDoNotDependOnWhatRunsBeside)
{
    const product_case what = {.m = 96,
                               .n = 96,
                               .k = 96,
                               .dtype = PST_DTYPE_FP32,
                               .of_d = PST_DTYPE_FP32,
                               .b_transposed = true};
    pst_device *device = NULL;
    worker workers[THREADS];
    pthread_t threads[THREADS];
    CHECK_OK(pst_device_open("host", 0, &device));
    for (int i = 0; i < THREADS; i++) {
        workers[i].device = device;
        product_open(&workers[i].of, &what, 9); /* the same elements */
    }
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        CHECK_EQ(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(workers[i].is_right);
        CHECK(memcmp(workers[i].of.d.at.base, workers[0].of.d.at.base, workers[0].of.d.bytes) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        product_close(&workers[i].of);
    CHECK_OK(pst_device_close(device));
}
