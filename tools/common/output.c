/* Writing a file so that the whole of it appears, or nothing. */
#include "tools/common/output.h"

#include "tools/common/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const tool_output *output)
{
    return tool_fail(TOOL_OUTPUT, "--%s %s: %s", output->flag, output->path, strerror(errno));
}

int output_check(const char *flag, const char *path)
{
    struct stat about;
    if (path == NULL || strcmp(path, "-") == 0)
        return TOOL_OK;
    if (*path == '\0')
        return tool_fail(TOOL_USAGE, "--%s: empty: allowed is a file, or - for stdout", flag);
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return tool_fail(TOOL_OUTPUT, "--%s %s: is a folder: allowed is a file, or - for stdout",
                         flag, path);
    char *copy = strdup(path);
    if (copy == NULL)
        return tool_fail(TOOL_NO, "--%s %s: out of memory", flag, path);
    const int failed = access(dirname(copy), W_OK | X_OK) != 0;
    free(copy);
    return failed ? tool_fail(TOOL_OUTPUT, "--%s %s: %s", flag, path, strerror(errno)) : TOOL_OK;
}

/* ---- what a signal must not leave behind */

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
enum { NUM_ENDS = sizeof(ends) / sizeof(ends[0]) };

static char *volatile pending; /* the temporary file, while there is one */

static void remove_and_end(int number)
{
    if (pending != NULL)
        unlink(pending);
    raise(number); /* blocked until this returns, and then not handled any more */
}

/* A signal that is ignored stays so (nohup). A file that grows beyond its limit is a write that fails. */
static void watch_signals(void)
{
    struct sigaction action = {.sa_handler = remove_and_end, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < NUM_ENDS; i++)
        if (sigaction(ends[i], NULL, &before) == 0 && before.sa_handler == SIG_DFL)
            sigaction(ends[i], &action, NULL);
}

/* mkostemp, and the name is pending: no signal comes in between. */
static int make_pending(char *temporary)
{
    sigset_t watched, before;
    sigemptyset(&watched);
    for (int i = 0; i < NUM_ENDS; i++)
        sigaddset(&watched, ends[i]);
    sigprocmask(SIG_BLOCK, &watched, &before);
    const int descriptor = mkostemp(temporary, O_CLOEXEC);
    pending = descriptor >= 0 ? temporary : NULL;
    sigprocmask(SIG_SETMASK, &before, NULL);
    return descriptor;
}

/* A file beside the target, to be renamed; a link is followed to the file that it means. */
static int open_temporary(tool_output *output, bool exists)
{
    output->target = exists ? realpath(output->path, NULL) : strdup(output->path);
    char *temporary = NULL;
    if (output->target == NULL || asprintf(&temporary, "%s.XXXXXX", output->target) < 0)
        return -1;
    const int descriptor = make_pending(temporary);
    if (descriptor >= 0)
        output->temporary = temporary;
    else
        free(temporary);
    return descriptor;
}

static void forget(tool_output *output)
{
    if (output->temporary != NULL)
        unlink(output->temporary);
    pending = NULL;
    free(output->temporary);
    free(output->target);
    output->temporary = output->target = NULL;
}

static mode_t new_mode(void)
{
    const mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

int output_open(tool_output *output, const char *flag, const char *path)
{
    struct stat about;
    *output = (tool_output){.flag = flag, .path = path};
    watch_signals();
    if (strcmp(path, "-") == 0) {
        output->file = stdout;
        return TOOL_OK;
    }
    const bool exists = stat(path, &about) == 0;
    output->mode = exists ? about.st_mode & 0777 : new_mode();
    const bool is_in_place = exists && !S_ISREG(about.st_mode); /* pipes, devices */
    const int descriptor =
        is_in_place ? open(path, O_WRONLY | O_CLOEXEC) : open_temporary(output, exists);
    output->file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    if (output->file != NULL)
        return TOOL_OK;
    const int code = fail(output);
    if (descriptor >= 0)
        close(descriptor);
    forget(output);
    return code;
}

/* All bytes are in the file, with its rights. */
static bool is_complete(const tool_output *output)
{
    const int descriptor = fileno(output->file);
    if (fflush(output->file) != 0 || ferror(output->file))
        return false;
    if (output->temporary == NULL)
        return true;
    return fchmod(descriptor, output->mode) == 0 && fsync(descriptor) == 0;
}

int output_close(tool_output *output, int code)
{
    if (output->file == stdout)
        return code;
    bool done = code == TOOL_OK && is_complete(output);
    done = fclose(output->file) == 0 && done;
    if (done && output->temporary != NULL)
        done = rename(output->temporary, output->target) == 0;
    if (code == TOOL_OK && !done)
        code = fail(output);
    if (done) { /* the name is the target's now */
        pending = NULL;
        free(output->temporary);
        output->temporary = NULL;
    }
    forget(output);
    return code;
}

int output_write(void *file, const void *text, size_t bytes)
{
    return fwrite(text, 1, bytes, file) == bytes ? 0 : -errno;
}

int output_status(FILE *file, pst_status status)
{
    return ferror(file) ? TOOL_OK : tool_status(status);
}
