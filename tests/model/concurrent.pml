/* Concurrent pools: one FIFO lock, taken by running blocks only. The first block of a stash to
 * arrive decides for all; the last block of a restore returns the ids. */

#define PROPER 1      /* each stream with its own ticket, any operations */
#define DAMAGED 2     /* one stream; somebody writes into a page table */
#define ROUNDS 3      /* each stream with its own ticket: stash and restore, OPS times */
#define HANDOVER 4    /* tickets restored by the other stream, ordered by events */
#define SAME_TICKET 5 /* misuse: two unordered streams that use the same tickets */

#if SCENARIO == DAMAGED
#define STREAMS 1
#endif

#include "pool.pml"
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

inline decide()
{
#ifdef BUG_ATOMIC_HEAD
    d_step {
        head_seen = head;
        todo = (state == LIVE -> NOTHING : (tail - head_seen >= n -> TAKE : TOO_FEW));
        head = (todo == TAKE -> head + n : head);
    }
#else
    head_seen = head;
    d_step {
        todo = (state == LIVE -> NOTHING : (tail - head_seen >= n -> TAKE : TOO_FEW));
        failure_is_justified();
    }
#endif
}

inline commit()
{
    if
    :: todo == TAKE ->
       take_pages();
       set_ticket(LIVE, n);
#ifndef BUG_ATOMIC_HEAD
       head = head_seen + n
#endif
    :: todo == TOO_FEW -> set_ticket(FAILED, 0)
    :: else
    fi
}

/* With the decision: the state does not say it, for it is LIVE too when the ticket was live. */
inline raise_ready()
{
    ticket[t].ready = MY_WORD * 2 + (todo == TAKE)
}

inline lead()
{
#ifdef BUG_ATOMIC_HEAD
    state = STATE_OF(t);
    decide();
    commit();
#else
    lock_pool();
    state = STATE_OF(t);
    decide();
#ifdef BUG_READY_EARLY
    raise_ready();
#endif
#ifdef BUG_UNLOCK_EARLY
    unlock_pool();
    commit();
#else
    commit();
    unlock_pool();
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
    :: LEADS -> lead()
    :: !LEADS && sum != 0 && sum != MY_WORD -> order = true /* and arrives, without copying */
    :: else ->
#ifdef BUG_EACH_DECIDES
       state = STATE_OF(t);
       decide()
#else
       ticket[t].ready / 2 == MY_WORD;
       todo = (ticket[t].ready % 2 -> TAKE : NOTHING)
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
          id = ring[(head_seen + i / TILES) % PAGES];
#else
          id = ticket[t].table[i / TILES];
#endif
          copy_in(t + 1);
          i = i + grid
       :: else -> break
       od
    :: (todo == READ || todo == RETURN) && op != RELEASE -> copy_out()
    :: else
    fi
}

/* ---- restore ---- */

inline plan_restore()
{
    if
    :: state == LIVE -> todo = (op == KEEP -> READ : RETURN)
    :: else -> todo = (state == FAILED && op != KEEP -> CLEAR : NOTHING)
    fi
}

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
              ticket[t].reserved = PAGES + reserve;
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
    tail_seen = ticket[t].reserved;
    return_pages();
    tail == tail_seen; /* published in the order of the reservations */
    tail = tail_seen + freed;
#endif
    ticket[t].state = EMPTY
}
#endif

/* ---- both ---- */

inline begin()
{
    my_launch = ticket[t].launch;
    if
    :: order -> todo = REFUSE
    :: else ->
       state = STATE_OF(t);
       n = (op == STASH -> n : ticket[t].num_pages);
       if
       :: my_launch % 2 == 1 -> order = true; todo = REFUSE
       :: my_launch % 2 == 0 && op == STASH -> agree()
       :: my_launch % 2 == 0 && op != STASH ->
          plan_restore();
#if defined(BUG_RESERVE_TAIL) || defined(BUG_GIVE_BACK_FIRST)
          begin_wrongly()
#endif
       fi
    fi
}

/* By the last block, while the ticket's launch word is odd. */
inline finish()
{
    if
#if defined(BUG_RESERVE_TAIL) || defined(BUG_GIVE_BACK_FIRST)
    :: todo == RETURN || todo == CLEAR -> free_wrongly()
#else
    :: todo == RETURN || todo == CLEAR -> free_ticket()
#endif
    :: else
    fi;
    d_step { /* compare-and-swap: another operation's word stays, its blocks may still wait */
        if
        :: ticket[t].arrive_in == MY_WORD -> ticket[t].arrive_in = 0
        :: else
        fi
    }
    empty_arrivals();
    d_step {
        operation_is_complete();
        ticket[t].launch = my_launch + 2;
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
#ifdef BUG_ARRIVE_EARLY
          arrive();
          copy();
#else
          copy();
          arrive();
#endif
          claim(ticket[t].launch);
          if
          :: mine -> finish()
          :: else
          fi
       fi;
       my_turn = 0;
       block_ends()
    od
}

#if SCENARIO == PROPER || SCENARIO == SAME_TICKET
/* What an operation must have done to a ticket that nobody else uses. */
inline check_one_operation()
{
    d_step {
        if
        :: op == STASH && state_before != LIVE ->
           CHECK((ticket[t].state == LIVE && ticket[t].num_pages == want) ||
                 (ticket[t].state == FAILED && ticket[t].num_pages == 0))
        :: op == KEEP || (op == STASH && state_before == LIVE) ->
           CHECK(ticket[t].state == state_before)
        :: op == RESTORE || op == RELEASE -> CHECK(ticket[t].state == EMPTY)
        fi;
        CHECK(ticket[t].arrive_in == 0 && ticket[t].arrive_out == 0);
    }
}

proctype stream(byte s)
{
    byte t, want, blocks, ops;
    mtype op = STASH, state_before = EMPTY;
    do
    :: ops < (s == 0 -> OPS : OPS_OTHERS) ->
#if SCENARIO == PROPER
       t = s;
#else
       if
       :: t = 0
       :: t = 1
       fi;
#endif
       any_operation();
       state_before = ticket[t].state;
       enqueue(s, op, t, want, blocks);
#if SCENARIO == PROPER
       check_one_operation();
#endif
       ops++
    :: else -> break
    od;
#if SCENARIO == PROPER
    enqueue(s, RESTORE, t, 0, (s == 0 -> GRID : GRID_OTHERS));
#endif
    streams_done++
}
#elif SCENARIO == ROUNDS
proctype stream(byte s)
{
    byte want, ops;
    do
    :: ops < (s == 0 -> OPS : OPS_OTHERS) ->
       if
       :: want = 1
       :: want = 2
       fi;
       enqueue(s, STASH, s, want, GRID);
       enqueue(s, RESTORE, s, 0, GRID);
       ops++
    :: else -> break
    od;
    streams_done++
}
#elif SCENARIO == HANDOVER
byte stashed[STREAMS], restored[STREAMS]; /* events: how often recorded */

proctype stream(byte s)
{
    byte want, ops;
    do
    :: ops < OPS ->
       restored[1 - s] == ops;
       if
       :: want = 1
       :: want = 2
       fi;
       enqueue(s, STASH, s, want, GRID);
       stashed[s]++;
       stashed[1 - s] == ops + 1;
       enqueue(s, RESTORE, 1 - s, 0, GRID);
       restored[s]++;
       ops++
    :: else -> break
    od;
    streams_done++
}
#endif

init
{
    atomic {
        make_pool();
        run_blocks();
    }
#if SCENARIO == SAME_TICKET
    any_tickets();
    strict = false;
#endif
    run_streams();
    streams_done == STREAMS;
#if SCENARIO == SAME_TICKET
    check_misuse();
#elif SCENARIO != DAMAGED
    check_pages(false);
    check_rest();
    assert(!order && !recorded && tail - head == PAGES);
#endif
}
