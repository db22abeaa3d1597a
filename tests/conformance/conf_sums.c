/* Prefixes whose count is a sum: every number is checked, in any place, and so are all together. */
#include "tests/conformance/conf.h"

enum { MOST = 300, CAPACITY = 40, ROW_BYTES = 700 };

static shape make_shape(pst_count_type type, uint32_t num_summed)
{
    shape made = conf_prefix_shape(1, CAPACITY, ROW_BYTES);
    made.group.spaces[0].kind = PST_ROWS_SUM;
    made.group.spaces[0].count_type = type;
    made.group.spaces[0].num_segments = num_summed;
    return made;
}

typedef struct numbers {
    uint32_t count;
    int64_t values[MOST];
} numbers;

/* fault_wanted: of a stash that fails. */
static void try_numbers(conf_pair *self, const numbers *of, bool fails, int64_t fault_wanted)
{
    lockstep *ls = &self->ls;
    ls_group_set_counts(ls, &self->source, of->values);
    ls_stash(ls, self->tickets[0], &self->source);
    CHECK_EQ(ls->words.status.num_faults, fails);
    CHECK(!fails || ls->words.status.fault_wanted == (uint64_t)fault_wanted);
    ls_group_poison(ls, &self->destination, 0xcc);
    ls_restore(ls, self->tickets[0], &self->destination, PST_RESTORE_CONSUME, PST_TAIL_UNTOUCHED);
    ls_reset(ls, PST_RESET_FAULTS);
}

/* One number that is wrong, or two, at the edges of warps and at both ends. */
static void try_places(conf_pair *self, uint32_t count, int64_t largest)
{
    static const uint32_t places[] = {0, 1, 31, 32, 33, 63, 64, 255, MOST - 1};
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const uint32_t at = places[i] % count, other = (at + places[i] / 2 + 1) % count;
        numbers of = {.count = count};
        of.values[at] = CAPACITY;
        try_numbers(self, &of, false, 0);
        of.values[at] = CAPACITY + 1;
        try_numbers(self, &of, true, CAPACITY + 1);
        of.values[at] = -1;
        try_numbers(self, &of, true, -1);
        if (other == at)
            continue;
        of.values[other] = largest; /* the negative is told, wherever it stands */
        try_numbers(self, &of, true, -1);
        of.values[other] = -1; /* two that are wrong do not make a right one */
        try_numbers(self, &of, true, -1);
        of.values[at] = of.values[other] = largest;
        try_numbers(self, &of, true, largest);
        of.values[at] = CAPACITY / 2;
        of.values[other] = CAPACITY / 2;
        try_numbers(self, &of, false, 0);
        of.values[other]++;
        try_numbers(self, &of, true, CAPACITY + 1);
    }
}

CONFORMANCE(Sums, EveryNumberIsChecked)
{
    static const uint32_t counts[] = {1, 2, 33, MOST};
    for (uint32_t i = 0; i < 8; i += psti_test_step(5)) {
        static conf_pair self;
        const pst_count_type type = i % 2 ? PST_COUNT_INT64 : PST_COUNT_INT32;
        const shape like = make_shape(type, counts[i / 2]);
        const ls_options options = conf_options((pst_pool_mode)(i / 2 % 2), 4, 0);
        if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
            return;
        try_places(&self, counts[i / 2], i % 2 ? INT64_MAX : INT32_MAX);
        conf_pair_close(&self);
    }
}

/* As many ones as there is room for, and one more. */
CONFORMANCE(Sums, ManySmallNumbers)
{
    static conf_pair self;
    const shape like = make_shape(PST_COUNT_INT32, MOST);
    const ls_options options = conf_options(PST_POOL_CONCURRENT, 4, 0);
    numbers of = {.count = MOST};
    if (!conf_pair_open(&self, conf, &options, &like, NULL, 1))
        return;
    for (uint32_t i = 0; i < CAPACITY; i++)
        of.values[i * 7 % MOST] = 1;
    try_numbers(&self, &of, false, 0);
    of.values[MOST - 2]++;
    try_numbers(&self, &of, true, CAPACITY + 1);
    conf_pair_close(&self);
}
