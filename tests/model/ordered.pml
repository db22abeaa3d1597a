/* Ordered pools: every block takes the decision alone, from the state line; the last block done
 * claims the launch word and publishes the operation. */

#define PROPER 1      /* one stream: no error, whatever the operations */
#define DAMAGED 2     /* one stream; somebody writes into a page table */
#define TWO_STREAMS 3 /* misuse: two unordered streams, each with its own ticket */
#define SAME_TICKET 4 /* misuse: two unordered streams that use the same tickets */

#if SCENARIO == PROPER || SCENARIO == DAMAGED
#define STREAMS 1
#endif

#include "pool.pml"
#include "scenario.pml"

inline decide()
{
    if
    :: op == STASH ->
       state = STATE_OF(t);
       d_step { /* unsigned: a head beyond the tail reads as very many free pages */
           if
           :: state == LIVE -> todo = NOTHING
           :: else ->
              todo = (head_seen > tail_seen || tail_seen - head_seen >= n -> TAKE : TOO_FEW)
           fi
       }
    :: op != STASH && state == LIVE -> todo = (op == KEEP -> READ : RETURN)
    :: op != STASH && state != LIVE ->
       todo = (state == FAILED && op != KEEP -> CLEAR : NOTHING)
    fi
}

inline copy()
{
    if
    :: todo == TAKE ->
       i = b;
       do
       :: i < n * TILES ->
          id = ring[(head_seen + i / TILES) % PAGES];
          copy_in(0);
          i = i + grid
       :: else -> break
       od
    :: (todo == READ || todo == RETURN) && op != RELEASE -> copy_out()
    :: else
    fi
}

/* By the last block, while the launch word is odd. */
inline publish()
{
    if
    :: todo == TAKE ->
       take_pages();
       set_ticket(LIVE, n);
       head = head_seen + n
    :: todo == TOO_FEW -> set_ticket(FAILED, 0)
    :: todo == RETURN ->
       give_back();
       ticket[t].state = EMPTY
    :: todo == CLEAR -> ticket[t].state = EMPTY
    :: else
    fi;
    empty_arrivals();
    d_step {
        operation_is_complete();
        failure_is_justified();
        pool_launch = my_launch + 2;
    }
}

inline begin()
{
#ifndef BUG_LAUNCH_READ_LATE
    my_launch = pool_launch;
#endif
    if
    :: order -> todo = REFUSE
    :: else ->
       state = STATE_OF(t);
       n = (op == STASH -> n : ticket[t].num_pages);
       head_seen = head;
       tail_seen = tail;
#ifdef BUG_LAUNCH_READ_LATE
       my_launch = pool_launch;
#endif
       if
       :: my_launch % 2 == 1 -> order = true; todo = REFUSE
       :: else -> decide()
       fi
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
#ifdef BUG_ARRIVE_EARLY
          arrive();
          copy();
#else
          copy();
          arrive(); /* also when there was nothing to do */
#endif
          claim(pool_launch);
          if
          :: mine -> publish()
          :: else
          fi
       fi;
       block_ends()
    od
}

#if SCENARIO != DAMAGED
/* What an operation must have done, seen by the only stream. */
inline check_one_operation()
{
    d_step {
        CHECK(!order);
        if
        :: op == STASH && state_before != LIVE && want <= free_before ->
           CHECK(ticket[t].state == LIVE && ticket[t].num_pages == want);
           CHECK(tail - head == free_before - want)
        :: op == STASH && state_before != LIVE && want > free_before ->
           CHECK(ticket[t].state == FAILED && tail - head == free_before)
        :: op == KEEP || (op == STASH && state_before == LIVE) ->
           CHECK(ticket[t].state == state_before && tail - head == free_before)
        :: (op == RESTORE || op == RELEASE) && state_before == LIVE ->
           CHECK(ticket[t].state == EMPTY);
           CHECK(tail - head == free_before + ticket[t].num_pages)
        :: (op == RESTORE || op == RELEASE) && state_before != LIVE ->
           CHECK(ticket[t].state == EMPTY && tail - head == free_before)
        fi
    }
    check_pages(false);
    check_rest()
}

proctype stream(byte s)
{
    byte t, want, blocks, ops, free_before;
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
#if SCENARIO == PROPER
       d_step {
           free_before = tail - head;
           state_before = ticket[t].state;
       }
#endif
       enqueue(s, op, t, want, blocks);
#if SCENARIO == PROPER
       check_one_operation();
#endif
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
#if SCENARIO == TWO_STREAMS || SCENARIO == SAME_TICKET
    any_tickets();
    strict = false;
#endif
    run_streams();
    streams_done == STREAMS;
#if SCENARIO == PROPER
    enqueue(0, RESTORE, 0, 0, GRID);
    enqueue(0, RESTORE, 1, 0, GRID);
    check_pages(false);
    check_rest();
    assert(!order && !recorded && tail - head == PAGES);
#elif SCENARIO != DAMAGED
    check_misuse();
#endif
}
