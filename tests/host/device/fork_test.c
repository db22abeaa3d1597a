/* Forks and ends of a process: host devices work in a child, others say that they do not, and nothing
 * of it touches the parent. */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pagestash/pagestash.h>

#include "host/device/host_device.h"
#include "host/stash/stash.h"
#include "tests/harness.h"
#include "tests/host/base/child.h"

static pst_device *its_device;
static pst_stream its_stream;
static pst_event its_event;
static pst_graph *its_graph;
static pst_pool *its_pool;

/* gcc 12's AddressSanitizer forks with its allocator's locks as other threads hold them, so that now and
 * then a child waits for ever. */
#if defined(__SANITIZE_ADDRESS__)
enum { MAY_HANG = 1 };
#else
enum { MAY_HANG = 0 };
#endif

/* Runs `body` in a child; its answer, or -1 where it did not come to an end within so many seconds. */
static int in_child_for(unsigned seconds, int (*body)(pst_device *device), pst_device *device)
{
    int status = 0;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(seconds);
        child_end(body(device));
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

static int in_child(int (*body)(pst_device *device), pst_device *device)
{
    return in_child_for(120, body, device);
}

/* ---- a host device ---- */

static int use_device(pst_device *device)
{
    pst_stream stream = NULL;
    pst_event event = NULL;
    pst_graph *graph = NULL;
    void *memory = NULL;
    int wrong = pst_stream_create(device, &stream) != PST_OK;
    wrong += pst_event_create(device, &event) != PST_OK;
    wrong += pst_device_alloc(device, 4096, &memory) != PST_OK;
    wrong += pst_graph_begin(device, stream) != PST_OK;
    wrong += pst_device_fill(device, memory, 7, 4096, stream) != PST_OK;
    wrong += pst_graph_end(device, stream, &graph) != PST_OK;
    wrong += pst_graph_launch(graph, stream) != PST_OK;
    wrong += ((unsigned char *)memory)[4095] != 7;
    wrong += pst_graph_launch(NULL, stream) != PST_E_INVALID; /* a message: the log's lock */
    wrong += pst_graph_destroy(graph) != PST_OK;
    wrong += pst_device_free(device, memory) != PST_OK;
    wrong += pst_event_destroy(device, event) != PST_OK;
    wrong += pst_stream_destroy(device, stream) != PST_OK;
    return wrong;
}

typedef struct busy {
    pst_device *device;
    uint32_t stop; /* atomic */
} busy;

static void *keep_busy(void *arg)
{
    busy *self = arg;
    while (!__atomic_load_n(&self->stop, __ATOMIC_RELAXED))
        if (use_device(self->device) != 0)
            return self;
    return NULL;
}

/* Fault rows 45. */
PST_TEST(Fork, AHostDeviceWorksInTheChildWhateverThreadsDid)
{
    busy self = {.device = NULL};
    pthread_t threads[2];
    CHECK_OK(pst_device_open("host", 0, &self.device));
    for (int i = 0; i < 2; i++)
        CHECK_EQ(pthread_create(&threads[i], NULL, keep_busy, &self), 0);
    int wrong = 0;
    for (int i = 0; i < 20; i++) {
        const int answer = in_child_for(MAY_HANG ? 5 : 120, use_device, self.device);
        wrong += answer != 0 && !(MAY_HANG && answer == -1);
    }
    __atomic_store_n(&self.stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        wrong += failed != NULL;
    }
    CHECK_EQ(wrong, 0);
    CHECK_OK(pst_device_close(self.device));
}

typedef struct holder {
    psti_lock *lock;
    sem_t holds;
} holder;

static void *hold_locks(void *arg)
{
    const struct timespec moment = {.tv_nsec = 30000000};
    holder *self = arg;
    psti_lock_take(self->lock);
    sem_post(&self->holds);
    nanosleep(&moment, NULL);
    psti_lock_give(self->lock);
    return NULL;
}

static int use_while_held(pst_device *device, int (*body)(pst_device *device), psti_lock *lock)
{
    holder self = {.lock = lock};
    pthread_t thread;
    if (sem_init(&self.holds, 0, 0) != 0 || pthread_create(&thread, NULL, hold_locks, &self) != 0)
        return -1;
    while (sem_wait(&self.holds) != 0)
        ;
    const int answer = in_child(body, device);
    pthread_join(thread, NULL);
    sem_destroy(&self.holds);
    return answer;
}

/* Destroys the pool, too. */
static int use_pool(pst_device *device)
{
    pst_ticket tickets[2] = {{0}, {0}};
    pst_pool_status status;
    int wrong = 0;
    for (int i = 0; i < 2; i++)
        wrong += pst_ticket_take(its_pool, NULL, &tickets[i]) != PST_OK;
    wrong += pst_device_close(device) != PST_E_BUSY;
    wrong += pst_pool_destroy(its_pool) != PST_E_BUSY;
    for (int i = 0; i < 2; i++)
        wrong += pst_ticket_give(tickets[i], NULL) != PST_OK;
    wrong += pst_pool_step(its_pool, NULL) != PST_OK;
    wrong += pst_pool_poll(its_pool, &status) != PST_OK;
    return wrong + (pst_pool_destroy(its_pool) != PST_OK);
}

PST_TEST(Fork, NoLockOfAnotherThreadIsLeftInTheChild)
{
    pst_device *device = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = 1;
    config.slab_tickets = 2;
    CHECK_OK(pst_pool_create(device, &config, &its_pool));
    CHECK_EQ(use_while_held(device, use_device, &psti_host_state_of(device)->lock), 0);
    CHECK_EQ(use_while_held(device, use_device, &psti_log_lock), 0);
    CHECK_EQ(use_while_held(device, use_pool, &its_pool->lock), 0);
    CHECK_EQ(use_device(device), 0);
    CHECK_EQ(use_pool(device), 0); /* which destroys it */
    CHECK_OK(pst_device_close(device));
}

static int destroy_all(pst_device *device)
{
    return pst_device_close(device) != PST_OK;
}

/* Fault rows 45. */
PST_TEST(Fork, WhatAChildDestroysIsItsOwn)
{
    pst_device *device = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_EQ(in_child(destroy_all, device), 0);
    CHECK_EQ(use_device(device), 0);
    CHECK_OK(pst_device_close(device));
}

/* ---- a device that does not outlive a fork, as cuda ---- */

static int count_refusals(pst_device *device)
{
    static const char text[] = "this process is a fork of the one that opened the device";
    const pst_pool_config config = {.struct_size = sizeof(config), .num_pages = 1};
    pst_device_info info;
    pst_stream stream = NULL;
    pst_event event = NULL;
    pst_pool *pool = NULL;
    void *memory = NULL;
    unsigned char byte = 0;
    double seconds = 0;
    const pst_status answers[] = {
        pst_device_get_info(device, &info),
        pst_device_alloc(device, 8, &memory),
        pst_device_alloc_pinned(device, 8, &memory),
        pst_device_free(device, &byte),
        pst_device_free_pinned(device, &byte),
        pst_device_fill(device, &byte, 0, 1, NULL),
        pst_device_copy(device, &byte, "x", 1, NULL),
        pst_device_synchronize(device),
        pst_stream_create(device, &stream),
        pst_stream_synchronize(device, its_stream),
        pst_stream_destroy(device, its_stream),
        pst_event_create(device, &event),
        pst_event_record(device, its_event, its_stream),
        pst_event_wait(device, its_event, its_stream),
        pst_event_synchronize(device, its_event),
        pst_event_elapsed(device, its_event, its_event, &seconds),
        pst_event_destroy(device, its_event),
        pst_graph_begin(device, its_stream),
        pst_graph_launch(its_graph, its_stream),
        pst_pool_create(device, &config, &pool),
        pst_pool_step(its_pool, its_stream),
        pst_pool_reset(its_pool, PST_RESET_ALL, its_stream),
        pst_pool_check(its_pool, its_stream),
        psti_device_check_alive(device),
        pst_pool_destroy(its_pool),
    };
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
        if (answers[i] != PST_E_NO_DEVICE)
            return 1 + (int)i;
    if (strncmp(pst_last_message(), text, strlen(text)) != 0)
        return 100;
    if (pst_graph_destroy(its_graph) != PST_OK) /* the parent's graph lives in the parent */
        return 101;
    return pst_device_close(device) == PST_E_BUSY ? 0 : 102;
}

PST_TEST(Fork, ACudaDeviceSaysThatAChildCannotUseIt)
{
    pst_device *device = NULL;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = 1;
    CHECK_OK(pst_device_open("host", 0, &device));
    const psti_device_ops *real = device->ops;
    psti_device_ops ops = *real;
    ops.in_child = psti_device_die;
    device->ops = &ops;
    CHECK_OK(pst_stream_create(device, &its_stream));
    CHECK_OK(pst_event_create(device, &its_event));
    CHECK_OK(pst_graph_begin(device, its_stream));
    CHECK_OK(pst_graph_end(device, its_stream, &its_graph));
    CHECK_OK(pst_pool_create(device, &config, &its_pool));
    CHECK_EQ(in_child(count_refusals, device), 0);
    CHECK_OK(psti_device_check_alive(device));
    device->ops = real;
    CHECK_EQ(use_device(device), 0);
    CHECK_OK(pst_pool_destroy(its_pool));
    CHECK_OK(pst_graph_destroy(its_graph));
    CHECK_OK(pst_event_destroy(device, its_event));
    CHECK_OK(pst_stream_destroy(device, its_stream));
    CHECK_OK(pst_device_close(device));
}

/* ---- the end of a process ---- */

static void destroy_at_exit(void)
{
    pst_device *device = NULL;
    printf("%s ", pst_status_name(pst_pool_destroy(its_pool)));
    printf("%s ", pst_status_name(pst_device_close(its_device)));
    printf("%s ", pst_status_name(pst_device_close(its_device)));
    printf("%s\n", pst_status_name(pst_device_open("host", 0, &device)));
    fflush(stdout);
}

PST_CHILD(destroy_at_exit)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = 1;
    atexit(destroy_at_exit);
    if (pst_device_open("host", 0, &its_device) == PST_OK &&
        pst_pool_create(its_device, &config, &its_pool) == PST_OK)
        exit(0); /* the device that the handler opens stays open */
}

/* Fault rows 46. */
PST_TEST(Fork, AnExitHandlerMayDestroy)
{
    child_result child;
    CHECK(child_run("destroy_at_exit", NULL, &child) && child.exited);
    CHECK_STR(child.out, "PST_OK PST_OK PST_E_INVALID PST_OK\n");
}

/* ---- signals ---- */

static volatile sig_atomic_t said;

static void destroy_pool(int signal)
{
    (void)signal;
    said = (sig_atomic_t)pst_pool_destroy(its_pool);
}

/* A signal that arrives within a call of the pool finds it in use.
 * Fault rows 46. */
PST_TEST(Fork, ASignalHandlerDestroysBetweenCallsOnly)
{
    pst_device *device = NULL;
    struct sigaction before, action = {.sa_handler = destroy_pool};
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.num_pages = 1;
    CHECK_OK(pst_device_open("host", 0, &device));
    CHECK_OK(pst_pool_create(device, &config, &its_pool));
    CHECK_EQ(sigaction(SIGUSR1, &action, &before), 0);
    psti_handle *const inside = psti_handle_enter(its_pool);
    CHECK(inside);
    raise(SIGUSR1);
    const pst_status within = (pst_status)said;
    psti_handle_leave(&inside);
    raise(SIGUSR1);
    const pst_status between = (pst_status)said;
    raise(SIGUSR1);
    const pst_status again = (pst_status)said;
    CHECK_EQ(sigaction(SIGUSR1, &before, NULL), 0);
    CHECK_EQ(within, PST_E_BUSY);
    CHECK_EQ(between, PST_OK);
    CHECK_EQ(again, PST_E_INVALID);
    CHECK_OK(pst_device_close(device));
}
