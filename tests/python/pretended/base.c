/* A CUDA runtime without a GPU, libcudart.so.13 for torch: streams, events, captures and graphs are those
 * of pagestash's host device, memory is the process's, copies and fills are made (and recorded while a
 * stream is captured), kernels do nothing. What torch calls and what is not here answers
 * cudaErrorNotSupported and is counted by name: build.py writes these functions.
 *
 * A cudaStream_t is a pst_stream and a cudaEvent_t a pst_event of the one device that
 * pretended_device() answers, so whoever has that device can use torch's streams as they are.
 * PAGESTASH_LIBRARY names the library. PRETENDED_VERBOSE says why it refused something. One mutex: nothing here is fast. This file: errors, the library.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime.h"

enum { MAX_NAMES = 1024 };

/* ---- the library ---- */

pretended_functions pretended_pst;

static pst_device *device;
pthread_mutex_t pretended_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local cudaError_t last;

void pretended_leave(const char *what, const char *why)
{
    fprintf(stderr, "pretended CUDA: %s: %s\n", what, why);
    abort();
}

__attribute__((constructor)) static void open_library(void)
{
    const char *path = getenv("PAGESTASH_LIBRARY");
    void *handle = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (!handle)
        pretended_leave("PAGESTASH_LIBRARY", path ? dlerror() : "not set");
#define FIND(name)                                                      \
    if (!(*(void **)&pretended_pst.name = dlsym(handle, "pst_" #name))) \
        pretended_leave("pst_" #name, "not there");
    PST_LIST(FIND)
    if (pretended_pst.device_open("host", 0, &device) != PST_OK)
        pretended_leave("host", "cannot be opened");
}

pst_device *pretended_device(void)
{
    return device;
}

cudaError_t pretended_answer(cudaError_t error)
{
    if (error != cudaSuccess)
        last = error;
    return error;
}

cudaError_t pretended_of_status(pst_status status)
{
    if (status != PST_OK && getenv("PRETENDED_VERBOSE"))
        fprintf(stderr, "pretended CUDA: %s\n", pretended_pst.last_message());
    switch (status) {
    case PST_OK:
        return cudaSuccess;
    case PST_E_CAPTURE:
        return pretended_answer(cudaErrorStreamCaptureInvalidated);
    case PST_E_INVALID:
        return pretended_answer(cudaErrorInvalidValue);
    case PST_E_NOMEM:
    case PST_E_DEVICE_NOMEM:
        return pretended_answer(cudaErrorMemoryAllocation);
    default:
        return pretended_answer(cudaErrorUnknown);
    }
}

void *pretended_zeroed(size_t bytes)
{
    void *out = calloc(1, bytes);
    if (!out)
        pretended_leave("calloc", "no memory");
    return out;
}

/* ---- what was called, with the lock held ---- */

static struct {
    const char *name;
    uint64_t calls;
} missing[MAX_NAMES];

void pretended_missing(const char *name)
{
    pthread_mutex_lock(&pretended_lock);
    int i = 0;
    while (i < MAX_NAMES - 1 && missing[i].name && strcmp(missing[i].name, name) != 0)
        i++;
    if (!missing[i].name)
        fprintf(stderr, "pretended CUDA: %s is not there\n", name);
    missing[i].name = name;
    missing[i].calls++;
    pthread_mutex_unlock(&pretended_lock);
    last = cudaErrorNotSupported;
}

const char *pretended_missing_name(int index, uint64_t *calls_out)
{
    *calls_out = missing[index].calls;
    return missing[index].name;
}

/* ---- errors ---- */

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

const char *cudaGetErrorName(cudaError_t error)
{
    static _Thread_local char text[32];
    snprintf(text, sizeof(text), "cudaError %d", (int)error);
    return error == cudaSuccess ? "cudaSuccess" : text;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNotSupported:
        return "not there in the pretended CUDA";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    case cudaErrorCapturedEvent:
        return "operation not permitted on an event last recorded in a capturing stream";
    default:
        return cudaGetErrorName(error);
    }
}
