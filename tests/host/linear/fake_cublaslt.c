/* Stands in for libcublasLt, for devices that are the host in truth: column-major layouts, batches,
 * transposes, the epilogue with a bias, C and D apart or in place, as cuBLAS's documentation has them;
 * sums are formed on the CPU, in float32. It refuses what the real one refuses, and what would be an
 * error there that nobody sees: an algorithm of another problem, operands that are less aligned than the
 * algorithm was asked for, workspace that is too small. FAKE_CUBLASLT_VERSION is the version that it
 * claims. Where workspace is allowed, long sums are split in two, and added as the preference allows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/core/float.h"
#include "tests/host/linear/fake_cublaslt.h"

#define DECLARE(name, symbol) psti_lt_##name symbol;
PSTI_LT_FUNCTIONS(DECLARE)
fake_lt_get fakeLtGet;
/* Of a pretended GPU (tests/tools), where nobody sets enqueue: a product is a launch, which does nothing. */
__attribute__((weak)) void pretended_launched(const char *name, const char *shape);

enum { INVALID_VALUE = 7, SPLIT_K = 32, SPLIT_BYTES = 1 << 20 };

struct cublasLtContext {
    int unused;
};

struct psti_lt_desc_opaque {
    unsigned compute, scale;
    int32_t transa, transb;
    uint32_t epilogue;
    const void *bias;
    int64_t bias_apart;
};

struct psti_lt_layout_opaque {
    unsigned type;
    uint64_t rows, columns;
    int64_t lead, apart;
    int32_t count;
};

struct psti_lt_preference_opaque {
    uint64_t workspace;
    uint32_t schemes, alignments[4];
};

/* What an algorithm is of. */
typedef struct choice {
    uint64_t problem;
    uint32_t alignments[4], of_bias;
    uint32_t splits;      /* 0 or 1 */
    uint32_t rounds_part; /* the first part of a sum is rounded to D's type */
} choice;
_Static_assert(sizeof(choice) <= sizeof(psti_lt_algo), "");

fake_lt *fakeLtGet(void)
{
    static _Thread_local fake_lt self;
    return &self;
}

/* ---- objects ---- */

size_t cublasLtGetVersion(void)
{
    const char *version = getenv("FAKE_CUBLASLT_VERSION");
    return version ? strtoul(version, NULL, 10) : 130100;
}

const char *cublasLtGetStatusName(unsigned status)
{
    static const char *const names[] = {
        [0] = "CUBLAS_STATUS_SUCCESS",           [3] = "CUBLAS_STATUS_ALLOC_FAILED",
        [7] = "CUBLAS_STATUS_INVALID_VALUE",     [8] = "CUBLAS_STATUS_ARCH_MISMATCH",
        [13] = "CUBLAS_STATUS_EXECUTION_FAILED", [15] = "CUBLAS_STATUS_NOT_SUPPORTED"};
    return names[status];
}

static unsigned make(void **out, size_t bytes, unsigned status)
{
    if (status)
        return status;
    *out = calloc(1, bytes);
    if (!*out)
        return PSTI_CUBLAS_STATUS_ALLOC_FAILED;
    fakeLtGet()->objects++;
    return 0;
}

static unsigned end(void *object)
{
    if (!object)
        return INVALID_VALUE;
    free(object);
    fakeLtGet()->objects--;
    return 0;
}

unsigned cublasLtCreate(psti_lt_handle *handle_out)
{
    fakeLtGet()->creates++;
    return make((void **)handle_out, sizeof(**handle_out), fakeLtGet()->create_status);
}

unsigned cublasLtDestroy(psti_lt_handle handle)
{
    fakeLtGet()->destroys++;
    return end(handle);
}

unsigned cublasLtMatmulDescCreate(psti_lt_desc *desc_out, unsigned compute, unsigned scale_type)
{
    const unsigned status = make((void **)desc_out, sizeof(**desc_out), 0);
    if (status)
        return status;
    **desc_out = (struct psti_lt_desc_opaque){
        .compute = compute, .scale = scale_type, .epilogue = 1 /* CUBLASLT_EPILOGUE_DEFAULT */};
    return 0;
}

unsigned cublasLtMatmulDescDestroy(psti_lt_desc desc)
{
    return end(desc);
}

/* An attribute has one size. */
static unsigned set(void *to, size_t wanted, const void *value, size_t bytes)
{
    if (bytes != wanted)
        return INVALID_VALUE;
    memcpy(to, value, bytes);
    return 0;
}

#define FIELD(attribute, field) \
    case PSTI_LT_##attribute:   \
        return set(&(field), sizeof(field), value, bytes)

unsigned cublasLtMatmulDescSetAttribute(psti_lt_desc desc, unsigned attribute, const void *value,
                                        size_t bytes)
{
    switch (attribute) {
        FIELD(MATMUL_DESC_TRANSA, desc->transa);
        FIELD(MATMUL_DESC_TRANSB, desc->transb);
        FIELD(MATMUL_DESC_EPILOGUE, desc->epilogue);
        FIELD(MATMUL_DESC_BIAS_POINTER, desc->bias);
        FIELD(MATMUL_DESC_BIAS_BATCH_STRIDE, desc->bias_apart);
    default:
        return INVALID_VALUE;
    }
}

unsigned cublasLtMatrixLayoutCreate(psti_lt_layout *layout_out, unsigned type, uint64_t rows,
                                    uint64_t columns, int64_t lead)
{
    const unsigned status =
        make((void **)layout_out, sizeof(**layout_out), fakeLtGet()->layout_status);
    if (status)
        return status;
    **layout_out = (struct psti_lt_layout_opaque){
        .type = type, .rows = rows, .columns = columns, .lead = lead, .count = 1};
    return 0;
}

unsigned cublasLtMatrixLayoutDestroy(psti_lt_layout layout)
{
    return end(layout);
}

unsigned cublasLtMatrixLayoutSetAttribute(psti_lt_layout layout, unsigned attribute,
                                          const void *value, size_t bytes)
{
    switch (attribute) {
        FIELD(MATRIX_LAYOUT_BATCH_COUNT, layout->count);
        FIELD(MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, layout->apart);
    default:
        return INVALID_VALUE;
    }
}

unsigned cublasLtMatmulPreferenceCreate(psti_lt_preference *preference_out)
{
    const unsigned status = make((void **)preference_out, sizeof(**preference_out), 0);
    if (status)
        return status;
    **preference_out = (struct psti_lt_preference_opaque){
        .schemes = 7, .alignments = {256, 256, 256, 256}}; /* as documented */
    return 0;
}

unsigned cublasLtMatmulPreferenceDestroy(psti_lt_preference preference)
{
    return end(preference);
}

unsigned cublasLtMatmulPreferenceSetAttribute(psti_lt_preference preference, unsigned attribute,
                                              const void *value, size_t bytes)
{
    switch (attribute) {
        FIELD(MATMUL_PREF_MAX_WORKSPACE_BYTES, preference->workspace);
        FIELD(MATMUL_PREF_REDUCTION_SCHEME_MASK, preference->schemes);
        FIELD(MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, preference->alignments[0]);
        FIELD(MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, preference->alignments[1]);
        FIELD(MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, preference->alignments[2]);
        FIELD(MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, preference->alignments[3]);
    default:
        return INVALID_VALUE;
    }
}

/* ---- problems ---- */

typedef struct problem {
    const struct psti_lt_desc_opaque *desc;
    psti_lt_layout a, b, c, d;
} problem;

static bool is_type(unsigned type)
{
    return type == PSTI_CUDA_R_16BF || type == PSTI_CUDA_R_16F || type == PSTI_CUDA_R_32F;
}

static bool is_layout(const problem *of, psti_lt_layout layout, bool is_read_only)
{
    const uint64_t one =
        layout->columns ? (layout->columns - 1) * (uint64_t)layout->lead + layout->rows : 0;
    return layout->rows > 0 && layout->columns > 0 && layout->lead >= (int64_t)layout->rows &&
           layout->count == of->d->count &&
           (layout->count == 1 || layout->apart >= (is_read_only ? 0 : (int64_t)one));
}

static uint64_t inner(const problem *of)
{
    return of->desc->transa ? of->a->rows : of->a->columns;
}

static unsigned check(const problem *of)
{
    const struct psti_lt_desc_opaque *desc = of->desc;
    if (!is_layout(of, of->a, true) || !is_layout(of, of->b, true) || !is_layout(of, of->c, true) ||
        !is_layout(of, of->d, false))
        return INVALID_VALUE;
    if ((desc->transa ? of->a->columns : of->a->rows) != of->d->rows ||
        (desc->transb ? of->b->rows : of->b->columns) != of->d->columns ||
        (desc->transb ? of->b->columns : of->b->rows) != inner(of) || of->c->rows != of->d->rows ||
        of->c->columns != of->d->columns)
        return INVALID_VALUE;
    if (desc->epilogue == PSTI_LT_EPILOGUE_BIAS && !desc->bias)
        return INVALID_VALUE;
    if (desc->compute != PSTI_CUBLAS_COMPUTE_32F || desc->scale != PSTI_CUDA_R_32F ||
        !is_type(of->a->type) || of->b->type != of->a->type || of->c->type != of->d->type ||
        (of->d->type != of->a->type && of->d->type != PSTI_CUDA_R_32F))
        return PSTI_CUBLAS_STATUS_NOT_SUPPORTED;
    return 0;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15) ^ hash >> 29;
}

static uint64_t hash_of(const problem *of)
{
    const psti_lt_layout all[] = {of->a, of->b, of->c, of->d};
    uint64_t hash = mix(mix(1, (uint64_t)of->desc->transa << 1 | (uint64_t)of->desc->transb),
                        of->desc->epilogue);
    for (int i = 0; i < 4; i++) {
        hash = mix(mix(hash, all[i]->rows), all[i]->columns);
        hash = mix(mix(hash, (uint64_t)all[i]->lead), (uint64_t)all[i]->apart);
        hash = mix(mix(hash, (uint64_t)all[i]->count), all[i]->type);
    }
    return hash;
}

static uint32_t alignment_of(const void *address)
{
    const uintptr_t at = (uintptr_t)address | 256;
    return (uint32_t)(at & (~at + 1));
}

unsigned cublasLtMatmulAlgoGetHeuristic(psti_lt_handle handle, psti_lt_desc desc, psti_lt_layout a,
                                        psti_lt_layout b, psti_lt_layout c, psti_lt_layout d,
                                        psti_lt_preference preference, int wanted,
                                        psti_lt_found found[], int *num_found_out)
{
    fake_lt *self = fakeLtGet();
    const problem of = {desc, a, b, c, d};
    choice chosen = {.problem = hash_of(&of), .of_bias = alignment_of(desc->bias)};
    unsigned status = self->heuristic_status ? self->heuristic_status : check(&of);
    self->heuristics++;
    *num_found_out = 0;
    if (!handle || wanted < 1)
        status = INVALID_VALUE;
    if (status || self->finds_nothing)
        return status;
    memcpy(chosen.alignments, preference->alignments, sizeof(chosen.alignments));
    chosen.splits =
        preference->workspace >= SPLIT_BYTES && inner(&of) >= SPLIT_K && preference->schemes != 0;
    chosen.rounds_part = (preference->schemes & 5) != 0; /* in place, in D's type */
    memset(&found[0], 0, sizeof(found[0]));
    memcpy(&found[0].algo, &chosen, sizeof(chosen));
    found[0].workspaceSize = chosen.splits ? SPLIT_BYTES : 0;
    found[0].state = self->found_state;
    *num_found_out = 1;
    return 0;
}

/* ---- products ---- */

/* What is enqueued: descriptions may be gone when it runs. */
typedef struct matmul {
    struct psti_lt_desc_opaque desc;
    struct psti_lt_layout_opaque a, b, c, d;
    const void *at_a, *at_b, *at_c;
    void *at_d, *workspace;
    float alpha, beta;
    choice chosen;
} matmul;

static float get(const void *base, const struct psti_lt_layout_opaque *of, uint64_t at)
{
    const uint16_t *half = base;
    return of->type == PSTI_CUDA_R_32F    ? ((const float *)base)[at]
           : of->type == PSTI_CUDA_R_16BF ? psti_bf16_to_float(half[at])
                                          : psti_half_to_float(half[at]);
}

static void put(void *base, const struct psti_lt_layout_opaque *of, uint64_t at, float value)
{
    if (of->type == PSTI_CUDA_R_32F)
        ((float *)base)[at] = value;
    else
        ((uint16_t *)base)[at] =
            of->type == PSTI_CUDA_R_16BF ? psti_float_to_bf16(value) : psti_float_to_half(value);
}

static uint64_t place(const struct psti_lt_layout_opaque *of, int64_t batch, uint64_t row,
                      uint64_t column)
{
    return (uint64_t)(batch * of->apart) + row + column * (uint64_t)of->lead;
}

static float sum_of(const matmul *of, int64_t batch, uint64_t i, uint64_t j, uint64_t from,
                    uint64_t to)
{
    float sum = 0;
    for (uint64_t q = from; q < to; q++) {
        const float a =
            get(of->at_a, &of->a,
                of->desc.transa ? place(&of->a, batch, q, i) : place(&of->a, batch, i, q));
        const float b =
            get(of->at_b, &of->b,
                of->desc.transb ? place(&of->b, batch, j, q) : place(&of->b, batch, q, j));
        sum += a * b;
    }
    return sum;
}

/* The first part goes through the workspace. */
static float split_sum(const matmul *of, int64_t batch, uint64_t i, uint64_t j, uint64_t k)
{
    float *part = of->workspace;
    *part = sum_of(of, batch, i, j, 0, k / 2);
    if (of->chosen.rounds_part) {
        uint32_t rounded = 0;
        put(&rounded, &of->d, 0, *part);
        *part = get(&rounded, &of->d, 0);
    }
    return *part + sum_of(of, batch, i, j, k / 2, k);
}

static pst_status run(const void *args)
{
    const matmul *of = args;
    const uint64_t k = of->desc.transa ? of->a.rows : of->a.columns;
    const struct psti_lt_layout_opaque of_bias = {.type = of->d.type, .apart = of->desc.bias_apart};
    for (int64_t e = 0; e < of->d.count; e++)
        for (uint64_t j = 0; j < of->d.columns; j++)
            for (uint64_t i = 0; i < of->d.rows; i++) {
                float sum = of->alpha * (of->chosen.splits ? split_sum(of, e, i, j, k)
                                                           : sum_of(of, e, i, j, 0, k));
                if (of->beta != 0)
                    sum += of->beta * get(of->at_c, &of->c, place(&of->c, e, i, j));
                if (of->desc.epilogue == PSTI_LT_EPILOGUE_BIAS)
                    sum += get(of->desc.bias, &of_bias, place(&of_bias, e, i, 0));
                put(of->at_d, &of->d, place(&of->d, e, i, j), sum);
            }
    return PST_OK;
}

/* Of every batch: that cuBLASLt looks at the offsets for alignments is not documented. */
static bool is_aligned(const matmul *of)
{
    const void *const all[] = {of->at_a, of->at_b, of->at_c, of->at_d};
    const struct psti_lt_layout_opaque *const layouts[] = {&of->a, &of->b, &of->c, &of->d};
    for (int i = 0; i < 4; i++) {
        const int64_t size = layouts[i]->type == PSTI_CUDA_R_32F ? 4 : 2;
        const int64_t apart = layouts[i]->count > 1 ? layouts[i]->apart * size : 0;
        if (alignment_of((const char *)all[i] + apart) < of->chosen.alignments[i])
            return false;
    }
    return of->desc.epilogue != PSTI_LT_EPILOGUE_BIAS ||
           alignment_of(of->desc.bias) >= of->chosen.of_bias;
}

static unsigned launch_pretended(const matmul *of)
{
    char shape[80];
    if (!pretended_launched)
        return INVALID_VALUE;
    snprintf(shape, sizeof(shape), "%d of %llu x %llu", (int)of->d.count,
             (unsigned long long)of->d.rows, (unsigned long long)of->d.columns);
    pretended_launched("cublasLtMatmul", shape);
    return 0;
}

unsigned cublasLtMatmul(psti_lt_handle handle, psti_lt_desc desc, const void *alpha, const void *a,
                        psti_lt_layout a_layout, const void *b, psti_lt_layout b_layout,
                        const void *beta, const void *c, psti_lt_layout c_layout, void *d,
                        psti_lt_layout d_layout, const psti_lt_algo *algo, void *workspace,
                        size_t workspace_bytes, pst_stream stream)
{
    fake_lt *self = fakeLtGet();
    const problem asked = {desc, a_layout, b_layout, c_layout, d_layout};
    matmul of = {.desc = *desc,
                 .a = *a_layout,
                 .b = *b_layout,
                 .c = *c_layout,
                 .d = *d_layout,
                 .at_a = a,
                 .at_b = b,
                 .at_c = c,
                 .at_d = d,
                 .workspace = workspace,
                 .alpha = *(const float *)alpha,
                 .beta = *(const float *)beta};
    unsigned status = self->matmul_status ? self->matmul_status : check(&asked);
    memcpy(&of.chosen, algo, sizeof(of.chosen));
    self->matmuls++;
    self->splits += (int)of.chosen.splits;
    if (status)
        return status;
    if (!handle || !a || !b || !c || !d || of.chosen.problem != hash_of(&asked) ||
        !is_aligned(&of) || (c == d && (of.c.lead != of.d.lead || of.c.apart != of.d.apart)) ||
        (of.chosen.splits && (workspace_bytes < SPLIT_BYTES || !workspace)))
        return INVALID_VALUE;
    if (!self->enqueue)
        return launch_pretended(&of);
    return self->enqueue(self->user, run, &of, sizeof(of), stream);
}
