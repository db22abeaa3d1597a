/* What both models share of operations that move content within the pool: migration between the
 * tiers, scrubbing of pages that are freed.
 *
 * GOES_TO(k), of each model: the id that place k goes to, NO_PAGE if it stays. */

#define MIGRATES_NOW (op == DEMOTE || op == PROMOTE)
#define SOURCE (op == PROMOTE)
#define TARGET (op == DEMOTE)

/* Places below k that migrate. */
#define MOVES_BELOW(k) (((k) > 0 && (moves & 1)) + ((k) > 1 && (moves & 2)))

/* `moves`, one bit per place: which places migrate, lowest first, as many as budget and target ring
 * allow, of those whose page is in the source tier and the place's own. */
inline pick_places()
{
    moves = 0;
    k = 0;
    do
    :: k < n ->
       id = ticket[t].table[k];
       d_step {
           if
           :: id < PAGES && TIER(id) == SOURCE && owner[id] == OWNER_WORD(t, k) &&
              MOVES_BELOW(k) < SEEN_FREE(TARGET) &&
              (launched[s].want == 0 || MOVES_BELOW(k) < launched[s].want) ->
              moves = moves + (1 << k)
           :: else
           fi
       }
       k++
    :: else -> break
    od;
    todo = (moves -> MOVE : NOTHING)
}

#define TILE_TO (to * TILES + i % TILES)

/* Copies this block's share of the places that migrate; holder: who has the new pages meanwhile. By
 * which block a tile is copied does not matter, only that one does. */
inline copy_across(holder)
{
    i = b;
    do
    :: i < n * TILES ->
       id = ticket[t].table[i / TILES];
       to = GOES_TO(i / TILES);
       d_step {
           mine = (id < PAGES && owner[id] == OWNER_WORD(t, i / TILES) && to < PAGES &&
                   (holder != 0 || owner[to] == 0));
           if
           :: mine ->
              tile_is_right();
              CHECK(held[to] == holder && writer[TILE_TO] == 0);
              writer[TILE_TO] = s + 1
           :: else
           fi
       }
       if
       :: mine ->
          d_step {
              tile_is_right();
              CHECK(held[to] == holder && writer[TILE_TO] == s + 1);
              writer[TILE_TO] = 0;
              content[TILE_TO] = content[TILE];
              launched[s].copied++;
          }
       :: else
       fi;
       i = i + grid
    :: else -> break
    od
}

/* Place k has migrated to page `to`. By whoever may write pool state. */
inline change_page()
{
    id = ticket[t].table[k];
    d_step {
        ticket[t].table[k] = to;
        launched[s].moved++;
    }
    free_page()
}

/* ---- scrubbing ---- */

#ifdef BUG_SCRUB_WITHOUT_OWNER
#define MAY_SCRUB(id, k) (id < PAGES)
#else
#define MAY_SCRUB(id, k) (id < PAGES && owner[id] == OWNER_WORD(t, k))
#endif

/* A place that could not migrate keeps its page. */
#ifdef BUG_SCRUB_WHAT_STAYS
#define LEAVES(k) true
#else
#define LEAVES(k) (todo == RETURN || (GOES_TO(k) < PAGES && TARGET_IS_MINE(k)))
#endif

/* Overwrites this block's share of the pages that the operation frees. */
inline scrub()
{
    i = b;
    do
    :: (todo == RETURN || todo == MOVE) && i < n * TILES ->
       id = ticket[t].table[i / TILES];
       d_step {
           mine = (MAY_SCRUB(id, i / TILES) && LEAVES(i / TILES));
           if
           :: mine ->
              CHECK(held[id] == t + 1 && writer[TILE] == 0);
              writer[TILE] = s + 1
           :: else
           fi
       }
       if
       :: mine ->
          d_step {
              CHECK(held[id] == t + 1 && writer[TILE] == s + 1);
              writer[TILE] = 0;
              content[TILE] = 0;
          }
       :: else
       fi;
       i = i + grid
    :: else -> break
    od
}

/* What a block does between the decision and the end. */
inline do_share()
{
#ifdef BUG_SCRUB_BEFORE_READ
    scrub();
#endif
#ifdef BUG_ARRIVE_EARLY
    ARRIVE;
#endif
    copy();
#if defined(SCRUB) && !defined(BUG_SCRUB_BEFORE_READ) && !defined(BUG_SCRUB_AFTER_ARRIVAL)
    scrub();
#endif
#ifndef BUG_ARRIVE_EARLY
    ARRIVE; /* also when there was nothing to do */
#endif
#ifdef BUG_SCRUB_AFTER_ARRIVAL
    scrub();
#endif
}
