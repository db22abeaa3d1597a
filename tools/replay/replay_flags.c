#include "tools/replay/replay_flags.h"

#include "tools/replay/replay.h"

#define AT(member) offsetof(replay_options, member)
#define MAX_WIDTH (1u << 20)
#define MAX_PARTS (1u << 20) /* ranks, layers, micro-batches */
#define MAX_FACTOR 1000000

static const flag flags[] = {
    {"routing", "FILE", FLAG_TEXT, 0, 0, AT(routing),
     "trace: CSV with columns step,layer,e0,e1,...: rows that each expert received; - is stdin"},
    {"steps", "A:B", FLAG_RANGE, 0, 0, AT(step_begin), "steps A to B-1 of the trace (all)"},
    {"layers", "N", FLAG_U32, 1, MAX_PARTS, AT(layers), "first N layers of each step (all)"},
    {"microbatches", "M", FLAG_U32, 1, MAX_PARTS, AT(num_micro_batches),
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
    {"page-size", "BYTES", FLAG_POWER_OF_2, PST_PAGE_BYTES_MIN, PST_PAGE_BYTES_MAX, AT(page_bytes),
     "a power of two, 16KiB to 4MiB (256KiB)"},
};

flag_group replay_model_flags(size_t base)
{
    return (flag_group){flags, sizeof(flags) / sizeof(flags[0]), base};
}
