/* pagestash replay: a recorded routing trace through pool, stash and restore. */
#include "tools/common/flags.h"
#include "tools/common/output.h"
#include "tools/replay/replay.h"
#include "tools/replay/replay_flags.h"

#include <stddef.h>

#define AT(member) offsetof(replay_options, member)
#define MAX_PAGES ((1u << 31) - 1)
#define MAX_FACTOR 1000000
#define MAX_SEED INT64_MAX /* JSON integers are signed */

static const flag flags[] = {
    {"device", "auto|host|cuda", FLAG_CHOICE, 0, 0, AT(device),
     "auto is cuda if there is one, else host (auto)"},
    {"pages", "N", FLAG_U64, 1, MAX_PAGES, AT(pages), "pages of the pool"},
    {"headroom", "X", FLAG_FACTOR, 0, MAX_FACTOR, AT(headroom),
     "or X times the predicted high-water mark (1.0)"},
    {"host-pages", "N", FLAG_U64, 0, MAX_PAGES, AT(host_pages),
     "host pages of the pool: pinned memory that stashes take when device pages run out (0)"},
    {"host-headroom", "X", FLAG_FACTOR, 0, MAX_FACTOR, AT(host_headroom),
     "or X times the predicted high-water mark"},
    {"offload-fraction", "NUM/DEN", FLAG_FRACTION, 0, 0, AT(offload),
     "the first NUM/DEN of the pages of each stash prefer host pages (0/1)"},
    {"on-overflow", "fail|grow|retry", FLAG_CHOICE, 0, 0, AT(on_overflow),
     "an iteration that lacks pages is lost, or replayed with as many added to the device "
     "(grow) or host pages (retry) (fail)"},
    {"scrub", NULL, FLAG_SWITCH, 0, 0, AT(scrub), "clear a page whenever it is freed"},
    {"mode", "ordered|concurrent", FLAG_CHOICE, 0, 0, AT(mode),
     "of the pool (ordered; concurrent with two streams)"},
    {"streams", "1|2", FLAG_U32, 1, 2, AT(streams),
     "with 2, every other layer runs on a second stream with its own buffers (1)"},
    {"no-graph", NULL, FLAG_SWITCH, 0, 0, AT(no_graph),
     "enqueue each iteration instead of replaying one captured graph"},
    {"num-sms", "N", FLAG_U32, 0, 1024, AT(num_sms), "SMs for a stash or restore; 0 is all (0)"},
    {"backend", "auto|ldg|bulk|squeeze", FLAG_CHOICE, 0, 0, AT(backend),
     "how stash and restore copy on cuda (auto)"},
    {"tail", "keep|zero", FLAG_CHOICE, 0, 0, AT(tail),
     "what restore does behind the live rows (keep)"},
    {"restore", "consume|keep", FLAG_CHOICE, 0, 0, AT(restore),
     "restore frees the pages, or leaves them to a release (consume)"},
    {"seed", "N", FLAG_U64, 0, MAX_SEED, AT(seed), "of the bytes that are stashed (0)"},

    {"json", "FILE", FLAG_TEXT, 0, 0, AT(json),
     "write the report as JSON; - is stdout, and no text then"},
};
enum { NUM_FLAGS = sizeof(flags) / sizeof(flags[0]) };

static int check_host_pages(const replay_options *options)
{
    const bool has_number = options->host_pages != REPLAY_PAGES_BY_FACTOR;
    const bool has_any = has_number ? options->host_pages > 0 : options->host_headroom > 0.0;
    if (has_number && options->host_headroom > 0.0)
        return tool_fail(TOOL_USAGE, "--host-headroom %g: allowed without --host-pages only",
                         options->host_headroom);
    if (options->offload[0] != 0 && !has_any)
        return tool_fail(TOOL_USAGE,
                         "--offload-fraction %u/%u: the pool has no host pages: allowed above 0 "
                         "with --host-pages or --host-headroom only",
                         options->offload[0], options->offload[1]);
    return TOOL_OK;
}

/* What one flag means for another. */
static int check_options(replay_options *options)
{
    if (options->routing == NULL)
        return tool_fail(TOOL_USAGE, "--routing: missing: allowed is a trace file, or - for stdin");
    if (options->rank >= options->ep)
        return tool_fail(TOOL_USAGE, "--rank %u: allowed is 0..%u, below --ep", options->rank,
                         options->ep - 1);
    if (options->pages != 0 && options->headroom > 0.0)
        return tool_fail(TOOL_USAGE, "--headroom %g: allowed without --pages only",
                         options->headroom);
    TOOL_TRY(check_host_pages(options));
    if (options->mode < 0)
        options->mode = options->streams > 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    return output_check("json", options->json);
}

static const char doc[] =
    "Replay a recorded MoE routing trace: for every step, fill each layer's static "
    "buffers, stash their live rows into pages, poison them; then restore in reverse "
    "and check every byte.\vSizes take the suffixes KiB, MiB, GiB. Exit codes: 0 every "
    "byte came back; 1 bytes differ, or it does not fit; 2 usage; 3 bad trace; 4 device "
    "absent or failed.";

static int replay_on_device(const replay_options *options, const replay_trace *trace,
                            replay_plan *plan, replay_result *result_out)
{
    replay_machine machine;
    int code = replay_open(&machine, options, trace, plan);
    if (code == TOOL_OK)
        code = replay_plan_pages(options, trace, machine.working[0], plan);
    if (code == TOOL_OK)
        code = replay_equip(&machine);
    if (code == TOOL_OK)
        code = replay_run(&machine, result_out);
    return replay_close(&machine, code);
}

int cmd_replay(int argc, char **argv)
{
    const flag_table table = {
        .command = "replay",
        .doc = doc,
        .groups = {replay_model_flags(0), {flags, NUM_FLAGS, 0}},
    };
    replay_options options = {
        .hidden = 1024,
        .ffn = 512,
        .ep = 1,
        .num_micro_batches = 1,
        .page_bytes = PST_PAGE_BYTES_DEFAULT,
        .host_pages = REPLAY_PAGES_BY_FACTOR,
        .offload = {0, 1},
        .step_end = UINT64_MAX,
        .streams = 1,
        .mode = -1,
    };
    TOOL_TRY(flags_parse(&table, argc, argv, &options));
    TOOL_TRY(check_options(&options));
    replay_trace trace;
    TOOL_TRY(replay_trace_load(&options, &trace));
    replay_plan plan;
    replay_result result;
    int code = replay_plan_make(&options, &trace, &plan);
    if (code == TOOL_OK)
        code = replay_on_device(&options, &trace, &plan, &result);
    if (code == TOOL_OK)
        code = report(&options, &trace, &plan, &result);
    replay_plan_free(&plan);
    replay_trace_free(&trace);
    return code;
}
