/* A run's deadline, its progress line, and Ctrl-C, which ends it with the best plan so far. */
#include "tools/plan/plan.h"

#include <math.h>
#include <signal.h>
#include <time.h>

#define PROGRESS_SECONDS 2.0 /* a run that takes less shows nothing */

static volatile sig_atomic_t is_interrupted;

static void interrupt(int number)
{
    (void)number;
    is_interrupted = 1;
}

bool plan_is_interrupted(void)
{
    return is_interrupted != 0;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The second Ctrl-C ends the command. */
void plan_watch_begin(plan_watch *self, double seconds, uint64_t num_tensors)
{
    const double kept = fmin(1e-9 * PST_PLAN_FINISH_NS * (double)num_tensors, seconds / 10);
    const struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    struct sigaction before;
    *self = (plan_watch){.begin = now(), .seconds = seconds - kept};
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler == SIG_DFL && !is_interrupted)
        sigaction(SIGINT, &action, NULL);
}

double plan_watch_seconds(const plan_watch *self)
{
    return now() - self->begin;
}

static uint64_t whole_seconds(const plan_watch *self)
{
    return (uint64_t)ceil(self->seconds);
}

double plan_watch_left(void *watch)
{
    plan_watch *self = watch;
    const double passed = plan_watch_seconds(self);
    const uint64_t second = (uint64_t)passed;
    uint64_t shown = __atomic_load_n(&self->shown, __ATOMIC_RELAXED);
    if (passed >= PROGRESS_SECONDS && second > shown && passed < self->seconds &&
        __atomic_compare_exchange_n(&self->shown, &shown, second, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        tool_progress("planning: second", second, whole_seconds(self));
    return is_interrupted ? 0.0 : self->seconds - passed;
}

bool plan_watch_is_over(void *watch)
{
    return plan_watch_left(watch) <= 0.0;
}

void plan_watch_end(plan_watch *self)
{
    const uint64_t all = whole_seconds(self);
    struct sigaction before;
    tool_progress("planning: second", all, all);
    if (sigaction(SIGINT, NULL, &before) == 0 && before.sa_handler == interrupt)
        signal(SIGINT, SIG_DFL);
}
