/* Gated activations under the clock, with the stash or restore that is theirs and without. A tile is one of
 * the input: in pages, or in memory where there are none. */
#include "tests/ptx/clock_case.h"

#include <cmath>
#include <cstring>

#include "kernels/core/float.h"
#include "tests/ptx/clock_scene.h"

namespace
{

struct glu_case {
    enum : uint32_t {
        budget = 1,   /* one SM of many is asked for */
        all_sms = 2,  /* DRAM is shared with all SMs, else with few */
        in_short = 4, /* in the short selection */
        alone = 8,    /* without a ticket */
        both = 16     /* in a concurrent pool, too */
    };
    const char *name;
    const char *what; /* in words */
    uint32_t flags;
    pst_glu_kind kind;
    pst_glu_dtype dtype;
    uint32_t interleave;
    uint32_t num_segments;    /* 0: a prefix */
    uint32_t row_bytes, rows; /* of the input; capacity, of one segment */
    uint32_t live;            /* rows; of one segment */
    uint32_t beside;          /* row bytes of another tensor of the ticket; 0: none */
};

#define BUDGET glu_case::budget
#define ALL_SMS glu_case::all_sms
#define SHORT glu_case::in_short
#define ALONE glu_case::alone
#define BOTH glu_case::both
#define SWIGLU PST_GLU_SWIGLU, PST_GLU_BF16

const glu_case cases[] = {
    {"live0", "nothing is live", BOTH, SWIGLU, 0, 0, 8192, 64, 0, 0},
    {"tiles4", "4 tiles of input", SHORT, SWIGLU, 0, 0, 8192, 8, 8, 0},
    {"tiles32", "32 tiles of input", BOTH, SWIGLU, 0, 0, 8192, 64, 64, 0},
    {"tiles32_all_sms", "32 tiles, and DRAM shared with all SMs", ALL_SMS, SWIGLU, 0, 0, 8192, 64,
     64, 0},
    {"tiles32_budget", "32 tiles under a budget of one SM", BUDGET, SWIGLU, 0, 0, 8192, 64, 64, 0},
    {"live0_budget", "nothing live under a budget of one SM", BUDGET, SWIGLU, 0, 0, 8192, 64, 0, 0},
    {"alone", "32 tiles, and no pages", ALONE, SWIGLU, 0, 0, 8192, 64, 64, 0},
    {"beside", "16 tiles beside 16 of another tensor", 0, SWIGLU, 0, 0, 8192, 32, 32, 8192},
    {"segments8", "8 segments of 2 tiles", 0, SWIGLU, 0, 8, 8192, 4, 4, 0},
    {"geglu", "8 tiles in fp16, by erf, gates and ups alternating", 0, PST_GLU_GEGLU, PST_GLU_FP16,
     1, 0, 8192, 16, 16, 0},
    {"fp32", "8 tiles in fp32", 0, PST_GLU_SWIGLU, PST_GLU_FP32, 0, 0, 8192, 16, 16, 0},
    {"narrow", "2 tiles of rows of an odd number of elements", 0, SWIGLU, 0, 0, 8188, 4, 4, 0},
};

/* Results, and the same by the kernels of the host from memory. */
struct glu_scene : clock_scene {
    pst_glu glu = PST_GLU_INIT;
    pst_glu_operands operands = PST_GLU_OPERANDS_INIT, expected = PST_GLU_OPERANDS_INIT;
    uint64_t elements = 0; /* of the output */
    bool is_wide = false;  /* fp32 */
};

float number_at(const glu_scene &s, const void *base, uint64_t n)
{
    if (s.is_wide)
        return ((const float *)base)[n];
    const uint16_t bits = ((const uint16_t *)base)[n];
    return s.glu.dtype == PST_GLU_BF16 ? psti_bf16_to_float(bits) : psti_half_to_float(bits);
}

/* Numbers between -4 and 4. */
void fill(const glu_scene &s, void *base, uint64_t num)
{
    for (uint64_t n = 0; n < num; n++) {
        const float value = (float)(n * 2654435761u >> 8 & 1023) / 128.0f - 4.0f;
        if (s.is_wide)
            ((float *)base)[n] = value;
        else
            ((uint16_t *)base)[n] =
                s.glu.dtype == PST_GLU_BF16 ? psti_float_to_bf16(value) : psti_float_to_half(value);
    }
}

/* A processor without fused multiply-add rounds another way. */
uint64_t differing(const glu_scene &s, const pst_glu_rows &is, const pst_glu_rows &should,
                   uint64_t num)
{
    uint64_t wrong = 0;
    for (uint64_t n = 0; is.base && n < num; n++) {
        const float a = number_at(s, is.base, n), b = number_at(s, should.base, n);
        wrong += !(std::fabs(a - b) <= 0.01f * (std::fabs(b) + 0.01f));
    }
    return wrong;
}

clock_form form_of(const glu_case &what)
{
    clock_form form;
    form.num_segments = what.num_segments;
    form.rows = what.rows;
    form.live = what.live;
    form.tensors = {clock_tensor(what.row_bytes)};
    form.tensors[0].written_by = PST_WRITTEN_BY_GLU;
    if (what.beside)
        form.tensors.push_back(clock_tensor(what.beside));
    return form;
}

void make_operands(glu_scene &s, const glu_case &what, bool is_forward)
{
    const uint64_t rows = s.bytes[0] / what.row_bytes;
    s.glu.kind = what.kind;
    s.glu.dtype = what.dtype;
    s.glu.interleave = what.interleave;
    s.is_wide = what.dtype == PST_GLU_FP32;
    s.elements = s.bytes[0] / (s.is_wide ? 8 : 4);
    fill(s, s.bases[0], 2 * s.elements);
    s.operands.probability.base = clock_alloc(s, rows * sizeof(float));
    for (uint64_t n = 0; n < rows; n++)
        ((float *)s.operands.probability.base)[n] = 0.5f;
    if (!is_forward) {
        s.operands.gradient.base = clock_alloc(s, s.bytes[0] / 2);
        fill(s, s.operands.gradient.base, s.elements);
    }
    s.expected = s.operands;
    for (pst_glu_operands *to : {&s.operands, &s.expected}) {
        if (is_forward) {
            to->output.base = clock_alloc(s, s.bytes[0] / 2);
            memset(to->output.base, 0, s.bytes[0] / 2);
            continue;
        }
        to->input_gradient.base = clock_alloc(s, s.bytes[0]);
        to->probability_gradient.base = clock_alloc(s, rows * sizeof(float));
        memset(to->input_gradient.base, 0, s.bytes[0]);
    }
}

/* Elements that differ in the end. */
uint64_t time_forward(glu_scene &s, pst_ticket ticket, const pst_launch_options &launch)
{
    const std::vector<char> before((char *)s.bases[0], (char *)s.bases[0] + s.bytes[0]);
    pst_stash_options options = PST_STASH_OPTIONS_INIT;
    pst_restore_options restore = PST_RESTORE_OPTIONS_INIT;
    options.launch = launch;
    CLOCK_CHECK(pst_glu_forward(s.device, &s.glu, {0}, s.group, &s.buffers, &s.expected, nullptr,
                                s.stream));
    clock_arm(true);
    CLOCK_CHECK(pst_glu_forward(s.device, &s.glu, ticket, s.group, &s.buffers, &s.operands,
                                &options, s.stream));
    clock_arm(false);
    if (ticket.id) {
        memset(s.bases[0], 0xee, *(const int32_t *)s.counts[0] ? s.bytes[0] : 0);
        CLOCK_CHECK(pst_ticket_restore(ticket, s.group, &s.buffers, &restore, s.stream));
    }
    return (memcmp(before.data(), s.bases[0], s.bytes[0]) != 0) +
           differing(s, s.operands.output, s.expected.output, s.elements);
}

uint64_t time_backward(glu_scene &s, pst_ticket ticket, const pst_launch_options &launch)
{
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    const std::vector<void *> bases = s.bases;
    options.launch = launch;
    CLOCK_CHECK(pst_glu_backward(s.device, &s.glu, {0}, s.group, &s.buffers, &s.expected, nullptr,
                                 s.stream));
    if (ticket.id) {
        CLOCK_CHECK(pst_ticket_stash(ticket, s.group, &s.buffers, nullptr, s.stream));
        s.bases[0] = nullptr; /* it stays in the pages */
    }
    clock_arm(true);
    CLOCK_CHECK(pst_glu_backward(s.device, &s.glu, ticket, s.group, &s.buffers, &s.operands,
                                 &options, s.stream));
    clock_arm(false);
    s.bases = bases;
    return differing(s, s.operands.input_gradient, s.expected.input_gradient, 2 * s.elements);
}

clock_report time_glu(const clock_setting &setting, const glu_case &what, psti_op op,
                      pst_pool_mode mode)
{
    const bool is_forward = op == PSTI_OP_GLU_FORWARD, has_pages = !(what.flags & ALONE);
    const clock_wanted wanted = {op,
                                 is_forward ? "glu_forward_ldg_kernel" : "glu_backward_ldg_kernel",
                                 (what.flags & ALL_SMS) != 0, what.name};
    glu_scene scene;
    pst_launch_options launch;
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    memset(&launch, 0, sizeof(launch));
    launch.backend = PST_BACKEND_LDG;
    launch.num_sms = what.flags & BUDGET ? 1 : 0;
    config.page_bytes = PST_PAGE_BYTES_DEFAULT;
    config.mode = mode;
    clock_open_scene(scene, setting, wanted, form_of(what));
    make_operands(scene, what, is_forward);
    if (has_pages)
        clock_make_pool(scene, config, false);
    const pst_ticket ticket = has_pages ? scene.ticket : pst_ticket{0};
    const uint64_t wrong =
        is_forward ? time_forward(scene, ticket, launch) : time_backward(scene, ticket, launch);
    return clock_close_scene(scene, wanted, wrong);
}

} /* namespace */

void clock_each_glu(const clock_setting &setting, const clock_visitor &visit)
{
    for (const glu_case &what : cases)
        for (const psti_op op : {PSTI_OP_GLU_FORWARD, PSTI_OP_GLU_BACKWARD})
            for (const pst_pool_mode mode : {PST_POOL_ORDERED, PST_POOL_CONCURRENT}) {
                const bool is_ordered = mode == PST_POOL_ORDERED;
                if (!is_ordered && !(what.flags & BOTH))
                    continue;
                visit({psti_op_name(op), "ldg",
                       what.flags & ALONE ? "none"
                       : is_ordered       ? "ordered"
                                          : "concurrent",
                       what.name, (what.flags & SHORT) != 0},
                      [&] { return time_glu(setting, what, op, mode); });
            }
}
