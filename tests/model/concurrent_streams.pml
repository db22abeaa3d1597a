/* What the streams do with a concurrent pool, and what must hold afterwards. */

#if SCENARIO == PROPER || SCENARIO == SAME_TICKET
/* What an operation must have done to a ticket that nobody else uses. */
inline check_one_operation()
{
    d_step {
        if
        :: stale -> CHECK(ticket[t].state == state_before)
        :: !stale && op == STASH && state_before != LIVE ->
           CHECK((ticket[t].state == LIVE && ticket[t].num_pages == want) ||
                 (ticket[t].state == FAILED && ticket[t].num_pages == 0))
        :: !stale && (op == KEEP || (op == STASH && state_before == LIVE) || MIGRATES_NOW) ->
           CHECK(ticket[t].state == state_before)
        :: !stale && (op == RESTORE || op == RELEASE) -> CHECK(ticket[t].state == EMPTY)
        fi;
        CHECK(ticket[t].arrive_in == 0 && ticket[t].launch.arrived == 0);
    }
}

proctype stream(byte s)
{
    byte t, want, lead, blocks, ops;
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
       enqueue(s, op, t, want, lead, blocks);
#if SCENARIO == PROPER
       if
       :: EACH_IS_CHECKED -> check_one_operation()
       :: else
       fi;
#endif
       ops++
    :: else -> break
    od;
#if SCENARIO == PROPER && !defined(EXPECTS)
    enqueue(s, RESTORE, t, 0, 0, (s == 0 -> GRID : GRID_OTHERS));
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
       enqueue(s, STASH, s, want, 0, GRID);
       enqueue(s, RESTORE, s, 0, 0, GRID);
       ops++
    :: else -> break
    od;
    streams_done++
}
#elif SCENARIO == JOURNEYS
proctype stream(byte s)
{
    byte want, lead, ops;
    if
    :: want = 1
    :: want = 2
    fi;
    if
    :: lead = 0
    :: lead = 1
    fi;
    enqueue(s, STASH, s, want, lead, 1);
    do
    :: ops < (s == 0 -> OPS : OPS_OTHERS) ->
       if
       :: enqueue(s, DEMOTE, s, 0, 0, GRID)
       :: enqueue(s, PROMOTE, s, 0, 0, GRID)
       fi;
       ops++
    :: else -> break
    od;
    enqueue(s, RESTORE, s, 0, 0, GRID);
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
       enqueue(s, STASH, s, want, 0, GRID);
       stashed[s]++;
       stashed[1 - s] == ops + 1;
       enqueue(s, RESTORE, 1 - s, 0, 0, GRID);
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
#if SCENARIO == SAME_TICKET || (SCENARIO == PROPER && (defined(MIGRATES) || defined(EXPECTS)))
    any_tickets();
#endif
#if defined(EXPECTS) && !defined(BUG_EXPECT_BESIDE)
    if
    :: find_stale()
    :: skip
    fi;
#endif
#if SCENARIO == STASHED_ANEW
    enqueue(0, STASH, 0, 1, 0, 1);
#endif
#if SCENARIO == SAME_TICKET || SCENARIO == STASHED_ANEW
    strict = false;
#endif
    run_streams();
    RUN_BESIDE();
    ALL_DONE;
#ifdef EXPECTS
    check_pages(false);
    check_rest();
    end_step();
    enqueue(0, RESTORE, 0, 0, 0, GRID);
    enqueue(1, RESTORE, 1, 0, 0, GRID_OTHERS);
#endif
#if SCENARIO == SAME_TICKET || SCENARIO == STASHED_ANEW
#ifdef MIGRATES
    check_misuse(order); /* a migration that was refused half-way has taken pages that no table has */
#else
    check_misuse(false);
#endif
#elif STREAMS > 1
    check_pages(false);
    check_rest();
    assert(!order && !recorded && ALL_FREE);
#endif
}
