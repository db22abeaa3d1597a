/* What tests ask of a lazy device. */
#include "tests/lazy/lazy.h"

size_t lazy_run(pst_device *device, size_t n)
{
    lazy_device *lazy = lazy_lock(device);
    size_t done = 0;
    while (done < n && lazy_step(lazy))
        done++;
    lazy_unlock(lazy, PST_OK);
    return done;
}

size_t lazy_pending(pst_device *device)
{
    lazy_device *lazy = lazy_lock(device);
    size_t num = 0;
    for (const lazy_queue *queue = lazy->queues; queue; queue = queue->next)
        for (const lazy_work *work = queue->first; work; work = work->next)
            num += work->instance ? work->instance->num_left + !work->instance->has_begun : 1;
    lazy_unlock(lazy, PST_OK);
    return num;
}

void lazy_seed(pst_device *device, uint64_t seed)
{
    lazy_device *lazy = lazy_lock(device);
    lazy->random = seed;
    lazy_unlock(lazy, PST_OK);
}

void lazy_watch(pst_device *device, lazy_watch_fn on_node, void *context)
{
    lazy_device *lazy = lazy_lock(device);
    lazy->options.on_node = on_node;
    lazy->options.context = context;
    lazy_unlock(lazy, PST_OK);
}

void lazy_fail_at(pst_device *device, uint64_t n)
{
    lazy_device *lazy = lazy_lock(device);
    lazy->fails_at = n;
    lazy_unlock(lazy, PST_OK);
}

uint64_t lazy_calls(pst_device *device)
{
    lazy_device *lazy = lazy_lock(device);
    const uint64_t calls = lazy->calls;
    lazy_unlock(lazy, PST_OK);
    return calls;
}

void lazy_hold_back(pst_device *device, pst_stream stream, bool held)
{
    lazy_device *lazy = lazy_lock(device);
    lazy_queue_of(lazy, stream)->is_held = held;
    lazy_unlock(lazy, PST_OK);
}

const char *lazy_kind_name(lazy_kind kind)
{
    static const char *const names[] = {
#define LAZY_KIND_NAME(kind, name) name,
        LAZY_KIND_LIST(LAZY_KIND_NAME)
#undef LAZY_KIND_NAME
    };
    return names[kind];
}
