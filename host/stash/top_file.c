/* Whose a file of top_file.h is: places, and processes of this one. */
#include "host/stash/top_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The text of a small file, with a 0 at its end; empty where it cannot be read. */
static void read_text(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "re");
    const size_t length = file ? fread(text, 1, bytes - 1, file) : 0;
    if (file)
        fclose(file);
    text[length] = '\0';
}

/* Of another namespace's /proc the numbers are others. */
static bool has_own_proc(void)
{
    char self[32] = "";
    return readlink("/proc/self", self, sizeof(self) - 1) > 0 && atol(self) == (long)getpid();
}

psti_top_place psti_top_here(void)
{
    psti_top_place here = {.pid_namespace = 0};
    struct stat found;
    char boot[sizeof(here.boot)];
    read_text("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
    if (boot[0] == '\0' || !has_own_proc() || stat("/proc/self/ns/pid", &found) != 0)
        return here;
    memcpy(here.boot, boot, strcspn(boot, "\n"));
    here.pid_namespace = found.st_ino;
    return here;
}

bool psti_top_is_place(const psti_top_place *a, const psti_top_place *b)
{
    return a->boot[0] != '\0' && a->pid_namespace == b->pid_namespace &&
           memcmp(a->boot, b->boot, sizeof(a->boot)) == 0;
}

uint64_t psti_top_start_of(int64_t process)
{
    char path[64], text[1024];
    uint64_t start = 0;
    snprintf(path, sizeof(path), "/proc/%" PRId64 "/stat", process);
    read_text(path, text, sizeof(text));
    const char *at = strrchr(text, ')'); /* the name may hold anything */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, " %" SCNu64, &start) == 1 ? start : 0;
}

psti_top_file *psti_top_map(int descriptor)
{
    struct stat found;
    if (fstat(descriptor, &found) != 0)
        return MAP_FAILED;
    if (found.st_size != (off_t)sizeof(psti_top_file)) { /* where nothing is, a read is SIGBUS */
        errno = EINVAL;
        return MAP_FAILED;
    }
    return mmap(NULL, sizeof(psti_top_file), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
}

bool psti_top_take(psti_top_file *file, uint64_t process_start, uint64_t new_start)
{
    return __atomic_compare_exchange_n(&file->process_start, &process_start, new_start, false,
                                       __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
