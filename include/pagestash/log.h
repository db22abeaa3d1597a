/* Log messages. The library prints nothing by itself: messages go to the callback if there is one,
 * else, if the environment variable PAGESTASH_LOG asks for them, to stderr or to the file that
 * PAGESTASH_LOG_FILE names. PAGESTASH_LOG is a level, or a list: `warn,comm=debug` has warnings of all
 * and everything of the communicators. A file gets one line for each message, added in one write, with
 * the time, process and thread, so that processes may share it; `%p` and `%h` in its name are the
 * process and the host. */
#ifndef PAGESTASH_LOG_H
#define PAGESTASH_LOG_H

#include <pagestash/status.h>

/* How much is said: a level has all that those below it have. */
typedef enum pst_log_level {
    PST_LOG_OFF = 0,   /* nothing */
    PST_LOG_ERROR = 1, /* each call that fails, with its message; not AGAIN, which is no error */
    PST_LOG_WARN = 2,  /* likely mistakes, and ranks that end the others' work */
    PST_LOG_INFO = 3,  /* what is made or found, and faults that a poll has seen */
    PST_LOG_DEBUG = 4  /* all: calls that have no answer yet (AGAIN), too */
} pst_log_level;

/* message is one line without a newline, valid during the call only. */
typedef void (*pst_log_callback)(pst_log_level level, const char *message, void *user);

PST_BEGIN_DECLS

/* Sends messages of `level` and below to callback; NULL takes it away again.
 * Threads: any; the callback may run on any thread that calls the library, must not throw, and may
 * call query functions (pst_status_name, pst_env_get). It is called with no lock held. */
PST_API void pst_log_set_callback(pst_log_level level, pst_log_callback callback, void *user);

PST_END_DECLS

#endif
