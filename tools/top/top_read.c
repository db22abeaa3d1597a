/* The files of a folder, and whether their processes live. */
#include "tools/common/tool.h"
#include "tools/top/top.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NS UINT64_C(1000000000)

const char *top_state_name(top_state state)
{
    static const char *const names[] = {"runs", "not polled", "dead", "elsewhere", "unreadable"};
    return names[state];
}

static uint64_t boot_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * NS + (uint64_t)now.tv_nsec;
}

static bool read_at(int descriptor, void *to, size_t bytes, size_t offset)
{
    return pread(descriptor, to, bytes, (off_t)offset) == (ssize_t)bytes;
}

/* A whole state: between two equal, even sequences. A writer that died within one leaves it odd, and what
 * stands there is taken as it is after a while. */
static bool read_whole(int descriptor, psti_top_file *file)
{
    const size_t place = offsetof(psti_top_file, sequence);
    const struct timespec moment = {.tv_nsec = 100000};
    for (int tries = 0; tries < 100; tries++) {
        uint64_t before = 0, after = 0;
        if (!read_at(descriptor, &before, sizeof(before), place) ||
            !read_at(descriptor, file, sizeof(*file), 0) ||
            !read_at(descriptor, &after, sizeof(after), place))
            return false;
        if (before == after && before % 2 == 0)
            return true;
        nanosleep(&moment, NULL);
    }
    return true;
}

static top_state state_of(const char *path, const psti_top_place *here, top_pool *pool)
{
    struct stat found;
    const psti_top_file *file = &pool->file;
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (descriptor < 0)
        return TOP_UNREADABLE;
    const bool is_whole = fstat(descriptor, &found) == 0 && S_ISREG(found.st_mode) &&
                          (size_t)found.st_size == sizeof(*file) &&
                          read_whole(descriptor, &pool->file);
    close(descriptor);
    if (!is_whole || memcmp(file->magic, PSTI_TOP_MAGIC, sizeof(file->magic)) != 0 ||
        file->bytes != sizeof(*file) || memchr(file->device, '\0', sizeof(file->device)) == NULL)
        return TOP_UNREADABLE;
    const uint64_t start = psti_top_start_of(file->process), now = boot_now();
    pool->was_polled = file->sequence > 1;
    pool->has_age =
        here->boot[0] != '\0' && memcmp(file->place.boot, here->boot, sizeof(here->boot)) == 0;
    pool->age_ns = now > file->poll.boot_ns ? now - file->poll.boot_ns : 0;
    if (!psti_top_is_place(&file->place, here))
        return TOP_ELSEWHERE;
    if (start == 0 || (file->process_start != 0 && start != file->process_start))
        return TOP_DEAD;
    return pool->was_polled ? TOP_RUNS : TOP_NOT_POLLED;
}

static bool is_ours(const char *name)
{
    const size_t length = strlen(name);
    return length > 14 && length < sizeof(((top_pool *)NULL)->name) &&
           strncmp(name, "pagestash-", 10) == 0 && strcmp(name + length - 4, ".top") == 0;
}

static bool add(top_list *list, const psti_top_place *here, const char *folder, const char *name)
{
    char *path = NULL;
    top_pool *pools = realloc(list->pools, (list->num + 1) * sizeof(*pools));
    if (pools == NULL)
        return false;
    list->pools = pools;
    top_pool *pool = &pools[list->num];
    memset(pool, 0, sizeof(*pool));
    snprintf(pool->name, sizeof(pool->name), "%s", name);
    if (asprintf(&path, "%s/%s", folder, name) < 0)
        return false;
    pool->state = state_of(path, here, pool);
    free(path);
    list->num++;
    return true;
}

static int compare(const void *a, const void *b)
{
    const top_pool *x = a, *y = b;
    const bool has_x = x->state != TOP_UNREADABLE, has_y = y->state != TOP_UNREADABLE;
    if (has_x != has_y)
        return has_x ? -1 : 1;
    if (has_x && x->file.process != y->file.process)
        return x->file.process < y->file.process ? -1 : 1;
    if (has_x && x->file.pool != y->file.pool)
        return x->file.pool < y->file.pool ? -1 : 1;
    return strcmp(x->name, y->name);
}

int top_read(const char *folder, top_list *list_out)
{
    *list_out = (top_list){NULL, 0};
    const psti_top_place here = psti_top_here();
    DIR *directory = opendir(folder);
    if (directory == NULL)
        return tool_fail(TOOL_INPUT, "--dir %s: %s", folder, strerror(errno));
    bool is_good = true;
    for (struct dirent *entry; is_good && (entry = readdir(directory)) != NULL;)
        if (is_ours(entry->d_name))
            is_good = add(list_out, &here, folder, entry->d_name);
    closedir(directory);
    if (!is_good) {
        top_free(list_out);
        return tool_fail(TOOL_NO, "out of memory for the pools of %s", folder);
    }
    if (list_out->num > 0)
        qsort(list_out->pools, list_out->num, sizeof(*list_out->pools), compare);
    return TOOL_OK;
}

void top_free(top_list *list)
{
    free(list->pools);
    *list = (top_list){NULL, 0};
}

/* Nothing where the number's next process has taken it over meanwhile. */
static int prune(const char *path, const psti_top_file *dead)
{
    const int descriptor = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    psti_top_file *file = descriptor >= 0 ? psti_top_map(descriptor) : MAP_FAILED;
    int failed = file == MAP_FAILED && errno != ENOENT && errno != EINVAL ? errno : 0;
    if (descriptor >= 0)
        close(descriptor);
    if (file != MAP_FAILED) {
        if (psti_top_take(file, dead->process_start, PSTI_TOP_PRUNED) && unlink(path) != 0)
            failed = errno;
        munmap(file, sizeof(*file));
    }
    return failed != 0 ? tool_fail(TOOL_NO, "%s: %s", path, strerror(failed)) : TOOL_OK;
}

int top_prune(const char *folder, const top_list *list)
{
    for (size_t i = 0; i < list->num; i++) {
        char *path = NULL;
        if (list->pools[i].state != TOP_DEAD)
            continue;
        if (asprintf(&path, "%s/%s", folder, list->pools[i].name) < 0)
            return tool_fail(TOOL_NO, "out of memory for a path");
        const int code = prune(path, &list->pools[i].file);
        free(path);
        TOOL_TRY(code);
    }
    return TOOL_OK;
}
