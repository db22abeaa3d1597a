/* What ends a search: steps or time; and threads that work on one task. */
#include "host/base/table.h"
#include "host/plan/plan.h"

#include <pthread.h>

enum { STRIDE = 4096 };

bool psti_limits_over(psti_limits *limits)
{
    if (limits->is_over != NULL && limits->is_over(limits->user))
        __atomic_store_n(&limits->over, true, __ATOMIC_RELAXED);
    return __atomic_load_n(&limits->over, __ATOMIC_RELAXED);
}

bool psti_limits_over_at(psti_limits *limits, uint64_t k)
{
    return limits != NULL && k % STRIDE == 0 && psti_limits_over(limits);
}

static bool is_over(void *limits)
{
    return psti_limits_over(limits);
}

bool psti_limits_sort(psti_limits *limits, uint64_t *items, uint64_t num, unsigned words)
{
    return psti_sort_until(items, num, words, limits != NULL ? is_over : NULL, limits);
}

bool psti_limits_take(psti_limits *limits, uint64_t steps)
{
    uint64_t left = __atomic_load_n(&limits->steps_left, __ATOMIC_RELAXED);
    do {
        if (left < steps) {
            __atomic_store_n(&limits->out_of_steps, true, __ATOMIC_RELAXED);
            return false;
        }
    } while (!__atomic_compare_exchange_n(&limits->steps_left, &left, left - steps, false,
                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return !psti_limits_over(limits);
}

typedef struct job {
    void (*run)(void *);
    void *argument;
} job;

static void *run_job(void *argument)
{
    const job *of = argument;
    of->run(of->argument);
    return NULL;
}

void psti_run_threads(uint32_t num_threads, void (*run)(void *), void *argument)
{
    pthread_t threads[PSTI_PLAN_MAX_THREADS];
    job of = {run, argument};
    uint32_t num = 0;
    while (num + 1 < num_threads && num < PSTI_PLAN_MAX_THREADS &&
           pthread_create(&threads[num], NULL, run_job, &of) == 0)
        num++;
    run(argument);
    for (uint32_t t = 0; t < num; t++)
        pthread_join(threads[t], NULL);
}
