/* Kernels of the pretended CUDA runtime: they are named, counted, and do nothing.
 *
 * PRETENDED_LAUNCHES names the file that gets a line for each launch. PRETENDED_UNTIL=TEXT,TEXT...: the process
 * ends with exit code 0 at the first launch whose line holds one of these, and says on stdout, and in that file,
 * what was launched and allocated before. A process that never gets there ends as it would
 * without it, on bytes that no kernel wrote. With PRETENDED_NO_CODE there is no code for the device. */
#include "pretended_gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_KERNELS = 1024, MAX_NAME = 64 };

static struct {
    const void *host;
    const char *name;
} kernels[MAX_KERNELS];
static int num_kernels;
static unsigned long num_launches;

/* ---- what is registered before main ---- */

void **__cudaRegisterFatBinary(void *binary);
char __cudaInitModule(void **handle);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size);
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
                       size_t bytes, int constant, int global);

void **__cudaRegisterFatBinary(void *binary)
{
    static void *handle;
    (void)binary;
    return &handle;
}

/* A build without optimisation keeps the function that calls it. */
char __cudaInitModule(void **handle)
{
    (void)handle;
    return 1;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
    (void)handle;
}

void __cudaUnregisterFatBinary(void **handle)
{
    (void)handle;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name,
                            int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size)
{
    (void)handle, (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid,
        (void)size;
    if (num_kernels == MAX_KERNELS)
        abort();
    kernels[num_kernels].host = host;
    kernels[num_kernels++].name = name;
}

/* Constants of cub. */
void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext,
                       size_t bytes, int constant, int global)
{
    (void)handle, (void)host, (void)device, (void)name, (void)ext, (void)bytes, (void)constant,
        (void)global;
}

/* ---- launches ---- */

bool pretended_is_brief(void)
{
    return getenv("PRETENDED_UNTIL") != NULL;
}

/* A line at the end of PRETENDED_LAUNCHES. */
__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
    const char *path = getenv("PRETENDED_LAUNCHES");
    FILE *file = path ? fopen(path, "a") : NULL;
    va_list arguments;
    if (file == NULL)
        return;
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fclose(file);
}

/* Ends the process if the line of the launch is one of PRETENDED_UNTIL. */
static void leave_at(const char *launch)
{
    const char *until = getenv("PRETENDED_UNTIL");
    char one[MAX_NAME], said[160];
    for (size_t length; until && *until; until += length + (until[length] == ',')) {
        length = strcspn(until, ",");
        if (length == 0 || length >= sizeof(one))
            abort();
        memcpy(one, until, length);
        one[length] = '\0';
        if (strstr(launch, one) == NULL)
            continue;
        snprintf(said, sizeof(said),
                 "reached %s; launches before: %lu, allocations: %zu, bytes: %zu", one,
                 num_launches - 1, pretended_held.allocations, pretended_held.bytes);
        tell("%s\n", said);
        printf("pretended GPU: %s\n", said);
        fflush(stdout);
        _exit(0);
    }
}

void pretended_launched(const char *name, const char *shape)
{
    char launch[512];
    num_launches++;
    snprintf(launch, sizeof(launch), "%s %s", name, shape);
    tell("%s\n", launch);
    leave_at(launch);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
    char shape[80];
    int i = 0;
    (void)args;
    while (i < num_kernels && kernels[i].host != kernel)
        i++;
    if (i == num_kernels || config->blockDim.x == 0 || config->blockDim.x > 1024)
        return cudaErrorInvalidDeviceFunction;
    snprintf(shape, sizeof(shape), "%u x %u, %zu bytes shared", config->gridDim.x,
             config->blockDim.x, config->dynamicSmemBytes);
    pretended_keep_node(config);
    pretended_launched(kernels[i].name, shape);
    return cudaSuccess;
}

/* What stands behind <<<>>>. */
static cudaLaunchConfig_t configured;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(void **kernel, const void *host);
cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               void *stream);

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    configured = (cudaLaunchConfig_t){
        .gridDim = grid, .blockDim = block, .dynamicSmemBytes = shared, .stream = stream};
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = configured.gridDim;
    *block = configured.blockDim;
    *shared = configured.dynamicSmemBytes;
    *(cudaStream_t *)stream = configured.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(void **kernel, const void *host)
{
    *kernel = (void *)host;
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                               void *stream)
{
    const cudaLaunchConfig_t config = {
        .gridDim = grid, .blockDim = block, .dynamicSmemBytes = shared, .stream = stream};
    return cudaLaunchKernelExC(&config, kernel, args);
}

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream)
{
    return __cudaLaunchKernel((void *)kernel, grid, block, args, shared, stream);
}

/* ---- what is asked about kernels ---- */

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *kernel)
{
    (void)kernel;
    memset(out, 0, sizeof(*out));
    if (getenv("PRETENDED_NO_CODE") != NULL)
        return cudaErrorNoKernelImageForDevice;
    out->ptxVersion = out->binaryVersion = 90;
    out->numRegs = 56;
    out->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute what, int value)
{
    (void)kernel, (void)what, (void)value;
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *out, const void *kernel, int threads,
                                                          size_t shared)
{
    (void)kernel, (void)shared;
    *out = 1024 / (threads ? threads : 1);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *out, const void *kernel,
                                                                   int threads, size_t shared,
                                                                   unsigned flags)
{
    (void)flags;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, kernel, threads, shared);
}
