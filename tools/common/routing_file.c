/* Routing traces in a file, or from standard input. */
#include "tools/common/routing.h"
#include "tools/common/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int take_rows(routing_reader *reader, routing_take_fn take, void *user)
{
    routing_row row;
    for (;;) {
        const pst_status status = routing_next(reader, &row);
        if (status == PST_E_AGAIN)
            return TOOL_OK;
        if (status != PST_OK)
            return tool_file_status(status);
        TOOL_TRY(take(user, &row));
    }
}

int routing_read(const char *path, routing_take_fn take, void *user)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    int descriptor = is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return tool_fail(TOOL_INPUT, "--routing %s: %s", path, strerror(errno));
    routing_reader *reader =
        routing_open(is_stdin ? "standard input" : path, tool_read, &descriptor);
    const int code = reader != NULL ? take_rows(reader, take, user)
                                    : tool_fail(TOOL_NO, "--routing %s: out of memory", path);
    routing_close(reader);
    if (!is_stdin)
        close(descriptor);
    return code;
}
