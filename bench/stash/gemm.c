/* Products of matrices by cuBLAS, which is loaded when they are asked for. */
#include "bench/stash/gemm.h"
#include "bench/common/library.h"
#include "bench/common/samples.h"
#include "tools/common/tool.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Large enough for a millisecond or two on a GPU of 2022. */
enum { GEMM_SIZE = 8192, BLOCK_BYTES = 1 << 20 };
/* Values of cuBLAS's and CUDA's headers. */
enum { OP_N = 0, BF16 = 14, COMPUTE_32F = 68, ALGORITHM_DEFAULT = -1 };

#define MATRIX_BYTES ((uint64_t)GEMM_SIZE * GEMM_SIZE * 2)

static const char *load(bench_gemm *gemm)
{
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12", "libcublas.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]) && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return "cuBLAS: libcublas.so.13, .12 and libcublas.so were not found";
    gemm->library = library;
    if (bench_find(library, "cublasCreate_v2", &gemm->create) &&
        bench_find(library, "cublasDestroy_v2", &gemm->destroy) &&
        bench_find(library, "cublasSetStream_v2", &gemm->set_stream) &&
        bench_find(library, "cublasSetSmCountTarget", &gemm->set_sms) &&
        bench_find(library, "cublasGemmEx", &gemm->product))
        return NULL;
    return "cuBLAS: too old for cublasSetSmCountTarget";
}

/* Numbers from 0.5 to 1 of either sign. */
static int fill(const bench_gemm *gemm, void *matrix, const uint16_t *block)
{
    for (uint64_t at = 0; at < MATRIX_BYTES; at += BLOCK_BYTES)
        TOOL_PST(
            pst_device_copy(gemm->device, (unsigned char *)matrix + at, block, BLOCK_BYTES, NULL));
    return tool_status(pst_device_synchronize(gemm->device));
}

static int make_matrices(bench_gemm *gemm)
{
    uint64_t seed = BENCH_FIRST_DRAW;
    uint16_t *block = malloc(BLOCK_BYTES);
    void **matrices[] = {&gemm->a, &gemm->b, &gemm->c};
    int code = block ? TOOL_OK : tool_fail(TOOL_NO, "out of memory");
    for (size_t i = 0; block && i < BLOCK_BYTES / sizeof(*block); i++)
        block[i] = (uint16_t)((bench_draw(&seed) & 0x807f) | 0x3f00);
    for (int i = 0; i < 3 && code == TOOL_OK; i++) {
        code = tool_status(pst_device_alloc(gemm->device, MATRIX_BYTES, matrices[i]));
        if (code == TOOL_OK)
            code = fill(gemm, *matrices[i], block);
    }
    free(block);
    return code;
}

static int answer(int status, const char *call)
{
    return status == 0 ? TOOL_OK : tool_fail(TOOL_DEVICE, "%s: status %d", call, status);
}

int bench_gemm_open(bench_gemm *gemm, pst_device *device, pst_stream stream,
                    const char **missing_out)
{
    *gemm = (bench_gemm){.device = device};
    *missing_out = load(gemm);
    if (*missing_out != NULL)
        return TOOL_OK;
    TOOL_TRY(make_matrices(gemm));
    TOOL_TRY(answer(gemm->create(&gemm->handle), "cublasCreate"));
    return answer(gemm->set_stream(gemm->handle, stream), "cublasSetStream");
}

int bench_gemm_run(const bench_gemm *gemm, int num_sms)
{
    const float alpha = 1.0f, beta = 0.0f;
    TOOL_TRY(answer(gemm->set_sms(gemm->handle, num_sms), "cublasSetSmCountTarget"));
    return answer(gemm->product(gemm->handle, OP_N, OP_N, GEMM_SIZE, GEMM_SIZE, GEMM_SIZE, &alpha,
                                gemm->a, BF16, GEMM_SIZE, gemm->b, BF16, GEMM_SIZE, &beta, gemm->c,
                                BF16, GEMM_SIZE, COMPUTE_32F, ALGORITHM_DEFAULT),
                  "cublasGemmEx");
}

int bench_gemm_close(bench_gemm *gemm)
{
    if (gemm->handle)
        TOOL_TRY(answer(gemm->destroy(gemm->handle), "cublasDestroy"));
    TOOL_PST(pst_device_free(gemm->device, gemm->a));
    TOOL_PST(pst_device_free(gemm->device, gemm->b));
    TOOL_PST(pst_device_free(gemm->device, gemm->c));
    if (gemm->library)
        dlclose(gemm->library);
    return TOOL_OK;
}
