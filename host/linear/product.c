/* Products: what a call must hold, and which device does it. */
#include <inttypes.h>

#include "host/base/arith.h"
#include "host/base/nvtx.h"
#include "host/base/structs.h"
#include "host/linear/linear.h"

#define MOST INT32_MAX
enum { WORKSPACE_ALIGNMENT = 256 };

/* A matrix as it is stored, of one expert and of all. */
typedef struct extent {
    const char *name;
    const pst_matrix *matrix;
    uint64_t rows, row_bytes;
    uint64_t reach; /* bytes from the first to the last of all; 0: there is no element */
} extent;

static pst_status check_dtypes(const pst_product *product)
{
    const pst_dtype of_a = product->a.dtype, of_d = product->d.dtype;
    PSTI_CHECK(of_a >= PST_DTYPE_BF16 && of_a <= PST_DTYPE_FP32, PST_E_INVALID,
               "a: dtype %d: allowed are bf16, fp16 and fp32", (int)of_a);
    PSTI_CHECK(product->b.dtype == of_a, PST_E_INVALID, "b: dtype %d: a has %d",
               (int)product->b.dtype, (int)of_a);
    PSTI_CHECK(of_d == of_a || of_d == PST_DTYPE_FP32, PST_E_INVALID,
               "d: dtype %d: allowed are that of a, %d, and fp32", (int)of_d, (int)of_a);
    PSTI_CHECK(!product->c.base || product->c.dtype == of_d, PST_E_INVALID, "c: dtype %d: d has %d",
               (int)product->c.dtype, (int)of_d);
    PSTI_CHECK(!product->c.is_transposed && !product->d.is_transposed, PST_E_INVALID,
               "c, d: is_transposed: of a and b only");
    return PST_OK;
}

static pst_status check_padding(const pst_product *product)
{
    PSTI_CHECK(product->padding == 0, PST_E_INVALID, "padding %u: must be 0", product->padding);
    PSTI_TRY(psti_padding_check("a: ", product->a.padding, sizeof(product->a.padding)));
    PSTI_TRY(psti_padding_check("b: ", product->b.padding, sizeof(product->b.padding)));
    PSTI_TRY(psti_padding_check("c: ", product->c.padding, sizeof(product->c.padding)));
    return psti_padding_check("d: ", product->d.padding, sizeof(product->d.padding));
}

static pst_status check_strides(const extent *what, bool may_repeat)
{
    const pst_matrix *matrix = what->matrix;
    const uint64_t size = psti_dtype_bytes(matrix->dtype);
    PSTI_CHECK(matrix->base, PST_E_INVALID, "%s: base is NULL", what->name);
    PSTI_CHECK((uintptr_t)matrix->base % size == 0 && matrix->row_stride % size == 0 &&
                   matrix->expert_stride % size == 0,
               PST_E_INVALID,
               "%s at %p, row stride %" PRIu64 ", expert stride %" PRIu64
               ": must be multiples of %" PRIu64,
               what->name, matrix->base, matrix->row_stride, matrix->expert_stride, size);
    PSTI_CHECK(matrix->row_stride >= what->row_bytes || (may_repeat && matrix->row_stride == 0),
               PST_E_INVALID, "%s: row_stride %" PRIu64 ": a row has %" PRIu64 " bytes", what->name,
               matrix->row_stride, what->row_bytes);
    PSTI_CHECK(matrix->row_stride / size <= MOST, PST_E_INVALID,
               "%s: row_stride %" PRIu64 ": at most %d elements", what->name, matrix->row_stride,
               MOST);
    return PST_OK;
}

/* rows and columns as the product has them. */
static pst_status measure(extent *what, const pst_product *product, uint64_t rows, uint64_t columns)
{
    const pst_matrix *matrix = what->matrix;
    const bool is_c = matrix == &product->c, is_d = matrix == &product->d;
    what->reach = 0;
    if (rows == 0 || columns == 0 || (is_c && !matrix->base))
        return PST_OK;
    what->rows = matrix->is_transposed ? columns : rows;
    what->row_bytes = (matrix->is_transposed ? rows : columns) * psti_dtype_bytes(matrix->dtype);
    PSTI_TRY(check_strides(what, is_c));
    const uint64_t one = psti_plus(psti_times(what->rows - 1, matrix->row_stride), what->row_bytes);
    PSTI_CHECK(!is_d || product->num_experts == 1 || matrix->expert_stride >= one, PST_E_INVALID,
               "d: expert_stride %" PRIu64 ": the matrix of an expert has %" PRIu64 " bytes",
               matrix->expert_stride, one);
    what->reach = psti_plus(psti_times(product->num_experts - 1, matrix->expert_stride), one);
    PSTI_CHECK(what->reach <= UINTPTR_MAX - (uintptr_t)matrix->base, PST_E_INVALID,
               "%s at %p: %" PRIu64 " bytes go beyond all addresses", what->name, matrix->base,
               what->reach);
    return PST_OK;
}

/* Matrices beside each other in the same rows share no byte. */
static bool are_beside(const extent *x, const extent *y)
{
    const uint64_t stride = x->matrix->row_stride;
    if (stride == 0 || y->matrix->row_stride != stride || x->matrix->expert_stride % stride != 0 ||
        y->matrix->expert_stride % stride != 0)
        return false;
    const bool is_first = (uintptr_t)x->matrix->base <= (uintptr_t)y->matrix->base;
    const extent *first = is_first ? x : y, *second = is_first ? y : x;
    const uint64_t apart =
        ((uintptr_t)second->matrix->base - (uintptr_t)first->matrix->base) % stride;
    return apart >= first->row_bytes && apart + second->row_bytes <= stride;
}

static pst_status check_overlap(const extent *d, const extent *other)
{
    const uintptr_t at = (uintptr_t)d->matrix->base, from = (uintptr_t)other->matrix->base;
    if (at - from >= other->reach && from - at >= (other->reach ? d->reach : 0))
        return PST_OK;
    PSTI_CHECK(are_beside(d, other), PST_E_INVALID,
               "d at %p: %" PRIu64 " bytes overlap %s at %p, which has %" PRIu64, (void *)at,
               d->reach, other->name, (void *)from, other->reach);
    return PST_OK;
}

static pst_status check_live(const pst_product *product)
{
    PSTI_CHECK(product->live >= PST_LIVE_ALL && product->live <= PST_LIVE_K, PST_E_INVALID,
               "live %d: allowed are 0 to %d", (int)product->live, (int)PST_LIVE_K);
    if (product->live == PST_LIVE_ALL) {
        PSTI_CHECK(!product->counts, PST_E_INVALID, "counts: must be NULL with live 0");
        return PST_OK;
    }
    const bool is_wide = product->count_type == PST_COUNT_INT64;
    PSTI_CHECK(is_wide || product->count_type == PST_COUNT_INT32, PST_E_INVALID,
               "count_type %d: allowed are int32 and int64", (int)product->count_type);
    PSTI_CHECK(product->counts && (uintptr_t)product->counts % (is_wide ? 8 : 4) == 0,
               PST_E_INVALID, "counts at %p: must be an address that is a multiple of %d",
               product->counts, is_wide ? 8 : 4);
    return PST_OK;
}

static pst_status check_workspace(const pst_product *product)
{
    PSTI_CHECK(!product->workspace == (product->workspace_bytes == 0) &&
                   (uintptr_t)product->workspace % WORKSPACE_ALIGNMENT == 0,
               PST_E_INVALID,
               "workspace at %p, %" PRIu64 " bytes: must be aligned to %d, or NULL and 0",
               product->workspace, product->workspace_bytes, WORKSPACE_ALIGNMENT);
    return PST_OK;
}

static bool is_same(const pst_matrix *c, const pst_matrix *d, uint32_t num_experts)
{
    return c->base == d->base && c->row_stride == d->row_stride &&
           (num_experts == 1 || c->expert_stride == d->expert_stride);
}

static pst_status check_addresses(pst_device *device, const pst_product *product,
                                  const extent *extents, int num_extents)
{
    if (!psti_is_check_mode())
        return PST_OK;
    for (int i = 0; i < num_extents; i++)
        if (extents[i].reach > 0)
            PSTI_TRY(device->ops->check_address(device, extents[i].matrix->base, extents[i].reach));
    if (product->workspace_bytes > 0)
        PSTI_TRY(device->ops->check_address(device, product->workspace, product->workspace_bytes));
    if (!product->counts)
        return PST_OK;
    const uint64_t bytes = product->count_type == PST_COUNT_INT64 ? 8 : 4;
    return device->ops->check_address(device, product->counts, product->num_experts * bytes);
}

static pst_status check_product(pst_device *device, const pst_product *product)
{
    extent all[] = {{.name = "d", .matrix = &product->d},
                    {.name = "a", .matrix = &product->a},
                    {.name = "b", .matrix = &product->b},
                    {.name = "c", .matrix = &product->c}};
    PSTI_CHECK(product->m <= MOST && product->n <= MOST && product->k <= MOST, PST_E_INVALID,
               "m %" PRIu64 ", n %" PRIu64 ", k %" PRIu64 ": each is at most %d", product->m,
               product->n, product->k, MOST);
    PSTI_TRY(check_padding(product));
    PSTI_TRY(check_dtypes(product));
    PSTI_TRY(check_live(product));
    PSTI_TRY(check_workspace(product));
    PSTI_TRY(measure(&all[0], product, product->m, product->n));
    PSTI_TRY(measure(&all[1], product, product->m, product->k));
    PSTI_TRY(measure(&all[2], product, product->k, product->n));
    PSTI_TRY(measure(&all[3], product, product->m, product->n));
    const bool in_place = is_same(&product->c, &product->d, product->num_experts);
    for (int i = 1; i < (in_place ? 3 : 4); i++)
        PSTI_TRY(check_overlap(&all[0], &all[i]));
    return check_addresses(device, product, all, 4);
}

pst_status pst_product_run(pst_device *device, const pst_product *product, pst_stream stream)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK(product, PST_E_INVALID, "product is NULL");
    PSTI_TAKE(pst_product, own, product);
    if (own.num_experts == 0)
        own.num_experts = 1;
    PSTI_TRY(check_product(device, &own));
    PSTI_RANGE("pst_product_run");
    if (own.m == 0 || own.n == 0)
        return PST_OK;
    if (device->info.kind == PST_DEVICE_HOST)
        return psti_product_enqueue_host(device, &own, stream);
    if (own.live != PST_LIVE_ALL || own.k == 0)
        return psti_product_enqueue_counted(device, &own, stream);
    return psti_product_enqueue_cublaslt(device, &own, stream);
}
