/* Concurrent pools: one FIFO lock, taken by running blocks only. The first block of a stash or a
 * migration to arrive decides for all and takes pages; the last block of a restore or a migration
 * returns the old ones. */

#define PROPER 1       /* each stream with its own ticket, any operations */
#define DAMAGED 2      /* one stream; somebody writes into a page table */
#define ROUNDS 3       /* each stream with its own ticket: stash and restore, OPS times */
#define HANDOVER 4     /* tickets restored by the other stream, ordered by events */
#define SAME_TICKET 5  /* misuse: two unordered streams that use the same tickets */
#define DAMAGED_RING 6 /* one stream; somebody writes into a ring */
#define JOURNEYS 7     /* each stream with its own ticket: stash, migrate OPS times, restore */
#define STASHED_ANEW 8 /* misuse: beside a restore another stream restores and stashes the ticket */

#if SCENARIO == DAMAGED || SCENARIO == DAMAGED_RING
#define STREAMS 1
#endif

#define LAUNCH ticket[t].launch
#define ARRIVE arrive()
#define GOES_TO(k) ticket[t].moving[k]
#define TARGET_IS_MINE(k) true
#define MAY_FILL(k) (id < PAGES)
#define IS_HELD (held[id] == t + 1)

/* The ticket's words are no part of the number: the block that leads a stash writes them while
 * others still have to look. */
#ifdef BUG_HEADER_IN_NUMBER
#define NUMBER TICKET_WORDS(OPERATION)
#elif defined(BUG_LOST_LEADER_NUMBER)
#define NUMBER NEXT(OPERATION, lost)
#else
#define NUMBER OPERATION
#endif

#include "pool.pml"
#include "pages.pml"
#include "migrate.pml"
#include "scenario.pml"

inline lock_pool()
{
    d_step {
        my_turn = lock_next;
        lock_next++;
    }
    lock_serving == my_turn
}

inline unlock_pool()
{
    lock_serving++
}

/* ---- stash ---- */

inline decide_stash()
{
    if
    :: state == LIVE -> todo = NOTHING
    :: else -> decide_pages()
    fi
}

inline decide()
{
#ifdef BUG_ATOMIC_HEAD
    d_step {
        see_heads();
        see_tails();
        decide_stash();
        if
        :: todo == TAKE -> publish_heads()
        :: else
        fi
    }
#else
    see_heads();
    see_tails();
    if
    :: op == STASH ->
       d_step {
           decide_stash();
           failure_is_justified();
       }
    :: op != STASH && state == LIVE ->
       n = ticket[t].num_pages;
       pick_places()
    :: else -> todo = NOTHING
    fi
#endif
}

/* ---- migration ---- */

/* The ids of the new pages, by the leader. */
inline take_targets()
{
    k = 0;
    do
    :: k < n ->
       id = NO_PAGE;
       if
       :: moves & (1 << k) ->
          id = RING(TARGET, head_seen[TARGET] + MOVES_BELOW(k));
#ifndef BUG_MOVE_ONE_OWNER
          own_page()
#endif
       :: else
       fi;
       ticket[t].moving[k] = id;
#ifdef BUG_MOVE_WRITES_TABLE_EARLY
       ticket[t].table[k] = (id < PAGES -> id : ticket[t].table[k]);
#endif
#ifdef BUG_MOVE_FREES_SOURCE_EARLY
       to = id;
       if
       :: to < PAGES ->
          id = ticket[t].table[k];
          free_page()
       :: else
       fi;
#endif
       k++
    :: else -> break
    od;
#ifdef BUG_MOVE_FREES_SOURCE_EARLY
    publish_tails();
#endif
#ifndef BUG_MOVE_TAKES_LATE
    head[TARGET] = head_seen[TARGET] + MOVES_BELOW(n)
#endif
}

/* By the last block. */
inline change_pages()
{
    lock_pool();
#ifdef BUG_MOVE_TAKES_LATE
    head[TARGET] = head[TARGET] + (GOES_TO(0) < PAGES) + (n > 1 && GOES_TO(1) < PAGES);
#endif
    see_tails();
    k = 0;
    do
    :: k < n ->
       to = GOES_TO(k);
       if
       :: to != NO_PAGE ->
#ifdef BUG_MOVE_ONE_OWNER
          id = to;
          own_page();
#endif
          change_page()
       :: else
       fi;
       k++
    :: else -> break
    od;
    publish_tails();
    unlock_pool()
}

/* ---- the leader ---- */

inline commit()
{
    if
    :: todo == TAKE ->
       take_pages();
       set_ticket(LIVE, n);
#ifndef BUG_ATOMIC_HEAD
       publish_heads()
#endif
    :: todo == TOO_FEW ->
#ifdef BUG_DECIDES_TIERS_APART
       head[DEVICE] = head_seen[DEVICE] + from_device;
#endif
       step_valid = false;
       set_ticket(FAILED, 0)
    :: todo == MOVE -> take_targets()
    :: else
    fi
}

/* With the decision: the state does not say it, for it is LIVE too when the ticket was live. */
inline raise_ready()
{
    ticket[t].ready = MY_WORD * 2 + (todo == TAKE || todo == MOVE)
}

inline decide_for_all()
{
#ifdef BUG_ATOMIC_HEAD
    state = STATE_OF(t);
    decide();
    commit();
#else
#ifdef BUG_MOVE_TAKES_UNLOCKED
    if
    :: op == STASH -> lock_pool()
    :: else
    fi;
#else
    lock_pool();
#endif
#ifndef BUG_LEADER_OLD_LOOK
    state = STATE_OF(t);
#endif
    decide();
#ifdef BUG_READY_EARLY
    raise_ready();
#endif
#ifdef BUG_UNLOCK_EARLY
    unlock_pool();
    commit();
#else
    commit();
#ifdef BUG_MOVE_TAKES_UNLOCKED
    if
    :: op == STASH -> unlock_pool()
    :: else
    fi;
#else
    unlock_pool();
#endif
#endif
#endif
    raise_ready()
}

#ifdef BUG_LEADER_BLOCK0
#define LEADS (b == 0)
#else
#define LEADS (sum == 0)
#endif

/* The first block to arrive decides for all; `sum` is what was there before. */
inline agree()
{
    d_step { /* compare-and-swap */
        sum = ticket[t].arrive_in;
        if
        :: sum == 0 -> ticket[t].arrive_in = MY_WORD
        :: else
        fi
    }
    if
    :: LEADS -> decide_for_all()
    :: !LEADS && sum != 0 && sum != MY_WORD ->
#ifdef BUG_MOVE_REFUSED_COMMITS
       todo = (MIGRATES_NOW && state == LIVE -> MOVE : NOTHING);
#endif
       order = true /* and arrives, without copying */
    :: else ->
#ifdef BUG_EACH_DECIDES
       state = STATE_OF(t);
       decide()
#else
       ticket[t].ready / 2 == MY_WORD;
#ifdef BUG_LOST_EACH_LOOKS
       todo = (ticket[t].ready % 2 && !IS_LOST -> TAKE : NOTHING)
#elif defined(BUG_MOVE_STALE_SCRATCH)
       todo = (ticket[t].ready % 2 || op != STASH -> (op == STASH -> TAKE : MOVE) : NOTHING)
#else
       todo = (ticket[t].ready % 2 -> (op == STASH -> TAKE : MOVE) : NOTHING)
#endif
#endif
    fi
}

inline copy()
{
    if
    :: todo == TAKE ->
       i = b;
       do
       :: i < n * TILES ->
#ifdef BUG_EACH_DECIDES
          id = RING_ID(i / TILES);
#else
          id = ticket[t].table[i / TILES];
#endif
          copy_in();
          i = i + grid
       :: else -> break
       od
    :: todo == MOVE -> copy_across(t + 1)
    :: (todo == READ || todo == RETURN) && op != RELEASE -> copy_out()
    :: else
    fi
}

/* ---- restore ---- */

inline free_ticket()
{
    lock_pool();
    if
    :: todo == RETURN -> give_back()
    :: else
    fi;
    ticket[t].state = EMPTY;
    unlock_pool()
}

#if defined(BUG_RESERVE_TAIL) || defined(BUG_GIVE_BACK_FIRST)
byte reserve;

/* The first block of a restore does what must wait for the last. */
inline begin_wrongly()
{
    if
    :: todo == RETURN ->
       d_step {
           sum = ticket[t].arrive_in;
           ticket[t].arrive_in = MY_WORD;
           if
           :: sum == 0 ->
              ticket[t].reserved = DEVICE_PAGES + reserve;
              reserve = reserve + n
           :: else
           fi
       }
#ifdef BUG_GIVE_BACK_FIRST
       if
       :: sum == 0 ->
          lock_pool();
          give_back();
          unlock_pool()
       :: else
       fi
#endif
    :: else
    fi
}

inline free_wrongly()
{
#ifdef BUG_RESERVE_TAIL
    tail_seen[DEVICE] = ticket[t].reserved;
    return_pages();
    tail[DEVICE] == ticket[t].reserved; /* published in the order of the reservations */
    tail[DEVICE] = tail_seen[DEVICE];
#endif
    ticket[t].state = EMPTY
}
#endif

/* ---- all ---- */

#define LED (op == STASH || MIGRATES_NOW)

inline see_launch()
{
    my_launch = ticket[t].launch.number
}

/* The launch word first: there is no second look. */
inline look()
{
#ifndef BUG_LAUNCH_READ_LATE
    see_launch();
#endif
    see_ticket();
    see_counts();
#ifdef BUG_LAUNCH_READ_LATE
    see_launch();
#endif
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
       if
       :: LED -> agree()
       :: !LED ->
          plan_restore();
#if defined(BUG_RESERVE_TAIL) || defined(BUG_GIVE_BACK_FIRST)
          begin_wrongly()
#endif
       fi
    fi
}

/* By the last block. */
inline finish()
{
    if
#if defined(BUG_RESERVE_TAIL) || defined(BUG_GIVE_BACK_FIRST)
    :: todo == RETURN || todo == CLEAR -> free_wrongly()
#else
    :: todo == RETURN || todo == CLEAR -> free_ticket()
#endif
    :: todo == MOVE -> change_pages()
    :: else
    fi;
    d_step { /* compare-and-swap: another operation's word stays, its blocks may still wait */
        if
        :: ticket[t].arrive_in == MY_WORD -> ticket[t].arrive_in = 0
        :: else
        fi
    }
    d_step { /* likewise; numbers come round */
        if
        :: LED && ticket[t].ready / 2 == MY_WORD -> ticket[t].ready = 0
        :: else
        fi
    }
    d_step {
        operation_is_complete();
        finish_launch();
    }
}

proctype block(byte s; byte b)
{
    BLOCK_LOCALS;
    byte my_turn;
end:
    do
    :: block_starts();
       begin();
       if
       :: todo == REFUSE
       :: else ->
          do_share();
          judge_arrival();
          if
          :: is_last -> finish()
          :: else
          fi
       fi;
       my_turn = 0;
       block_ends()
    od
}

#include "concurrent_streams.pml"
