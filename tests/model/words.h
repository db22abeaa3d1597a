/* The words of a pool under relacy, for harnesses that compile the source of the protocols itself.
 *
 * Atomic accesses come from fn.h, with its orders. Plain ones are made by the fields: layout.h is
 * read with cells in place of integers, which ask relacy whether somebody else is at the same word
 * at the same time. What lies outside the arena, such as arguments, is ordinary memory.
 *
 * Each access of fn.h is known by the function and the line that it stands in, so that a run can
 * weaken one. */
#ifndef PSTI_TESTS_WORDS_H
#define PSTI_TESTS_WORDS_H

#include <stdint.h>
#include <string.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <ostream>
#include <type_traits>

#include <relacy/relacy.hpp>

namespace words
{

/* What would make the harness itself wrong. */
inline void demand(bool holds)
{
    if (!holds)
        abort();
}

/* ---- which access this is ---- */

struct use {
    const char *function;
    const char *name; /* of fn.h */
    int line;
    bool operator==(const use &other) const
    {
        return line == other.line && !strcmp(function, other.function) && !strcmp(name, other.name);
    }
};

enum { MAX_THREADS = 6, MAX_DEPTH = 4 };
struct use_stack { /* of a thread: arguments of an access may be accesses */
    use at[MAX_DEPTH];
    int depth;
};
inline use_stack stacks[MAX_THREADS];
/* All that were met, each once, and the order that fn.h has; no container, since relacy watches
 * memory. */
enum { MAX_USES = 256 };
inline use seen[MAX_USES];
inline rl::memory_order seen_order[MAX_USES];
inline unsigned num_seen;
inline const use *weakened; /* the one that has `instead` */
inline rl::memory_order instead;
inline bool is_inside; /* a thread of relacy runs */
inline bool watches;   /* for races of plain accesses; else they are relaxed */

inline use_stack &stack()
{
    return stacks[is_inside ? rl::thread_index() : 0];
}

inline void push(const char *function, const char *name, int line)
{
    use_stack &mine = stack();
    demand(mine.depth < MAX_DEPTH);
    mine.at[mine.depth++] = {function, name, line};
}

inline rl::memory_order order_of(int builtin)
{
    use_stack &mine = stack();
    demand(mine.depth > 0);
    const use now = mine.at[--mine.depth];
    const rl::memory_order order = builtin == __ATOMIC_RELAXED   ? rl::mo_relaxed
                                   : builtin == __ATOMIC_ACQUIRE ? rl::mo_acquire
                                   : builtin == __ATOMIC_RELEASE ? rl::mo_release
                                                                 : rl::mo_acq_rel;
    unsigned i = 0;
    while (i < num_seen && !(seen[i] == now))
        i++;
    if (i == num_seen) {
        demand(num_seen < MAX_USES);
        seen[num_seen] = now;
        seen_order[num_seen++] = order;
    }
    return weakened && now == *weakened ? instead : order;
}

/* ---- the arena ---- */

enum { NUM_WORDS = 160 }; /* of 8 bytes */

/* A word that is used as two halves has two; else the first is all of it. Plain accesses go through
 * `plain`, too, where relacy looks for races. */
struct word {
    rl::atomic<uint64_t> half[2];
    rl::var<uint32_t> plain[2];
};

alignas(8) inline unsigned char arena[NUM_WORDS * 8];
inline bool is_split[NUM_WORDS];
inline word *shared; /* of this execution */

inline bool is_shared(const void *at)
{
    return is_inside && (uintptr_t)at - (uintptr_t)arena < sizeof(arena);
}

inline uint32_t number_of(const void *at)
{
    return (uint32_t)((uintptr_t)at - (uintptr_t)arena) / 8;
}

inline uint32_t half_of(const void *at)
{
    return (uint32_t)((uintptr_t)at / 4 % 2);
}

template <class Word> Word load(const Word *at, rl::memory_order order)
{
    word &w = shared[number_of(at)];
    if (sizeof(Word) == 4)
        demand(is_split[number_of(at)]);
    if (sizeof(Word) == 8 && is_split[number_of(at)])
        return (Word)((uint64_t)w.half[1].load(order, RL_INFO) << 32 |
                      w.half[0].load(order, RL_INFO));
    return (Word)w.half[half_of(at)].load(order, RL_INFO);
}

template <class Word> void store(Word *at, Word value, rl::memory_order order)
{
    word &w = shared[number_of(at)];
    if (sizeof(Word) == 4)
        demand(is_split[number_of(at)]);
    if (sizeof(Word) == 8 && is_split[number_of(at)]) {
        w.half[0].store((uint64_t)value & UINT32_MAX, order, RL_INFO);
        w.half[1].store((uint64_t)value >> 32, order, RL_INFO);
        return;
    }
    w.half[half_of(at)].store((uint64_t)value, order, RL_INFO);
}

/* A plain access: relacy sees the race on `plain`, the value is in the word. */
template <class Word> Word get(const Word *at)
{
    if (!is_shared(at))
        return *at;
    const word &w = shared[number_of(at)];
    if (watches)
        (void)w.plain[half_of(at)](RL_INFO).load();
    return load(at, rl::mo_relaxed);
}

template <class Word> void set(Word *at, Word value)
{
    if (!is_shared(at)) {
        *at = value;
        return;
    }
    if (sizeof(Word) == 4)
        is_split[number_of(at)] = true;
    if (watches)
        shared[number_of(at)].plain[half_of(at)](RL_INFO) = (uint32_t)value;
    store(at, value, rl::mo_relaxed);
}

/* An integer in memory that others use, too. */
template <class Word> struct cell {
    Word value;

    operator Word() const
    {
        return get(&value);
    }
    template <class Enum, class = typename std::enable_if<std::is_enum<Enum>::value>::type>
    explicit operator Enum() const
    {
        return (Enum)get(&value);
    }
    Word *operator&()
    {
        return &value;
    }
    const Word *operator&() const
    {
        return &value;
    }
    Word operator=(Word other)
    {
        set(&value, other);
        return other;
    }
    Word operator=(const cell &other)
    {
        return *this = (Word)other;
    }
    cell() = default;
    cell(const cell &other) : value((Word)other)
    {
    }
    void operator+=(Word other)
    {
        *this = (Word)((Word) * this + other);
    }
    void operator-=(Word other)
    {
        *this = (Word)((Word) * this - other);
    }
    Word operator++(int)
    {
        const Word old = *this;
        *this = (Word)(old + 1);
        return old;
    }
};

typedef cell<uint32_t> cell32;
typedef cell<int32_t> cells32;
typedef cell<uint64_t> cell64;
typedef cell<int64_t> cells64;

} // namespace words

/* ---- fn.h, with relacy's words ---- */

template <class Word> Word words_load(const Word *at, int builtin)
{
    return words::load(at, words::order_of(builtin));
}

template <class Word> void words_store(Word *at, Word value, int builtin)
{
    words::store(at, value, words::order_of(builtin));
}

template <class Word> Word words_add(Word *at, Word value, int builtin)
{
    const rl::memory_order order = words::order_of(builtin);
    return (Word)words::shared[words::number_of(at)].half[words::half_of(at)].fetch_add(
        (uint64_t)value, order, RL_INFO);
}

template <class Word> void words_or(Word *at, Word value, int builtin)
{
    const rl::memory_order order = words::order_of(builtin);
    words::shared[words::number_of(at)].half[words::half_of(at)].fetch_or((uint64_t)value, order,
                                                                          RL_INFO);
}

template <class Word> void words_cas(Word *at, Word *expected, Word desired, bool, int builtin, int)
{
    const rl::memory_order order = words::order_of(builtin);
    uint64_t found = *expected;
    words::shared[words::number_of(at)].half[words::half_of(at)].compare_exchange_strong(
        found, (uint64_t)desired, order, RL_INFO);
    *expected = (Word)found;
}

#define __atomic_load_n words_load
#define __atomic_store_n words_store
#define __atomic_fetch_add words_add
#define __atomic_fetch_or words_or
#define __atomic_compare_exchange_n words_cas
#include "kernels/core/fn.h"
#undef __atomic_load_n
#undef __atomic_store_n
#undef __atomic_fetch_add
#undef __atomic_fetch_or
#undef __atomic_compare_exchange_n

/* From here on an access says where it stands. */
#define WORDS_USE(name) (words::push(__func__, #name, __LINE__), psti_##name)
#define psti_load_relaxed_u32 WORDS_USE(load_relaxed_u32)
#define psti_load_relaxed_u64 WORDS_USE(load_relaxed_u64)
#define psti_load_acquire_u32 WORDS_USE(load_acquire_u32)
#define psti_load_acquire_u64 WORDS_USE(load_acquire_u64)
#define psti_store_relaxed_u32 WORDS_USE(store_relaxed_u32)
#define psti_store_relaxed_u64 WORDS_USE(store_relaxed_u64)
#define psti_store_release_u32 WORDS_USE(store_release_u32)
#define psti_store_release_u64 WORDS_USE(store_release_u64)
#define psti_add_acq_rel_u32 WORDS_USE(add_acq_rel_u32)
#define psti_add_acq_rel_u64 WORDS_USE(add_acq_rel_u64)
#define psti_cas_acq_rel_u32 WORDS_USE(cas_acq_rel_u32)
#define psti_cas_acq_rel_u64 WORDS_USE(cas_acq_rel_u64)
#define psti_cas_relaxed_u64 WORDS_USE(cas_relaxed_u64)
#define psti_add_acquire_u64 WORDS_USE(add_acquire_u64)
#define psti_add_relaxed_u64 WORDS_USE(add_relaxed_u64)
#define psti_add_release_u64 WORDS_USE(add_release_u64)
#define psti_or_relaxed_u32 WORDS_USE(or_relaxed_u32)

/* ---- layout.h, with cells ---- */

#include <pagestash/api.h>
#define uint32_t words::cell32
#define int32_t words::cells32
#define uint64_t words::cell64
#define int64_t words::cells64
#include "kernels/core/layout.h"
#include <pagestash/pool.h>
#undef uint32_t
#undef int32_t
#undef uint64_t
#undef int64_t

namespace words
{

/* ---- runs, as it is and with each order weaker ---- */

template <class Field> void split(Field &field)
{
    is_split[number_of(&field)] = true;
}

/* Of a pool's state and status those that are two halves. */
template <class Pool> void split_pool(Pool &pool)
{
    split(pool.state.num_pages[0]);
    split(pool.state.epoch);
    split(pool.state.lock_next);
    split(pool.status.flags);
    split(pool.status.fault_state);
    split(pool.status.fault_ticket);
}

/* At the begin of an execution: its words are what lies in the arena. */
inline void reset(word *memory, uint32_t num_words)
{
    shared = memory;
    for (uint32_t i = 0; i < num_words; i++) {
        uint64_t value;
        memcpy(&value, arena + 8 * i, 8);
        for (uint32_t half = 0; half < 2; half++) {
            const uint64_t part = is_split[i] ? value >> 32 * half & UINT32_MAX : value;
            memory[i].half[half].store(part, rl::mo_relaxed, RL_INFO);
            memory[i].plain[half](RL_INFO) = 0;
        }
    }
    for (use_stack &mine : stacks)
        mine.depth = 0;
    is_inside = true;
}

inline const char *verdict;
inline unsigned long long executions;

/* most: of a random search. */
template <class Test> bool holds(rl::scheduler_type_e scheduler, unsigned most)
{
    std::ostream silence(nullptr);
    rl::test_params params;
    params.search_type = scheduler;
    params.iteration_count = most;
    params.output_stream = getenv("PSTI_SHOW") ? &std::cout : &silence; /* what happened */
    params.progress_stream = &silence;
    const bool result = rl::simulate<Test>(params);
    is_inside = false;
    executions = params.stop_iteration;
    verdict = rl::test_result_str(params.test_result);
    return result;
}

/* What no scene finds weaker. */
struct equivalence {
    const char *function, *name;
};

/* Runs all scenes: the name of the first that fails, or NULL. */
typedef const char *(*search_fn)(unsigned most);

/* Which of its name in its function. */
inline unsigned count_of(const use &which)
{
    unsigned number = 1;
    for (unsigned i = 0; i < num_seen; i++)
        number += seen[i].line < which.line && !strcmp(seen[i].function, which.function) &&
                  !strcmp(seen[i].name, which.name);
    return number;
}

inline bool check(search_fn search, const use &which, rl::memory_order order,
                  const equivalence *equivalent, unsigned most)
{
    bool found_expected = true;
    for (; equivalent->function; equivalent++)
        if (!strcmp(equivalent->function, which.function) && !strcmp(equivalent->name, which.name))
            found_expected = false;
    weakened = &which;
    instead = order;
    const char *found = search(most);
    weakened = nullptr;
    const bool right = found_expected == (found != nullptr);
    std::printf("%-5s %-17s %-17s %u %-7s  ", right ? "ok" : "WRONG", which.function, which.name,
                count_of(which),
                order == rl::mo_relaxed   ? "relaxed"
                : order == rl::mo_acquire ? "acquire"
                                          : "release");
    if (found)
        std::printf("%s: %s after %llu\n", found, verdict, executions);
    else
        std::printf("not found\n");
    return right;
}

/* 0: all scenes hold, and each order one step down is found, or equivalent. argv: most executions. */
inline int weaken_each(search_fn search, const equivalence *equivalent, unsigned most, int argc,
                       char **argv)
{
    most = argc > 1 ? (unsigned)strtoul(argv[1], nullptr, 10) : most;
    const char *failed = search(most);
    if (failed) {
        std::printf("WRONG %s, as it is: %s after %llu\n", failed, verdict, executions);
        return 1;
    }
    bool right = true;
    for (unsigned i = 0; i < num_seen; i++) {
        const use which = seen[i];
        if (seen_order[i] == rl::mo_acq_rel) {
            right &= check(search, which, rl::mo_acquire, equivalent, most);
            right &= check(search, which, rl::mo_release, equivalent, most);
        } else if (seen_order[i] != rl::mo_relaxed) {
            right &= check(search, which, rl::mo_relaxed, equivalent, most);
        }
    }
    return right ? 0 : 1;
}

} // namespace words

#endif
