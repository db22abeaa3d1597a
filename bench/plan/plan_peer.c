/* MiniMalloc, where its program is given, on the same instances in the same run. */
#include "bench/plan/plan_bench.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void write_instance(const char *path, const instance *of)
{
    FILE *file = bench_need(fopen(path, "w"));
    fprintf(file, "id,lower,upper,size\n");
    for (uint64_t i = 0; i < of->num_tensors; i++)
        fprintf(file, "%llu,%llu,%llu,%llu\n", (unsigned long long)i,
                (unsigned long long)of->tensors[i].begin, (unsigned long long)of->tensors[i].end,
                (unsigned long long)of->tensors[i].bytes);
    if (fclose(file) != 0)
        exit(tool_fail(TOOL_INPUT, "%s: %s", path, strerror(errno)));
}

/* The child's part: the program, without a word of its own, until its processor time is over. */
static void run_program(const char *path, uint64_t capacity)
{
    char words[2][64];
    const struct rlimit seconds = {(rlim_t)chosen.deadline + 1, (rlim_t)chosen.deadline + 1};
    snprintf(words[0], sizeof(words[0]), "--capacity=%llu", (unsigned long long)capacity);
    snprintf(words[1], sizeof(words[1]), "--input=%s", path);
    setrlimit(RLIMIT_CPU, &seconds);
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(nowhere, STDERR_FILENO);
    execl(chosen.peer, chosen.peer, words[0], words[1], "--output=/dev/null", (char *)NULL);
    _exit(127);
}

peer_result peer_run(const instance *of, uint64_t capacity)
{
    char path[] = "/tmp/pagestash-peer-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0)
        exit(tool_fail(TOOL_INPUT, "%s: %s", path, strerror(errno)));
    close(file);
    write_instance(path, of);
    fflush(NULL);
    const pid_t child = fork();
    if (child == 0)
        run_program(path, capacity);
    int status = -1;
    struct rusage usage = {.ru_utime = {0}};
    const bool right = child > 0 && wait4(child, &status, 0, &usage) == child;
    unlink(path);
    if (!right || (WIFEXITED(status) && WEXITSTATUS(status) == 127))
        exit(tool_fail(TOOL_INPUT, "%s: cannot be run", chosen.peer));
    return (peer_result){.is_met = WIFEXITED(status) && WEXITSTATUS(status) == 0,
                         .cpu =
                             (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec};
}
