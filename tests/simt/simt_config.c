/* The configuration of the machine: defaults, environment, limits. */
#include "tests/simt/simt_machine.h"

#include <stdlib.h>

static uint64_t choose(uint64_t given, const char *variable, uint64_t otherwise)
{
    if (given)
        return given;
    const char *text = getenv(variable);
    const uint64_t value = text ? strtoull(text, NULL, 0) : 0;
    return value ? value : otherwise;
}

simt_config simt_complete(const simt_config *config)
{
    static const simt_config none;
    const simt_config *given = config ? config : &none;
    simt_config result;
    result.seed = choose(given->seed, "PSTI_SIMT_SEED", 1);
    result.residency = (uint32_t)choose(given->residency, "PSTI_SIMT_RESIDENCY", 2);
    result.threads = (uint32_t)choose(given->threads, "PSTI_SIMT_THREADS", 64);
    result.max_blocks = (uint32_t)choose(given->max_blocks, "PSTI_SIMT_BLOCKS", 4);
    result.num_sms = (uint32_t)choose(given->num_sms, "PSTI_SIMT_SMS", 4);
    result.blocks_per_sm = (uint32_t)choose(given->blocks_per_sm, "PSTI_SIMT_BLOCKS_PER_SM", 2);
    result.spin_limit = (uint32_t)choose(given->spin_limit, "PSTI_SIMT_SPIN_LIMIT", 200000);
    return result;
}

const char *simt_config_error(const simt_config *config)
{
    if (config->residency > SIMT_MAX_SLOTS)
        return "residency is above 16";
    if (config->threads > SIMT_TEAM_THREADS || config->threads % SIMT_WARP != 0)
        return "threads are no multiple of 32, or above 256";
    if (config->max_blocks > SIMT_MAX_BLOCKS)
        return "max_blocks is above 256";
    return NULL;
}
