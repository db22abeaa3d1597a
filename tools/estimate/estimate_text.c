/* The report of an estimate as text, printed from its tree. */
#include "tools/common/help.h"
#include "tools/estimate/estimate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LAST_COLUMN = 100, INDENT = 4 };

/* ---- values ---- */

const json_t *estimate_at(const json_t *from, const char *path)
{
    char key[64];
    while (*path != '\0') {
        const size_t length = strcspn(path, ".");
        snprintf(key, sizeof(key), "%.*s", (int)length, path);
        from = json_object_get(from, key);
        path += length + (path[length] == '.');
    }
    return from;
}

uint64_t estimate_whole_at(const json_t *from, const char *path)
{
    return (uint64_t)json_integer_value(estimate_at(from, path));
}

static const char *text_at(const json_t *from, const char *path)
{
    const char *text = json_string_value(estimate_at(from, path));
    return text != NULL ? text : "-";
}

/* Returns how long it is. */
static size_t cell_text(const json_t *value, estimate_form form, char *out, size_t bytes)
{
    size_t used = 0;
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value) && used < bytes; i++) {
            used += (size_t)snprintf(out + used, bytes - used, "%s", i > 0 ? "+" : "");
            used += cell_text(json_array_get(value, i), form, out + used, bytes - used);
        }
        return used;
    }
    if (!json_is_integer(value))
        return (size_t)snprintf(out, bytes, "%s",
                                json_is_string(value) ? json_string_value(value) : "-");
    const json_int_t whole = json_integer_value(value);
    if (form == AS_NUMBER)
        return (size_t)snprintf(out, bytes, "%" JSON_INTEGER_FORMAT, whole);
    return (size_t)snprintf(out, bytes, form == AS_MS ? "%.0f" : "%.2f",
                            (double)whole / (form == AS_MS    ? 1e3
                                             : form == IN_GIB ? 1 << 30
                                                              : 1 << 20));
}

/* ---- tables ---- */

static int width_of(const estimate_column *column)
{
    return column->form == AS_TEXT ? -column->width : column->width;
}

/* The cells behind the first, titles of NULL, and those blanks that no line ends in left out. */
static void row_text(const json_t *row, const estimate_column *columns, size_t num_columns,
                     char *out, size_t bytes)
{
    size_t used = 0;
    char cell[256];
    for (size_t i = 1; i < num_columns && used < bytes; i++) {
        (void)cell_text(estimate_at(row, columns[i].path), columns[i].form, cell, sizeof(cell));
        used += (size_t)snprintf(out + used, bytes - used, " %*s", width_of(&columns[i]),
                                 row != NULL ? cell : columns[i].title);
    }
    for (used = strlen(out); used > 0 && out[used - 1] == ' '; used--)
        out[used - 1] = '\0';
}

static void print_first(const estimate_column *column, const json_t *first, const json_t *last)
{
    char text[96];
    size_t used = cell_text(estimate_at(first, column->path), column->form, text, sizeof(text));
    if (first != last)
        snprintf(text + used, sizeof(text) - used, "-%" PRIu64,
                 estimate_whole_at(last, column->path));
    printf("  %*s", width_of(column), text);
}

/* The next row from number *i on, of that op, or any for NULL. Returns NULL behind the last. */
static const json_t *next_row(const json_t *rows, const char *op, size_t *i)
{
    const json_t *row;
    do
        row = json_array_get(rows, (*i)++);
    while (row != NULL && op != NULL && strcmp(text_at(row, "op"), op) != 0);
    return row;
}

void estimate_print_rows(const json_t *rows, const char *op, const estimate_column *columns,
                         size_t num_columns)
{
    char text[2][1024] = {"", ""};
    row_text(NULL, columns, num_columns, text[0], sizeof(text[0]));
    printf("  %*s%s\n", width_of(&columns[0]), columns[0].title, text[0]);
    size_t i = 0;
    const json_t *next = NULL, *first = next_row(rows, op, &i);
    for (const json_t *row = first; row != NULL; row = next) {
        next = next_row(rows, op, &i);
        row_text(row, columns, num_columns, text[0], sizeof(text[0]));
        row_text(next, columns, num_columns, text[1], sizeof(text[1]));
        if (next != NULL && columns[0].form == AS_NUMBER && strcmp(text[0], text[1]) == 0)
            continue;
        print_first(&columns[0], first, row);
        puts(text[0]);
        first = next;
    }
}

void estimate_print_wrapped(const char *title, const char *text)
{
    help_line line = {.column = printf("%s", title), .indent = INDENT, .last = LAST_COLUMN};
    help_words(&line, text);
    putchar('\n');
}

void estimate_print_notes(const json_t *tree, const char *key, const char *title)
{
    const json_t *lines = json_object_get(tree, key);
    for (size_t i = 0; i < json_array_size(lines); i++)
        estimate_print_wrapped(title, json_string_value(json_array_get(lines, i)));
}

/* ---- parts of the report ---- */

static void print_params(const json_t *tree)
{
    const json_t *params = json_object_get(tree, "params");
    printf("\nparameters: %" PRIu64 " (%" PRIu64 " with the vocabulary padded to %" PRIu64 ")\n",
           estimate_whole_at(params, "total"), estimate_whole_at(params, "total_padded"),
           estimate_whole_at(params, "padded_vocab"));
    if (estimate_whole_at(params, "moe_layer") != 0)
        printf("  a token meets %" PRIu64 "; in routed experts %" PRIu64 "\n",
               estimate_whole_at(params, "active"), estimate_whole_at(params, "experts"));
    if (estimate_whole_at(params, "router_bias") != 0)
        printf("  besides: %" PRIu64 " of the router's bias\n",
               estimate_whole_at(params, "router_bias"));
    if (estimate_whole_at(tree, "config.mtp_layers") != 0)
        printf("  besides: %" PRIu64 " of each depth of multi-token prediction\n",
               estimate_whole_at(params, "mtp_depth"));
}

static void print_modules(const json_t *tree)
{
    static const struct {
        const char *path, *title;
    } parts[] = {{"modules.dense", "a dense layer"},
                 {"modules.moe", "a layer with experts"},
                 {"modules.outside", "outside"}};
    puts("\nmodules: weights of the model (count + outputs + inputs) and of one GPU; saved for a\n"
         "micro-batch, undivided and on one GPU, MiB");
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (json_array_size(estimate_at(tree, parts[i].path)) != 0)
            ESTIMATE_PRINT_ROWS(
                estimate_at(tree, parts[i].path), {"name", parts[i].title, AS_TEXT, 20},
                {"whole_shape", "weights", AS_NUMBER, 18}, {"shape", "of one GPU", AS_NUMBER, 18},
                {"params", "parameters", AS_NUMBER, 13}, {"whole_saved_bytes", "saved", IN_MIB, 10},
                {"saved_bytes", "of one GPU", IN_MIB, 11});
}

/* What few runs have. */
static void print_parts(const json_t *stage, uint64_t number)
{
    static const struct {
        const char *path, *what;
    } parts[] = {{"bytes.fp8_weights", "weights in fp8"},
                 {"bytes.gathered", "gathered weights"},
                 {"bytes.reloaded", "saved tensors on their way from host memory"},
                 {"bytes.workspaces", "Transformer Engine's workspaces"},
                 {"bytes.host_saved", "not counted, in host memory: saved tensors"}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        const uint64_t bytes = estimate_whole_at(stage, parts[i].path);
        if (bytes != 0)
            printf("  stage %" PRIu64 ", %s: %.2f GiB\n", number, parts[i].what,
                   (double)bytes / (1 << 30));
    }
}

static void print_stages(const json_t *tree)
{
    const json_t *stages = json_object_get(tree, "stages");
    const uint64_t heaviest = estimate_whole_at(tree, "cluster.heaviest_stage");
    const json_t *stage = json_array_get(stages, heaviest);
    puts("\nmemory of one GPU of each stage, GiB");
    ESTIMATE_PRINT_ROWS(
        stages, {"stage", "stage", AS_NUMBER, 5}, {"bytes.weights", "weights", IN_GIB, 7},
        {"bytes.gradients", "gradients", IN_GIB, 9}, {"bytes.optimizer", "optimizer", IN_GIB, 9},
        {"bytes.activations", "saved", IN_GIB, 8}, {"bytes.head", "head", IN_GIB, 6},
        {"bytes.recompute", "again", IN_GIB, 6}, {"bytes.paging", "paging", IN_GIB, 6},
        {"bytes.empty_gradients", "empty", IN_GIB, 6}, {"bytes.transients", "transient", IN_GIB, 9},
        {"bytes.peak", "peak", IN_GIB, 8}, {"bytes.margin", "margin", IN_GIB, 8});
    puts("\nlayers of each chunk, and micro-batches of it in flight at the peak; the largest "
         "transient");
    ESTIMATE_PRINT_ROWS(
        stages, {"stage", "stage", AS_NUMBER, 5}, {"params.total", "parameters", AS_NUMBER, 14},
        {"layers", "layers", AS_NUMBER, 16}, {"in_flight", "in flight", AS_NUMBER, 16},
        {"transient", "transient", AS_TEXT, 24});
    print_parts(stage, heaviest);
    if (estimate_whole_at(stage, "bytes.host") != 0)
        printf("  in host memory, for a GPU of stage %" PRIu64 ": %.2f GiB of the optimizer\n",
               heaviest, (double)estimate_whole_at(stage, "bytes.host") / (1 << 30));
}

/* Those of the transfers that have this name. */
static void print_groups(const json_t *tree)
{
    const json_t *groups = json_object_get(tree, "groups");
    for (size_t i = 0; i < json_array_size(groups); i++) {
        const json_t *group = json_array_get(groups, i);
        const uint64_t size = estimate_whole_at(group, "size");
        printf("  %s parallel: groups of %" PRIu64 ", the first is ranks 0 to %" PRIu64
               " by %" PRIu64 "\n",
               text_at(group, "group"), size, (size - 1) * estimate_whole_at(group, "stride"),
               estimate_whole_at(group, "stride"));
        const json_t *lists = json_object_get(group, "members");
        for (size_t j = 0; j < json_array_size(lists); j++) {
            const json_t *members = json_array_get(lists, j);
            for (size_t k = 0; k < json_array_size(members); k++)
                printf("%s%" JSON_INTEGER_FORMAT, k == 0 ? "    " : " ",
                       json_integer_value(json_array_get(members, k)));
            putchar('\n');
        }
    }
}

static void print_transfers(const json_t *tree)
{
    const json_t *ops = estimate_at(tree, "cluster.ops"), *rows = json_object_get(tree, "comm");
    puts("\ntransfers of one GPU: calls for a micro-batch and an iteration, MiB of a call, GiB on "
         "the\n"
         "wire in an iteration");
    print_groups(tree);
    for (size_t i = 0; i < json_array_size(ops); i++) {
        const char *name = text_at(json_array_get(ops, i), "op");
        size_t at = 0;
        const json_t *first = next_row(rows, name, &at);
        printf("  %s: %s of %" PRIu64 " (%s parallel)\n", name, text_at(first, "transfer"),
               estimate_whole_at(first, "group_size"), text_at(first, "group"));
        const estimate_column columns[] = {{"stage", "stage", AS_NUMBER, 7},
                                           {"count_per_micro_batch", "per mb", AS_NUMBER, 8},
                                           {"count", "calls", AS_NUMBER, 10},
                                           {"payload_bytes", "MiB", IN_MIB, 12},
                                           {"wire_bytes", "wire GiB", IN_GIB, 12}};
        estimate_print_rows(rows, name, columns, sizeof(columns) / sizeof(columns[0]));
    }
    printf("  what leaves all GPUs in an iteration: %" PRIu64
           " GiB (received messages are not counted twice)\n",
           estimate_whole_at(tree, "cluster.wire_gib"));
}

/* A table whose rows are keys of one object: a name, rows, bytes. */
static void print_moe(const json_t *tree)
{
    static const struct {
        const char *name, *rows, *bytes;
    } lines[] = {{"balanced", "balanced_rows", "balanced_bytes"},
                 {"capacity", "capacity_rows", "capacity_bytes"},
                 {"worst routing", "worst_rows", "worst_bytes"},
                 {"the layer at work", "capacity_rows", "working_bytes"},
                 {"  for the worst routing", "worst_rows", "worst_working_bytes"},
                 {"pages of rows, all layers", "pages", "pages_bytes"},
                 {"  their tables", "pages", "table_bytes"},
                 {"pages and layer at work", "capacity_rows", "paged_rows_model"},
                 {"a pool of byte pages", "pool_pages", "pool_bytes"}};
    const json_t *moe = json_object_get(tree, "moe_buffers");
    if (json_is_null(moe))
        return;
    printf("\nexpert layers of a GPU of stage %" PRIu64 ": %" PRIu64 " live, %" PRIu64
           " bytes saved for a row\n  %-26s %14s %12s\n",
           estimate_whole_at(moe, "stage"), estimate_whole_at(moe, "live_layers"),
           estimate_whole_at(moe, "row_bytes"), "buffers", "rows or pages", "GiB");
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        printf("  %-26s %14" PRIu64 " %12.3f\n", lines[i].name,
               estimate_whole_at(moe, lines[i].rows),
               (double)estimate_whole_at(moe, lines[i].bytes) / (1 << 30));
}

static void print_whatifs(const json_t *tree)
{
    const json_t *changes = json_object_get(tree, "whatif");
    printf("\nwhat if: GiB saved at the peak of stage %" PRIu64
           ", GiB more that leave one of its GPUs in an iteration\n"
           "  %10s %10s  change\n",
           estimate_whole_at(tree, "cluster.heaviest_stage"), "saved", "more sent");
    for (size_t i = 0; i < json_array_size(changes); i++) {
        const json_t *of = json_array_get(changes, i);
        char saved[32], sent[32], title[96], text[1024];
        (void)cell_text(json_object_get(of, "saved_bytes"), IN_GIB, saved, sizeof(saved));
        (void)cell_text(json_object_get(of, "extra_wire_bytes"), IN_GIB, sent, sizeof(sent));
        snprintf(title, sizeof(title), "  %10s %10s  ", saved, sent);
        snprintf(text, sizeof(text), "%s (%s)", text_at(of, "change"), text_at(of, "cost"));
        estimate_print_wrapped(title, text);
    }
}

void estimate_print_details(const json_t *tree)
{
    putchar('\n');
    estimate_print_notes(tree, "assumptions", "assumed: ");
    estimate_print_notes(tree, "warnings", "warning: ");
    estimate_print_notes(tree, "not_counted", "not counted: ");
    print_params(tree);
    print_modules(tree);
    print_stages(tree);
    print_transfers(tree);
    print_moe(tree);
    print_whatifs(tree);
}

static double ms_at(const json_t *step, const char *path)
{
    return (double)estimate_whole_at(step, path) / 1e6;
}

/* A model's prediction, in milliseconds. */
static void print_step(const json_t *tree)
{
    const json_t *step = json_object_get(tree, "step");
    if (json_is_null(step))
        return;
    printf("\na step on %s, predicted: %.1f ms, %" PRIu64 " tokens a second and GPU, MFU %.1f %%\n",
           text_at(step, "gpu"), ms_at(step, "step_ns"),
           estimate_whole_at(step, "tokens_per_second"),
           (double)estimate_whole_at(step, "mfu_permille") / 10);
    printf("  of stage %" PRIu64
           ", ms: products %.1f, other operations %.1f, exposed transfers %.1f,\n"
           "  bubble %.1f; then gradients %.1f, parameters %.1f, optimizer %.1f\n",
           estimate_whole_at(step, "stage"), ms_at(step, "products_ns"), ms_at(step, "memory_ns"),
           ms_at(step, "exposed_ns"), ms_at(step, "bubble_ns"), ms_at(step, "gradients_ns"),
           ms_at(step, "params_ns"), ms_at(step, "optimizer_ns"));
}

int estimate_report(const estimate_options *options)
{
    json_t *tree = NULL;
    TOOL_TRY(estimate_tree(options, &tree));
    if (!json_is_stdout(options->json)) {
        estimate_print_summary(options, tree, NULL);
        if (options->shows_details)
            estimate_print_details(tree);
        print_step(tree);
    }
    return json_write(tree, options->json);
}
