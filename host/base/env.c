/* The environment variables of the library: one table that is read once and checked. */
#include "host/base/base.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "PAGESTASH_"
#define LEVELS "off|error|warn|info|debug" /* in the order of pst_log_level */
#define OR_NOTHING "or nothing"
#define MAY_BE_EMPTY "file names, " OR_NOTHING

enum {
    ENV_BACKEND,
    ENV_BLAS,
    ENV_CHECK,
    ENV_COMMAND,
    ENV_CUBLASLT_LIBRARY,
    ENV_LIBRARY,
    ENV_LOG,
    ENV_LOG_FILE,
    ENV_NCCL_LIBRARY,
    ENV_NUM_SMS,
    ENV_NVTX,
    ENV_OPS,
    ENV_REQUIRE_GPU,
    ENV_TOP,
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
                   .help = "handles, addresses and the bytes behind a pool's parts are checked"},
    [ENV_COMMAND] = {.name = PREFIX "COMMAND",
                     .type = "path",
                     .allowed = MAY_BE_EMPTY,
                     .default_value = "pagestash",
                     .help = "read by the Python package: the command that it runs"},
    [ENV_CUBLASLT_LIBRARY] = {.name = PREFIX "CUBLASLT_LIBRARY",
                              .type = "path",
                              .allowed = "auto, file names",
                              .default_value = "auto",
                              .help = "the cuBLASLt of products on cuda"},
    [ENV_LIBRARY] = {.name = PREFIX "LIBRARY",
                     .type = "path",
                     .allowed = MAY_BE_EMPTY,
                     .default_value = "libpagestash.so",
                     .help = "read by the Python package, which looks in the wheel"},
    [ENV_LOG] = {.name = PREFIX "LOG",
                 .type = "levels",
                 .allowed = LEVELS ", also of one room: warn,comm=debug",
                 .default_value = "off",
                 .help = "messages of this level and below go to stderr or PAGESTASH_LOG_FILE"},
    [ENV_LOG_FILE] = {.name = PREFIX "LOG_FILE",
                      .type = "path",
                      .allowed = "file names; %p: the process, %h: the host",
                      .default_value = "stderr",
                      .help = "the file to which messages are added, with time and process"},
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
    [ENV_OPS] = {.name = PREFIX "OPS",
                 .type = "path",
                 .allowed = MAY_BE_EMPTY,
                 .default_value = "libpagestash_ops.so",
                 .help =
                     "read by pagestash.torch: its operators for torch; python: those in Python"},
    [ENV_REQUIRE_GPU] = {.name = PREFIX "REQUIRE_GPU",
                         .type = "bool",
                         .allowed = "0|1",
                         .default_value = "0",
                         .help = "read by the tests: a test skipped for want of a GPU fails"},
    [ENV_TOP] = {.name = PREFIX "TOP",
                 .type = "path",
                 .allowed = "folders, " OR_NOTHING,
                 .default_value = "nothing",
                 .help = "where pst_pool_poll leaves what pagestash top reads"},
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

/* Whose messages PAGESTASH_LOG may ask for: rooms of host, and allocator, the one of PyTorch. */
static const char *const rooms[] = {
    "allocator", "arena",  "base",    "comm",     "device",    "estimate", "linear", "model",
    "plan",      "policy", "program", "schedule", "scheduler", "simulate", "stash",  "trace"};
enum { NUM_ROOMS = sizeof(rooms) / sizeof(rooms[0]) };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char *texts[NUM_ENV]; /* copies, so that a later setenv changes nothing */
static int values[NUM_ENV];
static int room_levels[NUM_ROOMS]; /* of PAGESTASH_LOG */
static char problem[512];
static int ready; /* atomic */

/* Position of `length` characters of text among the alternatives of "a|b|c", or -1. */
static int choice(const char *allowed, const char *text, size_t length)
{
    int position = 0;
    for (const char *at = allowed;; position++) {
        const size_t word = strcspn(at, "|,");
        if (word == length && strncmp(at, text, length) == 0)
            return position;
        if (at[word] != '|')
            return -1;
        at += word + 1;
    }
}

static int room_of(const char *name, size_t length)
{
    for (int i = 0; i < NUM_ROOMS; i++)
        if (strlen(rooms[i]) == length && strncmp(rooms[i], name, length) == 0)
            return i;
    return -1;
}

/* "LEVEL", "ROOM=LEVEL", or several with commas; a level without a room is of all that are not named. */
static bool parse_levels(const char *text, int *level_out)
{
    int levels[NUM_ROOMS];
    int others = PST_LOG_OFF;
    for (int i = 0; i < NUM_ROOMS; i++)
        levels[i] = -1;
    for (;;) {
        const size_t length = strcspn(text, ",");
        const char *equals = memchr(text, '=', length);
        const char *word = equals ? equals + 1 : text;
        const int level = choice(LEVELS, word, (size_t)(text + length - word));
        const int room = equals ? room_of(text, (size_t)(equals - text)) : 0;
        if (level < 0 || room < 0)
            return false;
        *(equals ? &levels[room] : &others) = level;
        if (text[length] == '\0')
            break;
        text += length + 1;
    }
    *level_out = others;
    for (int i = 0; i < NUM_ROOMS; i++)
        room_levels[i] = levels[i] < 0 ? others : levels[i];
    return true;
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
    if (strcmp(info->type, "levels") == 0)
        return parse_levels(text, value_out);
    if (strcmp(info->type, "path") == 0)
        return *text != '\0' || strstr(info->allowed, OR_NOTHING) != NULL;
    *value_out = choice(info->allowed, text, strlen(text));
    return *value_out >= 0;
}

/* Letters put in, left out, changed, or swapped with the next one: the optimal string alignment. */
static size_t num_edits(const char *a, const char *b)
{
    enum { LIMIT = 64 };
    size_t rows[3][LIMIT + 1];
    const size_t na = strlen(a);
    const size_t nb = strlen(b);
    if (na > LIMIT || nb > LIMIT)
        return LIMIT;
    for (size_t j = 0; j <= nb; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= na; i++) {
        size_t *row = rows[i % 3], *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            const size_t change = above[j - 1] + (a[i - 1] != b[j - 1]);
            const size_t add = (row[j - 1] < above[j] ? row[j - 1] : above[j]) + 1;
            row[j] = change < add ? change : add;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
    }
    return rows[na % 3][nb];
}

enum { NAME_BYTES = 65 };

/* The name of "NAME=value", cut off where it is long. */
static void get_name(const char *entry, char name[NAME_BYTES])
{
    size_t length = strcspn(entry, "=");
    if (length >= NAME_BYTES)
        length = NAME_BYTES - 1;
    memcpy(name, entry, length);
    name[length] = '\0';
}

/* Whether a name of ours is in the table; else nearest_out has what it is a misspelling of, or NULL. */
static bool is_known(const char *name, const char **nearest_out)
{
    const size_t letters = strlen(name) - strlen(PREFIX);
    size_t fewest = letters < 6 ? 2 : 3; /* one edit of a short name, two of a longer one */
    *nearest_out = NULL;
    for (int i = 0; i < NUM_ENV; i++) {
        const size_t edits = num_edits(name, table[i].name);
        if (edits == 0)
            return true;
        if (edits < fewest) {
            fewest = edits;
            *nearest_out = table[i].name;
        }
    }
    return false;
}

/* The next name of ours from `entry` on that is not in the table; NULL behind the last one. */
static char **next_unknown(char **entry, char name[NAME_BYTES], const char **nearest_out)
{
    for (; entry && *entry; entry++) {
        if (strncmp(*entry, PREFIX, strlen(PREFIX)) != 0)
            continue;
        get_name(*entry, name);
        if (!is_known(name, nearest_out))
            return entry;
    }
    return NULL;
}

/* Whether files can be made there; "" names none. Else false with errno. */
static bool is_folder(const char *path)
{
    struct stat found;
    if (path[0] == '\0')
        return true;
    if (stat(path, &found) != 0)
        return false;
    errno = ENOTDIR;
    return S_ISDIR(found.st_mode) && access(path, W_OK | X_OK) == 0;
}

static void take(int index, const char *text)
{
    texts[index] = strdup(text);
    if (!parse(&table[index], text, &values[index])) {
        if (!problem[0])
            snprintf(problem, sizeof(problem), "%s='%.64s' is not one of %s", table[index].name,
                     text, table[index].allowed);
    } else if (((index == ENV_LOG_FILE && !psti_log_open(text)) ||
                (index == ENV_TOP && !is_folder(text))) &&
               !problem[0]) {
        snprintf(problem, sizeof(problem), "%s='%.200s': %s", table[index].name, text,
                 strerror(errno));
    }
}

/* A misspelt name is refused like a bad value: whoever set it believes that it holds. */
static void read_environment(void)
{
    char name[NAME_BYTES];
    const char *nearest;
    for (int i = 0; i < NUM_ENV; i++) {
        const char *text = getenv(table[i].name);
        parse(&table[i], table[i].default_value, &values[i]);
        if (text)
            take(i, text);
    }
    for (char **entry = environ; (entry = next_unknown(entry, name, &nearest)) != NULL; entry++)
        if (nearest && !problem[0])
            snprintf(problem, sizeof(problem), "%s is not a variable of pagestash: %s was meant?",
                     name, nearest);
    __atomic_store_n(&ready, 1, __ATOMIC_RELEASE);
}

/* Once, and after the table is there: a log callback may read it. */
static void warn_unknowns(void)
{
    static int warned;
    char name[NAME_BYTES];
    const char *nearest;
    if (__atomic_exchange_n(&warned, 1, __ATOMIC_RELAXED))
        return;
    for (char **entry = environ; (entry = next_unknown(entry, name, &nearest)) != NULL; entry++)
        if (!nearest) /* else pst_env_check fails */
            psti_log(PST_LOG_WARN, "%s is not a variable of pagestash", name);
}

static int value_of(int index)
{
    return __atomic_load_n(&ready, __ATOMIC_ACQUIRE) ? values[index] : 0;
}

int psti_env_log_level(const char *room, size_t length)
{
    const int index = room_of(room, length);
    if (!__atomic_load_n(&ready, __ATOMIC_ACQUIRE))
        return PST_LOG_OFF;
    return index < 0 ? values[ENV_LOG] : room_levels[index];
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

const char *psti_env_top(void)
{
    const bool is_read = __atomic_load_n(&ready, __ATOMIC_ACQUIRE);
    return is_read && texts[ENV_TOP] && texts[ENV_TOP][0] ? texts[ENV_TOP] : NULL;
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
