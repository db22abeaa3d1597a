/* Passes of layers, one after the other, as mode bilevel takes them. */
#include "bench/plan/plan_bench.h"

#include <stdlib.h>

enum { PASSES = 128000, KINDS = 160, EACH = 32 }; /* more than is done in 0.2 s */

/* Of a kind all passes are alike: a tensor's number says how long it lives, its kind and number its size. */
static pst_plan_tensor tensor_of(uint32_t pass, uint32_t number)
{
    const uint64_t begin = ((uint64_t)pass * EACH + number) * 2, kind = pass % KINDS;
    const uint64_t pass_end = (uint64_t)(pass + 1) * EACH * 2, end = begin + 1 + number * 7 % 23;
    return (pst_plan_tensor){.bytes = 512 + (kind * 37 + number * 101) % 97 * 4096,
                             .begin = begin,
                             .end = end < pass_end ? end : pass_end,
                             .pin = PST_PLAN_FREE,
                             .block = pass};
}

void run_passes(const double *deadlines, size_t num)
{
    const size_t num_tensors = (size_t)PASSES * EACH;
    pst_plan_tensor *tensors = bench_need(calloc(num_tensors, sizeof(*tensors)));
    pst_plan_block *blocks = bench_need(calloc(PASSES, sizeof(*blocks)));
    for (uint32_t pass = 0; pass < PASSES; pass++) {
        const uint64_t begin = (uint64_t)pass * EACH * 2;
        blocks[pass] =
            (pst_plan_block){.begin = begin, .end = begin + EACH * 2, .kind = pass % KINDS};
        for (uint32_t number = 0; number < EACH; number++)
            tensors[(size_t)pass * EACH + number] = tensor_of(pass, number);
    }
    const instance of = {.name = "bilevel, 128,000 passes",
                         .tensors = tensors,
                         .blocks = blocks,
                         .num_blocks = PASSES,
                         .num_tensors = num_tensors,
                         .align = 512};
    for (size_t d = 0; d < num; d++)
        run_deadline(&of, deadlines[d]);
    free(tensors);
    free(blocks);
}
