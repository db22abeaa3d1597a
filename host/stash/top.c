/* Pools of running jobs that can be watched: what a poll has read, in a file (top_file.h). */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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

static void fill(const pst_pool *pool, psti_top_file *file, uint64_t number)
{
    memcpy(file->magic, PSTI_TOP_MAGIC, sizeof(file->magic));
    file->version = PST_VERSION;
    file->bytes = sizeof(*file);
    file->process = getpid();
    file->process_start = psti_top_start_of(file->process);
    file->place = psti_top_here();
    file->pool = number;
    file->page_bytes = (uint64_t)1 << pool->view.page_shift;
    fill_poll(pool, &file->poll);
    snprintf(file->device, sizeof(file->device), "%s", pool->device->info.name);
}

/* A file of this pool's, mapped; NULL with errno. */
static psti_top_file *make_file(const char *path)
{
    const int descriptor = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (descriptor < 0)
        return NULL;
    void *mapped = MAP_FAILED;
    const int error = posix_fallocate(descriptor, 0, sizeof(psti_top_file)); /* a full disk, now */
    if (error == 0)
        mapped =
            mmap(NULL, sizeof(psti_top_file), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    else
        errno = error;
    const int told = errno;
    close(descriptor);
    if (mapped == MAP_FAILED)
        unlink(path);
    errno = told;
    return mapped == MAP_FAILED ? NULL : mapped;
}

void psti_top_open(pst_pool *pool)
{
    static uint64_t num_pools; /* atomic */
    const char *folder = psti_env_top();
    if (!folder)
        return;
    psti_top *top = psti_calloc(1, sizeof(*top));
    const uint64_t number = __atomic_fetch_add(&num_pools, 1, __ATOMIC_RELAXED);
    errno = ENOMEM;
    if (top) {
        top->process = getpid();
        const int length =
            snprintf(top->path, sizeof(top->path), "%s/pagestash-%ld-%" PRIu64 ".top", folder,
                     (long)top->process, number);
        errno = ENAMETOOLONG;
        if (length < (int)sizeof(top->path))
            top->file = make_file(top->path);
    }
    if (!top || !top->file) {
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
