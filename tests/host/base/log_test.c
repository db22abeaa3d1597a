/* Levels, the callback, and silence by default. */
#include "tests/harness.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/host/base/child.h"

typedef struct heard {
    int messages;
    pst_log_level last_level;
    char last[1100];
    int nested; /* calls from within the callback */
} heard;

static heard all; /* static, because a failed test leaves its callback behind */

static void hear(pst_log_level level, const char *message, void *user)
{
    heard *self = user;
    self->messages++;
    self->last_level = level;
    snprintf(self->last, sizeof(self->last), "%s", message);
}

static void silence(void)
{
    pst_log_set_callback(PST_LOG_OFF, NULL, NULL);
}

/* Fault rows 66. */
PST_TEST(Log, ACallbackGetsItsLevelAndBelow)
{
    for (int limit = PST_LOG_OFF; limit <= PST_LOG_DEBUG; limit++) {
        all = (heard){.messages = 0};
        pst_log_set_callback((pst_log_level)limit, hear, &all);
        for (int level = PST_LOG_ERROR; level <= PST_LOG_DEBUG; level++) {
            const int before = all.messages;
            psti_log((pst_log_level)level, "%d of %s", level, "four");
            CHECK_EQ(all.messages - before, level <= limit);
            CHECK(level > limit || (int)all.last_level == level);
        }
        silence();
        psti_log(PST_LOG_ERROR, "nobody hears this");
        CHECK_EQ(all.messages, limit);
    }
}

PST_TEST(Log, MessagesAreWholeOrCut)
{
    all = (heard){.messages = 0};
    char text[3000];
    memset(text, 'y', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    pst_log_set_callback(PST_LOG_DEBUG, hear, &all);
    psti_log(PST_LOG_DEBUG, "%s", "100% of it");
    const bool whole = strcmp(all.last, "100% of it") == 0;
    psti_log(PST_LOG_INFO, "%s", text);
    silence();
    CHECK(whole);
    CHECK_EQ(strlen(all.last), 1023);
}

PST_TEST(Log, AFailureIsLoggedWithItsName)
{
    all = (heard){.messages = 0};
    pst_log_set_callback(PST_LOG_ERROR, hear, &all);
    const pst_status status = pst_pool_bytes(NULL, NULL);
    silence();
    CHECK_EQ(status, PST_E_INVALID);
    CHECK_EQ(all.messages, 1);
    CHECK(strncmp(all.last, "PST_E_INVALID: config or bytes_out is NULL [pool_layout.c:", 57) == 0);
    CHECK_STR(all.last + strlen("PST_E_INVALID: "), pst_last_message());
}

/* A program that polls before its first step is healthy. */
PST_TEST(Log, NoAnswerYetIsNoError)
{
    for (int limit = PST_LOG_ERROR; limit <= PST_LOG_DEBUG; limit++) {
        all = (heard){.messages = 0};
        pst_log_set_callback((pst_log_level)limit, hear, &all);
        const pst_status status = PSTI_FAIL(PST_E_AGAIN, "not yet");
        silence();
        CHECK_EQ(status, PST_E_AGAIN);
        CHECK(strncmp(pst_last_message(), "not yet [log_test.c:", 20) == 0);
        CHECK_EQ(all.messages, limit == PST_LOG_DEBUG);
    }
    CHECK_EQ(all.last_level, PST_LOG_DEBUG);
}

/* Calls query functions, logs, and takes itself away: all would hang if a lock were held. */
static void call_back(pst_log_level level, const char *message, void *user)
{
    heard *self = user;
    pst_env_info info;
    hear(level, message, user);
    if (pst_env_get(0, &info) == PST_OK && strcmp(pst_status_name(PST_OK), "PST_OK") == 0)
        self->nested++;
    if (self->messages == 1)
        psti_log(PST_LOG_WARN, "inside");
    pst_log_set_callback(PST_LOG_ERROR, hear, user);
}

/* Fault rows 66. */
PST_TEST(Log, TheCallbackMayCallTheLibrary)
{
    all = (heard){.messages = 0};
    pst_log_set_callback(PST_LOG_WARN, call_back, &all);
    psti_log(PST_LOG_WARN, "outside");
    psti_log(PST_LOG_WARN, "above the new level");
    psti_log(PST_LOG_ERROR, "to the new one");
    silence();
    CHECK_EQ(all.messages, 3);
    CHECK_EQ(all.nested, 2);
    CHECK_STR(all.last, "to the new one");
}

static void count(pst_log_level level, const char *message, void *user)
{
    (void)level;
    (void)message;
    __atomic_fetch_add((int *)user, 1, __ATOMIC_RELAXED);
}

enum { TIMES = 500 };

static void *log_often(void *arg)
{
    (void)arg;
    for (int i = 0; i < TIMES; i++)
        psti_log(PST_LOG_INFO, "%d", i);
    return NULL;
}

PST_TEST(Log, ThreadsMayLogWhileTheCallbackIsSet)
{
    static int messages;
    pthread_t threads[3];
    messages = 0;
    pst_log_set_callback(PST_LOG_INFO, count, &messages);
    for (int i = 0; i < 3; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, log_often, NULL), 0);
    for (int i = 0; i < TIMES; i++)
        pst_log_set_callback(PST_LOG_INFO, count, &messages);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    silence();
    CHECK_EQ(messages, 3 * TIMES);
}

static uint32_t is_inside, may_leave; /* atomic */

/* Of the thread that warns: stays until somebody else has logged. */
static void dawdle(pst_log_level level, const char *message, void *user)
{
    (void)message;
    (void)user;
    if (level != PST_LOG_WARN)
        return;
    __atomic_store_n(&is_inside, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&may_leave, __ATOMIC_ACQUIRE))
        sched_yield();
}

static void *warn_once(void *arg)
{
    (void)arg;
    psti_log(PST_LOG_WARN, "slow");
    return NULL;
}

/* Fault rows 66. */
PST_TEST(Log, ASlowCallbackHoldsNobodyUp)
{
    pst_device *device = NULL;
    pthread_t thread;
    is_inside = may_leave = 0;
    pst_log_set_callback(PST_LOG_INFO, dawdle, NULL);
    CHECK_EQ(pthread_create(&thread, NULL, warn_once, NULL), 0);
    while (!__atomic_load_n(&is_inside, __ATOMIC_ACQUIRE))
        sched_yield();
    psti_log(PST_LOG_INFO, "another thread logs");
    const pst_status opened = pst_device_open("host", 0, &device);
    const pst_status refused = pst_pool_bytes(NULL, NULL);
    silence();
    __atomic_store_n(&may_leave, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    CHECK_EQ(opened, PST_OK);
    CHECK_EQ(refused, PST_E_INVALID);
    CHECK_OK(pst_device_close(device));
}

/* ---- stderr ---- */

PST_CHILD(log_everything)
{
    pst_device *device = NULL;
    pst_pool *pool = NULL;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = 1;
    if (pst_device_open("host", 0, &device) || pst_pool_create(device, &config, &pool))
        return;
    pst_pool_bytes(NULL, NULL); /* an error */
    psti_log(PST_LOG_WARN, "a warning");
    psti_log(PST_LOG_DEBUG, "details");
    pst_pool_destroy(pool);
    pst_device_close(device);
    puts("done");
}

PST_CHILD(log_rooms)
{
    pst_env_check();
    psti_log_from("host/comm/comm.c", PST_LOG_DEBUG, "of comm");
    psti_log_from("host/stash/pool.c", PST_LOG_DEBUG, "of stash");
    psti_log_from("host/stash/pool.c", PST_LOG_ERROR, "of stash, an error");
    psti_log_from("host/trace/trace.c", PST_LOG_WARN, "of trace");
    psti_log_from("tests/elsewhere.c", PST_LOG_WARN, "of no room");
    psti_log_from("nowhere.c", PST_LOG_ERROR, "of no folder");
}

static int lines(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += *text == '\n';
    return n;
}

PST_TEST(Log, NothingIsPrintedByDefault)
{
    static const char *const off[] = {"PAGESTASH_LOG=off", NULL};
    child_result child;
    CHECK(child_run("log_everything", NULL, &child) && child.exited);
    CHECK_STR(child.out, "done\n");
    CHECK_STR(child.err, "");
    CHECK(child_run("log_everything", off, &child) && child.exited);
    CHECK_STR(child.out, "done\n");
    CHECK_STR(child.err, "");
}

PST_TEST(Log, StderrGetsWhatTheEnvironmentAsksFor)
{
    static const char *const settings[] = {"PAGESTASH_LOG=error", "PAGESTASH_LOG=warn",
                                           "PAGESTASH_LOG=info", "PAGESTASH_LOG=debug"};
    static const char *const begins[] = {
        "pagestash error: PST_E_INVALID: config", "pagestash warn: a warning\n",
        "pagestash info: pool of 1 pages, ", "pagestash debug: details\n"};
    child_result child;
    for (int level = 0; level < 4; level++) {
        const char *const variables[] = {settings[level], NULL};
        CHECK(child_run("log_everything", variables, &child) && child.exited);
        CHECK_STR(child.out, "done\n");
        const int expected = level + 1 + (level >= 2); /* a device and a pool */
        CHECK_MSG(lines(child.err) == expected, "%s: %s", settings[level], child.err);
        for (int i = 0; i < 4; i++)
            CHECK_MSG((strstr(child.err, begins[i]) != NULL) == (i <= level), "%s: %s",
                      settings[level], child.err);
    }
}

PST_TEST(Log, RoomsHaveLevelsOfTheirOwn)
{
    static const char *const one[] = {"PAGESTASH_LOG=comm=debug", NULL};
    static const char *const list[] = {"PAGESTASH_LOG=warn,comm=debug,stash=off", NULL};
    static const char *const last[] = {"PAGESTASH_LOG=stash=debug,error,stash=error", NULL};
    child_result child;
    CHECK(child_run("log_rooms", one, &child) && child.exited);
    CHECK_STR(child.err, "pagestash debug: of comm\n");
    CHECK(child_run("log_rooms", list, &child) && child.exited);
    CHECK_STR(child.err, "pagestash debug: of comm\npagestash warn: of trace\n"
                         "pagestash warn: of no room\npagestash error: of no folder\n");
    CHECK(child_run("log_rooms", last, &child) && child.exited);
    CHECK_STR(child.err, "pagestash error: of stash, an error\npagestash error: of no folder\n");
}

/* ---- a file ---- */

/* The text of the only file in a folder, which both go; its name is name_out. */
static void take_file(const char *folder, char *name_out, size_t name_bytes, char *text_out,
                      size_t text_bytes)
{
    char path[512];
    DIR *list = opendir(folder);
    *name_out = *text_out = '\0';
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name_out, name_bytes, "%s", entry->d_name);
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        FILE *file = fopen(path, "r");
        text_out[file != NULL ? fread(text_out, 1, text_bytes - 1, file) : 0] = '\0';
        if (file != NULL)
            fclose(file);
        unlink(path);
    }
    if (list != NULL)
        closedir(list);
    rmdir(folder);
}

PST_TEST(Log, AFileGetsTimeProcessAndRoom)
{
    char folder[] = "/tmp/pagestash-log-XXXXXX", variable[128], name[256], text[4096], host[200];
    child_result child;
    CHECK(mkdtemp(folder) != NULL);
    snprintf(variable, sizeof(variable), "PAGESTASH_LOG_FILE=%s/of-%%h-%%p", folder);
    const char *const variables[] = {variable, "PAGESTASH_LOG=comm=debug,stash=error", NULL};
    const bool ran = child_run("log_rooms", variables, &child) && child.exited;
    take_file(folder, name, sizeof(name), text, sizeof(text));
    CHECK(ran);
    CHECK_STR(child.err, "");
    long process = 0, again = 0, thread = 0;
    int length = 0;
    CHECK_EQ(sscanf(name, "of-%199[^ ]", host), 1);
    char *dash = strrchr(name, '-');
    CHECK(dash != NULL && sscanf(dash, "-%ld", &process) == 1);
    *dash = '\0';
    gethostname(host, sizeof(host));
    CHECK_STR(name + 3, host);
    CHECK_EQ(
        sscanf(text, "%*d-%*d-%*d %*d:%*d:%*d.%*6d %ld:%ld pagestash %n", &again, &thread, &length),
        2);
    CHECK_EQ(again, process);
    CHECK_EQ(thread, process);
    CHECK(strncmp(text + length, "debug comm: of comm\n", 20) == 0);
    CHECK_EQ(lines(text), 2);
    CHECK(strstr(text, "pagestash error stash: of stash, an error\n") != NULL);
}

PST_CHILD(log_check)
{
    puts(pst_status_name(pst_env_check()));
    puts(pst_last_message());
}

PST_TEST(Log, AFileThatCannotBeWrittenIsRefused)
{
    static const char *const absent[] = {"PAGESTASH_LOG_FILE=/nowhere/log", NULL};
    static const char *const folder[] = {"PAGESTASH_LOG_FILE=/tmp", NULL};
    static const char *const letter[] = {"PAGESTASH_LOG_FILE=/tmp/%d", NULL};
    child_result child;
    CHECK(child_run("log_check", absent, &child) && child.exited);
    CHECK(strstr(child.out, "PST_E_INVALID\nPAGESTASH_LOG_FILE='/nowhere/log': No such file or "
                            "directory [env.c:") == child.out);
    CHECK(child_run("log_check", folder, &child) && child.exited);
    CHECK(strstr(child.out, "PST_E_INVALID\nPAGESTASH_LOG_FILE='/tmp': Is a directory [env.c:") ==
          child.out);
    CHECK(child_run("log_check", letter, &child) && child.exited);
    CHECK(strstr(child.out, "PST_E_INVALID\nPAGESTASH_LOG_FILE='/tmp/%d': Invalid argument "
                            "[env.c:") == child.out);
}
