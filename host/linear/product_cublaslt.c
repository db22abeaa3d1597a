/* Products of cuda by cuBLASLt. It counts by columns: a row-major matrix is the transposed one there, so
 * what is asked for is D^T = B^T A^T + C^T, whose first factor is our B, and whose rows are our columns.
 *
 * What cuBLASLt wants to know of a form of products, and the algorithm that it names, are kept for the
 * device, so that a form is always multiplied in one way. */
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "host/linear/cublaslt_api.h"
#include "host/linear/linear.h"

enum { NUM_FORMS = 128, MOST_ALIGNMENT = 256 };

typedef enum added { ADDS_NOTHING, ADDS_MATRIX, ADDS_BIAS } added;

/* All that decides the algorithm, without padding, so that bytes can be compared. */
typedef struct form_key {
    uint64_t m, n, k, workspace_bytes;
    uint64_t row_strides[4], expert_strides[4]; /* of a, b, c, d */
    uint32_t alignments[4];
    uint32_t num_experts, dtype, of_d, a_transposed, b_transposed, adds;
} form_key;

typedef struct form {
    form_key key;
    bool is_used;
    psti_lt_desc desc;
    psti_lt_layout a, b, c, d;
    psti_lt_algo algo;
} form;

typedef struct lt_state {
    psti_cublaslt lt;
    psti_lt_handle handle;
    pthread_mutex_t lock; /* of the forms, and of each enqueued product: a bias is of the form */
    form forms[NUM_FORMS];
} lt_state;

/* What goes through device->ops->within. */
typedef struct lt_call {
    lt_state *self;
    const pst_product *product;
    pst_stream stream;
} lt_call;

static pst_status translate(const lt_state *self, unsigned status, const char *call)
{
    const pst_status as =
        status == PSTI_CUBLAS_STATUS_ALLOC_FAILED ? PST_E_NOMEM
        : status == PSTI_CUBLAS_STATUS_NOT_SUPPORTED || status == PSTI_CUBLAS_STATUS_ARCH_MISMATCH
            ? PST_E_UNSUPPORTED
            : PST_E_CUDA;
    return PSTI_FAIL(as, "%s: %s", call, self->lt.get_status_name(status));
}

static const struct {
#define SYMBOL_MEMBER(name, symbol) const char *name;
    PSTI_LT_FUNCTIONS(SYMBOL_MEMBER)
#undef SYMBOL_MEMBER
} symbols = {
#define SYMBOL(name, symbol) .name = #symbol,
    PSTI_LT_FUNCTIONS(SYMBOL)
#undef SYMBOL
};

#define TRY_LT(self, name, ...)                                \
    do {                                                       \
        const unsigned status_ = (self)->lt.name(__VA_ARGS__); \
        if (status_ != PSTI_CUBLAS_STATUS_SUCCESS)             \
            return translate(self, status_, symbols.name);     \
    } while (0)

#define SET(self, what, object, attribute, value) \
    TRY_LT(self, what##_set, object, PSTI_LT_##attribute, &(value), sizeof(value))

/* ---- forms ---- */

static uint32_t alignment_of(const pst_matrix *matrix)
{
    const uint64_t all = (uintptr_t)matrix->base | matrix->expert_stride | MOST_ALIGNMENT;
    return (uint32_t)(all & (~all + 1));
}

static added added_of(const pst_product *product)
{
    return !product->c.base ? ADDS_NOTHING : product->c.row_stride ? ADDS_MATRIX : ADDS_BIAS;
}

static form_key key_of(const pst_product *product)
{
    const pst_matrix *const all[] = {&product->a, &product->b, &product->c, &product->d};
    form_key key;
    memset(&key, 0, sizeof(key));
    key.m = product->m;
    key.n = product->n;
    key.k = product->k;
    key.workspace_bytes = product->workspace_bytes;
    key.num_experts = product->num_experts;
    key.dtype = product->a.dtype;
    key.of_d = product->d.dtype;
    key.a_transposed = product->a.is_transposed;
    key.b_transposed = product->b.is_transposed;
    key.adds = added_of(product);
    for (int i = 0; i < 4; i++) {
        if (!all[i]->base)
            continue;
        key.row_strides[i] = all[i]->row_stride;
        key.expert_strides[i] = all[i]->expert_stride;
        key.alignments[i] = alignment_of(all[i]);
    }
    return key;
}

static void forget(const lt_state *self, form *what)
{
    psti_lt_layout *const layouts[] = {&what->a, &what->b, &what->c, &what->d};
    for (int i = 0; i < 4; i++)
        if (*layouts[i])
            (void)self->lt.layout_destroy(*layouts[i]);
    if (what->desc)
        (void)self->lt.desc_destroy(what->desc);
    *what = (form){.is_used = false};
}

static unsigned type_of(pst_dtype dtype)
{
    static const unsigned types[] = {PSTI_CUDA_R_16BF, PSTI_CUDA_R_16F, PSTI_CUDA_R_32F};
    return types[dtype];
}

/* rows, columns: as the product has them. */
static pst_status make_layout(const lt_state *self, const pst_product *product,
                              const pst_matrix *matrix, uint64_t rows, uint64_t columns,
                              psti_lt_layout *layout_out)
{
    const uint64_t size = psti_dtype_bytes(matrix->dtype);
    const int64_t apart = (int64_t)(matrix->expert_stride / size);
    const int32_t experts = (int32_t)product->num_experts;
    TRY_LT(self, layout_create, layout_out, type_of(matrix->dtype),
           matrix->is_transposed ? rows : columns, matrix->is_transposed ? columns : rows,
           (int64_t)(matrix->row_stride / size));
    if (experts == 1)
        return PST_OK;
    SET(self, layout, *layout_out, MATRIX_LAYOUT_BATCH_COUNT, experts);
    SET(self, layout, *layout_out, MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, apart);
    return PST_OK;
}

static pst_status set_bias(const lt_state *self, const form *what, const pst_product *product)
{
    const void *base = product->c.base;
    if (what->key.adds == ADDS_BIAS)
        SET(self, desc, what->desc, MATMUL_DESC_BIAS_POINTER, base);
    return PST_OK;
}

static pst_status make_desc(const lt_state *self, const pst_product *product, form *what)
{
    const int32_t of_b = product->b.is_transposed ? PSTI_CUBLAS_OP_T : PSTI_CUBLAS_OP_N;
    const int32_t of_a = product->a.is_transposed ? PSTI_CUBLAS_OP_T : PSTI_CUBLAS_OP_N;
    const uint32_t bias = PSTI_LT_EPILOGUE_BIAS;
    const int64_t apart = (int64_t)(product->c.expert_stride / psti_dtype_bytes(product->d.dtype));
    TRY_LT(self, desc_create, &what->desc, PSTI_CUBLAS_COMPUTE_32F, PSTI_CUDA_R_32F);
    SET(self, desc, what->desc, MATMUL_DESC_TRANSA, of_b);
    SET(self, desc, what->desc, MATMUL_DESC_TRANSB, of_a);
    if (what->key.adds != ADDS_BIAS)
        return PST_OK;
    SET(self, desc, what->desc, MATMUL_DESC_EPILOGUE, bias);
    if (product->num_experts > 1)
        SET(self, desc, what->desc, MATMUL_DESC_BIAS_BATCH_STRIDE, apart);
    return set_bias(self, what, product);
}

/* Without a matrix C the product is given D for it, and does not read it. */
static pst_status make_layouts(const lt_state *self, const pst_product *product, form *what)
{
    const pst_matrix *c = what->key.adds == ADDS_MATRIX ? &product->c : &product->d;
    const uint64_t m = product->m, n = product->n, k = product->k;
    PSTI_TRY(make_layout(self, product, &product->a, m, k, &what->a));
    PSTI_TRY(make_layout(self, product, &product->b, k, n, &what->b));
    PSTI_TRY(make_layout(self, product, c, m, n, &what->c));
    return make_layout(self, product, &product->d, m, n, &what->d);
}

/* Sums are rounded once, so partial ones must not be in D's type. */
static pst_status set_preference(const lt_state *self, const form *what, psti_lt_preference of)
{
    const form_key *key = &what->key;
    const uint32_t schemes = PSTI_LT_REDUCTION_SCHEME_NONE | PSTI_LT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t of_c = key->alignments[key->adds == ADDS_MATRIX ? 2 : 3];
    SET(self, preference, of, MATMUL_PREF_MAX_WORKSPACE_BYTES, key->workspace_bytes);
    SET(self, preference, of, MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
    SET(self, preference, of, MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key->alignments[1]);
    SET(self, preference, of, MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key->alignments[0]);
    SET(self, preference, of, MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, of_c);
    SET(self, preference, of, MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key->alignments[3]);
    return PST_OK;
}

static pst_status ask(const lt_state *self, psti_lt_preference preference, form *what)
{
    psti_lt_found found;
    int num_found = 0;
    const form_key *key = &what->key;
    memset(&found, 0, sizeof(found));
    PSTI_TRY(set_preference(self, what, preference));
    const unsigned status =
        self->lt.get_heuristic(self->handle, what->desc, what->b, what->a, what->c, what->d,
                               preference, 1, &found, &num_found);
    if (status != PSTI_CUBLAS_STATUS_SUCCESS && status != PSTI_CUBLAS_STATUS_NOT_SUPPORTED)
        return translate(self, status, symbols.get_heuristic);
    PSTI_CHECK(status == PSTI_CUBLAS_STATUS_SUCCESS && num_found > 0 &&
                   found.state == PSTI_CUBLAS_STATUS_SUCCESS,
               PST_E_UNSUPPORTED,
               "cuBLASLt has no product of m %" PRIu64 ", n %" PRIu64 ", k %" PRIu64
               ", dtypes %u and %u, aligned to %u, %u, %u and %u (a, b, c, d)",
               key->m, key->n, key->k, key->dtype, key->of_d, key->alignments[0],
               key->alignments[1], key->alignments[2], key->alignments[3]);
    what->algo = found.algo;
    return PST_OK;
}

static pst_status make_form(const lt_state *self, const pst_product *product, form *what)
{
    psti_lt_preference preference = NULL;
    PSTI_TRY(make_desc(self, product, what));
    PSTI_TRY(make_layouts(self, product, what));
    TRY_LT(self, preference_create, &preference);
    const pst_status status = ask(self, preference, what);
    (void)self->lt.preference_destroy(preference);
    return status;
}

static uint64_t hash_of(const form_key *key)
{
    const unsigned char *at = (const unsigned char *)key;
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (size_t i = 0; i < sizeof(*key); i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash ^ hash >> 32;
}

/* Two forms of one place take turns in it: what is enqueued needs neither. */
static pst_status find_form(lt_state *self, const pst_product *product, form **form_out)
{
    const form_key key = key_of(product);
    form *what = &self->forms[hash_of(&key) % NUM_FORMS];
    *form_out = what;
    if (what->is_used && memcmp(&what->key, &key, sizeof(key)) == 0)
        return set_bias(self, what, product);
    forget(self, what);
    what->key = key;
    PSTI_TRY(make_form(self, product, what));
    what->is_used = true;
    return PST_OK;
}

/* ---- products ---- */

static pst_status multiply(const void *args)
{
    static const float zero = 0.0f, one = 1.0f;
    const lt_call *call = args;
    const pst_product *of = call->product;
    form *what = NULL;
    PSTI_TRY(find_form(call->self, of, &what));
    const bool adds = what->key.adds == ADDS_MATRIX;
    TRY_LT(call->self, matmul, call->self->handle, what->desc, &one, of->b.base, what->b,
           of->a.base, what->a, adds ? &one : &zero, adds ? of->c.base : of->d.base, what->c,
           of->d.base, what->d, &what->algo, of->workspace, of->workspace_bytes, call->stream);
    return PST_OK;
}

/* ---- the device's state ---- */

static pst_status create(const void *args)
{
    lt_state *self = ((const lt_call *)args)->self;
    TRY_LT(self, create, &self->handle);
    return PST_OK;
}

static pst_status destroy(const void *args)
{
    const lt_call *call = args;
    for (int i = 0; i < NUM_FORMS; i++)
        forget(call->self, &call->self->forms[i]);
    TRY_LT(call->self, destroy, call->self->handle);
    return PST_OK;
}

/* In a child of a fork nothing of CUDA is touched. */
static void close_products(pst_device *device)
{
    const lt_call call = {.self = device->products};
    if (psti_device_check_alive(device) == PST_OK)
        (void)device->ops->within(device, destroy, &call);
    pthread_mutex_destroy(&call.self->lock);
    psti_free(call.self);
    device->products = NULL;
}

static pst_status open_products(pst_device *device, lt_state **self_out)
{
    lt_state *self = psti_calloc(1, sizeof(*self));
    const lt_call call = {.self = self};
    PSTI_CHECK(self, PST_E_NOMEM, "no memory for products");
    pst_status status = psti_cublaslt_find(&self->lt);
    if (status == PST_OK)
        status = device->ops->within(device, create, &call);
    if (status != PST_OK) {
        psti_free(self);
        return status;
    }
    pthread_mutex_init(&self->lock, NULL);
    device->close_products = close_products;
    *self_out = self;
    return PST_OK;
}

static pst_status prepare(pst_device *device, lt_state **self_out)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    PSTI_TRY(psti_device_check_alive(device));
    pthread_mutex_lock(&lock);
    *self_out = device->products;
    const pst_status status = *self_out ? PST_OK : open_products(device, self_out);
    if (status == PST_OK)
        __atomic_store_n(&device->products, *self_out, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&lock);
    return status;
}

pst_status psti_cublaslt_prepare(pst_device *device)
{
    lt_state *self = NULL;
    return prepare(device, &self);
}

static pst_status find_state(pst_device *device, pst_stream stream, lt_state **self_out)
{
    psti_capture_of capture;
    *self_out = __atomic_load_n(&device->products, __ATOMIC_ACQUIRE);
    if (*self_out)
        return psti_device_check_alive(device);
    PSTI_TRY(device->ops->capture_of(device, stream, &capture));
    PSTI_CHECK(
        capture.id == 0, PST_E_CAPTURE,
        "device %s: its first product loads cuBLASLt and cannot be captured: run one, or make "
        "a layer, before",
        device->info.name);
    return prepare(device, self_out);
}

pst_status psti_product_enqueue_cublaslt(pst_device *device, const pst_product *product,
                                         pst_stream stream)
{
    lt_state *self = NULL;
    PSTI_TRY(find_state(device, stream, &self));
    const lt_call call = {.self = self, .product = product, .stream = stream};
    pthread_mutex_lock(&self->lock);
    const pst_status status = device->ops->within(device, multiply, &call);
    pthread_mutex_unlock(&self->lock);
    return status;
}
