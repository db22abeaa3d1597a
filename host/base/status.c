/* Names and texts of a status, and the last message of a thread. */
#include "host/base/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_message[PSTI_MESSAGE_BYTES];

int pst_version(void)
{
    return PST_VERSION;
}

const char *pst_status_name(pst_status status)
{
    switch (status) {
        PST_STATUS_LIST(PSTI_CASE_NAME)
    }
    return "PST_E_UNKNOWN";
}

const char *pst_status_text(pst_status status)
{
    switch (status) {
        PST_STATUS_LIST(PSTI_CASE_TEXT)
    }
    return "no status of this library";
}

const char *pst_last_message(void)
{
    return last_message;
}

void psti_restore_message(const char *message)
{
    snprintf(last_message, sizeof(last_message), "%s", message);
}

void psti_one_line(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ')
            *text = ' ';
}

pst_status psti_fail(pst_status status, const char *file, int line, const char *format, ...)
{
    const char *slash = strrchr(file, '/');
    char text[sizeof(last_message) - 256];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    psti_one_line(text);
    snprintf(last_message, sizeof(last_message), "%s [%.200s:%d]", text, slash ? slash + 1 : file,
             line);
    psti_log_from(file, status == PST_E_AGAIN ? PST_LOG_DEBUG : PST_LOG_ERROR, "%s: %s",
                  pst_status_name(status), last_message);
    return status;
}
