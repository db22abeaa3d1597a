/* A steady state stands for many micro-batches: a schedule is searched with those that fill the
 * pipeline, two periods and those that empty it. The answer is simulated with all. */
#include "host/base/arith.h"
#include "host/policy/policy.h"

#include <string.h>

#define NUM_PERIODS 2u

/* Micro-batches that show all that the schedule does; as many as it has where that is not known. */
static uint32_t enough(const pst_schedule_config *config)
{
    const uint32_t stages = config->num_stages;
    switch (config->kind) {
    case PST_SCHEDULE_1F1B:
        return stages - config->stage + NUM_PERIODS + 1;
    case PST_SCHEDULE_INTERLEAVED:
        return (NUM_PERIODS + 2 + (stages - 1) / config->group) * config->group;
    case PST_SCHEDULE_ZB_H1:
    case PST_SCHEDULE_ZB_H2:
    case PST_SCHEDULE_ZB_V:
    case PST_SCHEDULE_DUALPIPE_V:
        return 2 * stages + 2 * NUM_PERIODS;
    case PST_SCHEDULE_DUALPIPE:
        return 4 * stages + 4 * NUM_PERIODS;
    case PST_SCHEDULE_GPIPE:
    case PST_SCHEDULE_GPIPE_REVERSED:
    case PST_SCHEDULE_LIST:
    default:
        return config->num_micro_batches;
    }
}

static uint64_t pages_from(const psti_stage *stage, uint32_t first, uint32_t num)
{
    uint64_t pages = 0;
    for (uint32_t i = 0; i < stage->num_layers; i++) {
        const pst_simulated_layer *layer = &stage->layers[0][i];
        const uint32_t parts = layer->num_parts ? layer->num_parts : 1;
        for (uint32_t part = 0; part < parts && layer->usages && layer->num_usages > 1; part++)
            for (uint32_t m = first; m < first + num; m++)
                pages += layer->usages[(uint64_t)part * layer->num_usages + m].pages;
    }
    return pages;
}

/* Of each chunk: the first of the micro-batches that follow each other and want most pages. */
static uint32_t most_demanding(const psti_stage *stage, uint32_t num)
{
    uint32_t most = UINT32_MAX, best = 0;
    uint64_t best_pages = 0;
    for (uint32_t c = 0; c < stage->schedule->num_chunks; c++)
        most = (uint32_t)psti_min(most, stage->schedule->chunks[c].num_micro_batches);
    for (uint32_t first = 0; first + num <= most; first++) {
        const uint64_t pages = pages_from(stage, first, num);
        if (pages > best_pages) {
            best = first;
            best_pages = pages;
        }
    }
    return best;
}

/* A copy, since where the layer's own end those of another part, or of nobody, begin. */
static pst_status take_usages(psti_problem *problem, uint32_t first, uint32_t num,
                              pst_simulated_layer *layer)
{
    const uint32_t parts = layer->num_parts ? layer->num_parts : 1;
    pst_group_usage *usages = psti_problem_take(problem, (uint64_t)parts * num, sizeof(*usages));
    PSTI_CHECK(usages, PST_E_NOMEM, "no memory for %u usages of %u parts", num, parts);
    for (uint32_t part = 0; part < parts; part++)
        memcpy(usages + (size_t)part * num,
               layer->usages + (size_t)part * layer->num_usages + first, num * sizeof(*usages));
    if (layer->glu_bytes) {
        uint64_t *glu_bytes = psti_problem_take(problem, (uint64_t)parts * num, sizeof(*glu_bytes));
        PSTI_CHECK(glu_bytes, PST_E_NOMEM, "no memory for %u usages of %u parts", num, parts);
        for (uint32_t part = 0; part < parts; part++)
            memcpy(glu_bytes + (size_t)part * num,
                   layer->glu_bytes + (size_t)part * layer->num_usages + first,
                   num * sizeof(*glu_bytes));
        layer->glu_bytes = glu_bytes;
    }
    layer->usages = usages;
    layer->num_usages = num;
    return PST_OK;
}

pst_status psti_policy_shorten(psti_problem *problem, psti_stage *stage)
{
    pst_schedule_config config = stage->schedule->config;
    const uint32_t num = enough(&config);
    stage->searched = stage->schedule;
    stage->searched_layers = stage->layers[0];
    if (num > config.num_micro_batches / 2) /* not worth it */
        return PST_OK;
    pst_simulated_layer *layers =
        psti_problem_take(problem, stage->num_layers, sizeof(*stage->searched_layers));
    PSTI_CHECK(layers, PST_E_NOMEM, "no memory for %u layers", stage->num_layers);
    config.num_micro_batches = num;
    PSTI_TRY(pst_schedule_create(&config, &stage->shortened));
    const uint32_t first = most_demanding(stage, num);
    for (uint32_t i = 0; i < stage->num_layers; i++) {
        layers[i] = stage->layers[0][i];
        if (layers[i].usages && layers[i].num_usages > 1)
            PSTI_TRY(take_usages(problem, first, num, &layers[i]));
    }
    stage->searched = stage->shortened;
    stage->searched_layers = layers;
    return PST_OK;
}
