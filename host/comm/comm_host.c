/* Ranks that are threads of this process: how they find each other, meet for each exchange, and
 * learn that one of them failed.
 *
 * An exchange has up to three meetings: all have come, all have written their part (of an
 * all-reduce), all have read what they wanted. Who has come to one waits there until all have;
 * only at the first can somebody be missing, so only that one has a time limit. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/base/lock.h"
#include "host/comm/comm.h"

enum { CAUSE_BYTES = 512 };

typedef struct seat {
    bool is_taken, is_gone;
    uint64_t meetings; /* that this rank has come to */
    const pst_exchange *exchange;
} seat;

struct psti_group {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pst_comm_id id;
    pid_t process;
    int num_ranks, num_joined, num_inside;
    uint32_t timeout_ms;
    int num_copying;  /* ranks that read others' memory now */
    bool has_expired; /* every time limit is up */
    bool failed;
    char cause[CAUSE_BYTES];
    struct psti_group *next;
    seat seats[];
};

/* Groups that some rank has joined, until all have left again, and all have come. */
static psti_lock table_lock = PSTI_LOCK_INIT;
static psti_group *table;

static void remember_lock(void)
{
    psti_lock_remember(&table_lock, PSTI_RANK_COMM);
}

static void take_table(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, remember_lock);
    psti_lock_take(&table_lock);
}

void psti_ranks_make_id(pst_comm_id *id_out)
{
    static uint64_t made;
    const uint64_t number = __atomic_add_fetch(&made, 1, __ATOMIC_RELAXED);
    memset(id_out, 0, sizeof(*id_out));
    snprintf((char *)id_out->bytes, sizeof(id_out->bytes), "pagestash %d %" PRIu64, (int)getpid(),
             number);
}

/* ---- failure; with the group's lock ---- */

static void fail(psti_group *group, const char *cause)
{
    if (group->failed)
        return;
    group->failed = true;
    snprintf(group->cause, sizeof(group->cause), "%s", cause);
    pthread_cond_broadcast(&group->changed);
}

/* Nobody reads this rank's memory any more when it returns. */
static pst_status end_failed(psti_group *group)
{
    while (group->num_copying > 0)
        pthread_cond_wait(&group->changed, &group->lock);
    pthread_mutex_unlock(&group->lock);
    return PSTI_FAIL(PST_E_PEER, "%s", group->cause); /* never changes again */
}

/* ---- waiting ---- */

/* "rank 3", "ranks 0, 2": those that `is_missing` says; how many. */
static int list_ranks(const psti_group *group, bool (*is_missing)(const seat *, uint64_t),
                      uint64_t arg, char *text, size_t bytes)
{
    int num = 0;
    size_t at = 0;
    text[0] = '\0';
    for (int r = 0; r < group->num_ranks; r++) {
        if (!is_missing(&group->seats[r], arg))
            continue;
        if (at + 16 < bytes)
            at += (size_t)snprintf(text + at, bytes - at, "%s%d", num ? ", " : "", r);
        num++;
    }
    if (num > 0) {
        memmove(text + 6, text, at + 1 <= bytes - 6 ? at + 1 : bytes - 6);
        memcpy(text, num > 1 ? "ranks " : " rank ", 6);
        text[bytes - 1] = '\0';
        if (num == 1)
            memmove(text, text + 1, strlen(text));
    }
    return num;
}

static bool has_not_joined(const seat *of, uint64_t arg)
{
    (void)arg;
    return !of->is_taken;
}

static bool is_behind(const seat *of, uint64_t meetings)
{
    return of->meetings < meetings;
}

static bool has_left_behind(const seat *of, uint64_t meetings)
{
    return of->is_gone && of->meetings < meetings;
}

static struct timespec deadline_in(uint32_t milliseconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += milliseconds / 1000;
    at.tv_nsec += (long)(milliseconds % 1000) * 1000000;
    if (at.tv_nsec >= 1000000000) {
        at.tv_sec++;
        at.tv_nsec -= 1000000000;
    }
    return at;
}

/* What a rank waits for. */
typedef struct meeting {
    bool (*is_missing)(const seat *, uint64_t);
    uint64_t number;
    const struct timespec *deadline; /* NULL: for as long as it takes */
    bool is_last; /* nobody reads this rank's memory behind it: who has met may go on in any case */
} meeting;

/* Why it will not come about, or "". */
static void explain(const psti_group *group, const meeting *at, const char *who, bool is_late,
                    char *cause)
{
    char gone[128];
    cause[0] = '\0';
    if (at->is_missing == is_behind &&
        list_ranks(group, has_left_behind, at->number, gone, sizeof(gone)) > 0)
        snprintf(cause, CAUSE_BYTES, "%s destroyed the communicator", gone);
    else if (is_late)
        snprintf(cause, CAUSE_BYTES, "%s did not come within %u ms", who, group->timeout_ms);
}

/* Until nobody is missing. Fails the group where time is up, or one that is missing has left.
 * With the lock. */
static bool wait_for_all(psti_group *group, const meeting *at)
{
    char who[128], cause[CAUSE_BYTES];
    bool is_late = false;
    for (;;) {
        const bool is_met = list_ranks(group, at->is_missing, at->number, who, sizeof(who)) == 0;
        if (is_met && (at->is_last || !group->failed))
            return true;
        if (!group->failed) {
            explain(group, at, who, is_late, cause);
            if (cause[0])
                fail(group, cause);
        }
        if (group->failed)
            return false;
        if (at->deadline && group->has_expired)
            is_late = true;
        else if (at->deadline)
            is_late = pthread_cond_clockwait(&group->changed, &group->lock, CLOCK_MONOTONIC,
                                             at->deadline) == ETIMEDOUT;
        else
            pthread_cond_wait(&group->changed, &group->lock);
    }
}

/* ---- joining and leaving ---- */

static psti_group *make_group(const pst_comm_config *config)
{
    psti_group *made =
        psti_calloc(1, sizeof(*made) + (size_t)config->num_ranks * sizeof(made->seats[0]));
    if (!made)
        return NULL;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->changed, NULL);
    made->id = config->id;
    made->process = getpid();
    made->num_ranks = config->num_ranks;
    made->timeout_ms = config->timeout_ms;
    made->next = table;
    table = made;
    return made;
}

/* With the table's lock and the group's. */
static void drop_if_done(psti_group *group)
{
    const bool is_done = group->num_inside == 0 && group->num_joined == group->num_ranks;
    pthread_mutex_unlock(&group->lock);
    if (!is_done)
        return;
    psti_group **link = &table;
    while (*link != group)
        link = &(*link)->next;
    *link = group->next;
    pthread_cond_destroy(&group->changed);
    pthread_mutex_destroy(&group->lock);
    psti_free(group);
}

/* Takes the rank's seat; gives the group with its lock. */
static pst_status take_seat(const pst_comm_config *config, psti_group **group_out)
{
    char cause[128];
    psti_group *group = table;
    while (group && memcmp(&group->id, &config->id, sizeof(group->id)) != 0)
        group = group->next;
    if (!group)
        group = make_group(config);
    PSTI_CHECK(group, PST_E_NOMEM, "no memory for a communicator of %d ranks", config->num_ranks);
    pthread_mutex_lock(&group->lock);
    if (group->num_ranks != config->num_ranks) {
        snprintf(cause, sizeof(cause), "rank %d has num_ranks %d, others have %d", config->rank,
                 config->num_ranks, group->num_ranks);
        fail(group, cause);
        pthread_mutex_unlock(&group->lock);
        return PSTI_FAIL(PST_E_INVALID, "%s", cause);
    }
    if (group->seats[config->rank].is_taken) {
        pthread_mutex_unlock(&group->lock);
        return PSTI_FAIL(PST_E_INVALID, "rank %d of this communicator is there already",
                         config->rank);
    }
    group->seats[config->rank].is_taken = true;
    group->num_joined++;
    group->num_inside++;
    pthread_cond_broadcast(&group->changed);
    *group_out = group;
    return PST_OK;
}

pst_status psti_group_join(const pst_comm_config *config, psti_group **group_out)
{
    psti_group *group = NULL;
    const struct timespec deadline = deadline_in(config->timeout_ms);
    take_table();
    const pst_status status = take_seat(config, &group);
    psti_lock_give(&table_lock);
    if (status != PST_OK || !group)
        return status;
    const meeting first = {has_not_joined, 0, &deadline, true};
    const bool all_came = !group->failed && wait_for_all(group, &first);
    *group_out = group;
    if (all_came) {
        pthread_mutex_unlock(&group->lock);
        return PST_OK;
    }
    char cause[CAUSE_BYTES];
    snprintf(cause, sizeof(cause), "%s", group->cause);
    pthread_mutex_unlock(&group->lock);
    psti_group_leave(group, config->rank);
    return PSTI_FAIL(PST_E_PEER, "%s", cause);
}

void psti_group_leave(psti_group *group, int rank)
{
    take_table();
    pthread_mutex_lock(&group->lock);
    group->seats[rank].is_gone = true;
    group->num_inside--;
    pthread_cond_broadcast(&group->changed);
    drop_if_done(group);
    psti_lock_give(&table_lock);
}

/* ---- exchanges ---- */

/* Comes to the next meeting; true: all have. With the lock. */
static bool meet(psti_group *group, int rank, const struct timespec *deadline, bool is_last)
{
    const meeting next = {is_behind, ++group->seats[rank].meetings, deadline, is_last};
    pthread_cond_broadcast(&group->changed);
    return wait_for_all(group, &next);
}

/* Reads others' memory without the lock. */
static void copy(psti_group *group, int rank, void (*stage)(const pst_exchange *const *, int, int))
{
    const pst_exchange *all[PST_COMM_MAX_RANKS];
    for (int r = 0; r < group->num_ranks; r++)
        all[r] = group->seats[r].exchange;
    group->num_copying++;
    pthread_mutex_unlock(&group->lock);
    stage(all, group->num_ranks, rank);
    pthread_mutex_lock(&group->lock);
    group->num_copying--;
    pthread_cond_broadcast(&group->changed);
}

static bool fit_together(psti_group *group)
{
    const pst_exchange *all[PST_COMM_MAX_RANKS];
    char why[CAUSE_BYTES];
    for (int r = 0; r < group->num_ranks; r++)
        all[r] = group->seats[r].exchange;
    if (!psti_exchanges_differ(all, group->num_ranks, why, sizeof(why)))
        return true;
    fail(group, why);
    return false;
}

bool psti_group_is_parents(const psti_group *group)
{
    return group->process != getpid();
}

pst_status psti_group_check(psti_group *group)
{
    PSTI_CHECK(!psti_group_is_parents(group), PST_E_PEER,
               "the communicator is of process %d, which has forked this one", (int)group->process);
    pthread_mutex_lock(&group->lock);
    const bool failed = group->failed;
    pthread_mutex_unlock(&group->lock);
    PSTI_CHECK(!failed, PST_E_PEER, "%s", group->cause);
    return PST_OK;
}

pst_status psti_group_exchange(psti_group *group, int rank, const pst_exchange *exchange)
{
    PSTI_TRY(psti_group_check(group));
    const struct timespec deadline = deadline_in(group->timeout_ms);
    pthread_mutex_lock(&group->lock);
    group->seats[rank].exchange = exchange;
    if (!meet(group, rank, &deadline, false) || !fit_together(group))
        return end_failed(group);
    copy(group, rank, psti_exchange_first);
    if (exchange->kind == PST_EXCHANGE_ALL_REDUCE) {
        if (!meet(group, rank, NULL, false))
            return end_failed(group);
        copy(group, rank, psti_exchange_second);
    }
    if (!meet(group, rank, NULL, true))
        return end_failed(group);
    pthread_mutex_unlock(&group->lock);
    return PST_OK;
}

void psti_group_fail(psti_group *group, int rank, const char *cause)
{
    char text[CAUSE_BYTES];
    snprintf(text, sizeof(text), "rank %d: %s", rank, cause);
    pthread_mutex_lock(&group->lock);
    fail(group, text);
    pthread_mutex_unlock(&group->lock);
}

void psti_group_expire(psti_group *group)
{
    pthread_mutex_lock(&group->lock);
    group->has_expired = true;
    pthread_cond_broadcast(&group->changed);
    pthread_mutex_unlock(&group->lock);
}

void psti_group_late(psti_group *group, int rank, char *text, size_t bytes)
{
    pthread_mutex_lock(&group->lock);
    list_ranks(group, is_behind, group->seats[rank].meetings, text, bytes);
    pthread_mutex_unlock(&group->lock);
}
