/* What both models share: the pool's memory, streams and their launches, residency, copying, arrival
 * word. README.md says what is modelled and what is not.
 *
 * One statement that touches shared memory is one step. A d_step is one atomic operation of the
 * kernels together with ghost variables, which exist in the model only. */

#ifndef RESIDENT
#define RESIDENT 2 /* blocks that the machine runs at once, over all launches */
#endif
#ifndef STREAMS
#define STREAMS 2
#endif
#ifndef TICKETS
#define TICKETS 2
#endif
#ifndef HOST_PAGES
#define HOST_PAGES 1
#endif
#if HOST_PAGES == 0
#define DEVICE_PAGES 3
#else
#define DEVICE_PAGES 2
#endif
#ifndef OPS
#define OPS 1 /* operations of the first stream */
#endif
#ifndef OPS_OTHERS
#define OPS_OTHERS OPS /* ... of each other stream */
#endif
#ifndef GRID
#define GRID 2 /* blocks of the larger launches of the first stream; the smaller have one */
#endif
#ifndef GRID_OTHERS
#define GRID_OTHERS GRID /* ... of each other stream */
#endif

#define TILES 2    /* of a page: tile i of a launch is copied by block i % grid */
#define MAX_WANT 2 /* most pages of a stash */
#define PAGES (DEVICE_PAGES + HOST_PAGES)
#define NO_PAGE PAGES /* out of range, and like the kernels' word for it of the host tier */

#define DEVICE 0
#define HOST 1
#define TIER(id) ((id) >= DEVICE_PAGES)
#define SIZE(tier) (tier -> HOST_PAGES : DEVICE_PAGES)
#define RING(tier, at) ring[(tier) * DEVICE_PAGES + (at) % SIZE(tier)]
#define MIN(x, y) ((x) < (y) -> (x) : (y))

mtype = { EMPTY, LIVE, FAILED };                                /* state of a ticket */
mtype = { STASH, RESTORE, KEEP, RELEASE, DEMOTE, PROMOTE };     /* operations */
mtype = { NOTHING, TAKE, TOO_FEW, RETURN, READ, CLEAR, MOVE, REFUSE } /* what a block does about one */

/* One word, of the pool in ordered pools, else of each ticket. */
typedef launch_word_t {
    byte number;  /* of operations that have ended */
    byte arrived; /* how many blocks of the next one are done ... */
    int sum;      /* ... and the sum of their numbers */
};

typedef ticket_t {
    mtype state = EMPTY;
    byte epoch; /* lies in one word with the state */
    byte num_pages;
    byte table[MAX_WANT];
    /* ordered pools: a block of a stash has met an id that it cannot take; concurrent pools: launch
     * word and decision of the block that leads */
    short ready;
    /* concurrent pools */
    byte moving[MAX_WANT]; /* where the places go that migrate; NO_PAGE: they stay */
    launch_word_t launch;
    short arrive_in; /* number and op of the stash that has a leader */
#ifdef COUNTS
    byte counts; /* row counts of what was stashed: here its content */
#endif
#ifdef FORMS
    bit form; /* of the group that was stashed */
#endif
    /* ghost */
    byte content;  /* what a restore must find in the pages */
#ifdef FORMS
    bit stashed; /* what `form` must be */
#endif
    byte reserved; /* BUG_RESERVE_TAIL, of the device tier */
};

byte head[2], tail[2], epoch;
launch_word_t pool_launch;
bool order;       /* the sticky ORDER flag */
bool stale;       /* the pool refuses until the step ends, and records nothing */
bool step_valid = true; /* false once a stash has failed, until the step ends */
byte lock_next, lock_serving;
byte ring[PAGES]; /* the device's ring, then the host's */
byte owner[PAGES]; /* 0: free */
ticket_t ticket[TICKETS];

/* ghost */
byte held[PAGES]; /* ticket + 1 that has the page */
byte num_held;
byte content[PAGES * TILES];
byte writer[PAGES * TILES];   /* stream + 1 of the launch that writes this tile now */
bool recorded;                /* a fault other than ORDER was recorded */
bool strict = true, damage;   /* not strict: a violation is damage, to be judged at the end */
byte p, e, times, pages_held; /* of the checks */

/* A fault is recorded: the step has failed. */
#ifdef FAILS_FAST
#define RECORD recorded = true; step_valid = false
#else
#define RECORD recorded = true
#endif

#define STATE_OF(t) (ticket[t].epoch == epoch -> ticket[t].state : EMPTY)
/* of page number `page` of ticket t */
#ifdef BUG_OWNER_WITHOUT_PAGE
#define OWNER_WORD(t, page) ((t) + 1 + TICKETS * epoch)
#else
#define OWNER_WORD(t, page) ((t) + 1 + TICKETS * (MAX_WANT * epoch + (page)))
#endif

#define CHECK(condition)                      \
    if                                        \
    :: (condition)                            \
    :: else -> assert(!strict); damage = true \
    fi

/* ---- streams: one launch at a time, its blocks started in any order ---- */

typedef launch_t {
    mtype op;
    byte ticket;
    byte want; /* pages that a stash needs, or most that migrate; then 0: all */
    byte lead; /* of a stash: so many places prefer host pages */
    byte grid;
#ifdef FORMS
    bit form;
#endif
    byte waiting; /* one bit per block that was not started yet */
    byte running; /* blocks that have not ended yet */
    /* ghost */
    byte content;  /* what a stash writes */
    byte copied;   /* tiles */
    byte moved;    /* places that have migrated */
    byte refused;  /* blocks that found the pool refusing without an error */
#ifdef COUNTS
    bool miscounted; /* a block has used row counts that are not what was stashed */
#endif
    bool complete; /* a last block has finished the operation */
};
launch_t launched[STREAMS];
byte free_slots = RESIDENT;
byte streams_done;

/* Enqueues an operation on stream q and waits until the stream has passed it. */
inline enqueue(q, operation, the_ticket, pages, first_on_host, blocks)
{
    d_step {
        launched[q].op = operation;
        launched[q].ticket = the_ticket;
        launched[q].want = pages;
        launched[q].lead = first_on_host;
        launched[q].grid = blocks;
        launched[q].content = launched[q].content % 4 + 1;
        launched[q].copied = 0;
        launched[q].moved = 0;
        launched[q].refused = 0;
#ifdef COUNTS
        launched[q].miscounted = false;
#endif
        launched[q].complete = false;
        launched[q].waiting = (1 << (blocks)) - 1;
        launched[q].running = blocks;
    }
    d_step {
        launched[q].running == 0;
        CHECK(launched[q].complete || launched[q].refused == launched[q].grid)
    }
}

/* psti_pool_expect found another number; it runs alone, as the step does that ends the refusal. */
inline find_stale()
{
    d_step {
        stale = true;
        step_valid = false;
    }
}

inline end_step()
{
    d_step {
        stale = false;
        step_valid = true;
    }
}

#if defined(BUG_EXPECT_BESIDE) || defined(BUG_STEP_BESIDE)
proctype beside()
{
#ifdef BUG_EXPECT_BESIDE
    find_stale();
#else
    end_step();
#endif
    streams_done++
}
#define ALL_DONE (streams_done == STREAMS + 1)
#define RUN_BESIDE() run beside()
#define EACH_IS_CHECKED false /* what an operation did depends on when it came */
#else
#define ALL_DONE (streams_done == STREAMS)
#define RUN_BESIDE() skip
#define EACH_IS_CHECKED true
#endif

#ifdef BUG_STALE_RESTORES
#define REFUSES (order || (stale && op != RESTORE))
#else
#define REFUSES (order || stale) /* one word */
#endif

/* Variables of block b of stream s. */
#define BLOCK_LOCALS                                                                  \
    byte t, grid, n, my_launch, head_seen[2], tail_seen[2], i, k, id, to, old;        \
    byte counts, form_seen;                                                           \
    byte lead, from_device, moves; /* what was decided: pages.pml, migrate.pml */     \
    int number, sum;                                                                  \
    bool mine, lost, holds, is_last; /* lost: a stash fails without trying */                  \
    mtype op = STASH, state = EMPTY, todo = NOTHING

/* Gives the block a slot, which it keeps until it ends, also while it waits for something. */
inline block_starts()
{
    d_step {
        (launched[s].waiting & (1 << b)) && free_slots > 0;
        free_slots--;
        launched[s].waiting = launched[s].waiting - (1 << b);
        op = launched[s].op;
        t = launched[s].ticket;
        n = launched[s].want;
        grid = launched[s].grid;
    }
}

inline block_ends()
{
    d_step {
        free_slots++;
        launched[s].running--;
        /* forgotten, so that there are fewer states */
        t = 0; grid = 0; n = 0; my_launch = 0; i = 0; k = 0; id = 0; to = 0; old = 0; lead = 0;
        head_seen[DEVICE] = 0; head_seen[HOST] = 0; tail_seen[DEVICE] = 0; tail_seen[HOST] = 0;
        from_device = 0; moves = 0; number = 0; sum = 0; mine = false; lost = false; is_last = false; op = STASH;
        state = EMPTY; todo = NOTHING; counts = 0; form_seen = 0;
    }
}

/* What tells operations apart that read the same launch word: a number that the host gives to each
 * operation it enqueues. Here the stream stands for it. */
#ifdef BUG_NO_OP_NUMBER
#define OP_NUMBER 0
#else
#define OP_NUMBER s
#endif
/* The number that a block adds to the arrival word is a hash of these words. */
#define NEXT(words, word) ((words) * 31 + (word))
#define OPERATION NEXT(my_launch, OP_NUMBER)
#define TICKET_WORDS(words) NEXT(NEXT(NEXT(words, state), n), form_seen)
#define MIX(words) (((words) ^ ((words) >> 13)) * 1597334677)

#define MY_WORD (my_launch * 4 + (OP_NUMBER) + 1) /* in arrive_in and ready */

/* ---- what a block reads of the ticket ---- */

inline see_ticket()
{
    state = STATE_OF(t);
    n = (op == STASH -> n : ticket[t].num_pages);
#ifdef FORMS
    form_seen = ticket[t].form
#endif
}

/* The row counts of what was stashed, which a release does not read. */
inline see_counts()
{
#ifdef COUNTS
    counts = (op == STASH || op == RELEASE -> 0 : ticket[t].counts)
#else
    skip
#endif
}

/* ---- copying a tile: two steps, so that others can act in between. It begins with the read of
 * the owner word. ---- */

#define TILE (id * TILES + i % TILES)
#define MY_CONTENT (launched[s].content + 4 * s) /* never 0 */

/* Of each model: MAY_FILL(k), whether tiles of page `id` may be written for place k; IS_HELD, what
 * must be true of the page meanwhile. */
inline copy_in()
{
    d_step {
        mine = MAY_FILL(i / TILES);
        if
        :: mine ->
           CHECK(IS_HELD && writer[TILE] == 0);
           writer[TILE] = s + 1
        :: else
        fi
    }
    if
    :: mine ->
       d_step {
           CHECK(IS_HELD && writer[TILE] == s + 1);
           writer[TILE] = 0;
           content[TILE] = MY_CONTENT;
           launched[s].copied++;
       }
    :: else
    fi
}

inline tile_is_right()
{
    CHECK(held[id] == t + 1 && writer[TILE] == 0 && content[TILE] == ticket[t].content)
}

/* Copies this block's share of the ticket's pages back; skips a page that is not the ticket's. */
inline copy_out()
{
    i = b;
    do
    :: i < n * TILES ->
       id = ticket[t].table[i / TILES];
       d_step {
           mine = (id < PAGES && owner[id] == OWNER_WORD(t, i / TILES));
           if
           :: mine -> tile_is_right()
           :: else -> RECORD
           fi
       }
       if
       :: mine ->
          d_step {
              tile_is_right();
              launched[s].copied++;
          }
       :: else
       fi;
       i = i + grid
    :: else -> break
    od
}

#ifdef COUNTS
#define USES_COUNTS ((todo == READ || todo == RETURN) && op != RELEASE)
#define NOTE_COUNTS                                                      \
    launched[s].miscounted =                                             \
        launched[s].miscounted || (USES_COUNTS && counts != ticket[t].content)
#else
#define NOTE_COUNTS
#endif

/* The end of an operation: all was copied, but for pages that somebody damaged. */
inline operation_is_complete()
{
    launched[s].complete = true;
    CHECK(op == RELEASE || !(todo == TAKE || todo == READ || todo == RETURN) ||
          launched[s].copied == n * TILES || (strict && recorded));
    CHECK(todo != MOVE || launched[s].copied == launched[s].moved * TILES);
#ifdef COUNTS
    CHECK(!launched[s].miscounted)
#endif
}

inline failure_is_justified()
{
    CHECK(todo != TOO_FEW || lost || n > PAGES - num_held)
}

/* ---- the launch word: one acquire-release add by each block that is done. The last one has
 * claimed the operation when all that arrived belong together, says their sum, and the word still
 * has the number that they saw. Until it takes off what arrived no other operation can add up, so
 * no other one writes. NUMBER, of each model, is worked out of the look; LAUNCH, too, is the
 * model's. ---- */

#ifdef BUG_NO_TAG_SUM
#define TOGETHER true
#else
#define TOGETHER (LAUNCH.sum == number * grid)
#endif
#ifdef BUG_NO_CLAIM
#define SAME_LAUNCH true
#else
#define SAME_LAUNCH (LAUNCH.number == my_launch)
#endif

inline arrive()
{
    d_step {
        number = MIX(NUMBER);
        LAUNCH.arrived++;
        LAUNCH.sum = LAUNCH.sum + number;
        old = LAUNCH.arrived;
        is_last = (old == grid && TOGETHER && SAME_LAUNCH);
        NOTE_COUNTS;
    }
}

/* By a block that came as the last one of its launch, or later, and has met another operation. */
inline judge_arrival()
{
    if
    :: !is_last && old >= grid -> order = true
    :: else
    fi
}

/* By subtraction: a later arrival of another operation stays, and makes its sum wrong. */
inline finish_launch()
{
#ifdef BUG_STORED_ARRIVALS
    LAUNCH.arrived = 0;
    LAUNCH.sum = 0;
#else
    LAUNCH.arrived = LAUNCH.arrived - grid;
    LAUNCH.sum = LAUNCH.sum - number * grid;
#endif
    LAUNCH.number = my_launch + 1
}
