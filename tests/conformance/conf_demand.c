/* The quantiles of what steps wanted, over histories of many steps. */
#include "tests/conformance/conf.h"

enum { SPACES = 6, TENSORS = (1 << SPACES) - 1, TICKETS = 4, STEPS = 240 };

/* Of one row each, a tile. Space i has 2^i of the tensors, so that its counts are the binary digits
 * of a number of pages, up to TENSORS. */
static shape binary_shape(void)
{
    shape made = conf_prefix_shape(TENSORS, 1, 16);
    made.group.num_spaces = SPACES;
    for (uint32_t i = 1; i < SPACES; i++)
        made.group.spaces[i] = made.group.spaces[0];
    for (uint32_t i = 0, t = 0; i < SPACES; i++)
        for (uint32_t n = 0; n < 1u << i; n++)
            made.group.tensors[t++].space = i;
    return made;
}

static void set_pages(lockstep *ls, ls_group *group, uint64_t pages)
{
    int64_t counts[SPACES];
    for (uint32_t i = 0; i < SPACES; i++)
        counts[i] = (int64_t)(pages >> i & 1);
    ls_group_set_counts(ls, group, counts);
}

/* One step: each ticket gets up to `most` pages, or wants them. */
static void run_step(lockstep *ls, ls_group *group, const uint32_t *tickets, uint64_t most,
                     oracle_random *random)
{
    for (int i = 0; i < TICKETS; i++) {
        if (ls->oracle->tickets[tickets[i]].state != ORACLE_EMPTY)
            ls_release(ls, tickets[i]);
        set_pages(ls, group, oracle_random_below(random, most + 1));
        ls_stash(ls, tickets[i], group);
    }
    ls_step(ls);
}

/* What the oracle remembers, counted by hand. */
static void check_advice(const lockstep *ls, pst_steps_share share, uint32_t per_mille)
{
    const oracle_pool *oracle = ls->oracle;
    uint64_t pages = 0;
    CHECK_OK(pst_pool_recommend_pages(&ls->published, share, &pages));
    uint64_t within = 0;
    for (uint64_t i = 0; i < oracle->num_demands; i++)
        within += oracle->demands[i] <= pages;
    CHECK(within * 1000 >= oracle->num_demands * per_mille);
    CHECK(pages <= oracle->status.demand_high_water);
}

/* From demands of 0 to 12 pages to such of 0 to 252, which is more than there are. */
CONFORMANCE(Demand, QuantilesOfStashesThatGrow)
{
    static lockstep ls;
    ls_group group;
    uint32_t tickets[TICKETS];
    const shape like = binary_shape();
    const uint32_t steps = 5 + conf_cases(conf, STEPS);
    CONF_EACH_MODE (mode) {
        oracle_random random = oracle_random_seeded(mode + 1u);
        ls_options options = conf_options(mode, 90, 0);
        options.num_host_pages = 60;
        if (!ls_open(&ls, conf->device, &options))
            return;
        ls.skip_checks = true;
        ls_group_make(&ls, &like, &random, &group);
        for (int i = 0; i < TICKETS; i++)
            tickets[i] = ls_ticket_make(&ls, &group);
        for (uint32_t step = 0; step < steps && !ls.failed; step++) {
            run_step(&ls, &group, tickets, 3 + 60 * (step + 1) / steps, &random);
            if (step == steps / 3)
                ls_reset(&ls, PST_RESET_STATISTICS);
            if (step == steps / 2) /* keeps what the steps before wanted */
                ls_reset(&ls, PST_RESET_PAGES | PST_RESET_FAULTS);
        }
        for (uint32_t i = 0; i < 5 && !ls.failed; i++)
            check_advice(&ls, (pst_steps_share)i, (const uint32_t[]){500, 900, 990, 999, 1000}[i]);
        ls_group_free(&ls, &group);
        ls_close(&ls);
    }
}

/* As if the step had wanted that much. */
static void plant_demand(lockstep *ls, uint64_t pages)
{
    LS_TRY(pool_words_read(ls->pool, &ls->words, ls->stream));
    ls->words.state.step_demand = pages;
    LS_TRY(pool_words_write(ls->pool, &ls->words, ls->stream));
    ls->oracle->step_demand = pages;
}

CONFORMANCE(Demand, QuantilesOfAnyDemands)
{
    static lockstep ls;
    const uint32_t cases = conf_cases(conf, 20);
    const uint64_t steps = PSTI_UNDER_TSAN ? 60 : 1200;
    for (uint32_t i = 0; i < cases && !psti_test_failed(); i++) {
        oracle_random random = oracle_random_seeded(conf_seed(i));
        const ls_options options = conf_options(PST_POOL_ORDERED, 1, conf_seed(i));
        conf_vary(conf, conf_seed(i));
        if (!ls_open(&ls, conf->device, &options))
            return;
        ls.skip_checks = true;
        const uint64_t bits = oracle_random_in(&random, 1, 41);
        for (uint64_t step = 0; step < steps && !ls.failed; step++) {
            const uint64_t most = UINT64_C(1) << oracle_random_in(&random, 0, bits);
            plant_demand(&ls, oracle_random_below(&random, most));
            ls_step(&ls);
            if (oracle_random_one_in(&random, 500))
                ls_reset(&ls, PST_RESET_STATISTICS);
        }
        ls_close(&ls);
    }
}

/* Where buckets begin and end, one demand at a time and all together. */
CONFORMANCE(Demand, QuantilesAtTheEdgesOfBuckets)
{
    static const uint64_t edges[] = {0,
                                     15,
                                     16,
                                     17,
                                     31,
                                     32,
                                     33,
                                     34,
                                     63,
                                     64,
                                     UINT64_C(1) << 31,
                                     UINT32_MAX,
                                     UINT64_C(1) << 32,
                                     UINT64_C(1) << 40};
    static lockstep ls;
    const ls_options options = conf_options(PST_POOL_CONCURRENT, 1, 0);
    for (int alone = 0; alone < 2; alone++) {
        if (!ls_open(&ls, conf->device, &options))
            return;
        for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]) && !ls.failed; i++) {
            plant_demand(&ls, edges[i]);
            ls_step(&ls);
            if (!alone)
                continue;
            for (int q = 0; q < 4; q++)
                CHECK(ls.published.demand_quantiles[q] == edges[i]);
            ls_reset(&ls, PST_RESET_STATISTICS);
        }
        ls_close(&ls);
    }
}
