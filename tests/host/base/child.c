/* Runs a function of the test program in a child process with an environment of its own. */
#include "tests/host/base/child.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness.h"

#define NAME_VARIABLE "CHILD_OF_PST_TESTS"

enum { SECONDS = 240 };

bool child_is(const char *name)
{
    const char *asked = getenv(NAME_VARIABLE);
    return asked && strcmp(asked, name) == 0;
}

void child_leave(void)
{
    fflush(NULL);
    _exit(0);
}

void child_end(int status)
{
#if PSTI_UNDER_TSAN
    syscall(SYS_exit_group, status);
#endif
    _exit(status);
}

static void forget_variables(void)
{
    static const char prefix[] = "PAGESTASH_";
    for (char **entry = environ; *entry;) {
        char name[128];
        const size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, prefix, sizeof(prefix) - 1) != 0 || length >= sizeof(name)) {
            entry++;
            continue;
        }
        memcpy(name, *entry, length);
        name[length] = '\0';
        unsetenv(name);
        entry = environ;
    }
}

/* Where the tests are built for another machine, the emulator runs them, and what /proc/self/exe is to the kernel
 * is the emulator; to the program it is itself. */
static void run_itself(void)
{
#ifdef PSTI_TEST_EMULATOR
    char program[4096];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length <= 0)
        return;
    program[length] = '\0';
    execlp(PSTI_TEST_EMULATOR, PSTI_TEST_EMULATOR, program, (char *)NULL);
#else
    execl("/proc/self/exe", "child", (char *)NULL);
#endif
}

static void become(const char *name, const char *const *variables, int out, int err)
{
    forget_variables();
    setenv(NAME_VARIABLE, name, 1);
    for (; variables && *variables; variables++)
        putenv((char *)(uintptr_t)*variables);
    alarm(SECONDS);
    if (dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0)
        run_itself();
    _exit(127);
}

static bool read_all(FILE *file, char *text, size_t size)
{
    rewind(file);
    const size_t length = fread(text, 1, size - 1, file);
    text[length] = '\0';
    return length < size - 1;
}

bool child_run(const char *name, const char *const *variables, child_result *result)
{
    int status = 0;
    FILE *out = tmpfile();
    FILE *err = tmpfile();
    const pid_t pid = out && err ? fork() : -1;
    *result = (child_result){.exited = false};
    if (pid == 0)
        become(name, variables, fileno(out), fileno(err));
    bool done = pid > 0 && waitpid(pid, &status, 0) == pid;
    if (done) {
        done = read_all(out, result->out, sizeof(result->out)) &&
               read_all(err, result->err, sizeof(result->err));
        result->exited = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    if (out)
        fclose(out);
    if (err)
        fclose(err);
    return done;
}
