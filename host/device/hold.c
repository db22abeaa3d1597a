/* How many captured graphs use an object, and who is told when none does any more. */
#include "host/device/device.h"

#include <time.h>

/* Of hold->graphs. While somebody is told, the last graph still counts. */
#define TELLING (1u << 31)
#define AGAIN (1u << 30) /* meanwhile another graph came and let go */
#define COUNT (AGAIN - 1)

uint32_t psti_hold_count(const pst_device *device, const psti_hold *hold)
{
    const struct timespec millisecond = {.tv_nsec = 1000000};
    uint32_t graphs = __atomic_load_n(&hold->graphs, __ATOMIC_ACQUIRE);
    /* a thread of the driver's lets go of a graph that was destroyed a moment ago */
    for (int i = 0; i < 50 && graphs && device->info.kind == PST_DEVICE_CUDA; i++) {
        clock_nanosleep(CLOCK_MONOTONIC, 0, &millisecond, NULL);
        graphs = __atomic_load_n(&hold->graphs, __ATOMIC_ACQUIRE);
    }
    return graphs & COUNT;
}

uint32_t psti_hold_users(const psti_hold *hold)
{
    const uint32_t graphs = __atomic_load_n(&hold->graphs, __ATOMIC_ACQUIRE);
    return (graphs & COUNT) - (graphs & TELLING ? 1 : 0);
}

void psti_hold_add(psti_hold *hold)
{
    __atomic_fetch_add(&hold->graphs, 1, __ATOMIC_RELAXED);
}

static bool change(psti_hold *hold, uint32_t *graphs, uint32_t wanted)
{
    return __atomic_compare_exchange_n(&hold->graphs, graphs, wanted, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE);
}

/* Counts down only afterwards, since whoever sees 0 may free the object. */
static void tell(psti_hold *hold)
{
    uint32_t graphs = 1 | TELLING;
    uint32_t left;
    do {
        hold->let_go(hold);
        do
            left = graphs == (1 | TELLING | AGAIN) ? 1 | TELLING : (graphs & COUNT) - 1;
        while (!change(hold, &graphs, left));
        graphs = left;
    } while (left & TELLING);
}

void psti_hold_drop(psti_hold *hold)
{
    uint32_t graphs = __atomic_load_n(&hold->graphs, __ATOMIC_RELAXED);
    uint32_t left;
    do {
        left = graphs - 1;
        if (graphs == 1 && hold->let_go)
            left = 1 | TELLING;
        else if ((graphs & ~AGAIN) == (2 | TELLING))
            left = 1 | TELLING | AGAIN;
    } while (!change(hold, &graphs, left));
    if (left == (1 | TELLING))
        tell(hold);
}
