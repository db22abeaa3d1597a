/* Random programs of the scheduler, from drawing to the last byte: eager steps, captured ones, evaluation,
 * steps that are given up, other numbers of micro-batches. */
#include "tests/conformance/walk.h"

#include "tests/lazy/lazy_device.h"

/* All of them in the long tests; of simt half, and a tenth where the backend is not the usual one. */
static uint32_t cases_of(const conf_run *conf, uint32_t all)
{
    const bool is_simt = conf->is_slow;
    const uint32_t backends = conf->device->preset <= PST_BACKEND_LDG ? 1 : 10;
    const uint32_t slower =
        (is_simt ? 2u : 1u) * (PSTI_UNDER_TSAN ? (is_simt ? 10u : 4u) : 1u) * backends;
    const uint32_t share = psti_test_cases(all) < all ? (is_simt ? 125 : 25) : 1;
    return all / slower / share + 1;
}

static walk_wish wish_of(const conf_run *conf, uint64_t seed)
{
    return (walk_wish){.seed = seed,
                       .bytes = conf->is_slow ? 800 : (PSTI_UNDER_TSAN ? 3000 : 30000),
                       .is_late = conf->kind == CONF_SIMT || conf->kind == CONF_LAZY};
}

static void one_step(walk *self, bool first)
{
    walk_new_counts(self);
    CHECK_OK(walk_step(self));
    walk_check(self, first);
}

/* Passes of a step, and sometimes a hook that is wrong. */
static void give_up(walk *self)
{
    const uint64_t num = oracle_random_below(&self->random, self->schedule->num_passes + 1);
    pst_visit said;
    walk_new_counts(self);
    CHECK_OK(walk_part_of_step(self, num));
    if (walk_below(self, 2))
        CHECK_STATUS(
            pst_scheduler_forward_begin(self->scheduler, 0, 0, 1u << 20, self->streams[0], &said),
            PST_E_ORDER);
    CHECK_OK(pst_scheduler_abort(self->scheduler, self->streams[0]));
    walk_drop(self);
}

static void replay(walk *self)
{
    pst_graph *graph = NULL;
    CHECK_OK(pst_graph_begin(self->device, self->streams[0]));
    const pst_status status = walk_step(self);
    CHECK_MSG(status == PST_OK, "captured: %s: %s", pst_status_name(status), pst_last_message());
    CHECK_OK(pst_graph_end(self->device, self->streams[0], &graph));
    for (uint32_t n = 1 + walk_below(self, 3); n && !psti_test_failed(); n--) {
        walk_new_counts(self);
        CHECK_OK(pst_graph_launch(graph, self->streams[0]));
        walk_check(self, false);
    }
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_graph_destroy(graph));
}

/* A captured step of the schedule before does nothing. */
static void change_schedule(walk *self)
{
    pst_graph *graph = NULL;
    pst_pool_status status;
    CHECK_OK(pst_graph_begin(self->device, self->streams[0]));
    CHECK_OK(walk_step(self));
    CHECK_OK(pst_graph_end(self->device, self->streams[0], &graph));
    walk_new_counts(self);
    if (walk_other_list(self)) {
        CHECK_OK(pst_graph_launch(graph, self->streams[0]));
        CHECK_OK(pst_device_synchronize(self->device));
        CHECK_OK(pst_pool_poll(self->pool, &status));
        CHECK_EQ(status.fault, PST_FAULT_SCHEDULE);
        CHECK_EQ(status.step_valid, 0);
        CHECK_EQ(status.in_use[0] + status.in_use[1], 0);
        CHECK_EQ(status.high_water[0] + status.high_water[1], 0);
    } else {
        CHECK_OK(pst_graph_launch(graph, self->streams[0]));
        walk_check(self, false);
    }
    CHECK_OK(pst_device_synchronize(self->device));
    CHECK_OK(pst_graph_destroy(graph));
}

static void run_case(walk *self)
{
    for (uint32_t n = 0; n < 3 && !psti_test_failed(); n++) {
        const bool first = n == 0 && self->is_recorded;
        switch (first ? 0 : walk_below(self, 7)) {
        case 0:
        case 1:
            one_step(self, first);
            break;
        case 2:
            CHECK_OK(walk_evaluate(self));
            one_step(self, false);
            break;
        case 3:
            give_up(self);
            break;
        case 4:
            if (walk_other_number(self))
                one_step(self, false);
            walk_own_number(self);
            break;
        case 5:
            if (n > 0 || !self->is_recorded)
                change_schedule(self);
            break;
        default:
            replay(self);
        }
    }
    one_step(self, false);
}

/* What a test wants of its programs. */
typedef struct plan {
    bool own, lists, layers;
    void (*run)(walk *self);
} plan;

static void run_all(const conf_run *conf, uint32_t all, const plan *of)
{
    static walk self;
    const uint32_t cases = cases_of(conf, all);
    if (conf->kind == CONF_SIMT)
        lazy_make(conf->device, NULL);
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++) {
        walk_wish wish = wish_of(conf, conf_seed(i));
        wish.own = of->own;
        wish.lists = of->lists;
        wish.layers = of->layers;
        conf_vary(conf, wish.seed);
        if (conf->kind == CONF_SIMT)
            lazy_seed(conf->device, wish.seed);
        walk_draw(&self, conf->device, &wish);
        walk_open(&self);
        if (!psti_test_failed())
            of->run(&self);
        if (psti_test_failed()) {
            psti_test_fail(__FILE__, __LINE__, "seed %llu, step %llu: %s",
                           (unsigned long long)wish.seed, (unsigned long long)self.num_steps,
                           pst_last_message());
            return;
        }
        walk_close(&self);
    }
}

/* The step does not begin where a captured layer would be kept in place, or where the sets of captured
 * layers meet in a pair. */
static void other_step(walk *self)
{
    walk_new_counts(self);
    const pst_status status = walk_step(self);
    if (status == PST_OK)
        walk_check(self, false);
    else
        CHECK_MSG(status == PST_E_INVALID &&
                      (strstr(pst_last_message(), "its graph was captured") ||
                       strstr(pst_last_message(), "share a set, and their passes are a pair")),
                  "%s: %s", pst_status_name(status), pst_last_message());
}

/* Graphs of layers, captured in any order, launched in the schedule's, beside layers that run eagerly. */
static void run_layers(walk *self)
{
    one_step(self, false);
    CHECK_OK(pst_device_synchronize(self->device));
    const pst_status status = walk_capture_layers(self);
    CHECK_MSG(status == PST_OK, "captured: %s: %s", pst_status_name(status), pst_last_message());
    for (uint32_t n = 0; n < 3 && !psti_test_failed(); n++) {
        if (walk_below(self, 4) == 0)
            give_up(self);
        if (walk_below(self, 3) == 0 && walk_other_number(self))
            other_step(self);
        walk_own_number(self);
        if (walk_below(self, 4) == 0)
            walk_other_list(self);
        one_step(self, false);
    }
}

CONFORMANCE(Programs, AnySchedule)
{
    static const plan of = {.run = run_case};
    run_all(conf, 1000, &of);
}

CONFORMANCE(Programs, CallersOwn)
{
    static const plan of = {.own = true, .lists = true, .run = run_case};
    run_all(conf, 1000, &of);
}

CONFORMANCE(Programs, Layers)
{
    static const plan of = {.layers = true, .run = run_layers};
    run_all(conf, 500, &of);
}
