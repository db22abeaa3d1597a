/* The configurations: a base, and sweeps of what differs from it in one thing. */
#include "bench/stash/case.h"

#include <string.h>

typedef struct case_list {
    bench_case *cases;
    size_t num;
    bench_case base; /* of the sweep that is being written */
} case_list;

const char *bench_sweep_name(bench_sweep sweep)
{
    static const char *const names[] = {"bytes",   "num_sms", "page_size", "ring",
                                        "pattern", "tensors", "alignment", "backend",
                                        "gemm",    "pairs",   "host",      "custom"};
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

static bench_case *add(case_list *list)
{
    if (list->num == BENCH_MAX_CASES)
        return &list->cases[BENCH_MAX_CASES - 1];
    list->cases[list->num] = list->base;
    return &list->cases[list->num++];
}

static void add_bytes(case_list *list, bool is_host, bool quick)
{
    static const uint64_t host_mib[] = {1, 16, 64}, cuda_mib[] = {1, 16, 64, 256, 512};
    const uint64_t *mib = is_host ? host_mib : cuda_mib;
    const size_t num =
        is_host ? sizeof(host_mib) / sizeof(mib[0]) : sizeof(cuda_mib) / sizeof(mib[0]);
    list->base.peers = true;
    for (size_t i = 0; quick && i < num; i++)
        add(list)->bytes = mib[i] * BENCH_MIB;
    /* on host with its anchors under 4 GiB of memory */
    for (uint64_t bytes = BENCH_MIB; !quick && bytes <= (is_host ? 512 : 2048) * BENCH_MIB;
         bytes *= 2)
        add(list)->bytes = bytes;
}

static void add_num_sms(case_list *list, const pst_device_info *device, bool quick)
{
    static const int budgets[] = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 0};
    static const int quick_budgets[] = {8, 32, 48, 0};
    const int *all = quick ? quick_budgets : budgets;
    if (device->kind == PST_DEVICE_CUDA) /* no launch's cost in what a budget suffices for */
        list->base.bytes = 256 * BENCH_MIB;
    for (int backend = PST_BACKEND_LDG; backend <= PST_BACKEND_SQUEEZE; backend++)
        for (int i = 0;; i++) {
            if (all[i] < device->num_sms) {
                bench_case *one = add(list);
                one->backend = (pst_backend)backend;
                one->num_sms = all[i];
            }
            if (all[i] == 0)
                break;
        }
}

static void add_page_size(case_list *list, bool quick)
{
    for (uint64_t bytes = PST_PAGE_BYTES_MIN; bytes <= PST_PAGE_BYTES_MAX; bytes *= quick ? 4 : 2)
        add(list)->page_bytes = bytes;
}

static void add_ring(case_list *list)
{
    for (int ring = BENCH_FRESH; ring <= BENCH_REVERSED; ring++)
        add(list)->ring = (bench_ring)ring;
}

static void add_pattern(case_list *list)
{
    list->base.peers = true;
    for (int pattern = BENCH_UNIFORM; pattern < BENCH_NUM_PATTERNS; pattern++)
        add(list)->pattern = (bench_pattern)pattern;
}

static void add_tensors(case_list *list, bool quick)
{
    static const uint32_t numbers[] = {1, 2, 4, 6, 8, 16, 32, 64};
    list->base.bytes = 16 * BENCH_MIB;
    list->base.scales = true;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (!quick || numbers[i] == 1 || numbers[i] == 6 || numbers[i] == 64)
            add(list)->tensors = numbers[i];
}

static void add_alignment(case_list *list)
{
    for (uint32_t alignment = 16; alignment; alignment = alignment == 16  ? 4
                                                         : alignment == 4 ? 2
                                                                          : 0)
        add(list)->alignment = alignment;
}

static void add_backend(case_list *list, bool quick)
{
    static const uint64_t mib[] = {64, 4, 512};
    for (size_t i = 0; i < (quick ? 1 : sizeof(mib) / sizeof(mib[0])); i++)
        for (int backend = PST_BACKEND_LDG; backend <= PST_BACKEND_SQUEEZE; backend++) {
            bench_case *one = add(list);
            one->bytes = mib[i] * BENCH_MIB;
            one->backend = (pst_backend)backend;
        }
}

/* The size of the sweeps that are not of sizes. */
static uint64_t sweep_bytes(bool is_host, bool quick)
{
    if (is_host)
        return (quick ? 16 : 64) * BENCH_MIB;
    return (quick ? 64 : 256) * BENCH_MIB;
}

size_t bench_cases(const pst_device_info *device, uint32_t sweeps, bool quick, bench_case *cases)
{
    const bool is_host = device->kind == PST_DEVICE_HOST;
    case_list list = {.cases = cases};
    for (int sweep = 0; sweep < BENCH_NUM_SWEEPS; sweep++) {
        if (!(sweeps & 1u << sweep))
            continue;
        list.base = bench_base_case();
        list.base.sweep = (bench_sweep)sweep;
        list.base.bytes = sweep_bytes(is_host, quick);
        switch (sweep) {
        case BENCH_SWEEP_BYTES:
            add_bytes(&list, is_host, quick);
            break;
        case BENCH_SWEEP_NUM_SMS:
            add_num_sms(&list, device, quick);
            break;
        case BENCH_SWEEP_PAGE_SIZE:
            add_page_size(&list, quick);
            break;
        case BENCH_SWEEP_RING:
            add_ring(&list);
            break;
        case BENCH_SWEEP_PATTERN:
            add_pattern(&list);
            break;
        case BENCH_SWEEP_TENSORS:
            add_tensors(&list, quick);
            break;
        case BENCH_SWEEP_ALIGNMENT:
            add_alignment(&list);
            break;
        case BENCH_SWEEP_BACKEND:
            add_backend(&list, quick);
            break;
        default: /* gemm, pairs and host are not made of configurations */
            break;
        }
    }
    return list.num;
}
