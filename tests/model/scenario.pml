/* What both models share: the checks of a pool at rest, and what streams do to it. */

/* ---- the pool when nothing runs ---- */

inline make_pool()
{
    d_step {
        p = 0;
        do
        :: p < PAGES ->
           ring[p] = p;
#ifdef BUG_RESET_KEEPS_OWNERS
           owner[p] = (epoch -> owner[p] : 0);
#else
           owner[p] = 0;
#endif
           held[p] = 0;
           p++
        :: else -> break
        od;
        p = 0;
        num_held = 0;
        head[DEVICE] = 0;
        head[HOST] = 0;
        tail[DEVICE] = DEVICE_PAGES;
        tail[HOST] = HOST_PAGES;
    }
}

#define NUM_FREE(tier) (tail[tier] - head[tier])
#define ALL_FREE (NUM_FREE(DEVICE) == DEVICE_PAGES && NUM_FREE(HOST) == HOST_PAGES)

/* Each page is once in the ring of its tier or held by exactly one live ticket, and its owner word
 * says so. lost: pages may be missing, but none is there twice. */
inline check_pages(lost)
{
    d_step {
        assert(tail[DEVICE] >= head[DEVICE] && NUM_FREE(DEVICE) <= DEVICE_PAGES);
        assert(tail[HOST] >= head[HOST] && NUM_FREE(HOST) <= HOST_PAGES);
        p = 0; pages_held = 0;
        do
        :: p < PAGES ->
           times = 0;
           e = head[TIER(p)];
           do
           :: e < tail[TIER(p)] ->
              times = times + (RING(TIER(p), e) == p);
              e++
           :: else -> break
           od;
           assert(times == 0 || (owner[p] == 0 && (CLEAN(p) || order)));
           e = 0;
           do
           :: e < TICKETS * MAX_WANT ->
              if
              :: STATE_OF(e / MAX_WANT) == LIVE &&
                 e % MAX_WANT < ticket[e / MAX_WANT].num_pages &&
                 ticket[e / MAX_WANT].table[e % MAX_WANT] == p ->
                 times++;
                 pages_held++;
                 assert(owner[p] == OWNER_WORD(e / MAX_WANT, e % MAX_WANT))
              :: else
              fi;
              e++
           :: else -> break
           od;
           assert(times == 1 || (lost && times == 0));
           p++
        :: else -> break
        od;
        assert(NUM_FREE(DEVICE) + NUM_FREE(HOST) + pages_held == PAGES || lost);
        p = 0; e = 0; times = 0; pages_held = 0;
    }
}

/* Nothing waits, holds a lock, or has arrived and not been counted. */
inline check_rest()
{
    d_step {
        assert(lock_next == lock_serving && free_slots == RESIDENT);
        CHECK(pool_launch.arrived == 0 && pool_launch.sum == 0);
        e = 0;
        do
        :: e < TICKETS ->
           CHECK(ticket[e].arrive_in == 0);
           CHECK(ticket[e].launch.arrived == 0 && ticket[e].launch.sum == 0);
           e++
        :: else -> break
        od;
        e = 0;
    }
}

/* pst_pool_reset. The epoch makes all tickets read as empty. Operations that were refused half-way
 * have left arrivals behind, a ready word that the next replay of the same operation would take for
 * its own, and bytes in pages that they never owned. */
inline reset_pool()
{
    d_step {
        epoch++;
        pool_launch.number = 32; /* of the numbers later than it was: one, for fewer states */
#ifndef BUG_RESET_KEEPS_ARRIVALS
        pool_launch.arrived = 0;
        pool_launch.sum = 0;
#endif
        p = 0;
        do
        :: p < TICKETS ->
#ifndef BUG_RESET_KEEPS_ARRIVALS
           ticket[p].arrive_in = 0;
           ticket[p].launch.arrived = 0;
           ticket[p].launch.sum = 0;
#endif
#ifndef BUG_RESET_KEEPS_READY
           ticket[p].ready = 0;
#endif
           p++
        :: else -> break
        od;
#ifdef SCRUB
        p = 0;
        do
        :: p < PAGES * TILES ->
#ifdef BUG_RESET_SCRUBS_HELD
           content[p] = (owner[p / TILES] -> 0 : content[p]);
#else
           content[p] = 0;
#endif
           p++
        :: else -> break
        od;
#else
        p = 0;
        do
        :: p < PAGES * TILES -> content[p] = 0; p++
        :: else -> break
        od;
#endif
        /* forgotten, so that there are fewer states: nobody may read it */
        p = 0;
        do
        :: p < TICKETS ->
           ticket[p].num_pages = 0;
           ticket[p].content = 0;
           for (e : 0 .. MAX_WANT - 1) {
               ticket[p].table[e] = NO_PAGE;
               ticket[p].moving[e] = NO_PAGE
           }
           p++
        :: else -> break
        od;
        p = 0;
        do
        :: p < STREAMS ->
           launched[p].op = STASH;
           launched[p].ticket = 0;
           launched[p].want = 0;
           launched[p].lead = 0;
           launched[p].grid = 0;
           launched[p].content = 0;
           launched[p].copied = 0;
           launched[p].moved = 0;
           launched[p].refused = 0;
           launched[p].complete = false;
           p++
        :: else -> break
        od;
        order = false;
        step_valid = true;
        recorded = false;
        damage = false;
        strict = true;
    }
    make_pool()
}

/* After a misuse: pages are conserved, bytes are damaged only if ORDER says so, and a reset pool is
 * as new. The blocks of an ordered pool have entered pages before the last one found that they must
 * not: then pages are right only after the reset. */
#ifdef ORDERED
#define MAY_SPOIL true
#else
#define MAY_SPOIL false
#endif
inline check_misuse(lost)
{
    if
    :: MAY_SPOIL && order -> skip
    :: else -> check_pages(lost)
    fi;
    check_rest();
    assert(order || !damage);
    reset_pool();
    check_pages(false);
    enqueue(0, STASH, 0, 2, 0, GRID);
#ifdef MIGRATES
    enqueue(0, DEMOTE, 0, 1, 0, GRID);
#endif
    enqueue(0, STASH, 1, 1, 0, GRID);
    enqueue(0, STASH, 1, 1, 0, GRID); /* still live: does nothing */
    assert(num_held == 3);
    enqueue(0, RESTORE, 0, 0, 0, GRID);
    enqueue(0, RESTORE, 1, 0, 0, 1);
    check_pages(false);
    check_rest();
    assert(!order && !recorded && ALL_FREE)
}

/* ---- what streams do ---- */

/* The first stream's next operation is of the form that the ticket has. */
inline of_form(the_ticket)
{
#ifdef FORMS
    launched[0].form = ticket[the_ticket].stashed
#else
    skip
#endif
}

inline run_blocks()
{
    p = 0;
    do
    :: p < STREAMS ->
       e = 0;
       do
       :: e < (p == 0 -> GRID : GRID_OTHERS) -> run block(p, e); e++
       :: else -> break
       od;
       p++
    :: else -> break
    od;
    p = 0;
    e = 0
}

inline run_streams()
{
    atomic {
        do
        :: p < STREAMS -> run stream(p); p++
        :: else -> break
        od;
        p = 0
    }
}

/* What the two tickets hold when two streams begin to misuse the pool. */
inline any_tickets()
{
    if
    :: skip
    :: enqueue(0, STASH, 0, 1, 0, 1)
    :: enqueue(0, STASH, 0, 1, 0, 1);
       enqueue(1, STASH, 1, 1, 0, 1)
#ifdef MIGRATES
    :: enqueue(0, STASH, 0, 2, 0, 1)
    :: enqueue(0, STASH, 0, 2, 1, 1)
#endif
    fi
}

#ifdef MIGRATES
#define MAY_MIGRATE true
#else
#define MAY_MIGRATE false
#endif

/* Picks an operation for stream s. With MIGRATES the first of two streams does nothing else: the
 * others are covered without. */
inline any_operation()
{
    atomic {
        want = 0;
        lead = 0;
        if
        :: MAY_MIGRATE ->
           if :: op = DEMOTE :: op = PROMOTE fi;
#if HOST_PAGES > 1
           if :: want = 0 :: want = 1 fi
#endif
        :: !MAY_MIGRATE || STREAMS == 1 || s > 0 ->
           if
           :: op = STASH;
              if :: want = 1 :: want = 2 fi;
#if STREAMS == 1
              if :: lead = 0 :: lead = 1 fi
#endif
           :: op = RESTORE
           :: op = KEEP
           :: op = RELEASE
           fi
        fi;
#ifdef FORMS
        if
        :: launched[s].form = 0
        :: op != RELEASE -> launched[s].form = 1
        fi;
#endif
        if
        :: blocks = 1
        :: op != RELEASE -> blocks = (s == 0 -> GRID : GRID_OTHERS)
        fi
    }
}

#if SCENARIO == DAMAGED
/* Somebody writes an id into the page table of a live ticket: one that it has already, one of
 * another ticket, a free one, or one that does not exist. */
inline damage_table()
{
    atomic {
        if
        :: k = 0
        :: k = 1
        fi;
        old = ticket[0].table[k];
        if
        :: old != 0 -> id = 0
        :: old != 1 -> id = 1
        :: old != 2 -> id = 2
        :: id = NO_PAGE
        fi;
        ticket[0].table[k] = id
    }
}

proctype stream(byte s)
{
    byte k, old, id, all;
    if
    :: all = 1
    :: all = 0
    fi;
    enqueue(s, STASH, 0, 2, 0, GRID);
    if
    :: all -> enqueue(s, STASH, 1, 1, 0, 1)
    :: else
    fi;
    damage_table();
    enqueue(s, KEEP, 0, 0, 0, GRID);
    assert(recorded && !order && num_held == 2 + all);
    recorded = false;
#ifdef MIGRATES
    enqueue(s, DEMOTE, 0, 0, 0, GRID); /* of the other page, if the host has room */
    assert(!recorded && !order && num_held == 2 + all);
    assert(NUM_FREE(HOST) == 0 && NUM_FREE(DEVICE) == 1 - all);
#endif
    if
    :: enqueue(s, RESTORE, 0, 0, 0, GRID)
    :: enqueue(s, RELEASE, 0, 0, 0, GRID)
    fi;
    check_pages(true);
    assert(recorded && !order && num_held == 1 + all);
    if
    :: all -> enqueue(s, RESTORE, 1, 0, 0, GRID)
    :: else
    fi;
    enqueue(s, RESTORE, 0, 0, 0, GRID); /* empty now: does nothing */
    check_pages(true);
    assert(!order && num_held == 1);
    streams_done++
}
#elif SCENARIO == DAMAGED_TAKE
/* Somebody writes an id into a ring: of a page that has an owner, of one that the same stash takes
 * for its other place, or one that does not exist. Then a stash takes it: it is live without that
 * page. */
proctype stream(byte s)
{
    enqueue(s, STASH, 1, 1, 0, 1);
    atomic {
        if
        :: ring[1] = 0
        :: ring[1] = NO_PAGE
        :: ring[DEVICE_PAGES] = 0
        :: ring[DEVICE_PAGES] = NO_PAGE
        :: ring[1] = DEVICE_PAGES; strict = false
        fi
    }
    enqueue(s, STASH, 0, 2, 0, GRID);
    assert(!order && ticket[0].state == LIVE && ticket[0].num_pages == 2 && ticket[0].ready == 0);
    assert(recorded && num_held == 2);
    recorded = false;
    enqueue(s, KEEP, 0, 0, 0, GRID);
    enqueue(s, RESTORE, 0, 0, 0, GRID);
    assert(recorded && !order);
    check_pages(true);
    damage = false;
    strict = true;
    assert(num_held == 1);
    recorded = false;
    end_step();
    enqueue(s, STASH, 0, 1, 0, GRID);
    assert(!recorded && !order && num_held == 2);
    enqueue(s, RESTORE, 0, 0, 0, GRID);
    enqueue(s, RESTORE, 1, 0, 0, GRID);
    check_pages(true);
    check_rest();
    assert(!recorded && !order && num_held == 0);
    streams_done++
}
#elif SCENARIO == DAMAGED_RING
/* Somebody writes an id into the host's ring: of a page that has an owner, or one that does not
 * exist. The place stays where it is. */
proctype stream(byte s)
{
    enqueue(s, STASH, 0, 2, 0, GRID);
    atomic {
        if
        :: ring[DEVICE_PAGES] = 0
        :: ring[DEVICE_PAGES] = 1
        :: ring[DEVICE_PAGES] = NO_PAGE
        fi
    }
    enqueue(s, DEMOTE, 0, 0, 0, GRID);
    check_pages(true);
    assert(recorded && !order && num_held == 2 && NUM_FREE(HOST) == 0);
    recorded = false;
    enqueue(s, KEEP, 0, 0, 0, GRID);
    enqueue(s, PROMOTE, 0, 0, 0, GRID); /* nothing to do */
    enqueue(s, RESTORE, 0, 0, 0, GRID);
    check_pages(true);
    assert(!recorded && !order && num_held == 0 && NUM_FREE(DEVICE) == DEVICE_PAGES);
    streams_done++
}
#elif SCENARIO == STASHED_ANEW
proctype stream(byte s)
{
    if
    :: s == 0 ->
       if
       :: enqueue(0, KEEP, 0, 0, 0, GRID)
       :: enqueue(0, RESTORE, 0, 0, 0, GRID)
       fi
    :: else ->
       enqueue(1, RESTORE, 0, 0, 0, 1);
       enqueue(1, STASH, 0, 1, 0, 1)
    fi;
    streams_done++
}
#endif
