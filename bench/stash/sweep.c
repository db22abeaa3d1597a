/* The configurations: a base, and sweeps of what differs from it in one thing. */
#include "bench/stash/case.h"

#include <string.h>

const char *bench_sweep_name(bench_sweep sweep)
{
    static const char *const names[] = {"bytes",   "num_sms",   "page_size", "ring",    "pattern",
                                        "tensors", "alignment", "pitch",     "backend", "gemm",
                                        "pairs",   "host",      "glu",       "linear",  "custom"};
    return names[sweep];
}

const char *bench_pattern_name(bench_pattern pattern)
{
    static const char *const names[] = {"prefix", "uniform", "zipf", "hot-expert", "empty", "full"};
    return names[pattern];
}

const char *bench_ring_name(bench_ring ring)
{
    static const char *const names[] = {"fresh", "shuffled", "reversed"};
    return names[ring];
}

const char *bench_state_name(bench_state state)
{
    return state == BENCH_COLD ? "cold" : "warm";
}

const char *bench_backend_name(pst_backend backend)
{
    static const char *const names[] = {"auto", "ldg", "bulk", "squeeze"};
    return names[backend];
}

bench_case bench_base_case(void)
{
    return (bench_case){.bytes = 64 * BENCH_MIB,
                        .page_bytes = 256 * BENCH_KIB,
                        .tensors = 6,
                        .alignment = 16,
                        .pattern = BENCH_PREFIX};
}

/* ---- what each sweep varies ---- */

#define END UINT32_MAX
#define LIST(...)        \
    (const uint32_t[])   \
    {                    \
        __VA_ARGS__, END \
    }

typedef struct sweep_list {
    bench_sweep sweep;
    bool peers, scales;
    bool each_backend;
    const uint32_t *values; /* MiB, KiB of pages, or what the sweep is called after */
    const uint32_t *quick;  /* NULL: the same */
} sweep_list;

/* gemm, pairs, host, glu and linear are not made of configurations. */
static const sweep_list lists[] = {
    {.sweep = BENCH_SWEEP_BYTES,
     .peers = true,
     .values = LIST(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048),
     .quick = LIST(1, 16, 64, 256, 512)},
    {.sweep = BENCH_SWEEP_NUM_SMS,
     .each_backend = true,
     .values = LIST(1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 0),
     .quick = LIST(8, 32, 48, 0)},
    {.sweep = BENCH_SWEEP_PAGE_SIZE,
     .values = LIST(16, 32, 64, 128, 256, 512, 1024, 2048, 4096),
     .quick = LIST(16, 64, 256, 1024, 4096)},
    {.sweep = BENCH_SWEEP_RING, .values = LIST(BENCH_FRESH, BENCH_SHUFFLED, BENCH_REVERSED)},
    {.sweep = BENCH_SWEEP_PATTERN,
     .peers = true,
     .values = LIST(BENCH_UNIFORM, BENCH_ZIPF, BENCH_HOT_EXPERT, BENCH_EMPTY, BENCH_FULL)},
    {.sweep = BENCH_SWEEP_TENSORS,
     .scales = true,
     .values = LIST(1, 2, 4, 6, 8, 16, 32, 64),
     .quick = LIST(1, 6, 64)},
    {.sweep = BENCH_SWEEP_ALIGNMENT, .values = LIST(16, 4, 2)},
    {.sweep = BENCH_SWEEP_PITCH, .values = LIST(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)},
    {.sweep = BENCH_SWEEP_BACKEND,
     .each_backend = true,
     .values = LIST(64, 4, 512),
     .quick = LIST(64)},
};

/* Rows of three widths, each packed, with 16 bytes between them, and with room for one and two more:
 * a view of a fused buffer. */
static void set_pitch(bench_case *one, uint32_t value)
{
    static const uint32_t rows[] = {256, 1024, 4096};
    one->row_bytes = rows[value / 4];
    one->row_stride =
        value % 4 == 1 ? one->row_bytes + 16 : one->row_bytes * (value % 4 ? value % 4 : 1);
}

static void set_value(bench_case *one, uint32_t value)
{
    switch (one->sweep) {
    case BENCH_SWEEP_NUM_SMS:
        one->num_sms = (int)value;
        break;
    case BENCH_SWEEP_PAGE_SIZE:
        one->page_bytes = value * BENCH_KIB;
        break;
    case BENCH_SWEEP_RING:
        one->ring = (bench_ring)value;
        break;
    case BENCH_SWEEP_PATTERN:
        one->pattern = (bench_pattern)value;
        break;
    case BENCH_SWEEP_TENSORS:
        one->tensors = value;
        break;
    case BENCH_SWEEP_ALIGNMENT:
        one->alignment = value;
        break;
    case BENCH_SWEEP_PITCH:
        set_pitch(one, value);
        break;
    default:
        one->bytes = value * BENCH_MIB;
    }
}

/* The size in sweeps that are not of sizes. */
static uint64_t usual_mib(bench_sweep sweep, bool is_host, bool quick)
{
    if (sweep == BENCH_SWEEP_TENSORS)
        return 16;
    if (sweep == BENCH_SWEEP_PITCH && !is_host)
        return 64;
    if (sweep == BENCH_SWEEP_NUM_SMS && !is_host) /* a launch costs little beside so many bytes */
        return 256;
    return is_host ? (quick ? 16 : 64) : (quick ? 64 : 256);
}

static bool is_possible(const pst_device_info *device, bench_sweep sweep, uint32_t value,
                        bool quick)
{
    if (sweep == BENCH_SWEEP_NUM_SMS)
        return (int)value < device->num_sms;
    /* on host with its anchors under 4 GiB of memory */
    return sweep != BENCH_SWEEP_BYTES || device->kind != PST_DEVICE_HOST ||
           value <= (quick ? 64u : 512u);
}

size_t bench_cases(const pst_device_info *device, uint32_t sweeps, bool quick, bench_case *cases)
{
    const bool is_host = device->kind == PST_DEVICE_HOST;
    size_t num = 0;
    for (const sweep_list *list = lists; list < lists + sizeof(lists) / sizeof(*lists); list++) {
        const int last = list->each_backend ? PST_BACKEND_SQUEEZE : PST_BACKEND_AUTO;
        if (!(sweeps & 1u << list->sweep))
            continue;
        bench_case base = bench_base_case();
        base.sweep = list->sweep;
        base.bytes = usual_mib(list->sweep, is_host, quick) * BENCH_MIB;
        base.peers = list->peers;
        base.scales = list->scales;
        for (int backend = list->each_backend ? PST_BACKEND_LDG : PST_BACKEND_AUTO; backend <= last;
             backend++)
            for (const uint32_t *value = quick && list->quick ? list->quick : list->values;
                 *value != END; value++)
                if (is_possible(device, list->sweep, *value, quick)) {
                    base.backend = (pst_backend)backend;
                    cases[num] = base;
                    set_value(&cases[num++], *value);
                }
    }
    return num;
}
