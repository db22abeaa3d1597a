/* The flags of simulate: its own, those of the links, and the model flags of replay. */
#include "tools/common/json_out.h"
#include "tools/simulate/simulate_command.h"

#include <string.h>

#define FLAG_OPTIONS simulate_options
static const flag own_flags[] = {
    SIMULATE_FLAGS(FLAG_ROW){"copy_gb/s", FLAG_FACTOR, offsetof(simulate_options, copy_gb_per_s),
                             "X", 0, SIMULATE_MAX_FACTOR, NULL,
                             "rate of stashes and restores into device pages, 10^9 bytes/s"},
    {"link_gb/s", FLAG_TEXT, offsetof(simulate_options, link_gb_per_s), "OUT,IN", 0, 0, NULL,
     "rates of the link to the host: host pages take as long on top"},
};

static const char doc[] =
    "Simulate a step of a pipeline: which visits of layers are stashed and restored when, how many "
    "pages that takes, and what it costs.\vTimes are nanoseconds; sizes take the suffixes KiB, "
    "MiB, GiB. Exit codes: 0 it fits; 1 it does not, passes wait for each other, or --check found "
    "a difference; 2 usage; 3 bad file; 4 device absent or failed.";

/* replay's, but for --num-micro-batches: the schedule says how many. */
static void model_flags(flag_group groups[2])
{
    const flag_group all = replay_model_flags(offsetof(simulate_options, routing));
    int at = 0;
    while (at < all.num_flags && strcmp(all.flags[at].name, "num_micro_batches") != 0)
        at++;
    const int behind = at < all.num_flags ? at + 1 : at;
    groups[0] = (flag_group){all.flags, at, all.base};
    groups[1] = (flag_group){all.flags + behind, all.num_flags - behind, all.base};
}

json_t *simulate_options_json(const simulate_options *options)
{
    const flag_group own = FLAG_GROUP(own_flags, 0);
    flag_group model[2];
    json_t *object = json_object();
    model_flags(model);
    flags_put_json(&object, &own, options);
    flags_put_json(&object, &model[0], options);
    flags_put_json(&object, &model[1], options);
    return object;
}

static int check_times(const simulate_options *options)
{
    if (options->rates != NULL &&
        (options->copy_gb_per_s > 0.0 || options->stash_ns != UINT64_MAX ||
         options->restore_ns != UINT64_MAX))
        return tool_fail(TOOL_USAGE,
                         "--rates %s: allowed without --copy-gb/s, --stash-ns and "
                         "--restore-ns only",
                         options->rates);
    if (options->times != NULL &&
        (strcmp(options->forward_ns, "0,0,0") != 0 || strcmp(options->backward_ns, "0,0,0") != 0 ||
         strcmp(options->weight_ns, "0,0,0") != 0))
        return tool_fail(TOOL_USAGE,
                         "--times %s: allowed without --forward-ns, --backward-ns and "
                         "--weight-ns only",
                         options->times);
    return TOOL_OK;
}

static int check(const simulate_options *options)
{
    if (options->schedule == NULL)
        return tool_fail(TOOL_USAGE, "--schedule: missing: allowed is a kind, list:FILE or "
                                     "megatron:FILE");
    if ((options->layers == NULL) == (options->model_layers == UINT32_MAX))
        return tool_fail(TOOL_USAGE, "--layers: %s: allowed is it or --model-layers",
                         options->layers == NULL ? "missing" : options->layers);
    if (options->routing.routing != NULL && options->visit_pages != NULL)
        return tool_fail(TOOL_USAGE, "--visit-pages %s: allowed without --routing only",
                         options->visit_pages);
    if (options->balanced && options->routing.routing == NULL)
        return tool_fail(TOOL_USAGE, "--balanced: allowed with --routing only");
    TOOL_TRY(check_times(options));
    return replay_check_model(&options->routing);
}

int simulate_parse(int argc, char **argv, simulate_options *options)
{
    flag_group model[2];
    model_flags(model);
    const flag_table table = {
        .command = "simulate",
        .doc = doc,
        .groups = {FLAG_GROUP(own_flags, 0), model[0], model[1]},
        .json = offsetof(simulate_options, json),
    };
    *options = (simulate_options){.json = NULL};
    TOOL_TRY(flags_parse(&table, argc, argv, options));
    return check(options);
}
