/* NCCL, which is not linked: where it is, what of it is there, and its errors. */
#include "host/comm/nccl_api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "host/device/device.h"

#define LEAST_VERSION 21300 /* ncclGetLastError; collectives can be captured since 2.9 */

typedef struct symbol {
    const char *name;
    size_t offset;
} symbol;

#define SYMBOL(name, symbol) {#symbol, offsetof(psti_nccl, name)},
static const symbol needed[] = {PSTI_NCCL_FUNCTIONS(SYMBOL)};
static const symbol later[] = {PSTI_NCCL_LATER_FUNCTIONS(SYMBOL)};

static bool look_up(void *library, const symbol *what, psti_nccl *nccl)
{
    void *found = dlsym(library, what->name);
    memcpy((char *)nccl + what->offset, &found, sizeof(found));
    return found != NULL;
}

/* Looks all functions up; NULL, or the name of the first that is missing. */
static const char *look_all_up(void *library, psti_nccl *nccl)
{
    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
        if (!look_up(library, &needed[i], nccl))
            return needed[i].name;
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++)
        (void)look_up(library, &later[i], nccl);
    return NULL;
}

static pst_status check_version(const psti_nccl *nccl, const char *file)
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

/* A library that is not in the process cannot have made the caller's communicator, and one NCCL
 * crashes over the communicators of another: for those nothing is loaded, only found. */
static pst_status open_library(bool may_load, const char *file, void **library_out)
{
    *library_out = dlopen(file, RTLD_NOW | (may_load ? RTLD_LOCAL : RTLD_NOLOAD));
    PSTI_CHECK(*library_out || may_load, PST_E_UNSUPPORTED,
               "PAGESTASH_NCCL_LIBRARY='%.256s' is not loaded in this process: it must name the "
               "NCCL that made comm",
               file);
    PSTI_CHECK(*library_out, PST_E_UNSUPPORTED,
               "PAGESTASH_NCCL_LIBRARY='%.256s' cannot be loaded: %.256s", file, dlerror());
    return PST_OK;
}

static pst_status find(bool may_load, psti_nccl *nccl)
{
    const char *file = psti_env_text("PAGESTASH_NCCL_LIBRARY");
    void *library = NULL;
    PSTI_TRY(open_library(may_load, file, &library));
    pst_status status = PST_OK;
    const char *missing = look_all_up(library, nccl);
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
pst_status psti_nccl_find(bool may_load, psti_nccl *nccl_out)
{
    static _Thread_local psti_nccl nccl;
    static _Thread_local bool found;
    if (!found) {
        PSTI_TRY(find(may_load, &nccl));
        found = true;
    }
    *nccl_out = nccl;
    return PST_OK;
}

/* ---- errors ---- */

void psti_nccl_explain(const psti_nccl *nccl, psti_nccl_result result, pst_nccl_comm comm,
                       const char *call, char *text, size_t bytes)
{
    const char *last = nccl->get_last_error(comm);
    snprintf(text, bytes, "%s: %s; NCCL's last error: %s", call, nccl->get_error_string(result),
             last && last[0] ? last : "none");
}

pst_status psti_nccl_translate(const psti_nccl *nccl, psti_nccl_result result, pst_nccl_comm comm,
                               const char *call)
{
    char text[512];
    if (!psti_nccl_failed(result))
        return PST_OK;
    const bool is_callers =
        result == PSTI_NCCL_INVALID_ARGUMENT || result == PSTI_NCCL_INVALID_USAGE;
    psti_nccl_explain(nccl, result, comm, call, text, sizeof(text));
    return PSTI_FAIL(is_callers ? PST_E_INVALID : PST_E_CUDA, "%s", text);
}

pst_status psti_nccl_check_device(const psti_nccl *nccl, const pst_device *device,
                                  pst_nccl_comm comm)
{
    int index = -1;
    PSTI_TRY(
        psti_nccl_translate(nccl, nccl->comm_cu_device(comm, &index), comm, "ncclCommCuDevice"));
    PSTI_CHECK(index == device->info.index, PST_E_INVALID,
               "comm is of CUDA device %d, not of device %d", index, device->info.index);
    return PST_OK;
}
