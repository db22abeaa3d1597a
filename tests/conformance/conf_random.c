/* Random groups, counts, pools and histories against the oracle. Most stashes and restores are of
 * other memory than the one before. */
#include "tests/conformance/conf.h"

enum { SOURCES = 3, DESTINATIONS = 2, TICKETS = 5, OPERATIONS = 24 };

/* One random case: some groups of one shape, a pool that may be too small, some tickets. */
typedef struct scene {
    lockstep ls;
    oracle_random random;
    shape like;
    ls_group sources[SOURCES];
    ls_group destinations[DESTINATIONS];
    ls_group stranger; /* of another form, mostly */
    uint32_t tickets[TICKETS];
} scene;

static uint64_t choose_page_bytes(oracle_random *random, uint64_t bytes)
{
    uint64_t page = PST_PAGE_BYTES_MIN << oracle_random_below(random, 4);
    if (oracle_random_one_in(random, 12))
        page = PST_PAGE_BYTES_MIN << oracle_random_below(random, 9);
    while (page > PST_PAGE_BYTES_MIN && page > 16 * bytes)
        page /= 2;
    return page;
}

/* From one page to enough for all tickets. */
static uint64_t choose_num_pages(oracle_random *random, const shape *of, uint64_t page_bytes)
{
    pst_group_usage usage;
    oracle_measure(&of->group, NULL, page_bytes, &usage);
    if (oracle_random_one_in(random, 4))
        return oracle_random_in(random, 1, usage.pages + 1);
    return oracle_random_in(random, usage.pages + (usage.pages == 0), TICKETS * usage.pages + 2);
}

static uint64_t choose_counter(oracle_random *random)
{
    static const uint64_t first[] = {
        0, 0, 0, 1, INT32_MAX, UINT32_MAX - 2, (uint64_t)UINT32_MAX + 1, UINT64_MAX - 5};
    return first[oracle_random_below(random, 8)];
}

static bool set_up(scene *self, const conf_run *conf, shape_theme theme, uint64_t seed)
{
    *self = (scene){.random = oracle_random_seeded(seed)};
    oracle_random *random = &self->random;
    uint64_t bytes = conf_bytes(conf, oracle_random_in(random, 200, 60000));
    if (oracle_random_one_in(random, 10))
        bytes *= 8;
    shape_make(random, theme, bytes, &self->like);
    const pst_pool_mode mode =
        oracle_random_one_in(random, 2) ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    ls_options options = conf_options(mode, 0, seed);
    options.page_bytes = choose_page_bytes(random, bytes);
    options.num_pages = choose_num_pages(random, &self->like, options.page_bytes);
    if (oracle_random_one_in(random, 3) && options.num_pages > 1) {
        options.num_host_pages = oracle_random_in(random, 1, options.num_pages - 1);
        options.num_pages -= options.num_host_pages;
    }
    options.max_pages = options.num_pages + OPERATIONS;
    options.max_host_pages = options.num_host_pages + OPERATIONS;
    options.first_counter = choose_counter(random);
    options.scrub = oracle_random_one_in(random, 3);
    options.fails_fast = oracle_random_one_in(random, 4);
    options.slab_tickets = (uint32_t)oracle_random_below(random, TICKETS + 1);
    options.slab_counts =
        oracle_num_counts(&self->like.group) + (uint32_t)oracle_random_below(random, 3);
    options.max_tickets = TICKETS + options.slab_tickets + (uint32_t)oracle_random_below(random, 3);
    if (!ls_open(&self->ls, conf->device, &options))
        return false;
    for (int i = 0; i < SOURCES; i++) {
        shape source = self->like;
        if (i > 0)
            shape_like(random, &self->like, false, &source);
        for (uint32_t space = 0; space < source.group.num_spaces; space++)
            source.group.spaces[space].capacity = self->like.group.spaces[space].capacity;
        source.without_counts = false;
        ls_group_make(&self->ls, i > 0 ? &source : &self->like, random, &self->sources[i]);
    }
    for (int i = 0; i < DESTINATIONS; i++) {
        shape destination;
        shape_like(random, &self->like, i > 0, &destination);
        ls_group_make(&self->ls, &destination, random, &self->destinations[i]);
    }
    shape stranger;
    shape_make(random, (shape_theme)oracle_random_below(random, SHAPE_THEMES), bytes / 4 + 1,
               &stranger);
    ls_group_make(&self->ls, &stranger, random, &self->stranger);
    for (uint32_t i = 0; i < TICKETS; i++)
        self->tickets[i] = i < options.slab_tickets
                               ? ls_ticket_take(&self->ls, false)
                               : ls_ticket_make(&self->ls, &self->sources[i % SOURCES]);
    return !self->ls.failed;
}

static void tear_down(scene *self)
{
    lockstep *ls = &self->ls;
    if (!ls->failed && oracle_random_one_in(&self->random, 8))
        ls_reset(ls, PST_RESET_ALL);
    ls_step(ls); /* no case without a publication */
    for (int i = 0; i < SOURCES; i++)
        ls_group_free(ls, &self->sources[i]);
    for (int i = 0; i < DESTINATIONS; i++)
        ls_group_free(ls, &self->destinations[i]);
    ls_group_free(ls, &self->stranger);
    ls_close(ls);
}

/* The same description, another place in memory, other strides, perhaps other capacities. */
static void place_anew(scene *self, ls_group *group, shape_room room)
{
    oracle_random *random = &self->random;
    const shape_theme theme = (shape_theme)oracle_random_below(random, SHAPE_THEMES);
    const size_t arena_bytes = shape_place(random, theme, room, &group->model);
    ls_group_move(&self->ls, group, arena_bytes, random);
}

static void stash_something(scene *self, uint32_t ticket)
{
    oracle_random *random = &self->random;
    ls_group *source = oracle_random_one_in(random, 20)
                           ? &self->stranger
                           : &self->sources[oracle_random_below(random, SOURCES)];
    const bool good = !oracle_random_one_in(random, 8);
    const counts_kind kind =
        (counts_kind)(good ? oracle_random_below(random, COUNTS_GOOD)
                           : oracle_random_in(random, COUNTS_GOOD, COUNTS_KINDS - 1));
    if (oracle_random_one_in(random, 2))
        place_anew(self, source,
                   oracle_random_one_in(random, 3) ? SHAPE_LESS_ROOM : SHAPE_SAME_ROOM);
    if (self->ls.options.num_host_pages && oracle_random_one_in(random, 2)) {
        const uint32_t den = (uint32_t)oracle_random_in(random, 1, 7);
        ls_set_offload(&self->ls, ticket, (uint32_t)oracle_random_below(random, den + 1), den);
    }
    ls_group_random_counts(&self->ls, source, kind, random);
    ls_stash(&self->ls, ticket, source);
    /* the ticket has its own copy of the counts and of the bytes */
    if (oracle_random_one_in(random, 2))
        ls_group_random_counts(&self->ls, source, COUNTS_EXTREME, random);
    if (oracle_random_one_in(random, 2))
        ls_group_poison(&self->ls, source, 0xa5);
}

static ls_group *choose_destination(scene *self)
{
    oracle_random *random = &self->random;
    if (oracle_random_one_in(random, 12))
        return &self->stranger;
    if (oracle_random_one_in(random, 4))
        return &self->sources[oracle_random_below(random, SOURCES)];
    return &self->destinations[oracle_random_below(random, DESTINATIONS)];
}

/* Some tensors, perhaps all, stay in the pages. */
static void restore_some(scene *self, uint32_t ticket, ls_group *destination)
{
    oracle_random *random = &self->random;
    uint64_t at[PST_MAX_TENSORS];
    memcpy(at, destination->model.at, sizeof(at));
    for (uint32_t t = 0; t < destination->model.num_tensors; t++)
        if (oracle_random_one_in(random, 2))
            destination->model.at[t] = ORACLE_NOWHERE;
    destination->model.names_dirty = false;
    ls_restore_as(&self->ls, ticket, destination, PST_RESTORE_KEEP,
                  oracle_random_one_in(random, 2) ? PST_TAIL_ZERO_ALL : PST_TAIL_UNTOUCHED,
                  (pst_restore_failed)oracle_random_below(random, 2));
    memcpy(destination->model.at, at, sizeof(at));
}

static void restore_something(scene *self, uint32_t ticket)
{
    oracle_random *random = &self->random;
    ls_group *destination = choose_destination(self);
    if (oracle_random_one_in(random, 2))
        place_anew(self, destination,
                   oracle_random_one_in(random, 8) ? SHAPE_LESS_ROOM : SHAPE_MORE_ROOM);
    else if (oracle_random_one_in(random, 2))
        ls_group_poison(&self->ls, destination, 0x5a);
    if (oracle_random_one_in(random, 8))
        ls_group_mark_dirty(&self->ls, destination);
    if (oracle_random_one_in(random, 6)) {
        restore_some(self, ticket, destination);
        return;
    }
    destination->model.names_dirty = oracle_random_one_in(random, 2);
    ls_restore_as(&self->ls, ticket, destination,
                  oracle_random_one_in(random, 3) ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME,
                  (pst_restore_tail)oracle_random_below(random, 3),
                  (pst_restore_failed)oracle_random_below(random, 2));
}

/* Whatever it holds: a ticket of the slab is given back and one taken; another is made anew once it
 * is empty. */
static void renew(scene *self, uint32_t i)
{
    lockstep *ls = &self->ls;
    const uint32_t ticket = self->tickets[i];
    if (ls->is_lent[ticket]) {
        ls_ticket_give(ls, ticket);
        self->tickets[i] = ls_ticket_take(ls, false);
        return;
    }
    if (ls->oracle->is_stale) /* a release would be refused */
        ls_step(ls);
    if (ls->oracle->tickets[ticket].state == ORACLE_LIVE)
        ls_release(ls, ticket);
    ls_ticket_free(ls, ticket);
    self->tickets[i] =
        ls_ticket_make(ls, &self->sources[oracle_random_below(&self->random, SOURCES)]);
}

/* Mostly one in a state that is wanted. */
static uint32_t choose_ticket(scene *self, oracle_ticket_state state)
{
    uint32_t i = (uint32_t)oracle_random_below(&self->random, TICKETS);
    for (uint32_t tries = 0; tries < TICKETS && !oracle_random_one_in(&self->random, 6); tries++) {
        if (self->ls.oracle->tickets[self->tickets[i]].state == state)
            break;
        i = (i + 1) % TICKETS;
    }
    return self->tickets[i];
}

static void operate(scene *self)
{
    oracle_random *random = &self->random;
    const uint32_t i = (uint32_t)oracle_random_below(random, TICKETS);
    const uint32_t ticket = self->tickets[i];
    pst_device_info info = {.num_sms = 1};
    pst_device_get_info(self->ls.device, &info);
    if (self->ls.options.fails_fast && !self->ls.oracle->status.step_valid &&
        oracle_random_one_in(random, 2))
        ls_step(&self->ls);
    if (self->ls.oracle->is_stale && oracle_random_one_in(random, 2))
        ls_step(&self->ls);
    self->ls.by_graph = oracle_random_one_in(random, 8);
    self->ls.num_sms = (int)oracle_random_below(random, (uint64_t)info.num_sms + 1);
    switch (oracle_random_below(random, 20)) {
    case 19:
        ls_expect(&self->ls, oracle_random_below(random, 2) << 40, UINT64_C(1) << 40);
        break;
    case 18:
        renew(self, i);
        break;
    case 16:
        ls_demote(&self->ls, ticket, oracle_random_below(random, 4));
        break;
    case 17:
        ls_promote(&self->ls, ticket, oracle_random_below(random, 4));
        break;
    case 0:
        ls_release(&self->ls, ticket);
        break;
    case 1:
        ls_step(&self->ls);
        break;
    case 2:
        if (oracle_random_one_in(random, 4))
            ls_resize(&self->ls, self->ls.pool->num_pages[0] + oracle_random_below(random, 2),
                      self->ls.pool->num_pages[1] + oracle_random_below(random, 2));
        else if (oracle_random_one_in(random, 4))
            ls_reset(&self->ls, (uint32_t)oracle_random_in(random, 1, PST_RESET_ALL));
        break;
    case 3:
    case 4:
    case 5:
    case 6:
    case 7:
    case 8:
        stash_something(self, choose_ticket(self, ORACLE_EMPTY));
        break;
    default:
        restore_something(self, choose_ticket(self, ORACLE_LIVE));
    }
}

static void run_theme(const conf_run *conf, shape_theme theme, uint32_t cases)
{
    static scene self;
    cases = conf_cases(conf, cases);
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++) {
        conf_vary(conf, conf_seed(i));
        const bool ready = set_up(&self, conf, theme, conf_seed(i));
        for (int op = 0; ready && op < OPERATIONS && !self.ls.failed; op++)
            operate(&self);
        tear_down(&self);
    }
}

#define RANDOM(name, theme, cases)     \
    CONFORMANCE(Random, name)          \
    {                                  \
        run_theme(conf, theme, cases); \
    }

RANDOM(AnyGroups, SHAPE_ANY, 1000)
RANDOM(OneTensor, SHAPE_ONE_TENSOR, 400)
RANDOM(SixtyFourTensors, SHAPE_64_TENSORS, 150)
RANDOM(EightSpaces, SHAPE_8_SPACES, 200)
RANDOM(ThousandSegments, SHAPE_1024_SEGMENTS, 150)
RANDOM(RowsOfOneByte, SHAPE_BYTE_ROWS, 250)
/* Fault rows 6. */
RANDOM(UnalignedBases, SHAPE_UNALIGNED, 400)
/* Fault rows 6. */
RANDOM(WidthsThatDivideNothing, SHAPE_ODD_WIDTHS, 400)
/* Fault rows 51. */
RANDOM(Ratios, SHAPE_RATIOS, 300)
RANDOM(LongRows, SHAPE_LONG_ROWS, 150)
RANDOM(Segments, SHAPE_SEGMENTS, 400)
RANDOM(RowsFurtherApart, SHAPE_PITCH, 500)
RANDOM(RowsSideBySide, SHAPE_FUSED, 250)
RANDOM(Sums, SHAPE_SUMS, 300)
RANDOM(CountsOfTheHost, SHAPE_HOST_COUNTS, 150)
RANDOM(Floors, SHAPE_FLOORS, 250)
