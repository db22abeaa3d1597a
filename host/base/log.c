/* Log messages, to stderr or to the callback of the program. */
#include "host/base/base.h"

#include <stdarg.h>
#include <stdio.h>

#include "host/base/lock.h"

psti_lock psti_log_lock = PSTI_LOCK_INIT; /* of the callback */
static pst_log_callback callback;
static pst_log_level callback_level;
static void *callback_user;

void pst_log_set_callback(pst_log_level level, pst_log_callback function, void *user)
{
    psti_lock_take(&psti_log_lock);
    callback = function;
    callback_level = level;
    callback_user = user;
    psti_lock_give(&psti_log_lock);
}

void psti_log(pst_log_level level, const char *format, ...)
{
    static const char *const names[] = {"off", "error", "warn", "info", "debug"};
    psti_lock_take(&psti_log_lock);
    const pst_log_callback function = callback;
    void *user = callback_user;
    const int limit = function ? (int)callback_level : psti_env_log_level();
    psti_lock_give(&psti_log_lock);
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
