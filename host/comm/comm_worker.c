/* Exchanges of one rank that is a thread: in the order in which they were enqueued, those that
 * were started by a thread of the rank's, beside what the rank goes on with. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "host/comm/comm.h"

/* An exchange that waits for its turn, as a node of a graph has it too. */
typedef struct job {
    pst_comm *comm;
    pst_exchange exchange;
    uint64_t number;
    uint64_t lists[]; /* of ALL_TO_ALL_V: the four arrays, one behind the other */
} job;

struct psti_host_rank {
    psti_group *group;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, stops;
    bool is_running; /* an exchange in the thread that called it, or launched its graph */
    job *queue[PST_COMM_MAX_STARTED];
    uint64_t num_pushed, num_ended;
    uint64_t turn_of[PST_COMM_MAX_STARTED]; /* by number: when it was pushed last, from 1 */
};

/* ---- jobs ---- */

static size_t job_bytes(const pst_comm *comm, const pst_exchange *exchange)
{
    const size_t ranks = (size_t)comm->info.num_ranks;
    return sizeof(job) +
           (exchange->kind == PST_EXCHANGE_ALL_TO_ALL_V ? 4 * ranks * sizeof(uint64_t) : 0);
}

static job *make_job(pst_comm *comm, const pst_exchange *exchange, uint64_t number)
{
    const size_t ranks = (size_t)comm->info.num_ranks, bytes = ranks * sizeof(uint64_t);
    job *made = psti_calloc(1, job_bytes(comm, exchange));
    if (!made)
        return NULL;
    made->comm = comm;
    made->exchange = *exchange;
    made->number = number;
    if (exchange->kind == PST_EXCHANGE_ALL_TO_ALL_V) {
        memcpy(made->lists, exchange->send_counts, bytes);
        memcpy(made->lists + ranks, exchange->send_offsets, bytes);
        memcpy(made->lists + 2 * ranks, exchange->receive_counts, bytes);
        memcpy(made->lists + 3 * ranks, exchange->receive_offsets, bytes);
    }
    return made;
}

static pst_status do_job(const job *what)
{
    const pst_comm *comm = what->comm;
    const size_t ranks = (size_t)comm->info.num_ranks;
    pst_exchange exchange = what->exchange;
    exchange.send_counts = what->lists;
    exchange.send_offsets = what->lists + ranks;
    exchange.receive_counts = what->lists + 2 * ranks;
    exchange.receive_offsets = what->lists + 3 * ranks;
    return psti_group_exchange(comm->host->group, comm->info.rank, &exchange);
}

/* ---- the thread ---- */

static void *work(void *arg)
{
    psti_host_rank *self = arg;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        while (self->num_ended == self->num_pushed && !self->stops)
            pthread_cond_wait(&self->changed, &self->lock);
        if (self->num_ended == self->num_pushed)
            break;
        job *next = self->queue[self->num_ended % PST_COMM_MAX_STARTED];
        pthread_mutex_unlock(&self->lock);
        (void)do_job(
            next); /* what fails has ended the communicator: the rank's next call says so */
        psti_free(next);
        pthread_mutex_lock(&self->lock);
        self->num_ended++;
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

static pst_status need_thread(psti_host_rank *self)
{
    sigset_t all, before;
    if (self->has_thread)
        return PST_OK;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error =
        psti_allocation_fails() ? EAGAIN : pthread_create(&self->thread, NULL, work, self);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    PSTI_CHECK(error == 0, PST_E_NOMEM, "no thread for what is started: %s", strerror(error));
    self->has_thread = true;
    return PST_OK;
}

static void wait_until(psti_host_rank *self, uint64_t num_ended)
{
    pthread_mutex_lock(&self->lock);
    while (self->num_ended < num_ended)
        pthread_cond_wait(&self->changed, &self->lock);
    pthread_mutex_unlock(&self->lock);
}

static void set_running(psti_host_rank *self, bool is_running)
{
    pthread_mutex_lock(&self->lock);
    self->is_running = is_running;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
}

/* ---- what is enqueued ---- */

static pst_status run_job(const void *args)
{
    const job *what = args;
    psti_host_rank *self = what->comm->host;
    if (psti_group_is_parents(self->group))
        return psti_group_check(self->group);
    set_running(self, true);
    wait_until(self, self->num_pushed); /* which only the rank itself changes */
    const pst_status status = do_job(what);
    set_running(self, false);
    return status;
}

static pst_status push_job(const void *args)
{
    const job *what = args;
    psti_host_rank *self = what->comm->host;
    PSTI_TRY(psti_group_check(self->group));
    const size_t bytes = job_bytes(what->comm, &what->exchange);
    job *made = psti_calloc(1, bytes);
    PSTI_CHECK(made, PST_E_NOMEM, "no memory for an exchange that is started");
    memcpy(made, what, bytes);
    pthread_mutex_lock(&self->lock);
    while (self->num_pushed - self->num_ended >= PST_COMM_MAX_STARTED)
        pthread_cond_wait(&self->changed, &self->lock);
    self->queue[self->num_pushed % PST_COMM_MAX_STARTED] = made;
    self->turn_of[what->number % PST_COMM_MAX_STARTED] = ++self->num_pushed;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    return PST_OK;
}

typedef struct finish {
    pst_comm *comm;
    uint64_t number;
} finish;

static pst_status finish_job(const void *args)
{
    const finish *what = args;
    psti_host_rank *self = what->comm->host;
    /* also where the communicator has ended: until then the thread may read and write the caller's memory */
    if (!psti_group_is_parents(self->group))
        wait_until(self, self->turn_of[what->number % PST_COMM_MAX_STARTED]);
    return psti_group_check(self->group);
}

static pst_status enqueue(pst_comm *comm, psti_function *function, const pst_exchange *exchange,
                          uint64_t number, pst_stream stream)
{
    job *what = make_job(comm, exchange, number);
    PSTI_CHECK(what, PST_E_NOMEM, "no memory for an exchange");
    const pst_status status =
        comm->device->ops->call(comm->device, function, what, job_bytes(comm, exchange), stream);
    psti_free(what);
    return status;
}

static pst_status ranks_run(pst_comm *comm, const pst_exchange *exchange, pst_stream stream)
{
    return enqueue(comm, run_job, exchange, 0, stream);
}

static pst_status ranks_start(pst_comm *comm, const pst_exchange *exchange, uint64_t number,
                              pst_stream stream)
{
    PSTI_TRY(need_thread(comm->host));
    return enqueue(comm, push_job, exchange, number, stream);
}

static pst_status ranks_finish(pst_comm *comm, uint64_t number, pst_stream stream)
{
    const finish what = {comm, number};
    return comm->device->ops->call(comm->device, finish_job, &what, sizeof(what), stream);
}

/* ---- wait, abort ---- */

/* With the lock. */
static bool is_busy(const psti_host_rank *self)
{
    return self->is_running || self->num_ended < self->num_pushed;
}

static pst_status ranks_wait(pst_comm *comm, pst_stream stream, uint32_t milliseconds)
{
    psti_host_rank *self = comm->host;
    char who[128];
    struct timespec at;
    int error = 0;
    PSTI_TRY(comm->device->ops->stream_synchronize(comm->device, stream)); /* at once */
    clock_gettime(CLOCK_MONOTONIC, &at);
    const int64_t nanoseconds = at.tv_nsec + (int64_t)milliseconds * 1000000;
    at.tv_sec += nanoseconds / 1000000000;
    at.tv_nsec = nanoseconds % 1000000000;
    pthread_mutex_lock(&self->lock);
    while (is_busy(self) && error != ETIMEDOUT)
        error = pthread_cond_clockwait(&self->changed, &self->lock, CLOCK_MONOTONIC, &at);
    const bool has_ended = !is_busy(self);
    pthread_mutex_unlock(&self->lock);
    PSTI_TRY(psti_group_check(self->group));
    psti_group_late(self->group, comm->info.rank, who, sizeof(who));
    PSTI_CHECK(has_ended, PST_E_AGAIN,
               "an exchange has not ended after %u ms: %s%s; pst_comm_abort ends it", milliseconds,
               who, who[0] ? " did not come" : "it goes on");
    return PST_OK;
}

static pst_status ranks_abort(pst_comm *comm, const char *cause)
{
    psti_group_fail(comm->host->group, comm->info.rank, cause);
    return PST_OK;
}

static pst_status ranks_check(pst_comm *comm)
{
    return psti_group_check(comm->host->group);
}

/* ---- open, close ---- */

pst_status psti_ranks_open(pst_comm *comm, const pst_comm_config *config)
{
    psti_host_rank *made = psti_calloc(1, sizeof(*made));
    PSTI_CHECK(made, PST_E_NOMEM, "no memory for a communicator");
    const pst_status status = psti_group_join(config, &made->group);
    if (status != PST_OK) {
        psti_free(made);
        return status;
    }
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    comm->host = made;
    return PST_OK;
}

psti_group *psti_ranks_group(const pst_comm *comm)
{
    return comm->host->group;
}

static void ranks_close(pst_comm *comm)
{
    psti_host_rank *self = comm->host;
    if (psti_group_is_parents(self->group)) /* neither the thread nor the other ranks are here */
        return;
    pthread_mutex_lock(&self->lock);
    self->stops = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    if (self->has_thread)
        pthread_join(self->thread, NULL);
    psti_group_leave(self->group, comm->info.rank);
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    psti_free(self);
}

const psti_comm_ops psti_ranks_ops = {
    .check = ranks_check,
    .run = ranks_run,
    .start = ranks_start,
    .finish = ranks_finish,
    .wait = ranks_wait,
    .abort = ranks_abort,
    .close = ranks_close,
};
