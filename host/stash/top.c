/* Pools of running jobs that can be watched: what a poll has read, in a file (top_file.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/stash/stash.h"
#include "host/stash/top_file.h"

struct psti_top {
    psti_top_file *file; /* mapped */
    pid_t process;       /* a child of a fork has the mapping, and leaves it alone */
    char path[PATH_MAX];
};

static void fill_poll(const pst_pool *pool, psti_top_poll *poll)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    poll->boot_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
        poll->num_pages[tier] = pool->num_pages[tier];
}

/* Whoever reads meanwhile waits for an even sequence. */
static void fill(const pst_pool *pool, psti_top_file *file, uint64_t number)
{
    __atomic_store_n(&file->sequence, 1, __ATOMIC_RELEASE);
    memcpy(file->magic, PSTI_TOP_MAGIC, sizeof(file->magic));
    file->version = PST_VERSION;
    file->bytes = sizeof(*file);
    file->process = getpid();
    __atomic_store_n(&file->process_start, psti_top_start_of(file->process), __ATOMIC_RELAXED);
    file->place = psti_top_here();
    file->pool = number;
    file->page_bytes = (uint64_t)1 << pool->view.page_shift;
    memset(&file->poll, 0, sizeof(file->poll));
    fill_poll(pool, &file->poll);
    snprintf(file->device, sizeof(file->device), "%s", pool->device->info.name);
    __atomic_store_n(&file->sequence, 0, __ATOMIC_RELEASE);
}

/* A new file, mapped; MAP_FAILED with errno. */
static psti_top_file *make_file(const char *path)
{
    const int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    psti_top_file *mapped = MAP_FAILED;
    if (descriptor < 0)
        return mapped;
    const int error = posix_fallocate(descriptor, 0, sizeof(psti_top_file)); /* a full disk, now */
    if (error == 0)
        mapped = psti_top_map(descriptor);
    else
        errno = error;
    const int told = errno;
    close(descriptor);
    if (mapped == MAP_FAILED)
        unlink(path);
    errno = told;
    return mapped;
}

/* Whether such a file was this user's alone, so that nobody else cuts it off while it is mapped. */
static bool is_private(int descriptor)
{
    struct stat found;
    return fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) && found.st_nlink == 1 &&
           found.st_uid == geteuid() && (found.st_mode & 07777) == 0600;
}

/* Whether a process that had this one's number, here, left it: jobs that a container restarts all have one. */
static bool take_dead(psti_top_file *file)
{
    const psti_top_place here = psti_top_here();
    const uint64_t own = psti_top_start_of(getpid());
    const uint64_t start = __atomic_load_n(&file->process_start, __ATOMIC_RELAXED);
    return memcmp(file->magic, PSTI_TOP_MAGIC, sizeof(file->magic)) == 0 &&
           file->bytes == sizeof(*file) && psti_top_is_place(&file->place, &here) &&
           file->process == getpid() && own != 0 && start != own && start != PSTI_TOP_PRUNED &&
           psti_top_take(file, start, own);
}

/* The file that is there already, mapped, if it was a dead process's; else MAP_FAILED with EEXIST. */
static psti_top_file *take_file(const char *path)
{
    const int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    psti_top_file *mapped = MAP_FAILED;
    if (descriptor >= 0 && is_private(descriptor))
        mapped = psti_top_map(descriptor);
    if (descriptor >= 0)
        close(descriptor);
    if (mapped != MAP_FAILED && !take_dead(mapped)) {
        munmap(mapped, sizeof(*mapped));
        mapped = MAP_FAILED;
    }
    errno = EEXIST;
    return mapped;
}

/* Of the next number that is free; false with errno. */
static bool open_file(psti_top *top, const char *folder, uint64_t *number_out)
{
    static uint64_t num_pools; /* atomic */
    top->file = MAP_FAILED;
    do {
        *number_out = __atomic_fetch_add(&num_pools, 1, __ATOMIC_RELAXED);
        const int length =
            snprintf(top->path, sizeof(top->path), "%s/pagestash-%ld-%" PRIu64 ".top", folder,
                     (long)top->process, *number_out);
        errno = ENAMETOOLONG;
        if (length < (int)sizeof(top->path))
            top->file = make_file(top->path);
        if (top->file == MAP_FAILED && errno == EEXIST)
            top->file = take_file(top->path);
    } while (top->file == MAP_FAILED && errno == EEXIST);
    return top->file != MAP_FAILED;
}

void psti_top_open(pst_pool *pool)
{
    const char *folder = psti_env_top();
    uint64_t number;
    if (!folder)
        return;
    psti_top *top = psti_calloc(1, sizeof(*top));
    errno = ENOMEM;
    if (top)
        top->process = getpid();
    if (!top || !open_file(top, folder, &number)) {
        psti_log(PST_LOG_WARN, "pagestash top will not see this pool: %s: %s",
                 top ? top->path : folder, strerror(errno));
        psti_free(top);
        return;
    }
    fill(pool, top->file, number);
    pool->top = top;
}

/* Of several polls at once one writes: they bring the same news. Each word is released, so that whoever sees
 * one sees the odd sequence before it, too. */
void psti_top_write(pst_pool *pool, const pst_pool_status *status)
{
    enum { WORDS = sizeof(psti_top_poll) / sizeof(uint64_t) };
    psti_top *top = pool->top;
    if (!top || top->process != getpid())
        return;
    psti_top_file *file = top->file;
    uint64_t sequence = __atomic_load_n(&file->sequence, __ATOMIC_RELAXED);
    if (sequence % 2 != 0 ||
        !__atomic_compare_exchange_n(&file->sequence, &sequence, sequence + 1, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
        return;
    psti_top_poll poll;
    uint64_t words[WORDS];
    poll.status = *status;
    fill_poll(pool, &poll);
    memcpy(words, &poll, sizeof(words));
    uint64_t *to = (uint64_t *)&file->poll;
    for (size_t i = 0; i < WORDS; i++)
        __atomic_store_n(&to[i], words[i], __ATOMIC_RELEASE);
    __atomic_store_n(&file->sequence, sequence + 2, __ATOMIC_RELEASE);
}

void psti_top_close(pst_pool *pool)
{
    psti_top *top = pool->top;
    if (!top)
        return;
    munmap(top->file, sizeof(*top->file));
    if (top->process == getpid())
        unlink(top->path);
    psti_free(top);
    pool->top = NULL;
}
