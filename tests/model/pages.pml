/* What both models share: which pages an operation takes and frees. The ghost `held` moves with the
 * owner word. */

/* Unsigned: a head beyond the tail reads as very many free pages. */
#define SEEN_FREE(tier) \
    (head_seen[tier] > tail_seen[tier] -> 99 : tail_seen[tier] - head_seen[tier])

/* `lead` places take host pages, `from_device` the next device pages, the others host pages. Both
 * tiers are decided at once, from the ends of the rings as seen: where the preferred tier is out the
 * other serves, where both are nothing is taken. */
inline decide_tiers()
{
    if
#ifdef BUG_DECIDES_TIERS_APART
    :: true ->
#else
    :: n <= SEEN_FREE(DEVICE) || n - SEEN_FREE(DEVICE) <= SEEN_FREE(HOST) ->
#endif
       lead = MIN(launched[s].lead, SEEN_FREE(HOST));
       from_device = MIN(n - lead, SEEN_FREE(DEVICE));
       todo = (n - from_device <= SEEN_FREE(HOST) -> TAKE : TOO_FEW)
    :: else -> todo = TOO_FEW
    fi
}

/* In a pool that fails fast a stash of a step that has failed does not try. */
#ifdef FAILS_FAST
#define IS_LOST (!step_valid)
#else
#define IS_LOST false
#endif

/* Of a ticket that is not LIVE. */
inline decide_pages()
{
#ifndef ORDERED
    lost = IS_LOST;
#endif
    if
    :: lost -> todo = TOO_FEW
    :: else -> decide_tiers()
    fi
}

/* The id for place k of a stash. */
#define RING_ID(k)                                              \
    ((k) < lead -> RING(HOST, head_seen[HOST] + (k)) :          \
     ((k) < lead + from_device ->                               \
      RING(DEVICE, head_seen[DEVICE] + (k) - lead) :            \
      RING(HOST, head_seen[HOST] + (k) - from_device)))

/* Takes page `id` for place k of the ticket; NO_PAGE when the id is impossible or owned. */
inline own_page()
{
    d_step { /* compare-and-swap of the owner word */
        if
        :: id < PAGES && owner[id] == 0 ->
           owner[id] = OWNER_WORD(t, k);
           CHECK(held[id] == 0);
           held[id] = t + 1;
           num_held++
        :: else -> RECORD; id = NO_PAGE
        fi
    }
}

#ifdef SCRUB
#define CLEAN(id) (content[(id) * TILES] == 0 && content[(id) * TILES + 1] == 0)
#else
#define CLEAN(id) true
#endif

#ifdef BUG_WRONG_RING
#define RING_OF(id) (1 - TIER(id))
#else
#define RING_OF(id) TIER(id)
#endif

/* Gives page `id` of place k back to the ring of its tier, unless it is not the ticket's. */
inline free_page()
{
    d_step { /* compare-and-swap of the owner word */
#ifdef BUG_FREE_WITHOUT_CAS
        mine = id < PAGES;
#else
        mine = (id < PAGES && owner[id] == OWNER_WORD(t, k));
#endif
        if
        :: mine ->
           owner[id] = 0;
           CHECK(held[id] == t + 1 && CLEAN(id));
           held[id] = 0;
           num_held--
        :: else -> RECORD
        fi
    }
    if
    :: mine ->
       RING(RING_OF(id), tail_seen[RING_OF(id)]) = id;
       tail_seen[RING_OF(id)]++
    :: else
    fi
}

/* The pages of a stash go to the ticket. */
inline take_pages()
{
    k = 0;
    do
    :: k < n ->
       id = RING_ID(k);
       own_page();
       ticket[t].table[k] = id;
       k++
    :: else -> break
    od
}

inline return_pages()
{
    k = 0;
    do
    :: k < n ->
       id = ticket[t].table[k];
       free_page();
       k++
    :: else -> break
    od
}

inline see_heads()
{
    head_seen[DEVICE] = head[DEVICE];
    head_seen[HOST] = head[HOST]
}

inline see_tails()
{
    tail_seen[DEVICE] = tail[DEVICE];
    tail_seen[HOST] = tail[HOST]
}

inline publish_heads()
{
    head[DEVICE] = head_seen[DEVICE] + from_device;
    head[HOST] = head_seen[HOST] + n - from_device
}

inline publish_tails()
{
    tail[DEVICE] = tail_seen[DEVICE];
    tail[HOST] = tail_seen[HOST]
}

/* The tails are read by whoever may write them. */
inline give_back()
{
    see_tails();
    return_pages();
    publish_tails()
}

/* ---- the ticket ---- */

/* A ticket of another form stays as it is. */
#ifdef FORMS
#define HAS_OTHER_FORM (op != RELEASE && form_seen != launched[s].form)
#else
#define HAS_OTHER_FORM false
#endif
#ifdef BUG_FORM_EMPTIES
#define OF_OTHER_FORM CLEAR
#else
#define OF_OTHER_FORM NOTHING
#endif

inline plan_restore()
{
    if
    :: state == LIVE && HAS_OTHER_FORM -> todo = OF_OTHER_FORM
    :: state == LIVE && !HAS_OTHER_FORM -> todo = (op == KEEP -> READ : RETURN)
    :: else -> todo = (state == FAILED && op != KEEP -> CLEAR : NOTHING)
    fi
}

inline set_ticket(new_state, pages)
{
    ticket[t].num_pages = pages;
    d_step {
        ticket[t].epoch = epoch;
        ticket[t].state = new_state;
        ticket[t].content = MY_CONTENT;
#ifdef COUNTS
        ticket[t].counts = MY_CONTENT;
#endif
#ifdef FORMS
        ticket[t].form = launched[s].form;
        ticket[t].stashed = launched[s].form;
#endif
    }
}
