/* The mailbox under a weak memory model. relacy runs the code of kernels/core/mailbox.h itself: with the
 * orders of the CPU, which come from fn.h, with those of CUDA, which tests/gates holds ptx.cuh to, and
 * with each of them weakened, where it must find a fault. Exit 0: all as expected; 1: not.
 *
 * What each order is for:
 * - store of the sequence's 0, release: who sees the 0 of one slot sees that the other slot is newer.
 *   Relaxed, a poll answers an older status than the one before.
 * - words, release; on CUDA relaxed behind a fence, which is as good: who sees a word of the next
 *   publication sees the 0 in front of it when it reads the sequence again.
 * - last store of the sequence, release: who sees it sees the words.
 * - reader's loads of sequence and words, acquire: the other half of each of these.
 * - covered, release, and its load, acquire: who sees a step's number may use what the operations
 *   before that step used. Relaxed, both touch it at once.
 * - reader's second load of the sequence, relaxed: it stands behind acquire loads, and what is used
 *   was seen by an acquire load before. Acquire would add nothing.
 *
 * The full search goes through all interleavings with one publisher; each load gets the newest value or
 * the one before. The random search has two that take turns, as launches do, whose orders cannot help
 * each other, and goes back two values. Both are the same in each run. */
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ostream>

#include <relacy/relacy.hpp>

namespace
{

/* ---- in place of layout.h: a status of two words ---- */

#define PSTI_CORE_LAYOUT_H

struct pst_pool_status {
    uint64_t steps;
    uint64_t other;
};

struct psti_mailbox_slot {
    uint64_t sequence;
    uint64_t words[2];
};

struct psti_mailbox {
    psti_mailbox_slot slots[2];
    uint64_t covered;
};

struct psti_pool_state {
    uint64_t covered;
};

/* ---- what becomes of an atomic access in fn.h ---- */

enum access {
    NONE,
    ZERO,
    FENCE,
    WORD,
    SEQUENCE,
    COVERED,
    LOAD_SEQUENCE,
    LOAD_WORD,
    LOAD_AGAIN,
    LOAD_COVERED
};

struct variant {
    const char *name;
    bool holds;
    bool is_cuda;
    access relaxed, absent;
};

enum {
    SLOT_WORDS = sizeof(psti_mailbox_slot) / 8,
    COVERED_WORD = 2 * SLOT_WORDS,
    NUM_WORDS = COVERED_WORD + 1
};

const variant *now;
psti_mailbox box; /* its addresses; what it holds is relacy's: */
rl::atomic<uint64_t> *cells;
uint64_t last_sequence; /* of the one reader */

template <class Word> uint64_t index_of(const Word *at)
{
    return static_cast<uint64_t>(reinterpret_cast<const uint64_t *>(at) - &box.slots[0].sequence);
}

rl::memory_order order_of(access what, int builtin)
{
    if (what == now->relaxed || (what == WORD && now->is_cuda))
        return rl::mo_relaxed;
    return builtin == __ATOMIC_RELAXED   ? rl::mo_relaxed
           : builtin == __ATOMIC_ACQUIRE ? rl::mo_acquire
           : builtin == __ATOMIC_RELEASE ? rl::mo_release
                                         : rl::mo_seq_cst;
}

template <class Word> void model_store(Word *at, Word value, int builtin)
{
    const uint64_t index = index_of(at);
    const access what = index == COVERED_WORD ? COVERED
                        : index % SLOT_WORDS  ? WORD
                        : value               ? SEQUENCE
                                              : ZERO;
    if (now->absent != what)
        cells[index].store(value, order_of(what, builtin), RL_INFO);
    if (what == ZERO && now->is_cuda && now->absent != FENCE)
        rl::atomic_thread_fence(rl::mo_acq_rel, RL_INFO);
}

template <class Word> Word model_load(const Word *at, int builtin)
{
    const uint64_t index = index_of(at);
    const access what = index == COVERED_WORD         ? LOAD_COVERED
                        : index % SLOT_WORDS          ? LOAD_WORD
                        : builtin == __ATOMIC_RELAXED ? LOAD_AGAIN
                                                      : LOAD_SEQUENCE;
    if (what == now->absent)
        return static_cast<Word>(last_sequence);
    const uint64_t value = cells[index].load(order_of(what, builtin), RL_INFO);
    if (what == LOAD_SEQUENCE)
        last_sequence = value;
    return static_cast<Word>(value);
}

#define __atomic_store_n model_store
#define __atomic_load_n model_load
#include "kernels/core/mailbox.h"
#undef __atomic_store_n
#undef __atomic_load_n

/* ---- the scene ---- */

enum { KNOWN = 2, PUBLISHED = 4, RANDOM_EXECUTIONS = 200000 };

void publish(uint64_t step)
{
    const pst_pool_status status = {step, step};
    psti_publish_status(&status, &box);
}

/* As after an earlier poll that got the last of the known ones. */
void poll()
{
    pst_pool_status status;
    if (psti_read_mailbox(&box, &status)) {
        RL_ASSERT(status.steps == status.other);
        RL_ASSERT(status.steps >= KNOWN);
    }
}

/* The last thread polls while the others publish in turns; two publications were there before. */
template <unsigned kPublishers> struct scene : rl::test_suite<scene<kPublishers>, kPublishers + 1> {
    rl::atomic<uint64_t> words[NUM_WORDS];
    rl::atomic<uint64_t> last;

    void before()
    {
        cells = words;
        for (rl::atomic<uint64_t> &word : words)
            word.store(0, rl::mo_relaxed, RL_INFO);
        last.store(KNOWN, rl::mo_relaxed, RL_INFO);
        for (uint64_t step = 1; step <= KNOWN; step++)
            publish(step);
    }

    void thread(unsigned index)
    {
        if (index == kPublishers)
            poll();
        for (uint64_t step = KNOWN + 1; step <= PUBLISHED && index < kPublishers; step++) {
            if (step % kPublishers != index)
                continue;
            while (kPublishers > 1 && last.load(rl::mo_acquire, RL_INFO) != step - 1)
                rl::yield(1, RL_INFO);
            publish(step);
            if (kPublishers > 1)
                last.store(step, rl::mo_release, RL_INFO);
        }
    }
};

/* Before each step an operation uses a ticket; the last thread uses what is covered. */
struct lending : rl::test_suite<lending, 2> {
    rl::atomic<uint64_t> words[NUM_WORDS];
    rl::var<uint64_t> tickets[PUBLISHED + 1];
    psti_pool_state state;

    void before()
    {
        cells = words;
        words[COVERED_WORD].store(0, rl::mo_relaxed, RL_INFO);
        state.covered = 0;
        tickets[0](RL_INFO) = 0;
    }

    void thread(unsigned index)
    {
        if (index == 1)
            tickets[psti_read_covered(&box)](RL_INFO) = 0;
        for (uint64_t step = 1; step <= PUBLISHED && index == 0; step++) {
            tickets[step](RL_INFO) = step;
            psti_publish_covered(&state, step, &box);
        }
    }
};

template <class Scene> rl::test_result_e search(rl::scheduler_type_e scheduler)
{
    std::ostream silence(nullptr);
    rl::test_params params;
    params.search_type = scheduler;
    params.iteration_count = RANDOM_EXECUTIONS; /* which the full search does not look at */
    params.output_stream = &silence;
    params.progress_stream = &silence;
    rl::simulate<Scene>(params);
    std::printf("%-30s %-22s %-18s %6llu executions\n", now->name, rl::format(scheduler),
                rl::test_result_str(params.test_result),
                static_cast<unsigned long long>(params.stop_iteration));
    return params.test_result;
}

/* Both searches find nothing, or one of them finds the fault. */
bool check(const variant &how)
{
    now = &how;
    if (how.relaxed == COVERED || how.relaxed == LOAD_COVERED)
        return search<lending>(rl::sched_full) == rl::test_result_data_race;
    if (how.holds && search<lending>(rl::sched_full) != rl::test_result_success)
        return false;
    const rl::test_result_e expected =
        how.holds ? rl::test_result_success : rl::test_result_user_assert_failed;
    const bool full = search<scene<1>>(rl::sched_full) == expected;
    if (full != how.holds)
        return full; /* found, or found where it holds */
    return search<scene<2>>(rl::sched_random) == expected;
}

constexpr variant variants[] = {
    {"as on the CPU", true, false, NONE, NONE},
    {"as on CUDA", true, true, NONE, NONE},
    {"0 relaxed", false, false, ZERO, NONE},
    {"0 relaxed, CUDA", false, true, ZERO, NONE},
    {"0 absent", false, false, NONE, ZERO},
    {"0 absent, CUDA", false, true, NONE, ZERO},
    {"no fence, CUDA", false, true, NONE, FENCE},
    {"words relaxed", false, false, WORD, NONE},
    {"sequence relaxed", false, false, SEQUENCE, NONE},
    {"sequence relaxed, CUDA", false, true, SEQUENCE, NONE},
    {"sequence loaded relaxed", false, false, LOAD_SEQUENCE, NONE},
    {"words loaded relaxed", false, false, LOAD_WORD, NONE},
    {"words loaded relaxed, CUDA", false, true, LOAD_WORD, NONE},
    {"covered relaxed", false, false, COVERED, NONE},
    {"covered loaded relaxed", false, false, LOAD_COVERED, NONE},
    {"sequence not loaded again", false, false, NONE, LOAD_AGAIN},
};

} // namespace

int main()
{
    bool right = true;
    for (const variant &how : variants)
        if (!check(how)) {
            std::printf("%s: this is not as expected\n", how.name);
            right = false;
        }
    return right ? 0 : 1;
}
