/* pagestash replay: a recorded routing trace through pool, stash and restore. */
#include "parse.h"
#include "replay.h"

#include <argp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum flag_kind {
    FLAG_TEXT,
    FLAG_U32,
    FLAG_U64,
    FLAG_FACTOR,     /* a number above 0 */
    FLAG_POWER_OF_2, /* a size */
    FLAG_RANGE,      /* two uint64_t, step_begin and step_end */
    FLAG_FRACTION,   /* two uint32_t, numerator and denominator */
    FLAG_CHOICE,     /* `argument` lists the alternatives */
    FLAG_SWITCH,
} flag_kind;

/* One flag: how argp shows it, what is allowed, and where the value goes. */
typedef struct flag {
    const char *name, *argument;
    flag_kind kind;
    uint64_t min, max;
    size_t offset; /* in replay_options */
    const char *help;
} flag;

#define AT(member) offsetof(replay_options, member)
#define MAX_WIDTH (1u << 20)
#define MAX_PARTS (1u << 20) /* ranks, layers, micro-batches */
#define MAX_PAGES ((1u << 31) - 1)
#define MAX_FACTOR 1000000
#define MAX_SEED INT64_MAX /* JSON integers are signed */

static const flag flags[] = {
    {"routing", "FILE", FLAG_TEXT, 0, 0, AT(routing),
     "trace: CSV with columns step,layer,e0,e1,...: rows that each expert received; - is stdin"},
    {"steps", "A:B", FLAG_RANGE, 0, 0, AT(step_begin), "steps A to B-1 of the trace (all)"},
    {"layers", "N", FLAG_U32, 1, MAX_PARTS, AT(layers), "first N layers of each step (all)"},
    {"microbatches", "M", FLAG_U32, 1, MAX_PARTS, AT(microbatches),
     "micro-batches of an iteration, one step of the trace each: all forwards, then all backwards "
     "in reverse (1)"},
    {"ep", "N", FLAG_U32, 1, MAX_PARTS, AT(ep), "split the experts over N ranks (1)"},
    {"rank", "R", FLAG_U32, 0, MAX_PARTS, AT(rank), "take rank R of them (0)"},

    {"hidden", "N", FLAG_U32, 1, MAX_WIDTH, AT(hidden), "width of the model (1024)"},
    {"ffn", "N", FLAG_U32, 1, MAX_WIDTH, AT(ffn), "width of an expert (512)"},
    {"dtype", "bf16|mxfp8", FLAG_CHOICE, 0, 0, AT(dtype), "what a layer keeps (bf16)"},
    {"layout", "prefix|segments", FLAG_CHOICE, 0, 0, AT(layout),
     "live rows first, or a slab for each expert (prefix)"},
    {"capacity-factor", "X", FLAG_FACTOR, 0, MAX_FACTOR, AT(capacity_factor),
     "static rows are ceil(X * mean rows of a rank), with --layout segments of one of its experts "
     "(the trace's maximum)"},

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
    {"page-size", "BYTES", FLAG_POWER_OF_2, PST_PAGE_BYTES_MIN, PST_PAGE_BYTES_MAX, AT(page_bytes),
     "a power of two, 16KiB to 4MiB (256KiB)"},
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
enum { NUM_FLAGS = sizeof(flags) / sizeof(flags[0]), FIRST_KEY = 256 };

/* What is allowed, in words; for the message about a wrong value. */
static error_t refuse(const flag *entry, const char *value)
{
    char allowed[96];
    switch (entry->kind) {
    case FLAG_U32:
    case FLAG_U64:
        snprintf(allowed, sizeof(allowed), "an integer %llu..%llu", (unsigned long long)entry->min,
                 (unsigned long long)entry->max);
        break;
    case FLAG_FACTOR:
        snprintf(allowed, sizeof(allowed), "a number above 0, at most %llu",
                 (unsigned long long)entry->max);
        break;
    case FLAG_POWER_OF_2:
        snprintf(allowed, sizeof(allowed), "a power of two, %llu KiB to %llu KiB",
                 (unsigned long long)entry->min >> 10, (unsigned long long)entry->max >> 10);
        break;
    case FLAG_RANGE:
        snprintf(allowed, sizeof(allowed), "A:B, integers with A < B");
        break;
    case FLAG_FRACTION:
        snprintf(allowed, sizeof(allowed), "NUM/DEN, integers with NUM <= DEN and 1 <= DEN <= %llu",
                 (unsigned long long)UINT32_MAX);
        break;
    default:
        snprintf(allowed, sizeof(allowed), "%s", entry->argument);
    }
    tool_fail(TOOL_USAGE, "--%s %.80s: allowed is %s", entry->name, value, allowed);
    return EINVAL;
}

static bool take_u32(const flag *entry, const char *text, uint32_t *out)
{
    uint64_t value;
    if (!parse_u64(text, entry->min, entry->max, &value))
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool take_power_of_2(const flag *entry, const char *text, uint64_t *out)
{
    uint64_t value;
    if (!parse_size(text, entry->min, entry->max, &value) || (value & (value - 1)) != 0)
        return false;
    *out = value;
    return true;
}

static error_t take_flag(const flag *entry, const char *text, replay_options *options)
{
    void *place = (char *)options + entry->offset;
    bool right = true;
    switch (entry->kind) {
    case FLAG_TEXT:
        *(const char **)place = text;
        break;
    case FLAG_SWITCH:
        *(bool *)place = true;
        break;
    case FLAG_U32:
        right = take_u32(entry, text, place);
        break;
    case FLAG_U64:
        right = parse_u64(text, entry->min, entry->max, place);
        break;
    case FLAG_FACTOR:
        right = parse_factor(text, (double)entry->max, place);
        break;
    case FLAG_POWER_OF_2:
        right = take_power_of_2(entry, text, place);
        break;
    case FLAG_RANGE:
        right = parse_range(text, place, (uint64_t *)place + 1);
        break;
    case FLAG_FRACTION:
        right = parse_fraction(text, place, (uint32_t *)place + 1);
        break;
    case FLAG_CHOICE:
        right = parse_choice(text, entry->argument, place);
        break;
    }
    return right ? 0 : refuse(entry, text);
}

static error_t parse_option(int key, char *argument, struct argp_state *state)
{
    if (key >= FIRST_KEY && key < FIRST_KEY + NUM_FLAGS)
        return take_flag(&flags[key - FIRST_KEY], argument, state->input);
    switch (key) {
    case ARGP_KEY_INIT:
        state->err_stream = NULL; /* one line, not the advice that argp adds to it */
        return 0;
    case ARGP_KEY_ARG:
        tool_fail(TOOL_USAGE, "replay: argument \"%.80s\": allowed are options only", argument);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

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
    return report_check(options->json);
}

static int parse_options(int argc, char **argv, replay_options *options)
{
    struct argp_option list[NUM_FLAGS + 1] = {0};
    for (int i = 0; i < NUM_FLAGS; i++)
        list[i] = (struct argp_option){
            .name = flags[i].name,
            .key = FIRST_KEY + i,
            .arg = flags[i].argument,
            .doc = flags[i].help,
            .group = i + 1, /* else argp sorts them by name */
        };
    const struct argp parser = {
        .options = list,
        .parser = parse_option,
        .doc = "Replay a recorded MoE routing trace: for every step, fill each layer's static "
               "buffers, stash their live rows into pages, poison them; then restore in reverse "
               "and check every byte.\vSizes take the suffixes KiB, MiB, GiB. Exit codes: 0 every "
               "byte came back; 1 bytes differ, or it does not fit; 2 usage; 3 bad trace; 4 device "
               "absent or failed.",
    };
    if (argp_parse(&parser, argc, argv, 0, NULL, options) != 0)
        return TOOL_USAGE;
    return check_options(options);
}

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
    replay_options options = {
        .hidden = 1024,
        .ffn = 512,
        .ep = 1,
        .microbatches = 1,
        .page_bytes = PST_PAGE_BYTES_DEFAULT,
        .host_pages = REPLAY_PAGES_BY_FACTOR,
        .offload = {0, 1},
        .step_end = UINT64_MAX,
        .streams = 1,
        .mode = -1,
    };
    TOOL_TRY(parse_options(argc, argv, &options));
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
