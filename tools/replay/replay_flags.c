/* The flags of replay: two tables made of the lists in replay.h, and what one means for another. */
#include "tools/common/json_out.h"
#include "tools/replay/replay.h"

#define FLAG_OPTIONS replay_model
static const flag model_flags[] = {REPLAY_MODEL_FLAGS(FLAG_ROW)};
#undef FLAG_OPTIONS
#define FLAG_OPTIONS replay_options
static const flag own_flags[] = {REPLAY_FLAGS(FLAG_ROW)};

static const char doc[] =
    "Replay a recorded MoE routing trace through the scheduler: in the order of a pipeline's "
    "schedule, forwards fill the sets of buffers that they are given, backwards check every byte "
    "of theirs; the scheduler stashes and restores in between.\vSizes take the suffixes KiB, MiB, "
    "GiB.";
static const help_codes codes = {.done = "every byte came back",
                                 .no = "bytes differ, it does not fit",
                                 .file = "a bad trace",
                                 .has_device = true};

flag_group replay_model_flags(size_t base)
{
    return (flag_group)FLAG_GROUP(model_flags, base);
}

json_t *replay_options_json(const replay_options *options)
{
    const flag_group model = replay_model_flags(offsetof(replay_options, model));
    const flag_group own = FLAG_GROUP(own_flags, 0);
    json_t *object = json_object();
    flags_put_json(&object, &model, options);
    flags_put_json(&object, &own, options);
    return object;
}

int replay_check_model(const replay_model *model)
{
    if (model->expert_model_parallel_rank >= model->expert_model_parallel_size)
        return tool_fail(TOOL_USAGE,
                         "--expert-model-parallel-rank %u: allowed is 0..%u, below "
                         "--expert-model-parallel-size",
                         model->expert_model_parallel_rank, model->expert_model_parallel_size - 1);
    return TOOL_OK;
}

static int check_host_pages(const replay_options *options)
{
    const bool has_number = options->host_pages != REPLAY_NOT_GIVEN;
    const bool has_any = has_number ? options->host_pages > 0 : options->host_headroom > 0.0;
    const flag_fraction offload = options->offload_fraction;
    if (has_number && options->host_headroom > 0.0)
        return tool_fail(TOOL_USAGE, "--host-headroom %g: allowed without --host-pages only",
                         options->host_headroom);
    if (offload.num != 0 && !has_any)
        return tool_fail(TOOL_USAGE,
                         "--offload-fraction %u/%u: the pool has no host pages: allowed above 0 "
                         "with --host-pages or --host-headroom only",
                         offload.num, offload.den);
    return TOOL_OK;
}

static int check_order(const replay_options *options)
{
    if (options->stage >= options->stages)
        return tool_fail(TOOL_USAGE, "--stage %u: allowed is 0..%u, below --stages", options->stage,
                         options->stages - 1);
    if (options->streams == 3)
        return tool_fail(TOOL_USAGE, "--streams 3: allowed are 1, 2 and 4");
    if (options->streams > 1 && options->mode == PST_POOL_ORDERED)
        return tool_fail(TOOL_USAGE,
                         "--mode ordered: allowed with --streams 1 only: an ordered pool runs its "
                         "operations one after the other");
    if (options->one_ring && options->destinations != UINT32_MAX)
        return tool_fail(TOOL_USAGE, "--destinations %u: allowed without --one-ring only",
                         options->destinations);
    if (options->one_ring && options->tail != PST_TAIL_ZERO)
        return tool_fail(TOOL_USAGE,
                         "--one-ring: allowed with --tail zero only: a restore comes where a "
                         "forward wrote, and what is behind its rows is nobody's");
    return TOOL_OK;
}

int replay_parse(int argc, char **argv, replay_options *options)
{
    const flag_table table = {
        .command = "replay",
        .doc = doc,
        .groups = {replay_model_flags(offsetof(replay_options, model)), FLAG_GROUP(own_flags, 0)},
        .json = offsetof(replay_options, json),
        .codes = &codes,
    };
    *options = (replay_options){.json = NULL};
    TOOL_TRY(flags_parse(&table, argc, argv, options));
    if (options->model.routing == NULL)
        return tool_fail(TOOL_USAGE, "--routing: missing: allowed is a trace file, or - for stdin");
    TOOL_TRY(replay_check_model(&options->model));
    if (options->pages != REPLAY_NOT_GIVEN && options->headroom > 0.0)
        return tool_fail(TOOL_USAGE, "--headroom %g: allowed without --pages only",
                         options->headroom);
    if (options->mode < 0)
        options->mode = options->streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    TOOL_TRY(check_order(options));
    if (options->destinations == UINT32_MAX)
        options->destinations = options->one_ring ? 0 : 2;
    return check_host_pages(options);
}
