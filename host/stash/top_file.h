/* What a pool writes for `pagestash top`: one file for each pool that is polled, in the folder that
 * PAGESTASH_TOP names, "pagestash-PROCESS-NUMBER.top", of mode 0600, removed with the pool. A file of these
 * bytes is mapped by the process that writes; `sequence` is odd while it does. Read by tools/top. Another
 * form of it has another magic. */
#ifndef PSTI_HOST_TOP_FILE_H
#define PSTI_HOST_TOP_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include <pagestash/pool.h>

#define PSTI_TOP_MAGIC "PSTTOP2"

/* Where the number of a process means something; all bytes 0 where /proc does not say it. */
typedef struct psti_top_place {
    char boot[40]; /* of the machine: /proc/sys/kernel/random/boot_id */
    uint64_t pid_namespace;
} psti_top_place;

/* What a poll brings: whole words, which are written one by one. */
typedef struct psti_top_poll {
    uint64_t boot_ns;      /* of the poll, by CLOCK_BOOTTIME */
    uint64_t num_pages[2]; /* device, host */
    pst_pool_status status;
} psti_top_poll;

typedef struct psti_top_file {
    char magic[8];
    uint32_t version; /* pst_version of the library */
    uint32_t bytes;   /* of this struct */
    int64_t process;
    uint64_t process_start; /* atomic; field 22 of /proc/PROCESS/stat: the number comes again */
    uint64_t pool;          /* of the process, from 0 */
    uint64_t page_bytes;
    char device[128];
    psti_top_place place;
    uint64_t sequence; /* atomic; what follows belongs to it */
    psti_top_poll poll;
} psti_top_file;

psti_top_place psti_top_here(void);
/* Whether both are one, and known. */
bool psti_top_is_place(const psti_top_place *a, const psti_top_place *b);
/* When a process of this place has started, as /proc has it; 0: there is none. */
uint64_t psti_top_start_of(int64_t process);

/* The file that is open for reading and writing, mapped; MAP_FAILED with errno, EINVAL if of other bytes. */
psti_top_file *psti_top_map(int descriptor);
/* What a dead process left is changed or removed by who does this: a new process of its number, or who prunes,
 * with PSTI_TOP_PRUNED. False: somebody else was first. */
#define PSTI_TOP_PRUNED UINT64_MAX
bool psti_top_take(psti_top_file *file, uint64_t process_start, uint64_t new_start);

#endif
