/* Products on host, by the system's CBLAS and by plain C, against sums in double. PAGESTASH_BLAS is read once
 * in a process, so each library is tried in a child. */
#include <pagestash/pagestash.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/base/base.h"
#include "tests/harness.h"
#include "tests/host/base/child.h"
#include "tests/host/linear/matrices.h"
#include "tests/random.h"

/* ---- one product ---- */

enum { MOST_EXPERTS = 4 };

typedef enum c_form { C_NONE, C_APART, C_IS_D, C_BIAS, C_FORMS } c_form;

typedef struct product_case {
    uint64_t m, n, k;
    pst_dtype dtype, of_d;
    bool a_transposed, b_transposed;
    c_form c;
    uint32_t gap, num_experts;
    pst_live live;
    pst_count_type count_type;
    int64_t counts[MOST_EXPERTS];
} product_case;

typedef struct product_scene {
    const product_case *what;
    test_matrix a, b, c, d;
    int64_t wide[MOST_EXPERTS];
    int32_t narrow[MOST_EXPERTS];
    pst_product product;
} product_scene;

static void open_case(product_scene *self, const product_case *what, uint64_t seed)
{
    const uint32_t experts = what->num_experts ? what->num_experts : 1;
    self->what = what;
    self->a =
        matrix_make(what->m, what->k, what->dtype, what->a_transposed, experts, what->gap, &seed);
    self->b = matrix_make(what->k, what->n, what->dtype, what->b_transposed, experts,
                          what->gap ? what->gap + 3 : 0, &seed);
    self->c = matrix_make(what->m, what->n, what->of_d, false, experts, 2 * what->gap, &seed);
    self->d = matrix_make(what->m, what->n, what->of_d, false, experts, what->gap, &seed);
    if (what->c == C_BIAS)
        self->c.at.row_stride = 0;
    for (int e = 0; e < MOST_EXPERTS; e++) {
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

static void close_case(product_scene *self)
{
    matrix_free(&self->a);
    matrix_free(&self->b);
    matrix_free(&self->c);
    matrix_free(&self->d);
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

/* The error is that of k + 1 sums in float32 of these magnitudes, and of one rounding of the result. */
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

static bool result_is_right(const product_scene *self)
{
    const product_case *what = self->what;
    for (uint32_t e = 0; e < self->d.num_experts; e++)
        for (uint64_t i = 0; i < live_of(what, e, PST_LIVE_M, what->m); i++)
            for (uint64_t j = 0; j < what->n; j++)
                if (!element_is_right(self, e, i, j))
                    return false;
    return rest_is_left(self);
}

static bool case_is_right(pst_device *device, const product_case *what, uint64_t seed)
{
    product_scene self;
    open_case(&self, what, seed);
    const pst_status status = pst_product_run(device, &self.product, NULL);
    if (status != PST_OK)
        printf("%s: %s\n", pst_status_name(status), pst_last_message());
    const bool is_right = status == PST_OK && result_is_right(&self);
    if (!is_right)
        printf(
            "m %d n %d k %d, dtypes %d %d, transposed %d %d, c %d, gap %u, experts %u, live %d\n",
            (int)what->m, (int)what->n, (int)what->k, what->dtype, what->of_d, what->a_transposed,
            what->b_transposed, what->c, what->gap, what->num_experts, what->live);
    close_case(&self);
    return is_right;
}

/* ---- every form, in a child for each library ---- */

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

static product_case draw_case(uint64_t *seed)
{
    product_case what = {.m = draw_size(seed, 64), .n = draw_size(seed, 128)};
    what.k = draw_size(seed, 64);
    what.dtype = (pst_dtype)random_below(seed, 3);
    what.of_d = random_below(seed, 3) ? what.dtype : PST_DTYPE_FP32;
    what.a_transposed = random_below(seed, 2) != 0;
    what.b_transposed = random_below(seed, 2) != 0;
    what.c = (c_form)random_below(seed, C_FORMS);
    what.gap = (uint32_t)random_below(seed, 3);
    what.num_experts = (uint32_t)random_below(seed, MOST_EXPERTS + 1);
    what.live = (pst_live)random_below(seed, 3);
    what.count_type = (pst_count_type)random_below(seed, 2);
    for (int e = 0; e < MOST_EXPERTS; e++)
        what.counts[e] = (int64_t)random_below(seed, 60) - 3;
    return what;
}

PST_CHILD(product_cases)
{
    pst_device *device = NULL;
    uint64_t seed = 11;
    bool is_right = pst_device_open("host", 0, &device) == PST_OK;
    for (uint64_t i = 0; is_right && i < 300; i++) {
        const product_case what = draw_case(&seed);
        is_right = case_is_right(device, &what, i);
    }
    /* more than one block of every kind */
    const product_case large[] = {
        {.m = 67, .n = 259, .k = 515, .dtype = PST_DTYPE_BF16, .of_d = PST_DTYPE_FP32, .c = C_IS_D},
        {.m = 130,
         .n = 129,
         .k = 257,
         .dtype = PST_DTYPE_FP16,
         .of_d = PST_DTYPE_FP16,
         .a_transposed = true,
         .c = C_APART},
        {.m = 33,
         .n = 260,
         .k = 131,
         .dtype = PST_DTYPE_FP32,
         .of_d = PST_DTYPE_FP32,
         .b_transposed = true,
         .c = C_BIAS},
    };
    for (int i = 0; i < 3; i++)
        is_right = is_right && case_is_right(device, &large[i], 5);
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
    open_case(&self, &what, 1);
    for (int i = 0; i < 2; i++) { /* what is wrong is said each time */
        const pst_status status = pst_product_run(device, &self.product, NULL);
        printf("%s %.*s\n", pst_status_name(status),
               (int)strcspn(status ? pst_last_message() : "", "["), pst_last_message());
    }
    close_case(&self);
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
    open_case(&self->of, &what, 3);
    self->good = self->of.product;
    CHECK_OK(pst_product_run(self->device, &self->good, NULL));
    matrix_keep(&self->of.d);
}

static void close_refused(refused_scene *self)
{
    CHECK(memcmp(self->of.d.at.base, self->of.d.before, self->of.d.bytes) == 0);
    close_case(&self->of);
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
    REFUSES(bad.struct_size--, "struct_size 183: pst_product has 184 bytes");
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
    REFUSES(bad.d.expert_stride = 0, "d: expert_stride 0: the matrix of an expert has 120 bytes");
    REFUSES(bad.d.expert_stride = 116, "d: expert_stride 116: the matrix of an expert has 120");
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
    open_case(&self, &what, 3);
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
        CHECK(result_is_right(&self));
    }
    CHECK_OK(pst_graph_destroy(graph));
    close_case(&self);
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
    open_case(&self, &what, 3);
    CHECK_OK(pst_graph_begin(device, stream));
    psti_fail_allocation_after(0);
    const pst_status status = pst_product_run(device, &self.product, stream);
    psti_fail_allocation_after(-1);
    CHECK_EQ(status, PST_E_NOMEM);
    CHECK_STATUS(pst_graph_end(device, stream, &graph), PST_E_NOMEM);
    CHECK_OK(pst_product_run(device, &self.product, stream));
    CHECK(result_is_right(&self));
    close_case(&self);
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
        open_case(&workers[i].of, &what, 9); /* the same elements */
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
        close_case(&workers[i].of);
    CHECK_OK(pst_device_close(device));
}
