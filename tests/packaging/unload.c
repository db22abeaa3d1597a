/* Loads the library, leaves a pool alive, unloads it, and goes on: threads, forks and exit handlers find
 * nothing of it. Then the other order: an exit handler destroys a pool. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pagestash/pagestash.h>

typedef pst_status (*open_fn)(const char *, int, pst_device **);
typedef pst_status (*create_fn)(pst_device *, const pst_pool_config *, pst_pool **);
typedef pst_status (*destroy_fn)(pst_pool *);

static pst_pool *pool;
static destroy_fn destroy;
static pid_t parent;

#define NEED(condition, what)                                     \
    do {                                                          \
        if (!(condition)) {                                       \
            fprintf(stderr, "unload.c:%d: %s\n", __LINE__, what); \
            _exit(1);                                             \
        }                                                         \
    } while (0)

/* How POSIX wants a function's address to be taken. */
static void find(void *library, const char *name, void *function_out)
{
    *(void **)function_out = dlsym(library, name);
    NEED(*(void **)function_out, dlerror());
}

static void *load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    NEED(library, dlerror());
    open_fn open;
    create_fn create;
    find(library, "pst_device_open", &open);
    find(library, "pst_pool_create", &create);
    find(library, "pst_pool_destroy", &destroy);
    const pst_pool_config config = {.struct_size = sizeof(config), .num_pages = 4};
    pst_device *device = NULL;
    NEED(open("host", 0, &device) == PST_OK, "pst_device_open");
    NEED(create(device, &config, &pool) == PST_OK, "pst_pool_create");
    return library;
}

static void fork_once(void)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    NEED(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0, "fork");
}

static void destroy_at_exit(void)
{
    if (getpid() == parent)
        NEED(destroy(pool) == PST_OK, "pst_pool_destroy at exit");
}

int main(int argc, char **argv)
{
    parent = getpid();
    NEED(argc == 2, "usage: unload LIBRARY");
    void *library = load(argv[1]);
    fork_once();
    NEED(dlclose(library) == 0, dlerror());
    NEED(!dlopen(argv[1], RTLD_NOW | RTLD_NOLOAD), "the library is still loaded");
    fork_once();
    load(argv[1]);
    fork_once();
    atexit(destroy_at_exit);
    return 0;
}
