/* Room comm: communication between ranks, and buffers for it. This is the only file that calls
 * NCCL, which it finds in the process. Uses base, device and stash. Used by programs, through
 * nccl.h and scratch.h of the public headers. */
#include <pagestash/nccl.h>

#include "host/comm/nccl_api.h"

#include <dlfcn.h>
#include <string.h>

#include "host/base/nvtx.h"
#include "host/stash/stash.h"

#define LEAST_VERSION 21300 /* ncclGetLastError; collectives can be captured since 2.9 */

typedef struct nccl_functions {
    psti_nccl_get_version *get_version;
    psti_nccl_get_error_string *get_error_string;
    psti_nccl_get_last_error *get_last_error;
    psti_nccl_comm_cu_device *comm_cu_device;
    psti_nccl_all_reduce *all_reduce;
} nccl_functions;

/* Looks all functions up; NULL, or the name of the first that is missing. */
static const char *look_up(void *library, nccl_functions *nccl)
{
    const struct {
        const char *name;
        void *function;
    } wanted[] = {
        {"ncclGetVersion", &nccl->get_version},
        {"ncclGetErrorString", &nccl->get_error_string},
        {"ncclGetLastError", &nccl->get_last_error},
        {"ncclCommCuDevice", &nccl->comm_cu_device},
        {"ncclAllReduce", &nccl->all_reduce},
    };
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        void *symbol = dlsym(library, wanted[i].name);
        if (!symbol)
            return wanted[i].name;
        memcpy(wanted[i].function, &symbol, sizeof(symbol));
    }
    return NULL;
}

static pst_status check_version(const nccl_functions *nccl, const char *file)
{
    int version = 0;
    const psti_nccl_result result = nccl->get_version(&version);
    PSTI_CHECK(result == PSTI_NCCL_SUCCESS, PST_E_UNSUPPORTED,
               "PAGESTASH_NCCL_LIBRARY='%.256s': ncclGetVersion: %s", file,
               nccl->get_error_string(result));
    const int major = version < 10000 ? 1000 : 10000; /* the form changed with 2.9 */
    PSTI_CHECK(version >= LEAST_VERSION, PST_E_UNSUPPORTED,
               "PAGESTASH_NCCL_LIBRARY='%.256s' is NCCL %d.%d.%d: at least %d.%d is needed", file,
               version / major, version % major / 100, version % 100, LEAST_VERSION / 10000,
               LEAST_VERSION % 10000 / 100);
    return PST_OK;
}

/* A library that is not in the process cannot have made a communicator, and one NCCL crashes over
 * the communicators of another: so nothing is loaded here, only found. */
static pst_status find_nccl(nccl_functions *nccl)
{
    const char *file = psti_env_text("PAGESTASH_NCCL_LIBRARY");
    void *library = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    PSTI_CHECK(library, PST_E_UNSUPPORTED,
               "PAGESTASH_NCCL_LIBRARY='%.256s' is not loaded in this process: it must name the "
               "NCCL that made comm",
               file);
    pst_status status = PST_OK;
    const char *missing = look_up(library, nccl);
    if (missing)
        status = PSTI_FAIL(PST_E_UNSUPPORTED, "PAGESTASH_NCCL_LIBRARY='%.256s' has no %s", file,
                           missing);
    else
        status = check_version(nccl, file);
    if (status != PST_OK)
        dlclose(library); /* otherwise it stays for the functions' sake */
    return status;
}

/* Found once per thread, which needs no lock; a failure is not remembered. */
static pst_status get_nccl(const nccl_functions **nccl_out)
{
    static _Thread_local nccl_functions nccl;
    static _Thread_local bool found;
    if (!found) {
        PSTI_TRY(find_nccl(&nccl));
        found = true;
    }
    *nccl_out = &nccl;
    return PST_OK;
}

static pst_status translate(const nccl_functions *nccl, psti_nccl_result result, pst_nccl_comm comm,
                            const char *call)
{
    if (result == PSTI_NCCL_SUCCESS || result == PSTI_NCCL_IN_PROGRESS)
        return PST_OK;
    const bool is_callers =
        result == PSTI_NCCL_INVALID_ARGUMENT || result == PSTI_NCCL_INVALID_USAGE;
    const char *last = nccl->get_last_error(comm);
    return PSTI_FAIL(is_callers ? PST_E_INVALID : PST_E_CUDA, "%s: %s; NCCL's last error: %s", call,
                     nccl->get_error_string(result), last && last[0] ? last : "none");
}

static pst_status check_device(const nccl_functions *nccl, const pst_device *device,
                               pst_nccl_comm comm)
{
    int index = -1;
    PSTI_TRY(translate(nccl, nccl->comm_cu_device(comm, &index), comm, "ncclCommCuDevice"));
    PSTI_CHECK(index == device->info.index, PST_E_INVALID,
               "comm is of CUDA device %d, the pool of device %d", index, device->info.index);
    return PST_OK;
}

pst_status pst_nccl_agree(pst_pool *pool, pst_nccl_comm comm, pst_stream stream)
{
    PSTI_USE_HANDLE(pool, POOL);
    PSTI_CHECK(comm, PST_E_INVALID, "comm is NULL");
    PSTI_TRY(psti_pool_usable(pool));
    PSTI_RANGE("pst_nccl_agree");
    pst_device *device = pool->device;
    PSTI_CHECK(device->info.kind == PST_DEVICE_CUDA, PST_E_UNSUPPORTED,
               "the pool is on device %s: NCCL works on cuda only", device->info.name);
    const nccl_functions *nccl = NULL;
    PSTI_TRY(get_nccl(&nccl));
    PSTI_TRY(psti_pool_note(pool, check_device(nccl, device, comm)));
    psti_capture_of capture;
    PSTI_TRY(psti_pool_note(pool, device->ops->capture_of(device, stream, &capture)));
    PSTI_TRY(psti_pool_note(pool, psti_hold_in(device, &capture, &pool->hold)));
    int32_t *valid = pst_pool_step_valid(pool);
    const psti_nccl_result result =
        nccl->all_reduce(valid, valid, 1, PSTI_NCCL_INT32, PSTI_NCCL_MIN, comm, stream);
    return psti_pool_note(pool, translate(nccl, result, comm, "ncclAllReduce"));
}
