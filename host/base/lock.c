/* The locks that are held over a fork. */
#include "host/base/lock.h"

#include "host/base/base.h"

static pthread_mutex_t list = PTHREAD_MUTEX_INITIALIZER;
static psti_lock *locks[PSTI_NUM_RANKS];

static void before(void)
{
    pthread_mutex_lock(&list);
    for (int rank = 0; rank < PSTI_NUM_RANKS; rank++)
        for (psti_lock *lock = locks[rank]; lock; lock = lock->next)
            psti_lock_take(lock);
}

static void after(void)
{
    for (int rank = PSTI_NUM_RANKS - 1; rank >= 0; rank--)
        for (psti_lock *lock = locks[rank]; lock; lock = lock->next)
            psti_lock_give(lock);
    pthread_mutex_unlock(&list);
}

/* Taken back by the C library where this library is unloaded. */
static void watch(void)
{
    locks[PSTI_RANK_LOG] = &psti_log_lock;
    pthread_atfork(before, after, after);
}

void psti_lock_remember(psti_lock *lock, psti_rank rank)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch);
    pthread_mutex_lock(&list);
    lock->next = locks[rank];
    locks[rank] = lock;
    pthread_mutex_unlock(&list);
}

void psti_lock_forget(psti_lock *lock, psti_rank rank)
{
    pthread_mutex_lock(&list);
    psti_lock **link = &locks[rank];
    while (*link && *link != lock)
        link = &(*link)->next;
    if (*link)
        *link = lock->next;
    pthread_mutex_unlock(&list);
}
