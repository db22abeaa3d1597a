/* Sizes of the public structs by name: for bindings, which repeat the structs in another language
 * and would not see that theirs are not the library's.
 *
 * A binding is right where its size of a frozen struct is `bytes`, and of one that can grow between
 * `first_bytes` and `bytes` (api.h says how structs grow). */
#ifndef PAGESTASH_STRUCTS_H
#define PAGESTASH_STRUCTS_H

#include <pagestash/status.h>

/* Frozen. */
typedef struct pst_struct_info {
    const char *name;   /* "pst_pool_config"; static storage */
    size_t bytes;       /* its sizeof in the library that is loaded */
    size_t first_bytes; /* the same in the first version that had it: the least that is accepted */
    int version;        /* of the library that is loaded, as pst_version has it */
    bool can_grow;      /* else it is frozen */
    uint8_t padding[3]; /* 0 */
} pst_struct_info;

PST_BEGIN_DECLS

/* Number of public structs. Threads: any. */
PST_API int pst_struct_count(void);

/* Struct `index`, 0 <= index < pst_struct_count(). An index is another struct in another version.
 * Fails: INVALID. Threads: any. */
PST_API pst_status pst_struct_get(int index, pst_struct_info *info_out);

/* The struct of this name. Fails: INVALID, also where the library has none. Threads: any. */
PST_API pst_status pst_struct_find(const char *name, pst_struct_info *info_out);

PST_END_DECLS

#endif
