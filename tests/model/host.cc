/* Operations of the host device that overlap, or follow one another without anybody telling, on an
 * ordered pool, on one ticket of a concurrent one, and on two: relacy runs read_state, refused,
 * claim and publish of kernels/host/protocol.h, as they are and with each order weaker. README.md
 * has the table.
 *
 * What an operation does between claim and publish is here one addition to the head, and one to a
 * plain word of the record; before the claim an ordered one has read both. Exit 0: all as expected. */
#include "words.h"

#include "kernels/host/protocol.h"

namespace
{

enum { THREADS = 2, OPS = 2 };

struct pool_memory {
    psti_pool_state state;
    pst_pool_status status;
    psti_ticket_record tickets[THREADS];
};

struct scene {
    const char *name;
    bool concurrent;
    bool late; /* the second thread begins after the first has ended */
    uint32_t num_tickets;
};

const scene *now;
psti_move_args args[THREADS];

pool_memory &pool()
{
    return *reinterpret_cast<pool_memory *>(words::arena);
}

/* As psti_host_stash and psti_host_restore call it; true when it was done. */
bool operate(const psti_move_args &a)
{
    const snapshot before = read_state(&a);
    if (refused(&a, &before))
        return false;
    if (a.pool.concurrent) {
        if (!claim(&a, &before))
            return false;
        psti_lock(a.pool.state);
        const snapshot locked = read_state(&a);
        psti_store_relaxed_u64(&a.pool.state->head[0], locked.head[0] + 1);
        a.ticket->num_pages += 1;
        psti_unlock(a.pool.state);
    } else {
        if (!claim(&a, &before))
            return false;
        psti_store_relaxed_u64(&a.pool.state->head[0], before.head[0] + 1);
        a.ticket->num_pages += 1;
    }
    publish(&a, &before);
    return true;
}

struct machine : rl::test_suite<machine, THREADS> {
    words::word memory[sizeof(pool_memory) / 8];
    rl::atomic<uint32_t> ended;
    uint32_t done;

    void before()
    {
        words::reset(memory, sizeof(memory) / sizeof(*memory));
        ended.store(0, rl::mo_relaxed, RL_INFO);
        done = 0;
    }

    void thread(unsigned index)
    {
        while (now->late && index == 1 && ended.load(rl::mo_relaxed, RL_INFO) == 0)
            rl::yield(1, RL_INFO);
        for (uint32_t i = 0; i < OPS; i++)
            done += operate(args[index]);
        ended.store(1, rl::mo_relaxed, RL_INFO);
    }

    void after()
    {
        RL_ASSERT(pool().state.head[0] == done);
        RL_ASSERT(pool().tickets[0].num_pages + pool().tickets[1].num_pages == done);
        const bool misuse = now->num_tickets == 1;
        RL_ASSERT(done == THREADS * OPS || (misuse && pool().state.refuse & PSTI_REFUSES_ORDER));
    }
};

constexpr scene scenes[] = {
    {"pool", false, false, 1},       {"pool, late", false, true, 1}, {"ticket", true, false, 1},
    {"ticket, late", true, true, 1}, {"tickets", true, false, 2},
};

const char *search(unsigned most)
{
    for (const scene &which : scenes) {
        now = &which;
        for (uint32_t i = 0; i < THREADS; i++) {
            args[i].pool.concurrent = which.concurrent;
            args[i].ticket = &pool().tickets[i % which.num_tickets];
        }
        if (!words::holds<machine>(rl::sched_random, most))
            return which.name;
    }
    return nullptr;
}

constexpr words::equivalence equivalent[] = {
    /* the launch word that read_state acquired is still there, and publish releases what is done in
     * between */
    {"claim", "cas_acq_rel_u64"},
    /* takes a number: the load of whose turn it is acquires */
    {"psti_lock", "add_acq_rel_u32"},
    /* the report of a fault is read when the operation has ended */
    {"psti_claim_fault", "add_acq_rel_u32"},
    {"psti_claim_fault", "cas_acq_rel_u32"},
    {"psti_record_fault", "store_release_u32"},
    {nullptr, nullptr},
};

} // namespace

int main(int argc, char **argv)
{
    words::watches = true;
    pool_memory &p = pool();
    words::split_pool(p);
    for (uint32_t i = 0; i < THREADS; i++) {
        words::split(p.tickets[i].state);
        words::split(p.tickets[i].index);
        args[i].pool.state = &p.state;
        args[i].pool.status = &p.status;
        args[i].op = 1 + i;
    }
    return words::weaken_each(search, equivalent, 1000, argc, argv);
}
