/* Exit codes, messages of one line, and a progress line. */
#include "tools/common/tool.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *tool_name = "pagestash";

static bool has_progress_line;

static void clear_progress_line(void)
{
    if (has_progress_line)
        fputs("\r\033[K", stderr);
    has_progress_line = false;
}

static bool has_failed;

bool tool_has_failed(void)
{
    return has_failed;
}

int tool_fail(int code, const char *format, ...)
{
    char *text = NULL;
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    has_failed = has_failed || code != TOOL_OK;
    tool_clock_end();
    clear_progress_line();
    fprintf(stderr, "%s: ", tool_name);
    if (vasprintf(&text, format, arguments) >= 0) {
        tool_clean(text);
        fputs(text, stderr);
        free(text);
    } else {
        vfprintf(stderr, format, again);
    }
    fputc('\n', stderr);
    va_end(again);
    va_end(arguments);
    return code;
}

const char *tool_last_message(void)
{
    static char text[4096];
    snprintf(text, sizeof(text), "%s", pst_last_message());
    char *place = strrchr(text, '[');
    if (place != NULL && place > text && place[-1] == ' ' && text[strlen(text) - 1] == ']')
        place[-1] = '\0';
    return text;
}

int tool_status(pst_status status)
{
    switch (status) {
    case PST_OK:
        return TOOL_OK;
    case PST_E_INVALID:
        return tool_fail(TOOL_USAGE, "%s", tool_last_message());
    case PST_E_NOMEM:
    case PST_E_DEVICE_NOMEM:
        return tool_fail(TOOL_NO, "%s", tool_last_message());
    default:
        return tool_fail(TOOL_DEVICE, "%s", tool_last_message());
    }
}

int tool_file_status(pst_status status)
{
    if (status == PST_E_INVALID)
        return tool_fail(TOOL_INPUT, "%s", tool_last_message());
    return tool_status(status);
}

ptrdiff_t tool_read(void *descriptor, void *buffer, size_t bytes)
{
    for (;;) {
        const ssize_t got = read(*(const int *)descriptor, buffer, bytes);
        if (got >= 0)
            return got;
        if (errno != EINTR)
            return -errno;
    }
}

void tool_progress(const char *what, unsigned long long done, unsigned long long all)
{
    if (!isatty(STDERR_FILENO))
        return;
    clear_progress_line();
    if (done < all) {
        fprintf(stderr, "%s %llu of %llu", what, done + 1, all);
        has_progress_line = true;
    }
}

/* A thread, which waits for the next second or for the end. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    const char *what;      /* NULL: none runs */
    struct timespec begun; /* the first one; 0: none was */
} seconds = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *show_seconds(void *unused)
{
    struct timespec next, now;
    (void)unused;
    clock_gettime(CLOCK_REALTIME, &now);
    pthread_mutex_lock(&seconds.lock);
    if (seconds.begun.tv_sec == 0)
        seconds.begun = now;
    next = seconds.begun;
    while (next.tv_sec < now.tv_sec || (next.tv_sec == now.tv_sec && next.tv_nsec <= now.tv_nsec))
        next.tv_sec++;
    for (int passed = (int)(next.tv_sec - seconds.begun.tv_sec) - 1; seconds.what != NULL;) {
        if (pthread_cond_timedwait(&seconds.changed, &seconds.lock, &next) != ETIMEDOUT)
            continue;
        next.tv_sec++;
        if (++passed < 2)
            continue;
        clear_progress_line();
        fprintf(stderr, "%s: second %d", seconds.what, passed + 1);
        has_progress_line = true;
    }
    pthread_mutex_unlock(&seconds.lock);
    return NULL;
}

void tool_clock_begin(const char *what)
{
    if (!isatty(STDERR_FILENO))
        return;
    seconds.what = what;
    if (pthread_create(&seconds.thread, NULL, show_seconds, NULL) != 0)
        seconds.what = NULL;
}

void tool_clock_end(void)
{
    if (seconds.what == NULL)
        return;
    pthread_mutex_lock(&seconds.lock);
    seconds.what = NULL;
    pthread_cond_signal(&seconds.changed);
    pthread_mutex_unlock(&seconds.lock);
    pthread_join(seconds.thread, NULL);
    clear_progress_line();
}

int tool_flush(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (errno == EPIPE)
        return code;
    return tool_fail(code == TOOL_OK ? TOOL_OUTPUT : code, "standard output: %s", strerror(errno));
}
