/* Random groups, counts, pools and histories against the oracle. */
#include "tests/conformance/conf.h"

enum { SOURCES = 3, DESTINATIONS = 2, TICKETS = 5, OPERATIONS = 24 };

/* One random case: some groups of one shape, a pool that may be too small, some tickets. */
typedef struct scene {
    lockstep ls;
    oracle_random random;
    shape like;
    ls_group sources[SOURCES];
    ls_group destinations[DESTINATIONS];
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
    oracle_group group = {.num_spaces = of->num_spaces, .num_tensors = of->num_tensors};
    pst_group_usage usage;
    memcpy(group.spaces, of->spaces, sizeof(group.spaces));
    memcpy(group.tensors, of->tensors, sizeof(group.tensors));
    oracle_measure(&group, NULL, page_bytes, &usage);
    if (oracle_random_one_in(random, 4))
        return oracle_random_in(random, 1, usage.pages + 1);
    return oracle_random_in(random, usage.pages, TICKETS * usage.pages + 2);
}

static uint64_t choose_counter(oracle_random *random)
{
    static const uint64_t first[] = {
        0, 0, 0, 1, INT32_MAX, UINT32_MAX - 2, (uint64_t)UINT32_MAX + 1, UINT64_MAX - 5};
    return first[oracle_random_below(random, 8)];
}

static bool set_up(scene *self, const conf_run *conf, shape_theme theme, uint64_t seed)
{
    oracle_random *random = &self->random;
    *random = oracle_random_seeded(seed);
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
    options.max_tickets = TICKETS + (uint32_t)oracle_random_below(random, 3);
    if (!ls_open(&self->ls, conf->device, &options))
        return false;
    for (int i = 0; i < SOURCES; i++) {
        shape source = self->like;
        if (i > 0)
            shape_like(random, &self->like, false, &source);
        memcpy(source.spaces, self->like.spaces, sizeof(source.spaces));
        source.without_counts = false;
        ls_group_make(&self->ls, i > 0 ? &source : &self->like, random, &self->sources[i]);
    }
    for (int i = 0; i < DESTINATIONS; i++) {
        shape destination;
        shape_like(random, &self->like, i > 0, &destination);
        ls_group_make(&self->ls, &destination, random, &self->destinations[i]);
    }
    for (int i = 0; i < TICKETS; i++)
        self->tickets[i] = ls_ticket_make(&self->ls, &self->sources[0]);
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
    ls_close(ls);
}

static void stash_something(scene *self, uint32_t ticket)
{
    oracle_random *random = &self->random;
    ls_group *source = &self->sources[oracle_random_below(random, SOURCES)];
    const bool good = !oracle_random_one_in(random, 8);
    const counts_kind kind =
        (counts_kind)(good ? oracle_random_below(random, COUNTS_GOOD)
                           : oracle_random_in(random, COUNTS_GOOD, COUNTS_KINDS - 1));
    if (oracle_random_one_in(random, 3))
        ls_group_fill(&self->ls, source, random);
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

static void restore_something(scene *self, uint32_t ticket)
{
    oracle_random *random = &self->random;
    ls_group *destination = oracle_random_one_in(random, 4)
                                ? &self->sources[oracle_random_below(random, SOURCES)]
                                : &self->destinations[oracle_random_below(random, DESTINATIONS)];
    if (oracle_random_one_in(random, 3))
        ls_group_poison(&self->ls, destination, 0x5a);
    if (oracle_random_one_in(random, 8))
        ls_group_mark_dirty(&self->ls, destination);
    ls_restore(&self->ls, ticket, destination,
               oracle_random_one_in(random, 3) ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME,
               oracle_random_one_in(random, 2) ? PST_TAIL_ZERO : PST_TAIL_UNTOUCHED);
}

static void operate(scene *self)
{
    oracle_random *random = &self->random;
    const uint32_t ticket = self->tickets[oracle_random_below(random, TICKETS)];
    pst_device_info info = {.num_sms = 1};
    pst_device_get_info(self->ls.device, &info);
    self->ls.num_sms = (int)oracle_random_below(random, (uint64_t)info.num_sms + 1);
    switch (oracle_random_below(random, 18)) {
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
        stash_something(self, ticket);
        break;
    default:
        restore_something(self, ticket);
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

RANDOM(AnyGroups, SHAPE_ANY, 1200)
RANDOM(OneTensor, SHAPE_ONE_TENSOR, 600)
RANDOM(SixtyFourTensors, SHAPE_64_TENSORS, 200)
RANDOM(EightSpaces, SHAPE_8_SPACES, 300)
RANDOM(ThousandSegments, SHAPE_1024_SEGMENTS, 200)
RANDOM(RowsOfOneByte, SHAPE_BYTE_ROWS, 400)
RANDOM(UnalignedBases, SHAPE_UNALIGNED, 600)
RANDOM(WidthsThatDivideNothing, SHAPE_ODD_WIDTHS, 600)
RANDOM(Ratios, SHAPE_RATIOS, 600)
RANDOM(LongRows, SHAPE_LONG_ROWS, 200)
RANDOM(Segments, SHAPE_SEGMENTS, 600)
