/* cuBLASLt, which is not linked: where it is, and what of it is there. */
#include <dlfcn.h>
#include <string.h>

#include "host/linear/cublaslt_api.h"

#define VARIABLE "PAGESTASH_CUBLASLT_LIBRARY"
enum { LEAST_MAJOR = 12 };

static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12"};
enum { NUM_FILES = sizeof(files) / sizeof(files[0]) };

static void *open_first(int flags, const char **file_out)
{
    void *library = NULL;
    for (int i = 0; i < NUM_FILES && !library; i++) {
        *file_out = files[i];
        library = dlopen(files[i], RTLD_NOW | flags);
    }
    return library;
}

/* That which the process has already comes first: a program with torch needs no second one. */
static void *open_any(const char **file_out)
{
    void *library = open_first(RTLD_NOLOAD, file_out);
    return library ? library : open_first(RTLD_LOCAL, file_out);
}

static pst_status open_library(const char **file_out, void **library_out)
{
    const char *named = psti_env_text(VARIABLE);
    *file_out = named;
    if (strcmp(named, "auto") == 0) {
        *library_out = open_any(file_out);
        PSTI_CHECK(*library_out, PST_E_UNSUPPORTED,
                   "products need cuBLASLt: neither %s nor %s was found, and " VARIABLE
                   " names no other",
                   files[0], files[1]);
        return PST_OK;
    }
    *library_out = dlopen(named, RTLD_NOW | RTLD_LOCAL);
    PSTI_CHECK(*library_out, PST_E_UNSUPPORTED, VARIABLE "='%.256s' cannot be loaded: %.256s",
               named, dlerror());
    return PST_OK;
}

/* NULL, or the name of the first function that is missing. */
static const char *look_up(void *library, psti_cublaslt *lt)
{
    static const struct {
        const char *name;
        size_t offset;
    } all[] = {
#define SYMBOL(name, symbol) {#symbol, offsetof(psti_cublaslt, name)},
        PSTI_LT_FUNCTIONS(SYMBOL)
#undef SYMBOL
    };
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        void *found = dlsym(library, all[i].name);
        if (!found)
            return all[i].name;
        memcpy((char *)lt + all[i].offset, &found, sizeof(found));
    }
    return NULL;
}

static pst_status check(void *library, const char *file, psti_cublaslt *lt)
{
    const char *missing = look_up(library, lt);
    PSTI_CHECK(!missing, PST_E_UNSUPPORTED, "cuBLASLt '%.256s' has no %s", file, missing);
    const size_t version = lt->get_version();
    PSTI_CHECK(version / 10000 >= LEAST_MAJOR, PST_E_UNSUPPORTED,
               "cuBLASLt '%.256s' has version number %zu: at least that of CUDA %d is needed", file,
               version, LEAST_MAJOR);
    psti_log(PST_LOG_INFO, "products on cuda are by %s, version number %zu", file, version);
    return PST_OK;
}

pst_status psti_cublaslt_find(psti_cublaslt *lt_out)
{
    const char *file = NULL;
    void *library = NULL;
    PSTI_TRY(open_library(&file, &library));
    const pst_status status = check(library, file, lt_out);
    if (status != PST_OK)
        dlclose(library); /* otherwise it stays for the functions' sake */
    return status;
}
