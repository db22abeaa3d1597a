/* The pool's lock under a weak memory model: relacy runs psti_lock and psti_unlock of
 * kernels/core/pool.h, as they are and with each order weaker. Full search with two threads, random
 * with three. README.md has the table. Exit 0: all as expected. */
#include "words.h"

#define PSTI_PAUSE() rl::yield(1, RL_INFO)
#include "kernels/core/pool.h"

namespace
{

template <unsigned kThreads, unsigned kTurns>
struct scene : rl::test_suite<scene<kThreads, kTurns>, kThreads> {
    words::word memory[sizeof(psti_pool_state) / 8];
    rl::var<uint32_t> held;

    void before()
    {
        words::reset(memory, sizeof(memory) / sizeof(*memory));
        held(RL_INFO) = 0;
    }

    void thread(unsigned)
    {
        psti_pool_state *state = reinterpret_cast<psti_pool_state *>(words::arena);
        for (uint32_t turn = 0; turn < kTurns; turn++) {
            psti_lock(state);
            held(RL_INFO) = held(RL_INFO) + 1;
            psti_unlock(state);
        }
    }

    void after()
    {
        RL_ASSERT(held(RL_INFO) == kThreads * kTurns);
    }
};

const char *search(unsigned most)
{
    if (!words::holds<scene<2, 1>>(rl::sched_full, most))
        return "two threads";
    return words::holds<scene<3, 2>>(rl::sched_random, most) ? nullptr : "three threads";
}

constexpr words::equivalence equivalent[] = {
    {"psti_lock", "add_acq_rel_u32"}, /* takes a number: the load of whose turn it is acquires */
    {nullptr, nullptr},
};

} // namespace

int main(int argc, char **argv)
{
    words::watches = true;
    words::split(reinterpret_cast<psti_pool_state *>(words::arena)->lock_next);
    return words::weaken_each(search, equivalent, 2000, argc, argv);
}
