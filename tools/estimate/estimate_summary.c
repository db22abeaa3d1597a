/* The first lines of a report: the verdict, the heaviest stage and its parts, what would help most and what
 * that costs, and what is not counted and matters. */
#include "host/base/arith.h"
#include "tools/estimate/estimate_flags.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { NUM_CHANGES = 3, TEXT = 1024 };

static double gib(uint64_t bytes)
{
    return (double)bytes / (1 << 30);
}

static void print_run(const estimate_options *options, const json_t *tree)
{
    const pst_estimate_config *config = &options->config;
    const uint64_t replica =
        config->tensor_parallel * config->pipeline_parallel * config->context_parallel;
    char text[TEXT];
    int used = snprintf(text, sizeof(text), "%.80s, %.1f B parameters, %" PRIu64 " GPUs:",
                        options->model != NULL ? options->model : "a model",
                        (double)estimate_whole_at(tree, "params.total") / 1e9, config->world_size);
    for (const estimate_way *way = estimate_ways; way < estimate_ways + ESTIMATE_NUM_WAYS; way++)
        if (estimate_value(config, way->id) > 1 &&
            (way->id != ESTIMATE_expert_tensor_parallel_size || config->num_experts != 0))
            used += snprintf(text + used, sizeof(text) - (size_t)used, " %s %" PRIu64, way->name,
                             estimate_value(config, way->id));
    snprintf(text + used, sizeof(text) - (size_t)used,
             " dp %" PRIu64 "; %" PRIu64 " micro-batches of %" PRIu64 " x %" PRIu64,
             config->world_size / replica, estimate_whole_at(tree, "cluster.num_micro_batches"),
             config->micro_batch, config->sequence_size);
    tool_clean(text);
    estimate_print_wrapped("", text);
}

/* What is left out at most, of all that may be more than a hundredth of what is counted; with `prints` says what.
 * Of rows besides what each tenth more than even takes: the worst router is far from any that trains. */
static uint64_t left_out(const json_t *tree, uint64_t peak, bool prints)
{
    const json_t *gaps = json_object_get(tree, "left_out");
    const double even = (double)estimate_whole_at(tree, "moe_buffers.balanced_rows");
    const double worst = (double)estimate_whole_at(tree, "moe_buffers.worst_rows");
    uint64_t sum = 0;
    for (size_t i = 0; i < json_array_size(gaps); i++) {
        const json_t *gap = json_array_get(gaps, i);
        const uint64_t most = estimate_whole_at(gap, "bytes");
        char text[TEXT], tenth[64] = "";
        if (most <= peak / 100)
            continue;
        sum = psti_plus(sum, most);
        if (strcmp(json_string_value(json_object_get(gap, "field")), "moe_rows") == 0)
            snprintf(tenth, sizeof(tenth), ", %.2f for each tenth more",
                     gib(most) * even / (worst - even) / 10);
        snprintf(text, sizeof(text), "%s: up to %.2f GiB%s",
                 json_string_value(json_object_get(gap, "reason")), gib(most), tenth);
        if (prints)
            estimate_print_wrapped("left out: ", text);
    }
    return sum;
}

/* "needs ", as exactly as is known: what is not counted is more, less, or may be either. */
static void print_verdict(const estimate_options *options, const json_t *tree, const json_t *stage)
{
    const uint64_t peak = estimate_whole_at(stage, "bytes.peak"), limit = options->memory_bytes;
    const uint64_t left = left_out(tree, peak, false);
    const bool is_more = options->is_more || left > 0;
    const bool is_open = peak > limit ? options->is_less : options->is_more || left > limit - peak;
    char text[TEXT];
    snprintf(text, sizeof(text),
             "%s%s: stage %" PRIu64 " of %" PRIu64 " needs %s%.2f GiB of %.2f, %.2f %s",
             peak > limit ? "does not fit" : "fits", is_open ? ", as far as it is counted" : "",
             estimate_whole_at(stage, "stage"), estimate_whole_at(tree, "cluster.num_stages"),
             is_more && options->is_less ? "about "
             : is_more                   ? "at least "
             : options->is_less          ? "at most "
                                         : "",
             gib(peak), gib(limit), gib(peak > limit ? peak - limit : limit - peak),
             peak > limit ? "too many" : "to spare");
    estimate_print_wrapped("", text);
}

/* Largest first; what would show as 0.00 is left out. */
static void print_parts(const json_t *stage)
{
    static const struct {
        const char *path, *name;
    } parts[] = {
#define PART(key, member, name) {"bytes." #key, name},
        ESTIMATE_PARTS(PART){"bytes.overhead", "reserve"}, {"bytes.transients", NULL}};
#undef PART
    enum { NUM = sizeof(parts) / sizeof(parts[0]) };
    char text[TEXT] = "";
    uint64_t left[NUM], other = estimate_whole_at(stage, "bytes.peak");
    const uint64_t least = other / 100;
    size_t used = 0;
    for (int i = 0; i < NUM; i++)
        left[i] = estimate_whole_at(stage, parts[i].path);
    for (;;) {
        int most = 0;
        for (int i = 1; i < NUM; i++)
            most = left[i] > left[most] ? i : most;
        if (left[most] == 0 || left[most] < least)
            break;
        used += (size_t)snprintf(
            text + used, sizeof(text) - used, "%s%s %.2f", used > 0 ? ", " : "",
            parts[most].name != NULL ? parts[most].name
                                     : json_string_value(estimate_at(stage, "transient")),
            gib(left[most]));
        other -= left[most];
        left[most] = 0;
    }
    if (other > (1 << 30) / 200)
        snprintf(text + used, sizeof(text) - used, ", other %.2f", gib(other));
    estimate_print_wrapped("  ", text);
}

/* cost: a text, or "". */
static void print_change(const json_t *of, const char *title, const char *cost)
{
    const json_int_t sent = json_integer_value(json_object_get(of, "extra_wire_bytes"));
    char text[TEXT], more[64] = "";
    if (sent >= 1 << 29 || sent <= -(1 << 29)) /* which does not show as 0 */
        snprintf(more, sizeof(more), "%s%+.0f GiB sent", *cost != '\0' ? ", " : "",
                 (double)sent / (1 << 30));
    const bool is_free = *cost == '\0' && *more == '\0';
    snprintf(text, sizeof(text), "-%.2f%s: %s%s%s%s%s",
             gib((uint64_t)json_integer_value(json_object_get(of, "saved_bytes"))),
             json_is_true(json_object_get(of, "fits")) ? ", fits" : "",
             json_string_value(json_object_get(of, "change")), is_free ? "" : " (", cost, more,
             is_free ? "" : ")");
    estimate_print_wrapped(title, text);
}

void estimate_print_summary(const estimate_options *options, const json_t *tree, const char *more)
{
    const json_t *stage = json_array_get(json_object_get(tree, "stages"),
                                         estimate_whole_at(tree, "cluster.heaviest_stage"));
    const json_t *changes = json_object_get(tree, "whatif");
    const json_t *together = json_object_get(tree, "together");
    print_run(options, tree);
    print_verdict(options, tree, stage);
    print_parts(stage);
    for (size_t i = 0; i < json_array_size(changes) && i < NUM_CHANGES; i++) {
        const json_t *of = json_array_get(changes, i);
        print_change(of, "  ", json_string_value(json_object_get(of, "cost")));
    }
    if (json_is_object(together)) /* what each costs is above, or in --details */
        print_change(together, "  no single change is enough: ", "");
    if (more != NULL)
        estimate_print_wrapped("", more);
    estimate_print_notes(tree, "matters", "not counted, and it matters: ");
    (void)left_out(tree, estimate_whole_at(stage, "bytes.peak"), true);
    if (!options->shows_details)
        printf("--details has all stages, modules and transfers%s; --json all figures\n",
               json_array_size(options->unmodelled) > json_array_size(options->matters)
                   ? ", and what else is not counted"
                   : "");
}
