/* How far tokens spread over GPUs and nodes: the lines of tests/data/estimator/dispatch.txt, and what follows of
 * them. */
#include "host/estimate/estimate.h"
#include "tests/host/estimate/estimate_models.h"

#include <stdio.h>
#include <stdlib.h>

static pst_estimate_config router(uint64_t experts, uint64_t per_token, uint64_t groups,
                                  uint64_t chosen)
{
    pst_estimate_config config = PST_ESTIMATE_CONFIG_INIT;
    config.num_experts = experts;
    config.experts_per_token = per_token;
    config.router_groups = groups;
    config.router_group_topk = chosen;
    config.dispatcher = PST_DISPATCHER_FLEX;
    return config;
}

/* Of 10^9, rounded up; chances are rounded by less than 2^-40 for each factor and each term, and of 8 groups a
 * quotient of small sums is left. */
PST_TEST(EstimateDispatch, ChancesOfTheFile)
{
    FILE *file = fopen(PSTI_TEST_DATA "/estimator/dispatch.txt", "r");
    char line[256];
    int num_lines = 0;
    CHECK(file != NULL);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        unsigned long long of[6];
        if (line[0] == '#' || line[0] == '\n')
            continue;
        CHECK_EQ(sscanf(line, "%llu %llu %llu %llu %llu %llu", &of[0], &of[1], &of[2], &of[3],
                        &of[4], &of[5]),
                 6);
        const pst_estimate_config config = router(of[0], of[1], of[2], of[3]);
        const uint64_t found = psti_dispatched(&config, of[4], 1000000000);
        CHECK(llabs((long long)(found - of[5])) <= (of[3] > 4 ? 10 : 1));
        num_lines++;
    }
    if (file != NULL)
        fclose(file);
    CHECK(num_lines > 60);
}

PST_TEST(EstimateDispatch, AllAndNone)
{
    const pst_estimate_config plain = router(256, 8, 0, 0), limited = router(256, 8, 8, 4);
    for (int i = 0; i < 2; i++) {
        const pst_estimate_config *config = i == 0 ? &plain : &limited;
        CHECK_EQ(psti_dispatched(config, 256, 12345), 12345);
        CHECK_EQ(psti_dispatched(config, 0, 12345), 0);
        CHECK_EQ(psti_dispatched(config, 32, UINT64_MAX), UINT64_MAX);
    }
}

/* More experts are not less likely, and one of 256 has as much of 8 as any other. */
PST_TEST(EstimateDispatch, GrowsWithExperts)
{
    const pst_estimate_config config = router(256, 8, 8, 4);
    uint64_t last = 0;
    for (uint64_t experts = 1; experts <= 256; experts++) {
        const uint64_t found = psti_dispatched(&config, experts, 1u << 30);
        CHECK(found >= last);
        CHECK(experts > 1 || found <= (1u << 30) / 32 + 1);
        last = found;
    }
}
