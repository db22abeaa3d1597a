/* Room base: what every room of the library stands on: messages and error macros, the log, the
 * environment, the library's own host allocations, NVTX ranges (nvtx.h), growing arrays and the hash
 * table (table.h), lines of text files (lines.h), handles (handle.h), locks over forks (lock.h).
 * Uses nothing of the other rooms. Used by all of them. */
#ifndef PSTI_HOST_BASE_H
#define PSTI_HOST_BASE_H

#include <pagestash/device.h>
#include <pagestash/env.h>
#include <pagestash/log.h>

/* ---- status.c ---- */

/* Sets this thread's last message to "file:line: text" and returns status. */
__attribute__((format(printf, 4, 5))) pst_status psti_fail(pst_status status, const char *file,
                                                           int line, const char *format, ...);

/* Puts back what this thread's last message was before a failure that was mended. */
void psti_restore_message(const char *message);
#define PSTI_MESSAGE_BYTES 1024 /* of the longest message, its end included */

/* Control characters, which a caller's text may hold, become spaces. */
void psti_one_line(char *text);

#define PSTI_FAIL(status, ...) psti_fail(status, __FILE__, __LINE__, __VA_ARGS__)
#define PSTI_CHECK(condition, status, ...)         \
    do {                                           \
        if (!(condition))                          \
            return PSTI_FAIL(status, __VA_ARGS__); \
    } while (0)
#define PSTI_TRY(call)                    \
    do {                                  \
        const pst_status psti_s = (call); \
        if (psti_s != PST_OK)             \
            return psti_s;                \
    } while (0)

/* Whether a destroy with this status has destroyed: behind an error of CUDA's too, and what was damaged. */
static inline bool psti_is_gone(pst_status status)
{
    return status == PST_OK || status == PST_E_CUDA || status == PST_E_DAMAGED;
}

/* Of an X-macro list of (name, value, text), inside a switch. */
#define PSTI_CASE_NAME(name, value, text) \
    case name:                            \
        return #name;
#define PSTI_CASE_TEXT(name, value, text) \
    case name:                            \
        return text;

/* ---- log.c ---- */

/* file: as __FILE__ has it; the folder is the room that PAGESTASH_LOG may name. */
__attribute__((format(printf, 3, 4))) void psti_log_from(const char *file, pst_log_level level,
                                                         const char *format, ...);
#define psti_log(level, ...) psti_log_from(__FILE__, level, __VA_ARGS__)
/* Messages go to the file of that name from now on; false with errno. PAGESTASH_LOG_FILE. */
bool psti_log_open(const char *pattern);
extern struct psti_lock psti_log_lock; /* lock.h; of rank LOG */

/* ---- env.c ---- */

/* PAGESTASH_LOG, for a room; PST_LOG_OFF before the table was read or where it is bad. */
int psti_env_log_level(const char *room, size_t length);
int psti_env_num_sms(void);
pst_backend psti_env_backend(void);
bool psti_env_nvtx(void);
const char *psti_env_top(void); /* PAGESTASH_TOP; NULL: not set, or empty */
bool psti_env_check_mode(void); /* PAGESTASH_CHECK; reads the table where nobody did */
/* The text in force of a variable of the table; name with its prefix. NULL: not in the table. */
const char *psti_env_text(const char *name);

/* ---- memory.c: the library's own host allocations; tests make the n-th one fail ---- */

void *psti_calloc(size_t count, size_t size);
/* What is new is zero. NULL: no memory, and the old one is as it was. */
void *psti_enlarge(void *memory, size_t old_bytes, size_t bytes);
void psti_free(void *memory);
void psti_fail_allocation_after(long successes); /* -1: never; sticks until set again */
bool psti_allocation_fails(void);                /* device allocations ask this, too */

#endif
