/* The environment variables of the library: one table that is read once and checked. */
#include "host/base/base.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

#define PREFIX "PAGESTASH_"

enum {
    ENV_BACKEND,
    ENV_BLAS,
    ENV_CHECK,
    ENV_CUBLASLT_LIBRARY,
    ENV_LOG,
    ENV_NCCL_LIBRARY,
    ENV_NUM_SMS,
    ENV_NVTX,
    ENV_REQUIRE_GPU,
    ENV_TORCH,
    ENV_TORCH_DEVICE,
    ENV_TORCH_LIBRARY,
    ENV_TORCH_PLAN,
    ENV_TORCH_TRACE,
    NUM_ENV
};

static const pst_env_info table[NUM_ENV] = {
    [ENV_BACKEND] = {.name = PREFIX "BACKEND",
                     .type = "choice",
                     .allowed = "auto|ldg|bulk|squeeze", /* in the order of pst_backend */
                     .default_value = "auto",
                     .help = "how launches copy whose options say auto; cuda only"},
    [ENV_BLAS] = {.name = PREFIX "BLAS",
                  .type = "path",
                  .allowed = "auto, none, file names",
                  .default_value = "auto",
                  .help = "the CBLAS of products on host; none: plain C"},
    [ENV_CHECK] = {.name = PREFIX "CHECK",
                   .type = "bool",
                   .allowed = "0|1",
                   .default_value = "0",
                   .help =
                       "destroyed handles are known for ever, addresses are asked of the driver"},
    [ENV_CUBLASLT_LIBRARY] = {.name = PREFIX "CUBLASLT_LIBRARY",
                              .type = "path",
                              .allowed = "auto, file names",
                              .default_value = "auto",
                              .help = "the cuBLASLt of products on cuda"},
    [ENV_LOG] = {.name = PREFIX "LOG",
                 .type = "choice",
                 .allowed = "off|error|warn|info|debug",
                 .default_value = "off",
                 .help = "messages of this level and below go to stderr"},
    [ENV_NCCL_LIBRARY] = {.name = PREFIX "NCCL_LIBRARY",
                          .type = "path",
                          .allowed = "file names",
                          .default_value = "libnccl.so.2",
                          .help = "the NCCL of communicators: what the program loaded, if it did"},
    [ENV_NUM_SMS] = {.name = PREFIX "NUM_SMS",
                     .type = "int",
                     .allowed = "0..1024",
                     .default_value = "0",
                     .help = "SMs of a launch whose options say 0; 0: all"},
    [ENV_NVTX] = {.name = PREFIX "NVTX",
                  .type = "bool",
                  .allowed = "0|1",
                  .default_value = "1",
                  .help = "NVTX ranges on host calls"},
    [ENV_REQUIRE_GPU] = {.name = PREFIX "REQUIRE_GPU",
                         .type = "bool",
                         .allowed = "0|1",
                         .default_value = "0",
                         .help = "read by the tests: a test skipped for want of a GPU fails"},
    [ENV_TORCH] = {.name = PREFIX "TORCH",
                   .type = "choice",
                   .allowed = "off|record|plan",
                   .default_value = "off",
                   .help = "libpagestash_torch: record a trace, or replay a plan"},
    [ENV_TORCH_DEVICE] = {.name = PREFIX "TORCH_DEVICE",
                          .type = "choice",
                          .allowed = PST_DEVICE_NAMES,
                          .default_value = "auto",
                          .help = "libpagestash_torch: whose memory it gives out"},
    [ENV_TORCH_LIBRARY] = {.name = PREFIX "TORCH_LIBRARY",
                           .type = "path",
                           .allowed = "file names",
                           .default_value = "libpagestash_torch.so",
                           .help = "read by pagestash.allocator, which looks in the wheel"},
    [ENV_TORCH_PLAN] = {.name = PREFIX "TORCH_PLAN",
                        .type = "path",
                        .allowed = "file names",
                        .default_value = "pagestash-plan.csv",
                        .help = "libpagestash_torch: the plan that it replays"},
    [ENV_TORCH_TRACE] = {.name = PREFIX "TORCH_TRACE",
                         .type = "path",
                         .allowed = "file names",
                         .default_value = "pagestash-trace.csv",
                         .help = "libpagestash_torch: the trace that it records"},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *texts[NUM_ENV]; /* copies, so that a later setenv changes nothing */
static int values[NUM_ENV];
static char problem[512];
static int ready; /* atomic */

/* Position of text among the alternatives of "a|b|c", or -1. */
static int choice(const char *allowed, const char *text)
{
    const size_t length = strlen(text);
    int position = 0;
    for (const char *at = allowed;; position++) {
        const size_t word = strcspn(at, "|");
        if (word == length && strncmp(at, text, length) == 0)
            return position;
        if (at[word] == '\0')
            return -1;
        at += word + 1;
    }
}

static bool parse_int(const char *allowed, const char *text, int *value_out)
{
    int low = 0;
    int high = 0;
    char *end = NULL;
    if (sscanf(allowed, "%d..%d", &low, &high) != 2)
        return false;
    if (!(*text == '-' || (*text >= '0' && *text <= '9')))
        return false;
    errno = 0;
    const long value = strtol(text, &end, 10);
    if (errno || *end || value < low || value > high)
        return false;
    *value_out = (int)value;
    return true;
}

static bool parse(const pst_env_info *info, const char *text, int *value_out)
{
    if (strcmp(info->type, "int") == 0)
        return parse_int(info->allowed, text, value_out);
    if (strcmp(info->type, "path") == 0)
        return *text != '\0';
    *value_out = choice(info->allowed, text);
    return *value_out >= 0;
}

static size_t distance(const char *a, const char *b)
{
    enum { LIMIT = 64 };
    size_t row[LIMIT + 1];
    const size_t na = strlen(a);
    const size_t nb = strlen(b);
    if (na > LIMIT || nb > LIMIT)
        return LIMIT;
    for (size_t j = 0; j <= nb; j++)
        row[j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const size_t change = diagonal + (a[i - 1] != b[j - 1]);
            const size_t add = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = change < add ? change : add;
        }
    }
    return row[nb];
}

static void warn_unknown(const char *entry)
{
    char name[65]; /* a longer one is cut off */
    size_t length = strcspn(entry, "=");
    if (length >= sizeof(name))
        length = sizeof(name) - 1;
    memcpy(name, entry, length);
    name[length] = '\0';
    const char *nearest = table[0].name;
    for (int i = 0; i < NUM_ENV; i++) {
        if (strcmp(name, table[i].name) == 0)
            return;
        if (distance(name, table[i].name) < distance(name, nearest))
            nearest = table[i].name;
    }
    psti_log(PST_LOG_WARN, "unknown environment variable %s: maybe %s?", name, nearest);
}

static void read_environment(void)
{
    for (int i = 0; i < NUM_ENV; i++) {
        const char *text = getenv(table[i].name);
        parse(&table[i], table[i].default_value, &values[i]);
        if (!text)
            continue;
        texts[i] = strdup(text);
        if (!parse(&table[i], text, &values[i]) && !problem[0])
            snprintf(problem, sizeof(problem), "%s='%.64s' is not one of %s", table[i].name, text,
                     table[i].allowed);
    }
    __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
}

/* Once, and after the table is there: a log callback may read it. */
static void warn_unknowns(void)
{
    static int warned;
    if (__atomic_exchange_n(&warned, 1, __ATOMIC_RELAXED))
        return;
    for (char **entry = environ; entry && *entry; entry++)
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) == 0)
            warn_unknown(*entry);
}

static int value_of(int index)
{
    return __atomic_load_n(&ready, __ATOMIC_ACQUIRE) ? values[index] : 0;
}

int psti_env_log_level(void)
{
    const int level = value_of(ENV_LOG);
    return level < 0 ? 0 : level;
}

int psti_env_num_sms(void)
{
    return value_of(ENV_NUM_SMS);
}

pst_backend psti_env_backend(void)
{
    return (pst_backend)value_of(ENV_BACKEND);
}

bool psti_env_nvtx(void)
{
    return value_of(ENV_NVTX) == 1;
}

bool psti_env_check_mode(void)
{
    pthread_once(&once, read_environment);
    return values[ENV_CHECK] == 1;
}

const char *psti_env_text(const char *name)
{
    const bool is_read = __atomic_load_n(&ready, __ATOMIC_ACQUIRE);
    for (int i = 0; i < NUM_ENV; i++)
        if (strcmp(name, table[i].name) == 0)
            return is_read && texts[i] != NULL ? texts[i] : table[i].default_value;
    return NULL;
}

pst_status pst_env_check(void)
{
    pthread_once(&once, read_environment);
    warn_unknowns();
    PSTI_CHECK(!problem[0], PST_E_INVALID, "%s", problem);
    return PST_OK;
}

int pst_env_count(void)
{
    return NUM_ENV;
}

pst_status pst_env_get(int index, pst_env_info *info_out)
{
    PSTI_CHECK(info_out, PST_E_INVALID, "info_out is NULL");
    PSTI_CHECK(index >= 0 && index < NUM_ENV, PST_E_INVALID, "index %d: allowed are 0 to %d", index,
               NUM_ENV - 1);
    pthread_once(&once, read_environment);
    *info_out = table[index];
    info_out->is_set = texts[index] != NULL;
    info_out->value = texts[index] ? texts[index] : table[index].default_value;
    return PST_OK;
}
