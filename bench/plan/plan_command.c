/* The command, where its program is given, as users run it: how long it takes to refuse, to keep a deadline of
 * the mixed-integer program, and to draw a plan; beside what it takes to say its version. */
#include "bench/plan/plan_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORDS = 16 };

/* Its exit code; wall clock and both kinds of processor time in seconds. */
static int run_words(const char *const words[MAX_WORDS], effort *taken)
{
    const double begin = bench_now();
    int status = -1;
    struct rusage usage;
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0) {
        const int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        dup2(nowhere, STDERR_FILENO);
        execv(chosen.command, (char *const *)words);
        _exit(127);
    }
    if (child < 0 || wait4(child, &status, 0, &usage) != child || !WIFEXITED(status) ||
        WEXITSTATUS(status) == 127)
        exit(tool_fail(TOOL_INPUT, "%s: cannot be run", chosen.command));
    taken->wall = bench_now() - begin;
    taken->cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return WEXITSTATUS(status);
}

/* Medians; ends this program where the exit code is another. */
static effort measure(int code, const char *const words[MAX_WORDS])
{
    bench_series wall = {.num = 0}, cpu = {.num = 0};
    for (int i = 0; i < PLAN_BENCH_SAMPLES; i++) {
        effort taken;
        const int got = run_words(words, &taken);
        if (got != code)
            exit(tool_fail(TOOL_NO, "%s %s %s: exit code %d: wanted is %d", chosen.command,
                           words[1], words[2] != NULL ? words[2] : "", got, code));
        bench_series_add(&wall, taken.wall);
        bench_series_add(&cpu, taken.cpu);
    }
    return (effort){bench_summary(&wall).median, bench_summary(&cpu).median};
}

static json_t *put_row(const char *name, effort of)
{
    json_t *row = json_object();
    json_put_text(&row, "name", name);
    json_put(&row, "seconds", json_number(of.wall));
    json_put(&row, "cpu_seconds", json_number(of.cpu));
    say("%-38s %.4f s; processor %.4f\n", name, of.wall, of.cpu);
    return row;
}

/* Of the mixed-integer program, on MiniMalloc's A, which it does not solve in that time. */
static void run_solver(void)
{
    char path[4096];
    effort taken;
    snprintf(path, sizeof(path), "%s/A.1048576.csv", chosen.minimalloc);
    const char *words[MAX_WORDS] = {"pagestash",    "plan", "--method",   "mip",
                                    "--minimalloc", path,   "--deadline", "2"};
    if (run_words(words, &taken) == TOOL_USAGE) {
        say("%-38s not measured: there is no CBC\n", "mip, deadline 2 s");
        return;
    }
    taken = measure(TOOL_OK, words);
    json_t *row = put_row("mip, deadline 2 s", taken);
    json_put(&row, "deadline_seconds", json_number(2.0));
    json_put(&row, "ends_after", json_number(taken.wall / 2.0));
    say("%-38s %.3f of it, target 1.1 %s\n", "", taken.wall / 2.0,
        taken.wall <= 2.2 ? "met" : "missed");
    json_add(&rows, row);
}

static void run_picture(const char *trace, const char *page)
{
    effort taken;
    struct stat of;
    const char *derive[MAX_WORDS] = {
        "pagestash", "trace",    "--derive", "--num-layers", "80", "--num-micro-batches", "12",
        "--full",    "--warmup", "4",        "--out",        trace};
    const char *words[MAX_WORDS] = {"pagestash", "plan", "--trace", trace};
    if (run_words(derive, &taken) != TOOL_OK)
        exit(tool_fail(TOOL_NO, "%s trace: no trace for a picture", chosen.command));
    const effort plain = measure(TOOL_OK, words);
    json_add(&rows, put_row("plan of 62,688 tensors", plain));
    words[4] = "--html";
    words[5] = page;
    taken = measure(TOOL_OK, words);
    json_t *row = put_row("plan of 62,688 tensors, its picture", taken);
    if (stat(page, &of) != 0)
        exit(tool_fail(TOOL_INPUT, "%s: %s", page, strerror(errno)));
    json_put_whole(&row, "page_bytes", (uint64_t)of.st_size);
    say("%-38s %.2f times the plan alone; a page of %.1f MB\n", "", taken.wall / plain.wall,
        (double)of.st_size / 1e6);
    json_add(&rows, row);
}

void run_command(void)
{
    char folder[] = "/tmp/pagestash-command-XXXXXX";
    char trace[64], page[64];
    if (strcmp(chosen.command, "-") == 0)
        return;
    if (mkdtemp(folder) == NULL)
        exit(tool_fail(TOOL_INPUT, "%s: %s", folder, strerror(errno)));
    snprintf(trace, sizeof(trace), "%s/trace.csv", folder);
    snprintf(page, sizeof(page), "%s/plan.html", folder);
    const char *version[MAX_WORDS] = {"pagestash", "--version"};
    const char *endless[MAX_WORDS] = {"pagestash", "plan", "--pytorch", "/dev/zero"};
    json_add(&rows, put_row("says its version", measure(TOOL_OK, version)));
    json_add(&rows, put_row("refuses an endless snapshot", measure(TOOL_INPUT, endless)));
    run_solver();
    run_picture(trace, page);
    unlink(trace);
    unlink(page);
    rmdir(folder);
}
