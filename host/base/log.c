/* Log messages: to the callback of the program, to stderr, or to a file. */
#include "host/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/base/lock.h"

psti_lock psti_log_lock = PSTI_LOCK_INIT; /* of the callback */
static pst_log_callback callback;
static pst_log_level callback_level;
static void *callback_user;
static int log_file = -1; /* atomic; -1: stderr */

void pst_log_set_callback(pst_log_level level, pst_log_callback function, void *user)
{
    psti_lock_take(&psti_log_lock);
    callback = function;
    callback_level = level;
    callback_user = user;
    psti_lock_give(&psti_log_lock);
}

/* The name with %p and %h put in; false where it gets too long or has another %. */
static bool fill_in(const char *pattern, char *path, size_t bytes)
{
    char host[256] = "";
    size_t used = 0;
    (void)gethostname(host, sizeof(host) - 1);
    for (; *pattern != '\0'; pattern++) {
        int length = 1;
        if (*pattern != '%')
            length = snprintf(path + used, bytes - used, "%c", *pattern);
        else if (*++pattern == 'p')
            length = snprintf(path + used, bytes - used, "%ld", (long)getpid());
        else if (*pattern == 'h')
            length = snprintf(path + used, bytes - used, "%s", host);
        else
            return false;
        used += (size_t)length;
        if (used >= bytes)
            return false;
    }
    return true;
}

bool psti_log_open(const char *pattern)
{
    char path[PATH_MAX];
    if (strcmp(pattern, "stderr") == 0)
        return true;
    if (!fill_in(pattern, path, sizeof(path))) {
        errno = EINVAL;
        return false;
    }
    const int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0)
        return false;
    __atomic_store_n(&log_file, file, __ATOMIC_RELEASE);
    return true;
}

/* One write for each line, so that processes may share a file. */
static void put_line(int file, const char *level, const char *room, int length, const char *message)
{
    char line[PSTI_MESSAGE_BYTES + 128];
    struct timespec now;
    struct tm parts;
    size_t used;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    used = strftime(line, 32, "%Y-%m-%d %H:%M:%S", &parts);
    used += (size_t)snprintf(line + used, sizeof(line) - used,
                             ".%06ld %ld:%ld pagestash %s %.*s: %s\n", now.tv_nsec / 1000,
                             (long)getpid(), (long)gettid(), level, length, room, message);
    if (used >= sizeof(line))
        used = sizeof(line) - 1;
    (void)!write(file, line, used);
}

/* The folder that a file lies in. */
static const char *room_of(const char *file, int *length_out)
{
    const char *end = strrchr(file, '/');
    const char *begin = end != NULL ? end : file;
    while (begin > file && begin[-1] != '/')
        begin--;
    *length_out = end != NULL ? (int)(end - begin) : 0;
    return begin;
}

void psti_log_from(const char *file, pst_log_level level, const char *format, ...)
{
    static const char *const names[] = {"off", "error", "warn", "info", "debug"};
    int length;
    const char *room = room_of(file, &length);
    psti_lock_take(&psti_log_lock);
    const pst_log_callback function = callback;
    void *user = callback_user;
    const int limit = function ? (int)callback_level : psti_env_log_level(room, (size_t)length);
    psti_lock_give(&psti_log_lock);
    if ((int)level > limit)
        return;
    char message[PSTI_MESSAGE_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof(message), format, values);
    va_end(values);
    psti_one_line(message);
    const int descriptor = __atomic_load_n(&log_file, __ATOMIC_ACQUIRE);
    if (function)
        function(level, message, user);
    else if (descriptor >= 0)
        put_line(descriptor, names[level], room, length, message);
    else
        fprintf(stderr, "pagestash %s: %s\n", names[level], message);
}
