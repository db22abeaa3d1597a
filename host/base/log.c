/* Log messages, to stderr or to the callback of the program. */
#include "host/base/base.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pst_log_callback callback;
static pst_log_level callback_level;
static void *callback_user;

void psti_log_lock(void)
{
    pthread_mutex_lock(&lock);
}

void psti_log_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void pst_log_set_callback(pst_log_level level, pst_log_callback function, void *user)
{
    pthread_mutex_lock(&lock);
    callback = function;
    callback_level = level;
    callback_user = user;
    pthread_mutex_unlock(&lock);
}

void psti_log(pst_log_level level, const char *format, ...)
{
    static const char *const names[] = {"off", "error", "warn", "info", "debug"};
    pthread_mutex_lock(&lock);
    const pst_log_callback function = callback;
    void *user = callback_user;
    const int limit = function ? (int)callback_level : psti_env_log_level();
    pthread_mutex_unlock(&lock);
    if ((int)level > limit)
        return;
    char message[1024];
    va_list values;
    va_start(values, format);
    vsnprintf(message, sizeof(message), format, values);
    va_end(values);
    psti_one_line(message);
    if (function)
        function(level, message, user);
    else
        fprintf(stderr, "pagestash %s: %s\n", names[level], message);
}
