/* The library's kinds of schedules: what each allows, and its list. */
#include "host/schedule/schedule.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "host/base/arith.h"
#include "host/schedule/pipeline.h"

typedef struct kind_row {
    const char *name;
    uint32_t least_chunks, most_chunks; /* 0: as many as you like */
} kind_row;

static const kind_row kinds[] = {
    [PST_SCHEDULE_1F1B] = {"1F1B", 1, 1},
    [PST_SCHEDULE_INTERLEAVED] = {"INTERLEAVED", 2, 0},
    [PST_SCHEDULE_GPIPE] = {"GPIPE", 1, 1},
    [PST_SCHEDULE_GPIPE_REVERSED] = {"GPIPE_REVERSED", 1, 1},
    [PST_SCHEDULE_ZB_H1] = {"ZB_H1", 1, 1},
    [PST_SCHEDULE_ZB_H2] = {"ZB_H2", 1, 1},
    [PST_SCHEDULE_ZB_V] = {"ZB_V", 2, 2},
    [PST_SCHEDULE_DUALPIPE] = {"DUALPIPE", 2, 2},
    [PST_SCHEDULE_DUALPIPE_V] = {"DUALPIPE_V", 2, 2},
    [PST_SCHEDULE_LIST] = {"LIST", 0, 0},
};
enum { NUM_KINDS = sizeof(kinds) / sizeof(kinds[0]) };

/* ---- what is allowed ---- */

/* False, and why, if anybody asks: kinds are tried that may not fit. */
__attribute__((format(printf, 2, 3))) static bool refuse(char *why, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (why)
        vsnprintf(why, PSTI_REFUSAL_BYTES, format, arguments);
    va_end(arguments);
    return false;
}

#define ALLOW(condition, ...)                \
    do {                                     \
        if (!(condition))                    \
            return refuse(why, __VA_ARGS__); \
    } while (0)

static bool check_stages(pst_schedule_config *config, char *why)
{
    config->num_stages += config->num_stages == 0;
    ALLOW(config->num_stages <= PSTI_SCHEDULE_MAX_STAGES,
          "num_stages %" PRIu32 ": allowed is 1 to %d", config->num_stages,
          PSTI_SCHEDULE_MAX_STAGES);
    ALLOW(config->stage < config->num_stages,
          "stage %" PRIu32 ": allowed is 0 to %" PRIu32 ", since num_stages is %" PRIu32,
          config->stage, config->num_stages - 1, config->num_stages);
    return true;
}

/* Fields that the kind has no use for. */
static bool check_unused(const pst_schedule_config *config, char *why)
{
    const char *name = kinds[config->kind].name;
    const bool is_interleaved = config->kind == PST_SCHEDULE_INTERLEAVED;
    const bool is_list = config->kind == PST_SCHEDULE_LIST;
    ALLOW(is_interleaved || config->group == 0,
          "group %" PRIu32 ": allowed is 0 in %s, only INTERLEAVED has groups", config->group,
          name);
    ALLOW(is_interleaved || !config->overlaps_exchange,
          "overlaps_exchange true: allowed is false in %s, only INTERLEAVED has it", name);
    ALLOW(config->kind == PST_SCHEDULE_ZB_V || config->limit == 0,
          "limit %" PRIu32 ": allowed is 0 in %s, only ZB_V has one", config->limit, name);
    ALLOW(is_list || (config->passes == NULL && config->num_passes == 0),
          "passes or num_passes of %s: allowed are NULL and 0, only LIST has passes", name);
    ALLOW(!is_list || config->passes != NULL, "passes is NULL in LIST");
    ALLOW(!is_list || (config->num_passes > 0 && config->num_passes <= PST_SCHEDULE_MAX_PASSES),
          "num_passes %" PRIu64 ": allowed is 1 to 2^32", config->num_passes);
    return true;
}

static bool check_interleaved(pst_schedule_config *config, char *why)
{
    const uint32_t p = config->num_stages, m = config->num_micro_batches;
    ALLOW(m >= p, "num_micro_batches %" PRIu32 ": INTERLEAVED allows at least num_stages, %" PRIu32,
          m, p);
    if (config->group == 0)
        config->group = p;
    ALLOW(config->group >= p && config->group <= m,
          "group %" PRIu32 ": INTERLEAVED allows num_stages to num_micro_batches, %" PRIu32
          " to %" PRIu32,
          config->group, p, m);
    const uint32_t rest = m % config->group;
    ALLOW(rest == 0 || rest >= p,
          "num_micro_batches %" PRIu32 ": with groups of %" PRIu32 " the last has %" PRIu32
          ", INTERLEAVED allows whole groups or at least num_stages, %" PRIu32,
          m, config->group, rest, p);
    return true;
}

static bool check_dualpipe(const pst_schedule_config *config, char *why)
{
    const uint32_t p = config->num_stages, m = config->num_micro_batches;
    const char *name = kinds[config->kind].name;
    if (config->kind == PST_SCHEDULE_DUALPIPE) {
        ALLOW(p % 2 == 0, "num_stages %" PRIu32 ": DUALPIPE allows even numbers", p);
        ALLOW(m % 2 == 0, "num_micro_batches %" PRIu32 ": DUALPIPE allows even numbers", m);
    }
    ALLOW(m / 2 >= p,
          "num_micro_batches %" PRIu32 ": %s allows at least twice num_stages, %" PRIu32, m, name,
          2 * p);
    return true;
}

static bool check_kind(pst_schedule_config *config, char *why)
{
    switch (config->kind) {
    case PST_SCHEDULE_INTERLEAVED:
        return check_interleaved(config, why);
    case PST_SCHEDULE_ZB_V:
        if (config->limit == 0)
            config->limit = config->num_stages;
        return true;
    case PST_SCHEDULE_DUALPIPE:
    case PST_SCHEDULE_DUALPIPE_V:
        return check_dualpipe(config, why);
    default:
        return true;
    }
}

bool psti_schedule_resolve(pst_schedule_config *config, char *why)
{
    ALLOW((unsigned)config->kind < NUM_KINDS,
          "kind %d: allowed are 0 to %d, the values of pst_schedule_kind", (int)config->kind,
          NUM_KINDS - 1);
    const kind_row *row = &kinds[config->kind];
    if (!check_stages(config, why))
        return false;
    if (!check_unused(config, why))
        return false;
    ALLOW(config->num_micro_batches <= PST_SCHEDULE_MAX_MICRO_BATCHES &&
              (config->num_micro_batches > 0 || config->kind == PST_SCHEDULE_LIST),
          "num_micro_batches %" PRIu32 ": allowed is 1 to 2^20", config->num_micro_batches);
    if (config->kind == PST_SCHEDULE_LIST)
        return true;
    if (config->num_chunks == 0)
        config->num_chunks = row->least_chunks;
    ALLOW(config->num_chunks >= row->least_chunks &&
              (row->most_chunks == 0 || config->num_chunks <= row->most_chunks),
          "num_chunks %" PRIu32 ": %s allows %" PRIu32 "%s", config->num_chunks, row->name,
          row->least_chunks, row->most_chunks == 0 ? " and more" : "");
    if (!check_kind(config, why))
        return false;
    const uint64_t num_passes = psti_schedule_count(config);
    ALLOW(num_passes <= PST_SCHEDULE_MAX_PASSES,
          "num_chunks %" PRIu32 " and num_micro_batches %" PRIu32 " make %" PRIu64
          " passes: allowed are 2^32",
          config->num_chunks, config->num_micro_batches, num_passes);
    return true;
}

uint64_t psti_schedule_count(const pst_schedule_config *config)
{
    const uint64_t units = (uint64_t)config->num_chunks * config->num_micro_batches;
    switch (config->kind) {
    case PST_SCHEDULE_ZB_H1:
    case PST_SCHEDULE_ZB_H2:
    case PST_SCHEDULE_ZB_V:
        return 3 * units;
    case PST_SCHEDULE_DUALPIPE:
    case PST_SCHEDULE_DUALPIPE_V:
        return psti_schedule_dualpipe_count(config);
    default:
        return 2 * units;
    }
}

/* ---- lists ---- */

static void put_pipeline(psti_pipeline pipeline, psti_pass_list *list)
{
    for (psti_pipeline_pass pass; psti_pipeline_next(&pipeline, &pass);)
        psti_pass_put(list, pass.kind, (uint32_t)pass.chunk, pass.micro_batch);
}

pst_status psti_schedule_generate(const pst_schedule_config *config, psti_pass_list *list)
{
    const uint64_t m = config->num_micro_batches;
    const psti_pipeline_shape shape = {.num_stages = config->num_stages,
                                       .stage = config->stage,
                                       .num_micro_batches = m,
                                       .num_chunks = config->num_chunks,
                                       .group = config->group,
                                       .overlaps_exchange = config->overlaps_exchange};
    switch (config->kind) {
    case PST_SCHEDULE_1F1B:
    case PST_SCHEDULE_INTERLEAVED:
        put_pipeline(psti_pipeline_1f1b(&shape), list);
        return PST_OK;
    case PST_SCHEDULE_GPIPE:
        put_pipeline(psti_pipeline_warmed_up(m, m), list);
        return PST_OK;
    case PST_SCHEDULE_GPIPE_REVERSED:
        put_pipeline(psti_pipeline_reversed(m), list);
        return PST_OK;
    case PST_SCHEDULE_ZB_H1:
    case PST_SCHEDULE_ZB_H2:
        psti_schedule_zb_h(config, list);
        return PST_OK;
    case PST_SCHEDULE_ZB_V:
        return psti_schedule_zb_v(config, list);
    default:
        psti_schedule_dualpipe(config, list);
        return PST_OK;
    }
}
