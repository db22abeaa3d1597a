/* Dense layers that are swapped by tokens and MoE layers that are paged, in one iteration: a model that
 * keeps everything answers the same bytes, eagerly and as a graph with other tokens and row counts. */
#include "tests/conformance/memo.h"

#include "tests/lazy/lazy_device.h"

/* Dense, MoE, dense, MoE: the dense layers differ in all they can. */
static memo_wish four_layers(uint64_t seed)
{
    return (memo_wish){
        .seed = seed,
        .schedule = PST_SCHEDULE_CONFIG_INIT,
        .num_layers = 4,
        .layers = {{.keep = PST_KEEP_SWAPPED, .has_whole = true, .planes = 2, .swap_tokens = 4},
                   {.keep = PST_KEEP_PAGED},
                   {.keep = PST_KEEP_SWAPPED, .has_whole = true, .planes = 3, .swap_tokens = 2},
                   {.keep = PST_KEEP_PAGED}},
        .num_sets = 1,
        .num_streams = 1,
        .is_tight = true,
    };
}

/* The device draws its own order where it can. */
static void be_late(const conf_run *conf)
{
    if (conf->kind == CONF_SIMT)
        lazy_make(conf->device, NULL);
}

static void vary(const conf_run *conf, uint64_t seed)
{
    conf_vary(conf, seed);
    if (conf->kind == CONF_SIMT)
        lazy_seed(conf->device, seed);
}

static void one_step(memo *self, bool recorded)
{
    memo_new_data(self);
    CHECK_OK(memo_step(self));
    memo_check(self, recorded);
    if (!recorded && !psti_test_failed())
        memo_check_copies(self);
}

static void replay(memo *self, uint32_t replays)
{
    pst_graph *graph = NULL;
    CHECK_OK(pst_graph_begin(self->device, self->stream));
    const pst_status status = memo_step(self);
    CHECK_MSG(status == PST_OK, "captured: %s: %s", pst_status_name(status), pst_last_message());
    CHECK_OK(pst_graph_end(self->device, self->stream, &graph));
    memo_check_copies(self);
    for (uint32_t n = 0; n < replays && !psti_test_failed(); n++) {
        memo_new_data(self);
        CHECK_OK(pst_graph_launch(graph, self->stream));
        memo_check(self, false);
    }
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_graph_destroy(graph));
}

/* What moves, of so many micro-batches. */
typedef struct order {
    const char *name;
    pst_schedule_kind kind;
    uint32_t stages, stage, micro_batches;
    uint32_t swapped, stashed; /* visits; both kinds keep as many in place as their own sets hold */
    bool keeps_nothing;
} order;

static const order orders[] = {
    {"1F1B, first of two", PST_SCHEDULE_1F1B, 2, 0, 4, 4, 7, false},
    {"1F1B, last of two", PST_SCHEDULE_1F1B, 2, 1, 4, 0, 4, false},
    {"accumulated, one after the other", PST_SCHEDULE_1F1B, 1, 0, 3, 0, 3, false},
    {"the same, nothing in place", PST_SCHEDULE_1F1B, 1, 0, 3, 6, 6, true},
    {"accumulated, all forwards first", PST_SCHEDULE_GPIPE, 1, 0, 3, 4, 5, false},
    {"the same from the last", PST_SCHEDULE_GPIPE_REVERSED, 1, 0, 3, 4, 5, false},
    {"one micro-batch", PST_SCHEDULE_1F1B, 2, 0, 1, 0, 1, false},
};

static void run_order(const conf_run *conf, const order *of, uint32_t streams, uint32_t replays)
{
    static memo self;
    memo_wish wish = four_layers(conf_seed(of->micro_batches));
    pst_scheduler_stats stats;
    wish.schedule.kind = of->kind;
    wish.schedule.num_stages = of->stages;
    wish.schedule.stage = of->stage;
    wish.schedule.num_micro_batches = of->micro_batches;
    wish.keeps_nothing = of->keeps_nothing;
    wish.num_streams = streams;
    wish.is_tight = streams == 1;
    vary(conf, wish.seed);
    memo_open(&self, conf->device, &wish);
    if (!psti_test_failed())
        one_step(&self, false);
    if (psti_test_failed())
        return;
    CHECK_OK(pst_scheduler_get_stats(self.scheduler, &stats));
    CHECK_EQ(stats.swapped, of->swapped);
    CHECK_EQ(stats.stashed, of->stashed);
    CHECK_EQ(stats.kept_in_place, 4 * of->micro_batches - of->swapped - of->stashed);
    replay(&self, replays);
    if (!psti_test_failed())
        one_step(&self, false);
    if (!psti_test_failed())
        memo_close(&self);
}

/* In the long tests every order with 1, 2 and 4 streams; else each with one of them, under
 * ThreadSanitizer few. The first order is the one that is replayed often. */
static bool is_chosen(size_t i, uint32_t streams, bool is_long)
{
    if (is_long)
        return true;
    return streams == (i == 0 ? 4 : 1u << i % 3) && (!PSTI_UNDER_TSAN || i % 4 == 0);
}

CONFORMANCE(Memo, DenseSwappedAndMoePaged)
{
    const bool is_long = psti_test_cases(5) == 5;
    const bool is_first = conf->device->preset == PST_BACKEND_AUTO;
    be_late(conf);
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        for (uint32_t streams = 1; streams <= 4 && !psti_test_failed(); streams *= 2) {
            if (!is_chosen(i, streams, is_long))
                continue;
            const bool is_often = (is_long || (i == 0 && is_first)) && !PSTI_UNDER_TSAN;
            run_order(conf, &orders[i], streams, is_often ? 20 : 2);
            CHECK_MSG(!psti_test_failed(), "%s, %u streams", orders[i].name, streams);
        }
}

/* One micro-batch swaps nothing. A layer that leaves with more of them gets its pinned memory outside
 * captures, and a capture in which it is asked for goes on. */
CONFORMANCE(Memo, MoreMicroBatchesInACapture)
{
    static memo self;
    memo_wish wish = four_layers(conf_seed(0));
    pst_graph *graph = NULL;
    wish.schedule.num_stages = wish.max_slots = 2;
    wish.is_tight = false;
    wish.schedule.num_micro_batches = 1;
    memo_open(&self, conf->device, &wish);
    CHECK(!psti_test_failed());
    one_step(&self, false);
    CHECK(memo_use(&self, 4));
    memo_new_data(&self);
    CHECK_OK(pst_graph_begin(self.device, self.stream));
    CHECK_STATUS(memo_step(&self), PST_E_CAPTURE);
    CHECK_SAID("layer 0 of chunk 0 has no pinned memory, and leaves with this number of "
               "micro-batches: run such a step outside captures first");
    CHECK(memo_use(&self, 1));
    CHECK_OK(memo_step(&self));
    CHECK_OK(pst_graph_end(self.device, self.stream, &graph));
    CHECK_OK(pst_graph_launch(graph, self.stream));
    memo_check(&self, false);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK(memo_use(&self, 4));
    one_step(&self, false);
    replay(&self, 2);
    CHECK(!psti_test_failed());
    memo_close(&self);
}

/* ---- any layers ---- */

static void draw_layer(oracle_random *random, memo_layer *layer)
{
    static const pst_keep keeps[] = {PST_KEEP_SWAPPED, PST_KEEP_SWAPPED, PST_KEEP_SWAPPED,
                                     PST_KEEP_PAGED,   PST_KEEP_PLANNED, PST_KEEP_RECOMPUTED};
    layer->keep = keeps[oracle_random_below(random, 6)];
    layer->planes = 1 + (uint32_t)oracle_random_below(random, MEMO_PLANES);
    layer->has_whole = oracle_random_below(random, 3) > 0;
    /* none and all more often than the others */
    layer->swap_tokens = (uint32_t)oracle_random_below(random, MEMO_TOKENS + 1);
    if (oracle_random_below(random, 3) == 0)
        layer->swap_tokens = oracle_random_below(random, 2) ? MEMO_TOKENS : 0;
}

static memo_wish any_layers(oracle_random *random, uint64_t seed)
{
    static const pst_schedule_kind kinds[] = {PST_SCHEDULE_1F1B, PST_SCHEDULE_1F1B,
                                              PST_SCHEDULE_GPIPE, PST_SCHEDULE_GPIPE_REVERSED};
    memo_wish wish = {.seed = seed, .schedule = PST_SCHEDULE_CONFIG_INIT};
    wish.schedule.kind = kinds[oracle_random_below(random, 4)];
    wish.schedule.num_stages = 1 + (uint32_t)oracle_random_below(random, 3);
    wish.schedule.stage = (uint32_t)oracle_random_below(random, wish.schedule.num_stages);
    wish.schedule.num_micro_batches = 1 + (uint32_t)oracle_random_below(random, 4);
    wish.num_layers = 1 + (uint32_t)oracle_random_below(random, MEMO_LAYERS);
    for (uint32_t l = 0; l < wish.num_layers; l++)
        draw_layer(random, &wish.layers[l]);
    wish.num_sets = 1 + (uint32_t)oracle_random_below(random, 3);
    wish.num_streams = 1u << oracle_random_below(random, 3);
    wish.keeps_nothing = oracle_random_below(random, 6) == 0;
    wish.records = oracle_random_below(random, 3) == 0;
    return wish;
}

static void give_up(memo *self, oracle_random *random)
{
    const uint64_t visits = self->schedule->num_passes * self->wish.num_layers;
    memo_new_data(self);
    CHECK_OK(memo_part_of_step(self, (uint32_t)oracle_random_below(random, visits + 1)));
    CHECK_OK(pst_scheduler_abort(self->scheduler, self->stream));
}

/* What was recorded may be the order of several kinds: the scheduler says which it goes by. */
static void another_number(memo *self, oracle_random *random)
{
    const uint32_t own = self->wish.schedule.num_micro_batches;
    pst_schedule_config found = PST_SCHEDULE_CONFIG_INIT;
    CHECK_OK(pst_scheduler_get_schedule(self->scheduler, &found));
    CHECK(found.kind != PST_SCHEDULE_LIST);
    self->wish.schedule.kind = found.kind;
    if (memo_use(self, 1 + (uint32_t)oracle_random_below(random, MEMO_MICRO_BATCHES)))
        one_step(self, false);
    CHECK(memo_use(self, own));
}

static void run_any(memo *self, oracle_random *random)
{
    const bool records = self->wish.records;
    if (records && oracle_random_below(random, 2))
        give_up(self, random);
    if (oracle_random_below(random, 2))
        CHECK_OK(memo_evaluate(self));
    one_step(self, records);
    for (uint32_t n = 0; n < 3 && !psti_test_failed(); n++)
        switch (oracle_random_below(random, 4)) {
        case 0:
            another_number(self, random);
            break;
        case 1:
            give_up(self, random);
            break;
        case 2:
            CHECK_OK(memo_evaluate(self));
            break;
        default:
            replay(self, 2);
        }
    if (!psti_test_failed())
        one_step(self, false);
}

/* Elsewhere than in the long tests a fiftieth, and few where they are slow. */
static uint32_t cases_of(const conf_run *conf)
{
    const bool is_long = psti_test_cases(5) == 5;
    if (!conf->is_slow)
        return (is_long ? 2000 : 40) / (PSTI_UNDER_TSAN ? 8 : 1);
    if (PSTI_UNDER_TSAN || conf->device->preset != PST_BACKEND_AUTO)
        return is_long ? 50 : 2;
    return is_long ? 500 : 10;
}

CONFORMANCE(Memo, AnyLayers)
{
    static memo self;
    const uint32_t cases = cases_of(conf);
    be_late(conf);
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++) {
        const uint64_t seed = conf_seed(i);
        oracle_random random = oracle_random_seeded(seed);
        const memo_wish wish = any_layers(&random, seed);
        vary(conf, seed);
        memo_open(&self, conf->device, &wish);
        if (!psti_test_failed())
            run_any(&self, &random);
        CHECK_MSG(!psti_test_failed(), "seed %llu", (unsigned long long)seed);
        memo_close(&self);
    }
}
