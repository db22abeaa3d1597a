/* cuBLAS without a GPU, for torch: products are launches of kernels, which do nothing. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "pretended.h"

enum { SUCCESS = 0, FAILED = 13 };

typedef struct handle {
    void *stream;
    int math_mode, pointer_mode;
} handle;

int cublasCreate_v2(handle **out)
{
    static _Thread_local handle all[64];
    static _Thread_local int count;
    *out = &all[count++ % 64];
    **out = (handle){NULL, 0, 0};
    return SUCCESS;
}

int cublasDestroy_v2(handle *self)
{
    (void)self;
    return SUCCESS;
}

int cublasSetStream_v2(handle *self, void *stream)
{
    self->stream = stream;
    return SUCCESS;
}

int cublasSetWorkspace_v2(handle *self, void *memory, size_t bytes)
{
    (void)self, (void)memory, (void)bytes;
    return SUCCESS;
}

int cublasSetMathMode(handle *self, int mode)
{
    self->math_mode = mode;
    return SUCCESS;
}

int cublasGetMathMode(handle *self, int *mode)
{
    *mode = self->math_mode;
    return SUCCESS;
}

int cublasSetPointerMode_v2(handle *self, int mode)
{
    self->pointer_mode = mode;
    return SUCCESS;
}

int cublasGetPointerMode_v2(handle *self, int *mode)
{
    *mode = self->pointer_mode;
    return SUCCESS;
}

int cublasSetSmCountTarget(handle *self, int count)
{
    (void)self, (void)count;
    return SUCCESS;
}

/* Of all these the first argument is the handle, and the others do not matter. */
#define PRODUCT(name)                                             \
    int name(handle *self)                                        \
    {                                                             \
        return pretended_launch(self->stream) ? FAILED : SUCCESS; \
    }

PRODUCT(cublasSgemm_v2)
PRODUCT(cublasDgemm_v2)
PRODUCT(cublasSgemmEx)
PRODUCT(cublasGemmEx)
PRODUCT(cublasSgemmStridedBatched)
PRODUCT(cublasDgemmStridedBatched)
PRODUCT(cublasGemmStridedBatchedEx)
PRODUCT(cublasSgemv_v2)
PRODUCT(cublasDgemv_v2)
PRODUCT(cublasSdot_v2)
