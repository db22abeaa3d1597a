/* libcuda.so.1 without a GPU: the primary context of the one device is there and current. */
#include <cuda.h>

#include "pretended.h"

static int context;

CUresult cuDeviceGet(CUdevice *device, int index)
{
    *device = index;
    return index == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice device)
{
    (void)device;
    *out = (CUcontext)&context;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
    *out = (CUcontext)&context;
    return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext now)
{
    (void)now;
    return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    *text = error == CUDA_SUCCESS ? "no error" : "not there in the pretended CUDA";
    return CUDA_SUCCESS;
}
