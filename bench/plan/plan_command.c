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

static char folder[] = "/tmp/pagestash-command-XXXXXX", trace[64], page[64];

/* Whatever ends this program. */
static void clear(void)
{
    unlink(trace);
    unlink(page);
    rmdir(folder);
}

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
    while (child > 0 && wait4(child, &status, 0, &usage) < 0 && errno == EINTR)
        ;
    if (child < 0 || !WIFEXITED(status) || WEXITSTATUS(status) == 127)
        exit(tool_fail(TOOL_INPUT, "%s: cannot be run", chosen.command));
    taken->wall = bench_now() - begin;
    taken->cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    return WEXITSTATUS(status);
}

/* Ends this program where the exit code is another. */
static void measure(int code, const char *const words[MAX_WORDS], bench_times *wall_out,
                    bench_times *cpu_out)
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
    *wall_out = bench_summary(&wall);
    *cpu_out = bench_summary(&cpu);
}

/* Returns the row, to be added, and the wall clock's times. */
static json_t *run_row_of(const char *name, int code, const char *const words[MAX_WORDS],
                          bench_times *wall_out)
{
    bench_times cpu;
    measure(code, words, wall_out, &cpu);
    json_t *row = json_object();
    json_put_text(&row, "name", name);
    json_put(&row, "seconds", json_number(wall_out->median));
    json_put(&row, "p90_seconds", json_number(wall_out->p90));
    json_put(&row, "cpu_seconds", json_number(cpu.median));
    say("%-38s %.4f s, p90 %.4f; processor %.4f\n", name, wall_out->median, wall_out->p90,
        cpu.median);
    return row;
}

/* The mixed-integer program of MiniMalloc's A, which is not solved in that time. Without CBC the command's one
 * line says so, and this program ends with it. */
static void run_solver(void)
{
    char path[4096];
    bench_times wall;
    snprintf(path, sizeof(path), "%s/A.1048576.csv", chosen.minimalloc);
    const char *words[MAX_WORDS] = {"pagestash",    "plan", "--method",   "mip",
                                    "--minimalloc", path,   "--deadline", "2"};
    json_t *row = run_row_of("mip, deadline 2 s", TOOL_OK, words, &wall);
    json_put(&row, "deadline_seconds", json_number(2.0));
    json_put(&row, "ends_after", json_number(wall.median / 2.0));
    json_put(&row, "p90_ends_after", json_number(wall.p90 / 2.0));
    say("%-38s p90 %.3f of it, target 1.1 %s\n", "", wall.p90 / 2.0,
        wall.p90 <= 2.2 ? "met" : "missed");
    json_add(&rows, row);
}

static void run_picture(void)
{
    bench_times plain, drawn;
    effort taken;
    struct stat of;
    const char *derive[MAX_WORDS] = {"pagestash",
                                     "trace",
                                     "--derive",
                                     "--full",
                                     "--warmup",
                                     "4",
                                     "--out",
                                     trace,
                                     "--num-layers",
                                     "80",
                                     "--num-micro-batches",
                                     "12"};
    const char *words[MAX_WORDS] = {"pagestash", "plan", "--trace", trace};
    if (run_words(derive, &taken) != TOOL_OK)
        exit(tool_fail(TOOL_NO, "%s trace: no trace for a picture", chosen.command));
    json_add(&rows, run_row_of("plan of 62,688 tensors", TOOL_OK, words, &plain));
    words[4] = "--html";
    words[5] = page;
    json_t *row = run_row_of("plan of 62,688 tensors, its picture", TOOL_OK, words, &drawn);
    if (stat(page, &of) != 0)
        exit(tool_fail(TOOL_INPUT, "%s: %s", page, strerror(errno)));
    json_put_whole(&row, "page_bytes", (uint64_t)of.st_size);
    say("%-38s %.2f times the plan alone; a page of %.1f MB\n", "", drawn.median / plain.median,
        (double)of.st_size / 1e6);
    json_add(&rows, row);
}

void run_command(void)
{
    bench_times wall;
    if (strcmp(chosen.command, "-") == 0)
        return;
    if (mkdtemp(folder) == NULL)
        exit(tool_fail(TOOL_INPUT, "%s: %s", folder, strerror(errno)));
    snprintf(trace, sizeof(trace), "%s/trace.csv", folder);
    snprintf(page, sizeof(page), "%s/plan.html", folder);
    atexit(clear);
    const char *version[MAX_WORDS] = {"pagestash", "--version"};
    const char *zeros[MAX_WORDS] = {"pagestash", "plan", "--pytorch", "/dev/zero"};
    json_add(&rows, run_row_of("says its version", TOOL_OK, version, &wall));
    json_add(&rows, run_row_of("refuses /dev/zero as a snapshot", TOOL_INPUT, zeros, &wall));
    run_solver();
    run_picture();
}
