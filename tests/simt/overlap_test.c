/* Operations on one ticket that overlap, which the caller must not do: they are noticed, they end,
 * and after a reset the pool is as new. By block hooks where one order shows it, else by threads.
 * Payload races are real here, so ThreadSanitizer does not get to see this file's tests. */
#include <pthread.h>

#include "kernels/core/pool.h"
#include "tests/simt/overlap_scene.h"

#if !PSTI_UNDER_TSAN

static void hook(uint32_t block, int at_start, void *user)
{
    bench *b = user;
    (void)block;
    if (at_start && b->blocks_seen++ == b->act_at && b->act)
        b->act(b);
}

/* Acts when `blocks` blocks of the next launch have begun. */
static void act_after(bench *b, int blocks, void (*act)(bench *b))
{
    b->blocks_seen = 0;
    b->act_at = blocks;
    b->act = act;
    simt_set_block_hook(act ? hook : NULL, b);
}

/* A stash from a group, in the middle of which something else happens. */
static void stash_interrupted(bench *b, int blocks, void (*act)(bench *b), int group)
{
    act_after(b, blocks, act);
    CHECK_EQ(stash_rows(b, 0, group), PST_OK);
    act_after(b, 0, NULL);
}

static void check_noticed(bench *b, int blocks, void (*act)(bench *b), int group)
{
    stash_interrupted(b, blocks, act, group);
    const pst_pool_status status = status_of(b);
    CHECK_MSG(status.flags & PST_FLAG_ORDER, "after %d blocks: flags are %x", blocks, status.flags);
    CHECK_EQ(status.step_valid, 0);
}

static void restore_first(bench *b)
{
    restore_rows(b, 0, 2);
}

/* The case that equal launch numbers hid: half of a stash, a whole restore of the same ticket, the
 * other half. */
static void restore_inside_stash(pst_pool_mode mode)
{
    for (int blocks = 1; blocks < 4; blocks++) {
        bench b;
        open_bench(&b, mode, 0, 1);
        CHECK_EQ(stash_rows(&b, 0, 0), PST_OK);
        check_noticed(&b, blocks, restore_first, 1);
        check_works(&b);
        close_bench(&b);
    }
}

PST_TEST(Overlap, RestoreInsideAStashOfTheSameTicketIsNoticedInAnOrderedPool)
{
    restore_inside_stash(PST_POOL_ORDERED);
}

PST_TEST(Overlap, RestoreInsideAStashOfTheSameTicketIsNoticedInAConcurrentPool)
{
    restore_inside_stash(PST_POOL_CONCURRENT);
}

static void stash_other(bench *b)
{
    stash_rows(b, 1, 1);
}

PST_TEST(Overlap, TwoTicketsOfAnOrderedPoolAreNoticed)
{
    for (int blocks = 1; blocks < 4; blocks++) {
        bench b;
        open_bench(&b, PST_POOL_ORDERED, 0, 1);
        check_noticed(&b, blocks, stash_other, 0);
        const uint32_t faults = status_of(&b).num_faults;
        restore_first(&b);
        CHECK_MSG(status_of(&b).num_faults > faults, "the pool does not refuse");
        check_works(&b);
        close_bench(&b);
    }
}

static void lose_step(bench *b)
{
    *pst_pool_step_valid(b->pool) = 0;
}

/* Some blocks of the stash have found the step valid, others not: no page is half of it. */
PST_TEST(Overlap, StepValidWrittenInsideAStashIsNoticedInAnOrderedPool)
{
    for (int blocks = 1; blocks < 4; blocks++) {
        bench b;
        open_bench(&b, PST_POOL_ORDERED, 0, 1);
        b.pool->view.fails_fast = 1;
        check_noticed(&b, blocks, lose_step, 0);
        check_works(&b);
        close_bench(&b);
    }
}

PST_TEST(Overlap, StepValidWrittenInsideAStashIsReadOnceInAConcurrentPool)
{
    for (int blocks = 1; blocks < 4; blocks++) {
        bench b;
        open_bench(&b, PST_POOL_CONCURRENT, 0, 1);
        b.pool->view.fails_fast = 1;
        stash_interrupted(&b, blocks, lose_step, 0);
        CHECK_EQ(restore_rows(&b, 0, 2), PST_OK);
        const pst_pool_status status = status_of(&b);
        CHECK_EQ(status.flags, 0);
        CHECK_EQ(status.step_valid, 0);
        CHECK_EQ(wrong_rows(&b, 2, 0x10), 0);
        close_bench(&b);
    }
}

static void refuse(bench *b)
{
    psti_refuse(&b->pool->view, 1);
}

/* A stash that an ORDER fault elsewhere cut short leaves words in its ticket; after the reset they
 * must mean nothing to its next stash. */
PST_TEST(Overlap, ATicketCutShortIsCleanAfterReset)
{
    for (uint64_t seed = 1; seed <= psti_test_cases(100); seed++) {
        bench b;
        open_bench(&b, PST_POOL_CONCURRENT, seed, 2);
        stash_interrupted(&b, 2, refuse, 0);
        CHECK_EQ(pst_pool_reset(b.pool, PST_RESET_ALL, NULL), PST_OK);
        CHECK_EQ(stash_rows(&b, 1, 1), PST_OK);
        CHECK_EQ(stash_rows(&b, 0, 0), PST_OK);
        CHECK_EQ(restore_rows(&b, 1, 2), PST_OK);
        CHECK_EQ(restore_rows(&b, 0, 3), PST_OK);
        const int other = wrong_rows(&b, 2, 0x11);
        const int own = wrong_rows(&b, 3, 0x10);
        CHECK_MSG(other == 0 && own == 0, "seed %llu: %d and %d rows are wrong",
                  (unsigned long long)seed, other, own);
        CHECK_EQ(status_of(&b).num_faults, 0);
        close_bench(&b);
    }
}

static void *stash_often(void *opaque)
{
    bench *b = opaque;
    for (int i = 0; i < 20; i++)
        stash_rows(b, 0, 0);
    return NULL;
}

static void *restore_often(void *opaque)
{
    bench *b = opaque;
    for (int i = 0; i < 20; i++)
        restore_first(b);
    return NULL;
}

/* The machine aborts when blocks wait for ever or part ways at a barrier. */
static void storm(pst_pool_mode mode, void *(*first)(void *), void *(*second)(void *))
{
    for (uint64_t seed = 1; seed <= psti_test_cases(40); seed++) {
        bench b;
        pthread_t threads[2];
        open_bench(&b, mode, seed * 1000, 3);
        pthread_create(&threads[0], NULL, first, &b);
        pthread_create(&threads[1], NULL, second, &b);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        check_works(&b);
        close_bench(&b);
    }
}

PST_TEST(Overlap, StashAndRestoreOfOneTicketEndInAnOrderedPool)
{
    storm(PST_POOL_ORDERED, stash_often, restore_often);
}

PST_TEST(Overlap, StashAndRestoreOfOneTicketEndInAConcurrentPool)
{
    storm(PST_POOL_CONCURRENT, stash_often, restore_often);
}

PST_TEST(Overlap, TwoStashesOfOneTicketEndInAConcurrentPool)
{
    storm(PST_POOL_CONCURRENT, stash_often, stash_often);
}

#endif
