/* Environment variables: one typed table.
 *
 * Read once, when the process makes its first object of this library or calls pst_env_check. A bad
 * value is refused (PST_E_INVALID from pst_env_check and pst_device_open), and so is a PAGESTASH_*
 * name that is a known one misspelt, by two letters at most: the message has what was meant. Other
 * unknown names are logged as a warning. */
#ifndef PAGESTASH_ENV_H
#define PAGESTASH_ENV_H

#include <pagestash/status.h>

/* Frozen. */
typedef struct pst_env_info {
    const char *name;
    const char *type;          /* "choice", "int", "bool", "path", "levels" (PAGESTASH_LOG) */
    const char *allowed;       /* "off|error|warn|info|debug", "0..1024" */
    const char *default_value; /* as text */
    const char *help;          /* one line */
    const char *value;         /* text in force; default_value when not set */
    bool is_set;
} pst_env_info;

PST_BEGIN_DECLS

/* Checks every PAGESTASH_* variable. Fails: PST_E_INVALID, the message names variable, value and
 * what is allowed, or the misspelt name and what was meant. Threads: any. */
PST_API pst_status pst_env_check(void);

/* Number of variables in the table. Threads: any. */
PST_API int pst_env_count(void);

/* Entry `index` of the table, 0 <= index < pst_env_count(). All strings live as long as the
 * process. Fails: PST_E_INVALID. Threads: any. */
PST_API pst_status pst_env_get(int index, pst_env_info *info_out);

PST_END_DECLS

#endif
