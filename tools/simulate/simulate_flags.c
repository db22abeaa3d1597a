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
    "MiB, GiB.";
static const help_codes codes = {
    .done = "it fits",
    .no = "it does not, passes wait for each other, --check found a difference",
    .file = "a bad file",
    .has_device = true};

enum { MAX_MODEL_FLAGS = 32 };

/* Flags whose defaults are for where nothing else says them. */
static const struct {
    const char *name, *initial, *help;
} left_open[] = {
    {"page_size", NULL, "a power of two, 16KiB to 4MiB (256KiB; with --solve it is chosen)"},
    {"hidden_size", NULL, "width of the model (1024)"},
    {"moe_ffn_hidden_size", NULL, "width of an expert (512)"},
    {"dtype", FLAG_NOT_GIVEN, "what a layer keeps (bf16)"},
    {"expert_model_parallel_size", NULL, "split the experts over N ranks (1, or --config's)"},
};

/* replay's, but for --num-micro-batches, since the schedule says how many; without the defaults of
 * --page-size, which --solve may choose, and of what --config may say. */
static flag_group model_flags(void)
{
    static flag flags[MAX_MODEL_FLAGS];
    const flag_group all = replay_model_flags(offsetof(simulate_options, routing));
    int num = 0;
    for (int i = 0; i < all.num_flags && num < MAX_MODEL_FLAGS; i++)
        if (strcmp(all.flags[i].name, "num_micro_batches") != 0)
            flags[num++] = all.flags[i];
    for (int i = 0; i < num; i++)
        for (size_t k = 0; k < sizeof(left_open) / sizeof(left_open[0]); k++)
            if (strcmp(flags[i].name, left_open[k].name) == 0) {
                flags[i].initial = left_open[k].initial;
                flags[i].help = left_open[k].help;
            }
    return (flag_group){flags, num, all.base};
}

json_t *simulate_options_json(const simulate_options *options)
{
    const flag_group own = FLAG_GROUP(own_flags, 0);
    const flag_group model = model_flags();
    json_t *object = json_object();
    flags_put_json(&object, &own, options);
    flags_put_json(&object, &model, options);
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

static int check_solve(const simulate_options *options)
{
    const bool has_memory = options->gpu_memory != 0 || options->host_memory != 0 ||
                            options->reserve_memory != 0 || options->static_memory != 0 ||
                            options->set_memory != 0;
    const bool has_choice =
        options->sets >= 0 || options->objective >= 0 || options->recompute_ns != UINT64_MAX;
    if (!options->solve && (has_memory || has_choice))
        return tool_fail(TOOL_USAGE, "--solve: missing: allowed is it with --gpu-memory, "
                                     "--host-memory, --reserve-memory, --static-memory, "
                                     "--set-memory, --sets, --objective and --recompute-ns");
    if (!options->solve)
        return TOOL_OK;
    if (options->gpu_memory == 0)
        return tool_fail(TOOL_USAGE,
                         "--gpu-memory: missing: allowed is a size, which --solve needs");
    if (options->set_memory == 0 && options->routing.routing == NULL && options->config == NULL)
        return tool_fail(TOOL_USAGE,
                         "--set-memory: missing: allowed is a size, which --solve needs "
                         "where --routing does not say it");
    return TOOL_OK;
}

/* A config says what a row of its experts keeps. */
static int check_config(const simulate_options *options)
{
    const replay_model *model = &options->routing;
    if (options->config != NULL &&
        (model->hidden_size != 0 || model->moe_ffn_hidden_size != 0 || (int)model->dtype >= 0))
        return tool_fail(TOOL_USAGE,
                         "--config %s: allowed without --hidden-size, "
                         "--moe-ffn-hidden-size and --dtype only: it says what a "
                         "layer keeps",
                         options->config);
    if (options->config != NULL)
        return options->layers == NULL || options->model_layers == UINT32_MAX
                   ? TOOL_OK
                   : tool_fail(TOOL_USAGE, "--layers %s: allowed without --model-layers only",
                               options->layers);
    if (options->schedule == NULL)
        return tool_fail(TOOL_USAGE, "--schedule: missing: allowed is a kind, list:FILE or "
                                     "megatron:FILE");
    if ((options->layers == NULL) == (options->model_layers == UINT32_MAX))
        return tool_fail(TOOL_USAGE, "--layers: %s: allowed is it or --model-layers",
                         options->layers == NULL ? "missing" : options->layers);
    return TOOL_OK;
}

static int check(const simulate_options *options)
{
    TOOL_TRY(check_config(options));
    if (options->routing.routing != NULL && options->visit_pages != NULL)
        return tool_fail(TOOL_USAGE, "--visit-pages %s: allowed without --routing only",
                         options->visit_pages);
    if (options->one_ring && options->destinations != UINT32_MAX)
        return tool_fail(TOOL_USAGE, "--destinations %u: allowed without --one-ring only",
                         options->destinations);
    if (options->compare && options->move == PST_MOVE_DEMOTE)
        return tool_fail(TOOL_USAGE, "--compare: allowed without --move demote only, which takes "
                                     "streams that --rule next does not have");
    if (options->move >= 0 && options->offload == NULL && !options->solve)
        return tool_fail(TOOL_USAGE, "--move: allowed with --offload or --solve only");
    if (options->balanced && options->routing.routing == NULL && options->config == NULL)
        return tool_fail(TOOL_USAGE, "--balanced: allowed with --routing or --config only");
    if (options->balanced && options->visit_pages != NULL)
        return tool_fail(TOOL_USAGE, "--visit-pages %s: allowed without --balanced only",
                         options->visit_pages);
    TOOL_TRY(check_times(options));
    return check_solve(options);
}

/* What was given, and the defaults of the rest. */
static void note_given(simulate_options *options)
{
    const bool has_sets =
        options->sources != UINT32_MAX || options->destinations != UINT32_MAX || options->one_ring;
    const bool has_page_size = options->routing.page_size != 0 || options->visit_pages != NULL;
    options->given = (options->rule >= 0 ? PST_POLICY_GIVEN_RULE : 0) |
                     (has_sets ? PST_POLICY_GIVEN_SETS : 0) |
                     (options->ahead != UINT32_MAX ? PST_POLICY_GIVEN_AHEAD : 0) |
                     (options->streams >= 0 ? PST_POLICY_GIVEN_STREAMS : 0) |
                     (has_page_size ? PST_POLICY_GIVEN_PAGE_BYTES : 0) |
                     (options->offload != NULL ? PST_POLICY_GIVEN_SHARES : 0);
    options->rule = options->rule >= 0 ? options->rule : PST_RESTORE_ASAP;
    options->streams = options->streams >= 0 ? options->streams : 0;
    options->move = options->move >= 0 ? options->move : PST_MOVE_DIRECT;
    options->sets = options->sets >= 0 ? options->sets : PST_POLICY_SETS_FIXED;
    options->objective = options->objective >= 0 ? options->objective : PST_POLICY_LEAST_BYTES;
    options->sources = options->sources != UINT32_MAX ? options->sources : 2;
    if (options->destinations == UINT32_MAX)
        options->destinations = options->one_ring ? 0 : 2;
    options->ahead = options->ahead != UINT32_MAX ? options->ahead : 0;
    if (options->host_pages == NULL)
        options->host_pages = options->solve ? "auto" : "0";
    if (options->routing.page_size == 0)
        options->routing.page_size = PST_PAGE_BYTES_DEFAULT;
}

int simulate_parse(int argc, char **argv, simulate_options *options)
{
    const flag_table table = {
        .command = "simulate",
        .doc = doc,
        .groups = {FLAG_GROUP(own_flags, 0), model_flags()},
        .json = offsetof(simulate_options, json),
        .codes = &codes,
    };
    *options = (simulate_options){.json = NULL};
    TOOL_TRY(flags_parse(&table, argc, argv, options));
    TOOL_TRY(check(options));
    note_given(options);
    if (options->config != NULL)
        return TOOL_OK;
    replay_model *model = &options->routing;
    model->hidden_size = model->hidden_size != 0 ? model->hidden_size : 1024;
    model->moe_ffn_hidden_size = model->moe_ffn_hidden_size != 0 ? model->moe_ffn_hidden_size : 512;
    model->dtype = model->dtype >= 0 ? model->dtype : REPLAY_BF16;
    return TOOL_OK;
}
