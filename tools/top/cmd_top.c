/* pagestash top: the pools of running jobs. */
#include "tools/common/flags.h"
#include "tools/common/json_out.h"
#include "tools/common/tool.h"
#include "tools/top/top.h"

#include <stdlib.h>
#include <unistd.h>

#define TOP_FLAGS(F)                                                                              \
    F(TEXT, dir, "FOLDER", 0, 0, NULL, "where the jobs leave their pools ($PAGESTASH_TOP)")       \
    F(FACTOR, interval, "SECONDS", 0, 3600, "1", "time from one look to the next, on a terminal") \
    F(SWITCH, once, NULL, 0, 0, NULL, "look once, on a terminal, too")                            \
    F(SWITCH, prune, NULL, 0, 0, NULL, "look once, then remove the files of dead processes")

typedef struct top_options {
    TOP_FLAGS(FLAG_MEMBER)
    const char *json;
} top_options;

#define FLAG_OPTIONS top_options
static const flag top_flags[] = {TOP_FLAGS(FLAG_ROW)};

static int look(const top_options *options)
{
    top_list list;
    TOOL_TRY(top_read(options->dir, &list));
    int code = TOOL_OK;
    if (options->json != NULL)
        code = top_write_json(options->dir, &list, options->json);
    if (code == TOOL_OK && !json_is_stdout(options->json))
        top_print(options->dir, &list);
    if (code == TOOL_OK && options->prune)
        code = top_prune(options->dir, &list);
    top_free(&list);
    return tool_flush(code);
}

int cmd_top(int argc, char **argv)
{
    static const help_codes codes = {.no = "a file could not be removed", .file = "no such folder"};
    const flag_table table = {
        .command = "top",
        .doc =
            "Watch the pools of running jobs: pages in use of each tier, the most there were and "
            "would have been, pages spilled to the host, faults. A job started with "
            "PAGESTASH_TOP=FOLDER leaves there what its last pst_pool_poll has read.\v"
            "On a terminal the table is shown again and again until q or Ctrl-C; elsewhere, and "
            "with "
            "--json, once.",
        .groups = {FLAG_GROUP(top_flags, 0)},
        .json = offsetof(top_options, json),
        .codes = &codes,
    };
    top_options options = {.json = NULL};
    TOOL_TRY(flags_parse(&table, argc, argv, &options));
    if (options.dir == NULL)
        options.dir = getenv("PAGESTASH_TOP");
    if (options.dir == NULL || options.dir[0] == '\0')
        return tool_fail(TOOL_USAGE, "--dir: missing, and PAGESTASH_TOP names no folder");
    if (options.once || options.prune || options.json != NULL || !isatty(STDOUT_FILENO))
        return look(&options);
    return top_watch(options.dir, options.interval);
}
