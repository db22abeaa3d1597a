/* The oracle's quantiles of step_demand: it keeps all of them. */
#include <stdlib.h>

#include "tests/oracle/oracle.h"

/* Each interval from a power of two to the next, from 16 to 2^32, is cut into 16 equal parts. */
uint64_t oracle_demand_ceiling(uint64_t demand)
{
    uint64_t octave = 16;
    if (demand < 16)
        return demand;
    if (demand / 4294967296 > 0)
        return UINT64_MAX;
    while (octave * 2 <= demand)
        octave *= 2;
    const uint64_t part = octave / 16;
    uint64_t end = octave;
    while (end <= demand)
        end += part;
    return end - 1;
}

void oracle_demand_add(oracle_pool *pool, uint64_t demand)
{
    uint64_t *demands = oracle_calloc(pool->num_demands + 1, sizeof(uint64_t));
    uint64_t at = 0;
    for (; at < pool->num_demands && pool->demands[at] <= demand; at++)
        demands[at] = pool->demands[at];
    demands[at] = demand;
    for (; at < pool->num_demands; at++)
        demands[at + 1] = pool->demands[at];
    free(pool->demands);
    pool->demands = demands;
    pool->num_demands++;
}

uint64_t oracle_demand_quantile(const oracle_pool *pool, uint64_t per_mille)
{
    uint64_t steps = 1;
    while (steps * 1000 < pool->num_demands * per_mille)
        steps++;
    const uint64_t ceiling = oracle_demand_ceiling(pool->demands[steps - 1]);
    const uint64_t most = pool->demands[pool->num_demands - 1];
    return ceiling < most ? ceiling : most;
}
