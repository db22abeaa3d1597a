/* Writing a file so that the whole of it appears, or nothing. */
#include "tools/common/output.h"

#include "tools/common/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail(const tool_output *output)
{
    return tool_fail(TOOL_NO, "--%s %s: %s", output->flag, output->path, strerror(errno));
}

int output_check(const char *flag, const char *path)
{
    struct stat about;
    if (path == NULL || strcmp(path, "-") == 0)
        return TOOL_OK;
    if (*path == '\0')
        return tool_fail(TOOL_USAGE, "--%s: empty: allowed is a file, or - for stdout", flag);
    if (stat(path, &about) == 0 && S_ISDIR(about.st_mode))
        return tool_fail(TOOL_USAGE, "--%s %s: is a folder: allowed is a file, or - for stdout",
                         flag, path);
    char *copy = strdup(path);
    if (copy == NULL)
        return tool_fail(TOOL_NO, "--%s %s: out of memory", flag, path);
    const int failed = access(dirname(copy), W_OK | X_OK) != 0;
    free(copy);
    return failed ? tool_fail(TOOL_USAGE, "--%s %s: %s", flag, path, strerror(errno)) : TOOL_OK;
}

/* A file beside the target, to be renamed; a link is followed to the file that it means. */
static int open_temporary(tool_output *output, bool exists)
{
    output->target = exists ? realpath(output->path, NULL) : strdup(output->path);
    char *temporary = NULL;
    if (output->target == NULL || asprintf(&temporary, "%s.XXXXXX", output->target) < 0)
        return -1;
    const int descriptor = mkostemp(temporary, O_CLOEXEC);
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
    free(output->temporary);
    free(output->target);
    output->temporary = output->target = NULL;
}

int output_open(tool_output *output, const char *flag, const char *path)
{
    struct stat about;
    *output = (tool_output){.flag = flag, .path = path};
    if (strcmp(path, "-") == 0) {
        output->file = stdout;
        return TOOL_OK;
    }
    const bool exists = stat(path, &about) == 0;
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

/* All bytes are in the file, with the rights that the user's mask gives. */
static bool is_complete(const tool_output *output)
{
    const int descriptor = fileno(output->file);
    if (fflush(output->file) != 0 || ferror(output->file))
        return false;
    if (output->temporary == NULL)
        return true;
    const mode_t mask = umask(0);
    umask(mask);
    return fchmod(descriptor, 0666 & ~mask) == 0 && fsync(descriptor) == 0;
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
        free(output->temporary);
        output->temporary = NULL;
    }
    forget(output);
    return code;
}
