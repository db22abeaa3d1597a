/* Locks that a forked child finds free, whatever the parent's other threads held. */
#ifndef PSTI_HOST_LOCK_H
#define PSTI_HOST_LOCK_H

#include <pthread.h>

/* In the order in which a thread may take them: one of a rank only, and none of a lower rank while it
 * has one of a higher. No callback of a caller's runs under one. */
typedef enum psti_rank {
    PSTI_RANK_COMM,
    PSTI_RANK_POOL,
    PSTI_RANK_TICKETS,
    PSTI_RANK_DEVICE,
    PSTI_RANK_LOG,
    PSTI_NUM_RANKS
} psti_rank;

typedef struct psti_lock {
    pthread_mutex_t mutex;
    struct psti_lock *next; /* of its rank */
} psti_lock;

#define PSTI_LOCK_INIT                     \
    {                                      \
        .mutex = PTHREAD_MUTEX_INITIALIZER \
    }

/* A fork takes the lock from now on, until it is forgotten. The caller has none of these locks. One of
 * static storage begins with PSTI_LOCK_INIT, others with psti_lock_open. */
void psti_lock_remember(psti_lock *lock, psti_rank rank);
void psti_lock_forget(psti_lock *lock, psti_rank rank);

static inline void psti_lock_open(psti_lock *lock, psti_rank rank)
{
    pthread_mutex_init(&lock->mutex, NULL);
    psti_lock_remember(lock, rank);
}

static inline void psti_lock_close(psti_lock *lock, psti_rank rank)
{
    psti_lock_forget(lock, rank);
    pthread_mutex_destroy(&lock->mutex);
}

static inline void psti_lock_take(psti_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
}

static inline void psti_lock_give(psti_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}

#endif
