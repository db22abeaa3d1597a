/* Stash, restore and migrate of kernels/cuda under a weak memory model: relacy runs their source,
 * with teams of one warp, words that it watches, and pages of one tile. What plans tiles and moves
 * bytes is replaced: a team writes or reads one word for the whole page.
 *
 * First all scenes as they are, then with each order of each access one step weaker. README.md has
 * the table of what finds what; `equivalent` are those that nothing finds, with the reason. Exit 0:
 * all as expected. */
#include "tests/model/kernels.h"

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
