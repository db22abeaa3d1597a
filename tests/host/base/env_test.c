/* The table of environment variables. The environment is read once in a process, so most of this
 * happens in children. */
#include "tests/harness.h"

#include <stdio.h>
#include <stdlib.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"
#include "tests/host/base/child.h"

#define LEVELS "off|error|warn|info|debug, also of one room: warn,comm=debug"

/* ---- the table ---- */

PST_TEST(Env, GetRefusesAnIndexOutsideTheTable)
{
    pst_env_info info = {.name = "untouched"};
    CHECK_STATUS(pst_env_get(-1, &info), PST_E_INVALID);
    CHECK_STATUS(pst_env_get(pst_env_count(), &info), PST_E_INVALID);
    CHECK_STATUS(pst_env_get(INT32_MAX, &info), PST_E_INVALID);
    CHECK_STR(info.name, "untouched");
    CHECK_STATUS(pst_env_get(0, NULL), PST_E_INVALID);
}

PST_TEST(Env, TableIsComplete)
{
    static const char *const names[] = {"PAGESTASH_BACKEND",
                                        "PAGESTASH_BLAS",
                                        "PAGESTASH_CHECK",
                                        "PAGESTASH_COMMAND",
                                        "PAGESTASH_CUBLASLT_LIBRARY",
                                        "PAGESTASH_LIBRARY",
                                        "PAGESTASH_LOG",
                                        "PAGESTASH_LOG_FILE",
                                        "PAGESTASH_NCCL_LIBRARY",
                                        "PAGESTASH_NUM_SMS",
                                        "PAGESTASH_NVTX",
                                        "PAGESTASH_OPS",
                                        "PAGESTASH_REQUIRE_GPU",
                                        "PAGESTASH_TOP",
                                        "PAGESTASH_TORCH",
                                        "PAGESTASH_TORCH_DEVICE",
                                        "PAGESTASH_TORCH_LIBRARY",
                                        "PAGESTASH_TORCH_PLAN",
                                        "PAGESTASH_TORCH_TRACE"};
    CHECK_EQ(pst_env_count(), 19);
    for (int i = 0; i < pst_env_count(); i++) {
        pst_env_info info;
        CHECK_OK(pst_env_get(i, &info));
        CHECK_STR(info.name, names[i]);
        CHECK(strcmp(info.type, "choice") == 0 || strcmp(info.type, "int") == 0 ||
              strcmp(info.type, "bool") == 0 || strcmp(info.type, "path") == 0 ||
              strcmp(info.type, "levels") == 0);
        CHECK(info.allowed[0] && info.default_value[0] && info.help[0]);
        CHECK(strchr(info.help, '\n') == NULL);
        CHECK(info.value != NULL);
        for (int j = 0; j < i; j++)
            CHECK(strcmp(names[i], names[j]) != 0);
    }
}

/* ---- what a process says of its environment ---- */

PST_CHILD(env_report)
{
    pst_device *device = NULL;
    pst_env_info info;
    const pst_status first = pst_env_check();
    const pst_status open = pst_device_open("host", 0, &device);
    const pst_status again = pst_env_check();
    printf("%s %s %s\n%s\n", pst_status_name(first), pst_status_name(open), pst_status_name(again),
           pst_last_message());
    setenv("PAGESTASH_LOG", "debug", 1); /* too late */
    char *text = getenv("PAGESTASH_NUM_SMS");
    if (text)
        memset(text, '9', strlen(text)); /* the library has a copy */
    for (int i = 0; pst_env_get(i, &info) == PST_OK && strstr(info.name, "GPU") == NULL; i++)
        printf("%s=%s %s\n", info.name, info.value, info.is_set ? "set" : "default");
    printf("%d %d %d %d %s\n", (int)psti_env_backend(), psti_env_log_level("comm", 4),
           psti_env_num_sms(), psti_env_nvtx(), psti_env_text("PAGESTASH_NCCL_LIBRARY"));
    pst_device_close(device);
}

static void check_report(const char *const *variables, const char *out, const char *err)
{
    child_result child;
    CHECK(child_run("env_report", variables, &child) && child.exited);
    CHECK_STR(child.out, out);
    CHECK_STR(child.err, err);
}

PST_TEST(Env, DefaultsWhereNothingIsSet)
{
    check_report(NULL,
                 "PST_OK PST_OK PST_OK\n\nPAGESTASH_BACKEND=auto default\n"
                 "PAGESTASH_BLAS=auto default\n"
                 "PAGESTASH_CHECK=0 default\n"
                 "PAGESTASH_COMMAND=pagestash default\n"
                 "PAGESTASH_CUBLASLT_LIBRARY=auto default\n"
                 "PAGESTASH_LIBRARY=libpagestash.so default\n"
                 "PAGESTASH_LOG=off default\nPAGESTASH_LOG_FILE=stderr "
                 "default\nPAGESTASH_NCCL_LIBRARY=libnccl.so.2 default\n"
                 "PAGESTASH_NUM_SMS=0 default\n"
                 "PAGESTASH_NVTX=1 default\nPAGESTASH_OPS=libpagestash_ops.so default\n0 0 0 1 "
                 "libnccl.so.2\n",
                 "");
}

PST_TEST(Env, ValuesAreTakenAtFirstUseAndKept)
{
    static const char *const most[] = {"PAGESTASH_BACKEND=squeeze",
                                       "PAGESTASH_BLAS=none",
                                       "PAGESTASH_CHECK=1",
                                       "PAGESTASH_LOG=error",
                                       "PAGESTASH_NUM_SMS=1024",
                                       "PAGESTASH_NVTX=0",
                                       "PAGESTASH_REQUIRE_GPU=1",
                                       "PAGESTASH_NCCL_LIBRARY=/a b/libnccl.so",
                                       NULL};
    static const char *const least[] = {"PAGESTASH_LOG=off", "PAGESTASH_NUM_SMS=0", NULL};
    check_report(most,
                 "PST_OK PST_OK PST_OK\n\nPAGESTASH_BACKEND=squeeze set\n"
                 "PAGESTASH_BLAS=none set\n"
                 "PAGESTASH_CHECK=1 set\n"
                 "PAGESTASH_COMMAND=pagestash default\n"
                 "PAGESTASH_CUBLASLT_LIBRARY=auto default\n"
                 "PAGESTASH_LIBRARY=libpagestash.so default\n"
                 "PAGESTASH_LOG=error set\nPAGESTASH_LOG_FILE=stderr "
                 "default\nPAGESTASH_NCCL_LIBRARY=/a b/libnccl.so set\n"
                 "PAGESTASH_NUM_SMS=1024 set\n"
                 "PAGESTASH_NVTX=0 set\nPAGESTASH_OPS=libpagestash_ops.so default\n3 1 1024 0 /a "
                 "b/libnccl.so\n",
                 "");
    check_report(least,
                 "PST_OK PST_OK PST_OK\n\nPAGESTASH_BACKEND=auto default\n"
                 "PAGESTASH_BLAS=auto default\n"
                 "PAGESTASH_CHECK=0 default\n"
                 "PAGESTASH_COMMAND=pagestash default\n"
                 "PAGESTASH_CUBLASLT_LIBRARY=auto default\n"
                 "PAGESTASH_LIBRARY=libpagestash.so default\n"
                 "PAGESTASH_LOG=off set\nPAGESTASH_LOG_FILE=stderr "
                 "default\nPAGESTASH_NCCL_LIBRARY=libnccl.so.2 default\n"
                 "PAGESTASH_NUM_SMS=0 set\n"
                 "PAGESTASH_NVTX=1 default\nPAGESTASH_OPS=libpagestash_ops.so default\n0 0 0 1 "
                 "libnccl.so.2\n",
                 "");
}

PST_TEST(Env, BadValuesAreRefusedByNameAndValue)
{
    static const struct {
        const char *name, *value, *allowed;
    } bad[] = {
        {"PAGESTASH_BACKEND", "tma", "auto|ldg|bulk|squeeze"},
        {"PAGESTASH_BACKEND", "", "auto|ldg|bulk|squeeze"},
        {"PAGESTASH_BLAS", "", "auto, none, file names"},
        {"PAGESTASH_LOG", "", LEVELS},
        {"PAGESTASH_LOG", "verbose", LEVELS},
        {"PAGESTASH_LOG", "warn|info", LEVELS},
        {"PAGESTASH_LOG", "WARN", LEVELS},
        {"PAGESTASH_LOG", "warnings", LEVELS},
        {"PAGESTASH_LOG", "war", LEVELS},
        {"PAGESTASH_LOG", "warn,", LEVELS},
        {"PAGESTASH_LOG", ",warn", LEVELS},
        {"PAGESTASH_LOG", "warn,comm", LEVELS},
        {"PAGESTASH_LOG", "com=warn", LEVELS},
        {"PAGESTASH_LOG", "comm=", LEVELS},
        {"PAGESTASH_LOG", "=warn", LEVELS},
        {"PAGESTASH_LOG", "comm=warn=info", LEVELS},
        {"PAGESTASH_LOG_FILE", "", "file names; %p: the process, %h: the host"},
        {"PAGESTASH_NCCL_LIBRARY", "", "file names"},
        {"PAGESTASH_NUM_SMS", "", "0..1024"},
        {"PAGESTASH_NUM_SMS", "-1", "0..1024"},
        {"PAGESTASH_NUM_SMS", "-", "0..1024"},
        {"PAGESTASH_NUM_SMS", "1025", "0..1024"},
        {"PAGESTASH_NUM_SMS", "12 ", "0..1024"},
        {"PAGESTASH_NUM_SMS", " 12", "0..1024"},
        {"PAGESTASH_NUM_SMS", "0x10", "0..1024"},
        {"PAGESTASH_NUM_SMS", "all", "0..1024"},
        {"PAGESTASH_NUM_SMS", "4294967296", "0..1024"},
        {"PAGESTASH_NUM_SMS", "99999999999999999999", "0..1024"},
        {"PAGESTASH_NVTX", "yes", "0|1"},
        {"PAGESTASH_NVTX", "2", "0|1"},
        {"PAGESTASH_REQUIRE_GPU", "", "0|1"},
        {"PAGESTASH_REQUIRE_GPU", "00", "0|1"},
        {"PAGESTASH_TORCH", "replay", "off|record|plan"},
        {"PAGESTASH_TORCH_DEVICE", "gpu", "auto|host|cuda"},
        {"PAGESTASH_TORCH_PLAN", "", "file names"},
        {"PAGESTASH_TORCH_TRACE", "", "file names"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char variable[128], expected[256];
        child_result child;
        const char *const variables[] = {variable, NULL};
        snprintf(variable, sizeof(variable), "%s=%s", bad[i].name, bad[i].value);
        snprintf(expected, sizeof(expected),
                 "PST_E_INVALID PST_E_INVALID PST_E_INVALID\n%s='%s' is not one of %s [env.c:",
                 bad[i].name, bad[i].value, bad[i].allowed);
        CHECK(child_run("env_report", variables, &child) && child.exited);
        CHECK_MSG(strncmp(child.out, expected, strlen(expected)) == 0, "%s gave:\n%s", variable,
                  child.out);
        CHECK_STR(child.err, "");
    }
}

PST_TEST(Env, ABadValueStandsInTheTableButIsNotUsed)
{
    static const char *const variables[] = {"PAGESTASH_LOG=loud", "PAGESTASH_NUM_SMS=7", NULL};
    child_result child;
    CHECK(child_run("env_report", variables, &child) && child.exited);
    CHECK_MSG(strstr(child.out, "\nPAGESTASH_LOG=loud set\nPAGESTASH_LOG_FILE=stderr "
                                "default\nPAGESTASH_NCCL_LIBRARY=libnccl.so.2 default\n"
                                "PAGESTASH_NUM_SMS=7 set\n"),
              "%s", child.out);
    CHECK_MSG(strstr(child.out, "\n0 0 7 1 libnccl.so.2\n"), "%s", child.out);
}

PST_CHILD(env_torch)
{
    puts(pst_status_name(pst_env_check()));
    printf("%s %s %s %s\n", psti_env_text("PAGESTASH_TORCH"),
           psti_env_text("PAGESTASH_TORCH_DEVICE"), psti_env_text("PAGESTASH_TORCH_PLAN"),
           psti_env_text("PAGESTASH_TORCH_TRACE"));
}

PST_TEST(Env, WhatTheTorchLibraryIsTold)
{
    static const char *const set[] = {"PAGESTASH_TORCH=plan", "PAGESTASH_TORCH_DEVICE=host",
                                      "PAGESTASH_TORCH_PLAN=/a b/p.csv",
                                      "PAGESTASH_TORCH_TRACE=t.csv", NULL};
    static const char *const record[] = {"PAGESTASH_TORCH=record", NULL};
    child_result child;
    CHECK(child_run("env_torch", set, &child) && child.exited);
    CHECK_STR(child.out, "PST_OK\nplan host /a b/p.csv t.csv\n");
    CHECK(child_run("env_torch", record, &child) && child.exited);
    CHECK_STR(child.out, "PST_OK\nrecord auto pagestash-plan.csv pagestash-trace.csv\n");
}

/* ---- unknown names ---- */

static void print_message(pst_log_level level, const char *message, void *user)
{
    (void)user;
    printf("%d %s\n", (int)level, message);
}

PST_CHILD(env_unknown)
{
    pst_log_set_callback(PST_LOG_WARN, print_message, NULL);
    puts(pst_status_name(pst_env_check()));
    puts(pst_status_name(pst_env_check()));
}

PST_TEST(Env, MisspeltNamesAreRefused)
{
    static const struct {
        const char *variable, *name, *meant;
    } misspelt[] = {
        {"PAGESTASH_LGO=off", "PAGESTASH_LGO", "PAGESTASH_LOG"},
        {"PAGESTASH_LOGS=", "PAGESTASH_LOGS", "PAGESTASH_LOG"},
        {"PAGESTASH_NUMSMS=4", "PAGESTASH_NUMSMS", "PAGESTASH_NUM_SMS"},
        {"PAGESTASH_NVXT=4", "PAGESTASH_NVXT", "PAGESTASH_NVTX"},
        {"PAGESTASH_REQUIRES_GPU=4", "PAGESTASH_REQUIRES_GPU", "PAGESTASH_REQUIRE_GPU"},
    };
    for (size_t i = 0; i < sizeof(misspelt) / sizeof(misspelt[0]); i++) {
        char expected[256];
        child_result child;
        const char *const variables[] = {misspelt[i].variable, "PAGESTASH_NUM_SMS=3", NULL};
        snprintf(expected, sizeof(expected),
                 "PST_E_INVALID PST_E_INVALID PST_E_INVALID\n%s is not a variable of pagestash: %s "
                 "was meant? [env.c:",
                 misspelt[i].name, misspelt[i].meant);
        CHECK(child_run("env_report", variables, &child) && child.exited);
        CHECK_MSG(strncmp(child.out, expected, strlen(expected)) == 0, "%s gave:\n%s",
                  misspelt[i].variable, child.out);
        CHECK_STR(child.err, "");
    }
}

PST_TEST(Env, UnknownNamesGetAWarningOnce)
{
    static const char *const variables[] = {"PAGESTASH_FOO=off", "PAGESTASH_NUM_SMS=3", NULL};
    child_result child;
    CHECK(child_run("env_unknown", variables, &child) && child.exited);
    CHECK_STR(child.out, "2 PAGESTASH_FOO is not a variable of pagestash\nPST_OK\nPST_OK\n");
    CHECK_STR(child.err, "");
}

PST_TEST(Env, OtherNamesAreNobodysBusiness)
{
    static const char *const variables[] = {"XPAGESTASH_LOG=1", "PAGESTAS=2", NULL};
    child_result child;
    CHECK(child_run("env_unknown", variables, &child) && child.exited);
    CHECK_STR(child.out, "PST_OK\nPST_OK\n");
}

PST_CHILD(env_open)
{
    pst_device *device = NULL;
    puts(pst_status_name(pst_device_open("host", 0, &device)));
    puts(pst_status_name(pst_device_close(device)));
}

PST_TEST(Env, UnknownNamesAreNotPrintedUnlessAsked)
{
    static const char *const quiet[] = {"PAGESTASH_FOO=off", NULL};
    static const char *const loud[] = {"PAGESTASH_FOO=off", "PAGESTASH_LOG=warn", NULL};
    child_result child;
    CHECK(child_run("env_open", quiet, &child) && child.exited);
    CHECK_STR(child.out, "PST_OK\nPST_OK\n");
    CHECK_STR(child.err, "");
    CHECK(child_run("env_open", loud, &child) && child.exited);
    CHECK_STR(child.out, "PST_OK\nPST_OK\n");
    CHECK_STR(child.err, "pagestash warn: PAGESTASH_FOO is not a variable of pagestash\n");
}

/* log.h allows a callback to read the table. */
static void read_table(pst_log_level level, const char *message, void *user)
{
    pst_env_info info;
    (void)level;
    (void)message;
    (void)user;
    puts(pst_status_name(pst_env_get(0, &info)));
}

PST_CHILD(env_reentrant)
{
    pst_log_set_callback(PST_LOG_WARN, read_table, NULL);
    puts(pst_status_name(pst_env_check()));
}

PST_TEST(Env, AWarningsCallbackMayReadTheTable)
{
    static const char *const variables[] = {"PAGESTASH_FOO=off", NULL};
    child_result child;
    CHECK(child_run("env_reentrant", variables, &child));
    CHECK(child.exited);
    CHECK_STR(child.out, "PST_OK\nPST_OK\n");
}
