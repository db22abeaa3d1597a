/* Products of cuda: cuBLASLt's part of them against a pretended one, and the library's own kernel, which
 * multiplies what the device counts. */
#include <pagestash/pagestash.h>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#define PSTI_CUBLASLT_TYPES 1
typedef cublasLtHandle_t psti_lt_handle;
typedef cublasLtMatmulDesc_t psti_lt_desc;
typedef cublasLtMatrixLayout_t psti_lt_layout;
typedef cublasLtMatmulPreference_t psti_lt_preference;
typedef cublasLtMatmulAlgo_t psti_lt_algo;
typedef cublasLtMatmulHeuristicResult_t psti_lt_found;
#endif

#include "tests/host/linear/cublaslt_scene.h"

#include <stdio.h>

#include "host/device/device.h"
#include "tests/host/linear/block_checks.h"
#include "tests/host/linear/product_case.h"

/* ---- the declarations ---- */

#if defined(PSTI_CUBLASLT_TYPES)
#define SAME_VALUE(name, value) _Static_assert((int)PSTI_LT_##name == (int)CUBLASLT_##name, #name);
PSTI_LT_VALUES(SAME_VALUE)
#define SAME_CUBLAS(name, value) \
    _Static_assert((int)PSTI_CUBLAS_##name == (int)CUBLAS_##name, #name);
PSTI_CUBLAS_VALUES(SAME_CUBLAS)
_Static_assert((int)PSTI_CUDA_R_32F == (int)CUDA_R_32F, "");
_Static_assert((int)PSTI_CUDA_R_16F == (int)CUDA_R_16F, "");
_Static_assert((int)PSTI_CUDA_R_16BF == (int)CUDA_R_16BF, "");
#define SAME_TYPE(name, symbol) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(symbol), psti_lt_##name), #symbol);
PSTI_LT_FUNCTIONS(SAME_TYPE)
/* What the library has in the place of the header's structs. */
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == 64, "");
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96, "");
_Static_assert(offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) == 64, "");
_Static_assert(offsetof(cublasLtMatmulHeuristicResult_t, state) == 72, "");
#else
_Static_assert(sizeof(psti_lt_algo) == 64, "");
_Static_assert(sizeof(psti_lt_found) == 96, "");
_Static_assert(offsetof(psti_lt_found, workspaceSize) == 64, "");
_Static_assert(offsetof(psti_lt_found, state) == 72, "");
#endif

/* ---- every form ---- */

PST_CHILD(lt_cases)
{
    for (int machine = 0; machine < LT_MACHINES; machine++) {
        pst_device *device = lt_open((lt_machine)machine);
        uint64_t seed = 23 + (uint64_t)machine;
        const uint64_t step = psti_test_step(20) * (machine == LT_SIMT ? 4 : 1);
        bool is_right = device != NULL;
        for (uint64_t i = 0; is_right && i < 200; i += step) {
            const product_case what = product_draw(&seed);
            is_right = product_case_is_right(device, &what, i);
        }
        CHECK(is_right);
        lt_close(device);
    }
    CHECK(lt_fake()->matmuls > 0);
    lt_end();
}

PST_TEST(CublasLt, SumsAreThoseOfDouble)
{
    lt_check_child("lt_cases", NULL);
}

/* ---- what is asked, and how often ---- */

static const product_case plain = {.m = 5,
                                   .n = 6,
                                   .k = 64,
                                   .dtype = PST_DTYPE_BF16,
                                   .of_d = PST_DTYPE_BF16,
                                   .b_transposed = true,
                                   .c = C_BIAS};

static void check_run(pst_device *device, product_scene *self, int heuristics)
{
    matrix_keep(&self->d);
    CHECK_OK(pst_product_run(device, &self->product, NULL));
    CHECK(product_is_right(self));
    CHECK_EQ(lt_fake()->heuristics, heuristics);
}

PST_CHILD(lt_forms)
{
    pst_device *device = lt_open(LT_HOST);
    product_scene first, second;
    product_open(&first, &plain, 1);
    product_open(&second, &plain, 2); /* other addresses */
    for (int i = 0; i < 2; i++) {
        check_run(device, &first, 1);
        check_run(device, &second, 1);
    }
    second.product.m--; /* another size */
    CHECK_OK(pst_product_run(device, &second.product, NULL));
    CHECK_EQ(lt_fake()->heuristics, 2);
    product_close(&second);
    product_open(&second, &plain, 2);
    second.product.c.base = (char *)second.product.c.base + 2; /* another alignment, of the bias */
    CHECK_OK(pst_product_run(device, &second.product, NULL));
    CHECK_EQ(lt_fake()->heuristics, 3);
    check_run(device, &first, 3);
    CHECK_EQ(lt_fake()->creates, 1);
    CHECK_EQ(lt_fake()->splits, 0);
    product_close(&first);
    product_close(&second);
    lt_close(device);
    lt_end();
}

PST_TEST(CublasLt, AFormIsAskedForOnce)
{
    lt_check_child("lt_forms", NULL);
}

/* A part of a sum that is rounded to 16 bits would be beyond what one rounding allows. */
PST_CHILD(lt_workspace)
{
    pst_device *device = lt_open(LT_HOST);
    void *workspace = test_memory(1 << 20);
    const product_case what = {.m = 9, .n = 9, .k = 400, .c = C_NONE};
    product_scene self;
    product_open(&self, &what, 1);
    self.product.workspace = workspace;
    self.product.workspace_bytes = 1 << 20;
    check_run(device, &self, 1);
    CHECK_EQ(lt_fake()->splits, 1);
    self.product.workspace_bytes /= 2; /* too little for it */
    check_run(device, &self, 2);
    CHECK_EQ(lt_fake()->splits, 1);
    self.product.workspace = (char *)workspace + 128;
    CHECK_STATUS(pst_product_run(device, &self.product, NULL), PST_E_INVALID);
    CHECK_SAID("workspace at 0x");
    self.product.workspace = NULL;
    CHECK_STATUS(pst_product_run(device, &self.product, NULL), PST_E_INVALID);
    CHECK_SAID("workspace at (nil), 524288 bytes: must be aligned to 256, or NULL and 0");
    product_close(&self);
    test_memory_free(workspace);
    lt_close(device);
    lt_end();
}

PST_TEST(CublasLt, WorkspaceSplitsSumsThatAreRoundedOnce)
{
    lt_check_child("lt_workspace", NULL);
}

/* ---- captures ---- */

static void check_graph(pst_device *device, pst_stream stream)
{
    product_scene self;
    test_matrix other_bias;
    pst_graph *graph = NULL;
    uint64_t seed = 4;
    product_open(&self, &plain, 3);
    other_bias = matrix_make(1, plain.n, plain.of_d, false, 1, 0, &seed);
    CHECK_OK(pst_graph_begin(device, stream));
    CHECK_OK(pst_product_run(device, &self.product, stream));
    pst_product other = self.product; /* of the same form */
    test_matrix other_d = matrix_make(plain.m, plain.n, plain.of_d, false, 1, 0, &seed);
    other.c.base = other_bias.at.base;
    other.d.base = other_d.at.base;
    CHECK_OK(pst_product_run(device, &other, stream));
    CHECK_OK(pst_graph_end(device, stream, &graph));
    for (int replay = 0; replay < 3; replay++) {
        elements_draw(self.a.at.base, self.a.bytes / 2, plain.dtype, &seed);
        CHECK_OK(pst_graph_launch(graph, stream));
        CHECK_OK(pst_stream_synchronize(device, stream));
        CHECK(product_is_right(&self));
    }
    CHECK(memcmp(other_d.at.base, self.d.at.base, plain.m * plain.n * 2) != 0);
    CHECK_OK(pst_graph_destroy(graph));
    matrix_free(&other_bias);
    matrix_free(&other_d);
    product_close(&self);
}

static void check_captures(lt_machine machine)
{
    pst_device *device = lt_open(machine);
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    product_scene self;
    CHECK_OK(pst_stream_create(device, &stream));
    product_open(&self, &plain, 3);
    CHECK_OK(pst_graph_begin(device, stream));
    CHECK_STATUS(pst_product_run(device, &self.product, stream), PST_E_CAPTURE);
    CHECK_SAID("device host: its first product loads cuBLASLt and cannot be captured: run one, or "
               "make a layer, before");
    CHECK_OK(pst_graph_end(device, stream, &graph)); /* the capture is whole */
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_product_run(device, &self.product, stream));
    CHECK_OK(pst_stream_synchronize(device, stream));
    CHECK(product_is_right(&self));
    product_close(&self);
    check_graph(device, stream);
    CHECK_OK(pst_stream_destroy(device, stream));
    lt_close(device);
}

PST_CHILD(lt_captures)
{
    check_captures(LT_HOST);
    check_captures(LT_LAZY);
    lt_end();
}

PST_TEST(CublasLt, GraphsMultiplyOnceTheDeviceIsReady)
{
    lt_check_child("lt_captures", NULL);
}

/* ---- layers and blocks ---- */

/* The first call of a layer can be captured: making it has made the device ready. */
PST_CHILD(lt_blocks)
{
    for (int machine = 0; machine < LT_MACHINES; machine++) {
        pst_device *device = lt_open((lt_machine)machine);
        for (uint32_t experts = 0; experts <= BLOCK_EXPERTS; experts += BLOCK_EXPERTS) {
            block_check_graph(device, experts);
            for (int i = 0; i < BLOCK_FORMS; i++)
                block_check_form(device, experts, i);
        }
        lt_close(device);
    }
    CHECK(lt_fake()->splits > 0);
    lt_end();
}

PST_TEST(CublasLt, BlocksAreThoseOfHost)
{
    lt_check_child("lt_blocks", NULL);
}

/* ---- failures ---- */

static void check_failure(pst_device *device, pst_status status, const char *message)
{
    product_scene self;
    product_open(&self, &plain, 1);
    CHECK_STATUS(pst_product_run(device, &self.product, NULL), status);
    CHECK_SAID(message);
    CHECK(memcmp(self.d.at.base, self.d.before, self.d.bytes) == 0);
    product_close(&self);
}

PST_CHILD(lt_failures)
{
    fake_lt *fake = lt_fake();
    pst_device *device = lt_open(LT_HOST);
    fake->create_status = 3;
    check_failure(device, PST_E_NOMEM, "cublasLtCreate: CUBLAS_STATUS_ALLOC_FAILED");
    fake->create_status = 0;
    fake->creates = 0; /* that one made nothing */
    fake->layout_status = 3;
    check_failure(device, PST_E_NOMEM, "cublasLtMatrixLayoutCreate: CUBLAS_STATUS_ALLOC_FAILED");
    fake->layout_status = 0;
    fake->heuristic_status = 8;
    check_failure(device, PST_E_UNSUPPORTED,
                  "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_ARCH_MISMATCH");
    fake->heuristic_status = 15;
    check_failure(device, PST_E_UNSUPPORTED,
                  "cuBLASLt has no product of m 5, n 6, k 64, dtypes 0 and 0, aligned to 256, 256, "
                  "256 and 256 (a, b, c, d)");
    fake->heuristic_status = 0;
    fake->found_state = 15;
    check_failure(device, PST_E_UNSUPPORTED, "cuBLASLt has no product of m 5");
    fake->found_state = 0;
    fake->finds_nothing = true;
    check_failure(device, PST_E_UNSUPPORTED, "cuBLASLt has no product of m 5");
    fake->finds_nothing = false;
    fake->matmul_status = 13;
    check_failure(device, PST_E_CUDA, "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED");
    fake->matmul_status = 0;
    CHECK(product_case_is_right(device, &plain, 1)); /* no failure is remembered */
    lt_close(device);
    lt_end();
}

PST_TEST(CublasLt, FailuresAreSaid)
{
    lt_check_child("lt_failures", NULL);
}

/* ---- which library ---- */

PST_CHILD(lt_library)
{
    pst_device *device = lt_fake() ? lt_open(LT_HOST) : NULL;
    product_scene self;
    product_open(&self, &plain, 1);
    for (int i = 0; i < 2; i++) { /* what is wrong is said each time */
        const pst_status status = pst_product_run(device, &self.product, NULL);
        printf("%s %.*s\n", pst_status_name(status),
               (int)strcspn(status ? pst_last_message() : "", "["), pst_last_message());
    }
    product_close(&self);
    CHECK_OK(pst_device_close(device));
}

static void check_library(const char *library, const char *version, const char *out)
{
    const char *const variables[] = {library, version, NULL};
    child_result child;
    char twice[2048];
    snprintf(twice, sizeof(twice), "%s\n%s\n", out, out);
    CHECK(child_run("lt_library", variables, &child) && child.exited);
    CHECK_STR(child.out, twice);
}

PST_TEST(CublasLt, TheLibraryThatIsNamedIsTakenOrRefused)
{
    static const char fake[] = "PAGESTASH_CUBLASLT_LIBRARY=" PSTI_FAKE_CUBLASLT;
#define SAYS "PST_E_UNSUPPORTED "
    check_library(fake, "FAKE_CUBLASLT_VERSION=120000", "PST_OK ");
    check_library(fake, "FAKE_CUBLASLT_VERSION=11110",
                  SAYS "cuBLASLt '" PSTI_FAKE_CUBLASLT
                       "' has version number 11110: at least that of CUDA 12 is needed ");
    check_library("PAGESTASH_CUBLASLT_LIBRARY=libc.so.6", NULL,
                  SAYS "cuBLASLt 'libc.so.6' has no cublasLtGetVersion ");
    check_library("PAGESTASH_CUBLASLT_LIBRARY=/nowhere/libcublasLt.so", NULL,
                  SAYS "PAGESTASH_CUBLASLT_LIBRARY='/nowhere/libcublasLt.so' cannot be loaded: "
                       "/nowhere/libcublasLt.so: cannot open shared object file: No such file or "
                       "directory ");
}
