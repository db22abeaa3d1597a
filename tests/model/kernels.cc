/* Stash, restore and migrate of kernels/cuda under a weak memory model: relacy runs their source,
 * with teams of one warp, words that it watches, and pages of one tile. What plans tiles and moves
 * bytes is replaced: a team writes or reads one word for the whole page.
 *
 * First all scenes as they are, then with each order of each access one step weaker. README.md has
 * the table of what finds what; `equivalent` are those that nothing finds, with the reason. Exit 0:
 * all as expected. */
#include "words.h"

#include "tests/simt/simt_fiber.h"

/* ---- in place of block.cuh, sums.cuh, copy.cuh, share.cuh, tiles.cuh ---- */

#define PSTI_SIMT
#define PSTI_CUDA_PTX_CUH
#define PSTI_CUDA_BLOCK_CUH
#define PSTI_CUDA_SUMS_CUH
#define PSTI_CUDA_COPY_CUH
#define PSTI_CUDA_SHARE_CUH
#define PSTI_CUDA_TILES_CUH
#define PSTI_CUDA_WALK_CUH
#define PSTI_DEVICE [[maybe_unused]] static inline
#define PSTI_DEVICE_METHOD inline
#define PSTI_SYNC_TEAM() meet()
#define __syncwarp() meet()
#define PSTI_PAUSE() rl::yield(1, RL_INFO)
#define PSTI_MAX_THREADS 32
#define PSTI_WARP 32u

enum { TEAMS = 2, STREAMS = 2, PAGES = 2, TIERS = 2, TICKETS = 2 };

#include "kernels/core/pool.h"
#include "kernels/core/stream.h"

/* A team is a thread of relacy. Its lanes are fibers, which run one after the other from one
 * meeting of all to the next: among themselves they are in order. */
struct lane {
    simt_fiber fiber;
    bool is_busy; /* in the body */
};

struct team {
    simt_fiber home;
    lane lanes[PSTI_WARP];
    uint32_t at; /* the lane that runs */
    void (*body)(team &self);
    uint64_t values[PSTI_WARP];
};

static team teams[STREAMS * TEAMS];

PSTI_DEVICE team &this_team()
{
    return teams[rl::thread_index()];
}

/* Fibers of an execution that was cut short are made anew. */
static void make_lanes(void (*entry)(simt_fiber *))
{
    for (team &one : teams)
        for (lane &l : one.lanes)
            if (l.is_busy || l.fiber.stack == nullptr) {
                if (l.is_busy)
                    simt_fiber_destroy(&l.fiber);
                l.is_busy = false;
                simt_fibers_make(&l.fiber, sizeof(l), 1, entry);
            }
}

static void meet()
{
    team &mine = this_team();
    simt_fiber_switch(&mine.lanes[mine.at].fiber, &mine.home);
}

static void lane_entry(simt_fiber *self)
{
    for (;;) {
        team &mine = this_team();
        mine.body(mine);
        reinterpret_cast<lane *>(self)->is_busy = false;
        simt_fiber_switch(self, &this_team().home);
    }
}

/* All lanes of this team run the body. */
static void run_lanes(void (*body)(team &self))
{
    team &mine = this_team();
    mine.body = body;
    for (lane &l : mine.lanes)
        l.is_busy = true;
    for (bool any = true; any;) {
        any = false;
        for (mine.at = 0; mine.at < PSTI_WARP; mine.at++) {
            lane &l = mine.lanes[mine.at];
            if (l.is_busy)
                simt_fiber_switch(&mine.home, &l.fiber);
            any |= l.is_busy;
        }
    }
}

PSTI_DEVICE uint32_t team_of()
{
    return rl::thread_index() % TEAMS;
}
PSTI_DEVICE uint32_t num_teams()
{
    return TEAMS;
}
PSTI_DEVICE uint32_t thread_of()
{
    return this_team().at;
}
PSTI_DEVICE uint32_t lane_of()
{
    return this_team().at;
}
PSTI_DEVICE uint32_t num_threads()
{
    return PSTI_WARP;
}
PSTI_DEVICE bool is_helper()
{
    return true;
}
PSTI_DEVICE void psti_wait_for_predecessor()
{
}
PSTI_DEVICE void psti_let_successor_come()
{
}

/* A copy of the state has cells, too. */
PSTI_DEVICE uint32_t psti_ring_id(const psti_pool_view *pool, const words::cell64 *head,
                                  const psti_decision *decision, uint64_t page)
{
    const uint64_t heads[PSTI_TIERS] = {head[0], head[1]};
    return psti_ring_id(pool, heads, decision, page);
}

struct block_scratch {
};
PSTI_DEVICE uint64_t block_exclusive_scan(block_scratch &, uint64_t value, uint64_t *total)
{
    team &mine = this_team();
    uint64_t before = 0;
    mine.values[mine.at] = value;
    meet();
    *total = 0;
    for (uint32_t i = 0; i < PSTI_WARP; i++) {
        before += i < mine.at ? mine.values[i] : 0;
        *total += mine.values[i];
    }
    meet();
    return before;
}
PSTI_DEVICE uint64_t block_sum(block_scratch &scratch, uint64_t value)
{
    uint64_t total;
    block_exclusive_scan(scratch, value, &total);
    return total;
}
PSTI_DEVICE uint64_t warp_sum(uint64_t value)
{
    block_scratch scratch;
    return block_sum(scratch, value);
}
PSTI_DEVICE uint32_t psti_warp_sum_u32(uint32_t mine)
{
    return (uint32_t)warp_sum(mine);
}
PSTI_DEVICE bool psti_any(bool mine)
{
    return warp_sum(mine) != 0;
}

struct count_sums {
    uint64_t rows[2 * PSTI_WARP];
};
PSTI_DEVICE void add_up(count_sums &, const psti_space *, uint32_t)
{
}
struct own_count {
    int64_t count, capacity;
};
PSTI_DEVICE own_count load_count(const psti_space *, uint32_t, uint32_t, bool)
{
    return {0, 0};
}
PSTI_DEVICE bool keep_count(count_sums &, uint32_t, const own_count &)
{
    return true;
}
PSTI_DEVICE int64_t caller_count(const count_sums &, const psti_space *, uint32_t, uint32_t)
{
    return 0;
}

enum stream_kind { NEW, KEPT, GAP };
struct tile_plan {
    count_sums sums;
    uint32_t fits;
};
#define PSTI_BOTH_TIERS 3u
struct tile_share {
    uint32_t first, stride, tiers;
};
struct row_span {
};
template <stream_kind kKind>
PSTI_DEVICE int64_t count_of(const tile_plan &, const psti_move_args &, uint32_t, uint32_t,
                             const int64_t *)
{
    return 0;
}
template <stream_kind kKind>
PSTI_DEVICE void plan_plain(tile_plan &plan, const psti_move_args &, const int64_t *, bool fits)
{
    plan.fits = fits;
}
template <stream_kind kKind>
PSTI_DEVICE void plan_tiles(tile_plan &plan, const psti_move_args &, const int64_t *,
                            const uint64_t *)
{
    plan.fits = 1;
}
template <uint32_t kRingBytes> PSTI_DEVICE uint64_t *segment_table(const psti_move_args &)
{
    return NULL;
}
struct two_counts {
};
PSTI_DEVICE bool has_segments(const psti_move_args &)
{
    return false;
}
PSTI_DEVICE void hold_none(tile_plan &)
{
}
PSTI_DEVICE uint32_t first_reader()
{
    return 0;
}
template <stream_kind kKind> PSTI_DEVICE two_counts first_counts(const psti_move_args &)
{
    return {};
}
template <stream_kind kKind, class Copier>
PSTI_DEVICE void hold_counts(tile_plan &, const psti_move_args &, const two_counts &)
{
}
PSTI_DEVICE uint64_t num_tiles_of(const tile_plan &)
{
    return PAGES;
}
PSTI_DEVICE uint32_t tensor_of_tile(const tile_plan &, uint32_t)
{
    return 0;
}
PSTI_DEVICE tile_share share_of_all()
{
    return {team_of(), TEAMS, 3};
}
PSTI_DEVICE tile_share share_of(const psti_move_args &, uint64_t, uint64_t)
{
    return share_of_all();
}
PSTI_DEVICE void zero_run(unsigned char *, uint32_t)
{
}
PSTI_DEVICE void zero_rows(const row_span &, uint32_t)
{
}
PSTI_DEVICE void zero_piece(unsigned char *, uint32_t)
{
}

/* A page's bytes: who wrote them last. */
typedef rl::var<uint32_t> page_bytes;
static page_bytes *contents;
PSTI_DEVICE uint32_t page_of(const void *at)
{
    return (uint32_t)((uintptr_t)at >> PSTI_TILE_SHIFT) - 1;
}
PSTI_DEVICE void clear_tile(unsigned char *to)
{
    contents[page_of(to)](RL_INFO) = 0;
}

struct tile_runs {
};
struct nothing_held {
};

struct copier {
    typedef nothing_held held;
    static const uint32_t kRingBytes = 0;
    static const bool kIsSmall = false;
    static const bool kAsync = false;
    static const bool kHasRows = false;
    static const bool kShifts = false;
    static const bool kLifts = false;
    tile_runs *runs() const
    {
        return NULL;
    }
    void open()
    {
    }
    void close()
    {
    }
    void run(unsigned char *to, const unsigned char *from, uint32_t)
    {
        if (thread_of() == 0 && words::watches)
            contents[page_of(to)](RL_INFO) = (uint32_t)contents[page_of(from)](RL_INFO);
    }
    void rows(unsigned char *, const row_span &, uint32_t)
    {
    }
    void piece(unsigned char *, const unsigned char *, uint32_t)
    {
    }
};

#include "kernels/cuda/paging/protocol.cuh"

/* In place of walk.cuh. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void move_tiles(Source &source, const move_shared &s, const psti_move_args &args,
                            const int64_t *)
{
    for (uint32_t tile = s.share.first; tile < PAGES && thread_of() == 0; tile += s.share.stride) {
        const uint64_t place = source.find(tile, s.share.tiers);
        const uint32_t mine = (uint32_t)args.ticket_index * PAGES + tile + 1;
        if (!words::watches)
            continue;
        if (place && kKind == NEW)
            contents[page_of((void *)place)](RL_INFO) = mine;
        else if (place && kKind == KEPT)
            RL_ASSERT(contents[page_of((void *)place)](RL_INFO) == mine);
    }
}

#include "kernels/cuda/paging/migrate.cuh"
#include "kernels/cuda/paging/restore.cuh"
#include "kernels/cuda/paging/stash.cuh"

namespace
{

/* ---- the pool ---- */

enum { DEVICE_PAGES = 3, HOST_PAGES = 2, SLOTS = 4 };

struct ticket_memory {
    psti_ticket_record record;
    words::cell64 count;
    psti_page_id table[PAGES], moving[PAGES];
};

struct pool_memory {
    psti_pool_state state;
    pst_pool_status status;
    ticket_memory tickets[TICKETS];
    words::cell64 owner[TIERS][SLOTS];
    psti_page_id ring[TIERS][SLOTS];
};
static_assert(sizeof(pool_memory) <= sizeof(words::arena), "the arena is too small");

pool_memory &pool()
{
    return *reinterpret_cast<pool_memory *>(words::arena);
}

enum op { NONE, STASH, RESTORE, RELEASE, DEMOTE, PROMOTE };
enum { MAX_OPS = 6 };

struct step {
    op what;
    uint32_t ticket;
};

struct scene {
    const char *name;
    bool concurrent;
    bool misuse; /* may end in ORDER; until that is known, plain accesses and bytes may be wrong */
    bool late;   /* the second stream begins after the first has ended, which nothing tells it */
    step streams[STREAMS][MAX_OPS];
};

const scene *now;
psti_move_args args[STREAMS][MAX_OPS];

/* Which words are two halves. */
void split_words()
{
    pool_memory &p = pool();
    words::split_pool(p);
    for (ticket_memory &ticket : p.tickets) {
        words::split(ticket.record.state);
        words::split(ticket.record.index);
        words::split(ticket.table[0]);
        words::split(ticket.moving[0]);
    }
    for (uint32_t tier = 0; tier < TIERS; tier++) {
        words::split(p.ring[tier][0]);
        words::split(p.ring[tier][2]);
    }
}

/* As after the creation of the pool. */
void fill_pool()
{
    pool_memory &p = pool();
    const uint32_t num_pages[TIERS] = {DEVICE_PAGES, HOST_PAGES};
    memset(words::arena, 0, sizeof(words::arena));
    for (uint32_t tier = 0; tier < TIERS; tier++) {
        p.state.num_pages[tier] = num_pages[tier];
        p.state.tail[tier] = num_pages[tier];
        for (uint32_t page = 0; page < SLOTS; page++)
            p.ring[tier][page] = page < num_pages[tier] ? page | tier << 31 : PSTI_ID_NONE;
    }
    p.status.step_valid = 1;
}

void fill_args(psti_move_args *a, const step &what, uint32_t op)
{
    pool_memory &p = pool();
    a->pool.state = &p.state;
    a->pool.status = &p.status;
    for (uint32_t tier = 0; tier < TIERS; tier++) {
        a->pool.ring[tier] = p.ring[tier];
        a->pool.owner[tier] = p.owner[tier];
        a->pool.pages[tier] =
            reinterpret_cast<unsigned char *>((uintptr_t)(1 + tier * SLOTS) << PSTI_TILE_SHIFT);
        a->pool.ring_mask[tier] = SLOTS - 1;
    }
    a->pool.max_pages[0] = DEVICE_PAGES;
    a->pool.max_pages[1] = HOST_PAGES;
    a->pool.page_shift = PSTI_TILE_SHIFT;
    a->pool.concurrent = now->concurrent;
    a->ticket = &p.tickets[what.ticket].record;
    a->ticket_index = what.ticket;
    a->table_pages = PAGES;
    a->count_room = 1;
    a->op = op;
    a->is_plain = 1;
    a->num_looked = what.what == RESTORE && !now->concurrent ? 1 : 0;
    a->flags = what.what == PROMOTE   ? PSTI_MOVE_PROMOTE
               : what.what == RELEASE ? PSTI_MOVE_RELEASE
                                      : 0;
}

/* What the lanes of a team share. */
struct team_memory {
    move_shared s;
    page_room<PSTI_WARP> room;
    const psti_move_args *args;
    op what;
};
team_memory memories[STREAMS * TEAMS];

void run_op(team &self)
{
    team_memory &mine = memories[&self - teams];
    copier copies;
    if (mine.what == STASH)
        run_stash(mine.s, copies, *mine.args, not_fused());
    else if (mine.what == RESTORE || mine.what == RELEASE)
        run_restore(mine.s, copies, *mine.args, not_fused());
    else
        run_migrate(mine.s, batch_in(mine.s, mine.room), copies, *mine.args);
}

void run(const psti_move_args &a, op what)
{
    team_memory &mine = memories[rl::thread_index()];
    memset(static_cast<void *>(&mine), 0xa5, sizeof(mine)); /* as shared memory begins */
    mine.args = &a;
    mine.what = what;
    run_lanes(run_op);
}

/* At rest: each page once, in its ring or in the table of a live ticket, with its owner. */
bool is_whole()
{
    pool_memory &p = pool();
    uint32_t seen[TIERS] = {0, 0};
    for (uint32_t tier = 0; tier < TIERS; tier++) {
        const uint64_t head = p.state.head[tier], tail = p.state.tail[tier];
        for (uint64_t i = head; i < tail && i < head + SLOTS; i++) {
            const uint32_t id = p.ring[tier][i % SLOTS];
            if (psti_id_tier(id) != tier || p.owner[tier][psti_id_index(id) % SLOTS] != 0)
                return false;
            seen[tier] += 1u << 8 * psti_id_index(id);
        }
    }
    for (uint32_t i = 0; i < TICKETS; i++) {
        const ticket_memory &ticket = p.tickets[i];
        for (uint32_t page = 0; page < PAGES && ticket.record.state == PSTI_TICKET_LIVE; page++) {
            const uint32_t id = ticket.table[page];
            if (p.owner[psti_id_tier(id)][psti_id_index(id) % SLOTS] !=
                psti_owner_word(i, p.state.epoch, page))
                return false;
            seen[psti_id_tier(id)] += 1u << 8 * psti_id_index(id);
        }
    }
    return seen[0] == 0x010101 && seen[1] == 0x0101;
}

uint32_t num_ops(uint32_t stream)
{
    uint32_t num = 0;
    while (num < MAX_OPS && now->streams[stream][num].what != NONE)
        num++;
    return num;
}

struct machine : rl::test_suite<machine, STREAMS * TEAMS> {
    words::word memory[sizeof(pool_memory) / 8];
    page_bytes pages[TIERS * SLOTS];
    rl::atomic<uint32_t> done[STREAMS];

    void before()
    {
        words::is_inside = false;
        fill_pool();
        contents = pages;
        make_lanes(lane_entry);
        words::reset(memory, sizeof(memory) / sizeof(*memory));
        for (page_bytes &page : pages)
            page(RL_INFO) = 0;
        for (rl::atomic<uint32_t> &stream : done)
            stream.store(0, rl::mo_relaxed, RL_INFO);
    }

    void thread(unsigned index)
    {
        const uint32_t stream = index / TEAMS;
        while (now->late && stream == 1 &&
               done[0].load(rl::mo_relaxed, RL_INFO) < TEAMS * num_ops(0))
            rl::yield(1, RL_INFO);
        for (uint32_t i = 0; i < MAX_OPS && now->streams[stream][i].what != NONE; i++) {
            while (done[stream].load(rl::mo_acquire, RL_INFO) < TEAMS * i)
                rl::yield(1, RL_INFO); /* the launch before has ended */
            run(args[stream][i], now->streams[stream][i].what);
            done[stream].fetch_add(1, rl::mo_acq_rel, RL_INFO);
        }
    }

    void after()
    {
        if (pool().state.refuse != 0)
            RL_ASSERT(now->misuse);
        else
            RL_ASSERT(is_whole() && pool().status.flags == 0);
    }
};

/* What the streams do, and what that shows. */
constexpr scene scenes[] = {
    {"ordered",
     false,
     false,
     false,
     {{{STASH, 0}, {DEMOTE, 0}, {PROMOTE, 0}, {RELEASE, 0}, {STASH, 1}, {RESTORE, 1}}, {}}},
    {"concurrent",
     true,
     false,
     false,
     {{{STASH, 0}, {RESTORE, 0}}, {{STASH, 1}, {DEMOTE, 1}, {RESTORE, 1}}}},
    {"overlap", false, true, false, {{{STASH, 0}, {RESTORE, 0}}, {{STASH, 1}, {RESTORE, 1}}}},
    {"late", false, true, true, {{{STASH, 0}, {RESTORE, 0}}, {{STASH, 1}, {RESTORE, 1}}}},
    {"late stash", false, true, true, {{{STASH, 0}}, {{STASH, 1}}}},
    {"late on one", false, true, true, {{{STASH, 0}}, {{RESTORE, 0}}}},
    {"late demotion", false, true, true, {{{STASH, 0}}, {{DEMOTE, 0}}}},
    {"late release", false, true, true, {{{STASH, 0}}, {{RELEASE, 0}}}},
    {"late and anew", false, true, true, {{{STASH, 0}, {RESTORE, 0}}, {{STASH, 0}, {RESTORE, 0}}}},
    {"late promotion",
     false,
     true,
     true,
     {{{STASH, 0}, {DEMOTE, 0}}, {{PROMOTE, 0}, {RESTORE, 0}}}},
    {"one ticket", true, true, true, {{{STASH, 0}}, {{RESTORE, 0}, {STASH, 0}}}},
};

const char *search(unsigned most)
{
    for (const scene &which : scenes) {
        now = &which;
        words::watches = !which.misuse;
        for (uint32_t stream = 0; stream < STREAMS; stream++)
            for (uint32_t i = 0; i < MAX_OPS; i++)
                fill_args(&args[stream][i], which.streams[stream][i], 1 + stream * MAX_OPS + i);
        if (!words::holds<machine>(rl::sched_random, most))
            return which.name;
    }
    return nullptr;
}

constexpr words::equivalence equivalent[] = {
    /* no team of such a launch wrote anything that the last one reads */
    {"arrive", "add_acquire_u64"},
    /* elects: the one waits for the lock then, the others for the ready word */
    {"join", "cas_acq_rel_u64"},
    /* takes a number: the load of whose turn it is acquires */
    {"psti_lock", "add_acq_rel_u32"},
    /* the report of a fault is for the host, which reads it when the launch has ended */
    {"psti_claim_fault", "add_acq_rel_u32"},
    {"psti_claim_fault", "cas_acq_rel_u32"},
    {"psti_record_fault", "store_release_u32"},
    {nullptr, nullptr},
};

} // namespace

int main(int argc, char **argv)
{
    split_words();
    return words::weaken_each(search, equivalent, 250, argc, argv);
}
