/* Ordered pools: every block takes the decision alone, from the state line; the last block done
 * claims the launch word by arriving and publishes the operation. */

#define PROPER 1       /* one stream: no error, whatever the operations */
#define DAMAGED 2      /* one stream; somebody writes into a page table */
#define TWO_STREAMS 3  /* misuse: two unordered streams, each with its own ticket */
#define SAME_TICKET 4  /* misuse: two unordered streams that use the same tickets */
#define DAMAGED_RING 5 /* one stream; somebody writes into a ring */
#define WRITTEN 6      /* misuse: step_valid is written while a stash runs */
#define DAMAGED_TAKE 7 /* one stream; somebody writes into a ring that a stash takes from */
#define STASHED_ANEW 8 /* misuse: beside a restore another stream restores and stashes the ticket */

#if SCENARIO != TWO_STREAMS && SCENARIO != SAME_TICKET && SCENARIO != STASHED_ANEW
#define STREAMS 1
#endif

/* Pages are taken after the copy: one that has an owner before is not ours. */
#define GOES_TO(k) \
    (moves & (1 << (k)) -> RING(TARGET, head_seen[TARGET] + MOVES_BELOW(k)) : NO_PAGE)
#define TARGET_IS_MINE(k) (owner[GOES_TO(k)] == 0)

/* A page of a stash is taken by the block that has its first tile; the blocks with its other
 * tiles may come before it. */
#ifdef BUG_FIRST_TILE_ONLY_ZERO
#define MAY_FILL(k) (id < PAGES && (i % TILES == 0 || owner[id] == 0))
#else
#define MAY_FILL(k) \
    (id < PAGES && (i % TILES == 0 || owner[id] == 0 || owner[id] == OWNER_WORD(t, k)))
#endif
#define IS_HELD (held[id] == t + 1 || (held[id] == 0 && i % TILES != 0))

/* What a block decides from is all in its number. What it took the step for counts for a stash
 * only: a restore records damage while it runs. */
#define RINGS(words) \
    NEXT(NEXT(NEXT(NEXT(words, head_seen[0]), head_seen[1]), tail_seen[0]), tail_seen[1])
#ifdef BUG_LOOK_NOT_IN_NUMBER
#define NUMBER NEXT(OPERATION, lost)
#elif defined(BUG_LOST_NO_NUMBER)
#define NUMBER WITH_COUNTS(TICKET_WORDS(RINGS(OPERATION)))
#else
#define NUMBER NEXT(WITH_COUNTS(TICKET_WORDS(RINGS(OPERATION))), lost)
#endif

/* Row counts are read behind the look, or as a part of it: then what holds of its words holds of
 * them. */
#if defined(COUNTS_IN_LOOK) && !defined(BUG_COUNTS_NOT_IN_NUMBER)
#define WITH_COUNTS(words) NEXT(words, counts)
#else
#define WITH_COUNTS(words) words
#endif
#if defined(COUNTS_IN_LOOK) && !defined(BUG_COUNTS_NOT_AGAIN)
#define SAME_COUNTS (op == STASH || op == RELEASE || counts == ticket[t].counts)
#else
#define SAME_COUNTS true
#endif

#define ORDERED
#define LAUNCH pool_launch
#define ARRIVE            \
    if                    \
    :: look_again(); arrive() \
    :: arrive(); look_again() \
    fi

#include "pool.pml"
#include "pages.pml"
#include "migrate.pml"
#include "scenario.pml"

inline decide()
{
    if
    :: op == STASH ->
       d_step {
           if
           :: state == LIVE -> todo = NOTHING
           :: else -> decide_pages()
           fi
       }
    :: MIGRATES_NOW ->
       if
       :: state == LIVE -> pick_places()
       :: else -> todo = NOTHING
       fi
    :: else -> plan_restore()
    fi
}

/* An id that cannot be taken is noted, for the last block to record: earlier the step would be
 * lost for blocks that look later. */
inline note_damage()
{
#ifdef BUG_DAMAGE_RECORDED_EARLY
    d_step { RECORD }
#else
    ticket[t].ready = 1
#endif
}

/* By the block with the first tile of page `id`: makes it the ticket's, by compare-and-swap of the
 * owner word, and enters it in the table, at place k. */
inline enter_page()
{
#ifdef BUG_ENTERED_BY_STORES
    mine = (id < PAGES && owner[id] == 0);
#endif
    d_step {
#ifndef BUG_ENTERED_BY_STORES
        mine = (id < PAGES && owner[id] == 0);
#endif
        if
        :: mine ->
           owner[id] = OWNER_WORD(t, k);
           CHECK(held[id] == 0);
           num_held = num_held + (held[id] == 0);
           held[id] = t + 1
        :: else
        fi
    }
    ticket[t].table[k] = (mine -> id : NO_PAGE);
    if
    :: mine
    :: else -> note_damage(); id = NO_PAGE
    fi
}

inline copy()
{
    if
    :: todo == TAKE ->
       i = b;
       do
       :: i < n * TILES ->
          k = i / TILES;
          id = RING_ID(k);
          if
          :: i % TILES == 0 -> enter_page()
          :: else
          fi;
          copy_in();
          i = i + grid
       :: else -> break
       od
    :: todo == MOVE ->
#ifdef BUG_MOVE_WRITES_TABLE_EARLY
       ticket[t].table[0] = (moves & 1 -> GOES_TO(0) : ticket[t].table[0]);
#endif
       copy_across(0)
    :: (todo == READ || todo == RETURN) && op != RELEASE -> copy_out()
    :: else
    fi
}

inline change_pages()
{
    k = 0;
    do
    :: k < n ->
       if
       :: moves & (1 << k) ->
          id = GOES_TO(k);
          own_page();
          to = id;
          if
          :: to != NO_PAGE -> change_page()
          :: else
          fi
       :: else
       fi;
       k++
    :: else -> break
    od;
    head[TARGET] = head_seen[TARGET] + MOVES_BELOW(n);
    publish_tails()
}

/* By every block, behind its look, beside its arrival: whether what it decided from still is so. Only
 * the last one's answer is used. If that one claims, the launch word has not changed since its look,
 * and so nobody has written these words, nor will before it does. One step: what is read at another
 * time is the same. */
inline look_again()
{
#ifndef BUG_NO_SECOND_LOOK
    d_step {
        holds = (state == STATE_OF(t) && (op == STASH || n == ticket[t].num_pages) &&
#ifdef FORMS
                 form_seen == ticket[t].form &&
#endif
                 SAME_COUNTS && head_seen[DEVICE] == head[DEVICE] && head_seen[HOST] == head[HOST] &&
                 tail_seen[DEVICE] == tail[DEVICE] && tail_seen[HOST] == tail[HOST]);
    }
#else
    holds = true
#endif
}

/* By the last block. */
inline publish()
{
#ifdef BUG_FORM_BEFORE_VERDICT
    if
    :: op == STASH -> ticket[t].form = launched[s].form
    :: else
    fi;
#endif
    if
    :: todo == TAKE ->
       if
       :: ticket[t].ready ->
          d_step { RECORD }
#ifndef BUG_READY_STAYS
          ticket[t].ready = 0
#endif
       :: else
       fi;
       set_ticket(LIVE, n);
       publish_heads()
    :: todo == TOO_FEW ->
       step_valid = false;
       set_ticket(FAILED, 0);
#ifdef BUG_DECIDES_TIERS_APART
       head[DEVICE] = head_seen[DEVICE] + from_device
#endif
    :: todo == MOVE -> change_pages()
    :: todo == RETURN ->
       give_back();
       ticket[t].state = EMPTY
    :: todo == CLEAR -> ticket[t].state = EMPTY
    :: else
    fi;
    d_step {
        operation_is_complete();
        failure_is_justified();
        finish_launch();
    }
}

inline see_launch()
{
    my_launch = pool_launch.number
}

/* All words that a block decides from, read at once: in any order, where operations may overlap.
 * Which one is in two bits of i; backwards is the one where the launch word hides most. */
#if STREAMS > 1 && RESIDENT > 1
inline pick_order()
{
    if
    :: i = 3
#ifndef BACKWARDS
    :: i = 0
#endif
#ifdef ALL_ORDERS
    :: i = 1
    :: i = 2
#endif
    fi
}
#else
#define pick_order() skip
#endif
#define LAUNCH_LAST (i & 1)
#define TICKET_LAST (i & 2)

inline look()
{
    pick_order();
#ifdef BUG_LOST_RESTORES
    lost = IS_LOST;
#else
    lost = (op == STASH && IS_LOST);
#endif
#ifdef COUNTS_IN_LOOK
    see_counts();
#endif
    if
    :: !LAUNCH_LAST -> see_launch()
    :: else
    fi;
    if
    :: TICKET_LAST -> see_tails(); see_heads(); see_ticket()
    :: else -> see_ticket(); see_heads(); see_tails()
    fi;
    if
    :: LAUNCH_LAST -> see_launch()
    :: else
    fi;
#ifndef COUNTS_IN_LOOK
    see_counts();
#endif
    i = 0
}

inline begin()
{
    if
    :: REFUSES ->
       d_step {
           todo = REFUSE;
           launched[s].refused = launched[s].refused + !order;
       }
    :: else ->
       look();
       decide()
    fi
}

proctype block(byte s; byte b)
{
    BLOCK_LOCALS;
end:
    do
    :: block_starts();
       begin();
       if
       :: todo == REFUSE
#ifdef BUG_IDLE_EXITS
       :: todo == NOTHING -> launched[s].complete = true
       :: todo != REFUSE && todo != NOTHING ->
#else
       :: else ->
#endif
          do_share();
          judge_arrival();
          if
          :: is_last && holds -> publish()
          :: is_last && !holds -> order = true
          :: else
          fi;
          holds = false
       fi;
       block_ends()
    od
}

#if SCENARIO != STASHED_ANEW && (STREAMS > 1 || SCENARIO == PROPER)
#if SCENARIO == PROPER
#ifdef FORMS
#define RESTORES_OTHER_FORM \
    (op == RESTORE && state_before == LIVE && ticket[t].stashed != launched[s].form)
#else
#define RESTORES_OTHER_FORM false
#endif

/* Pages of ticket t in each tier, and free ones. */
inline look_before()
{
    d_step {
        state_before = ticket[t].state;
        lost_before = IS_LOST;
        free_before[DEVICE] = NUM_FREE(DEVICE);
        free_before[HOST] = NUM_FREE(HOST);
        pages_before[DEVICE] = 0;
        pages_before[HOST] = 0;
        e = 0;
        do
        :: state_before == LIVE && e < ticket[t].num_pages ->
           pages_before[TIER(ticket[t].table[e])]++;
           e++
        :: else -> break
        od;
        e = 0;
    }
}

/* e pages have left the ring of a tier, or have come to it. */
#define LEFT(tier) (NUM_FREE(tier) == free_before[tier] - e)
#define CAME(tier) (NUM_FREE(tier) == free_before[tier] + e)

/* What an operation must have done, seen by the only stream. */
inline check_one_operation()
{
    d_step {
        CHECK(!order);
        if
        :: !EACH_IS_CHECKED
        :: EACH_IS_CHECKED && stale -> CHECK(ticket[t].state == state_before && LEFT(DEVICE) && LEFT(HOST))
        :: else -> check_change()
        fi;
        e = 0;
    }
    check_pages(false);
    check_rest()
}

/* The same of one that was not refused. */
inline check_change()
{
    if
    :: op == STASH && state_before != LIVE && lost_before ->
       CHECK(ticket[t].state == FAILED && LEFT(DEVICE) && LEFT(HOST))
    :: op == STASH && state_before != LIVE && !lost_before &&
       want <= free_before[DEVICE] + free_before[HOST] ->
       CHECK(ticket[t].state == LIVE && ticket[t].num_pages == want);
       e = MIN(want - MIN(lead, free_before[HOST]), free_before[DEVICE]);
       CHECK(LEFT(DEVICE));
       e = want - e;
       CHECK(LEFT(HOST))
    :: op == STASH && state_before != LIVE && !lost_before &&
       want > free_before[DEVICE] + free_before[HOST] ->
       CHECK(ticket[t].state == FAILED && LEFT(DEVICE) && LEFT(HOST))
    :: op == KEEP || (op == STASH && state_before == LIVE) || RESTORES_OTHER_FORM ->
       CHECK(ticket[t].state == state_before && LEFT(DEVICE) && LEFT(HOST))
    :: (op == RESTORE && !RESTORES_OTHER_FORM) || op == RELEASE ->
       CHECK(ticket[t].state == EMPTY);
       e = pages_before[DEVICE];
       CHECK(CAME(DEVICE));
       e = pages_before[HOST];
       CHECK(CAME(HOST))
    :: MIGRATES_NOW ->
       CHECK(ticket[t].state == state_before);
       e = MIN(pages_before[SOURCE], free_before[TARGET]);
       e = (want && want < e -> want : e);
       CHECK(LEFT(TARGET) && CAME(SOURCE))
    fi
}
#endif

proctype stream(byte s)
{
    byte t, want, lead, blocks, ops;
    byte free_before[2], pages_before[2];
    bool lost_before;
    mtype op = STASH, state_before = EMPTY;
    do
    :: ops < (s == 0 -> OPS : OPS_OTHERS) ->
#if SCENARIO == TWO_STREAMS
       t = s;
#else
       if
       :: t = 0
       :: t = 1
       fi;
#endif
       any_operation();
#ifdef FAILS_FAST
       if /* the step may end */
       :: step_valid = true
       :: skip
       fi;
#endif
#ifdef EXPECTS
       if
       :: find_stale()
       :: end_step()
       :: skip
       fi;
#endif
#if SCENARIO == PROPER
       look_before();
#endif
       enqueue(s, op, t, want, lead, blocks);
#if SCENARIO == PROPER
       check_one_operation();
#endif
       ops++
    :: else -> break
    od;
    streams_done++
}
#elif SCENARIO == WRITTEN
proctype stream(byte s)
{
    enqueue(s, STASH, 0, 2, 0, GRID);
    if
    :: enqueue(s, RESTORE, 0, 0, 0, GRID)
    :: skip
    fi;
    streams_done++
}

proctype others()
{
    step_valid = false;
    streams_done++
}
#endif

init
{
    atomic {
        make_pool();
        run_blocks();
    }
#if SCENARIO == STASHED_ANEW
    enqueue(0, STASH, 0, 1, 0, 1);
    strict = false;
#elif STREAMS > 1
    any_tickets();
    strict = false;
#endif
#if SCENARIO == WRITTEN
    strict = false;
    run others();
    run_streams();
    streams_done == STREAMS + 1;
    check_misuse(false)
#else
    run_streams();
    RUN_BESIDE();
    ALL_DONE;
#endif
#ifdef EXPECTS
    end_step();
#endif
#if SCENARIO == PROPER
    of_form(0);
    enqueue(0, RESTORE, 0, 0, 0, GRID);
    of_form(1);
    enqueue(0, RESTORE, 1, 0, 0, GRID);
    check_pages(false);
    check_rest();
    assert(!order && !recorded && ALL_FREE)
#elif STREAMS > 1
    check_misuse(false)
#endif
}
