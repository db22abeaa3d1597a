/* The CBLAS of this process, found at run time. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "host/linear/linear.h"

/* Of cblas.h; every implementation has these values. */
enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

typedef void cblas_sgemm_function(int order, int transpose_a, int transpose_b, int m, int n, int k,
                                  float alpha, const float *a, int a_lead, const float *b,
                                  int b_lead, float beta, float *c, int c_lead);
typedef void set_num_threads_function(int num_threads);

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cblas_sgemm_function *sgemm; /* NULL: plain C */
static char problem[512];           /* why there is none, although one was named */

/* Whether the file is a CBLAS; what it is not goes to `problem`. */
static bool open_library(const char *file)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(problem, sizeof(problem),
                 "PAGESTASH_BLAS='%.256s' cannot be loaded: it must be "
                 "auto, none or the file of a CBLAS",
                 file);
        return false;
    }
    void *found = dlsym(library, "cblas_sgemm");
    void *set_num_threads = dlsym(library, "openblas_set_num_threads");
    if (!found) {
        snprintf(problem, sizeof(problem), "PAGESTASH_BLAS='%.256s' has no cblas_sgemm", file);
        dlclose(library);
        return false;
    }
    memcpy(&sgemm, &found, sizeof(found));
    if (set_num_threads) {
        set_num_threads_function *set = NULL;
        memcpy(&set, &set_num_threads, sizeof(set));
        set(1);
    }
    psti_log(PST_LOG_INFO, "products on host are by %s%s", file,
             set_num_threads ? ", with one thread in this process" : "");
    return true;
}

static void find_library(void)
{
    static const char *const files[] = {"libopenblas.so.0", "libcblas.so.3", "libblas.so.3"};
    const char *named = psti_env_text("PAGESTASH_BLAS");
    if (strcmp(named, "auto") != 0) {
        if (strcmp(named, "none") != 0)
            open_library(named);
        return;
    }
#if !defined(__SANITIZE_THREAD__) /* which does not see what such a library reads and writes */
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (open_library(files[i]))
            break;
#endif
    (void)files;
    problem[0] = '\0';
    if (!sgemm)
        psti_log(PST_LOG_INFO, "products on host are by plain C");
}

static void multiply(const psti_gemm *gemm)
{
    sgemm(ROW_MAJOR, gemm->a_transposed ? TRANSPOSE : NO_TRANSPOSE,
          gemm->b_transposed ? TRANSPOSE : NO_TRANSPOSE, (int)gemm->m, (int)gemm->n, (int)gemm->k,
          1.0f, gemm->a, (int)gemm->a_lead, gemm->b, (int)gemm->b_lead, 1.0f, gemm->d,
          (int)gemm->d_lead);
}

pst_status psti_blas_find(psti_gemm_function **function_out)
{
    pthread_once(&once, find_library);
    PSTI_CHECK(!problem[0], PST_E_UNSUPPORTED, "%s", problem);
    *function_out = sgemm ? multiply : psti_gemm_plain;
    return PST_OK;
}
