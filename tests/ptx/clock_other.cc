/* What is no move under the clock: control of a pool, patterns, and products that the device counts. */
#include "tests/ptx/clock_case.h"

#include <cstring>

#include "kernels/core/float.h"
#include "tests/ptx/clock_device.h"
#include "tests/ptx/clock_scene.h"

namespace
{

/* ---- control: a pool of 4,096 tickets, where nothing else is said of 4,096 pages of one tile ---- */

enum : uint32_t { kPages = 4096, kSomePages = 1024, kRowBytes = 4096, kTile = 16384 };

pst_pool_config some_pool()
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    config.page_bytes = kTile;
    config.num_pages = kPages;
    return config;
}

/* A ticket that can hold so many pages. */
void open_pool(clock_scene &s, const clock_setting &setting, const clock_wanted &wanted,
               const pst_pool_config &config, uint32_t pages)
{
    clock_form form;
    form.rows = form.live = pages * (kTile / kRowBytes);
    form.tensors = {clock_tensor(kRowBytes)};
    clock_open_scene(s, setting, wanted, form);
    clock_arm(true); /* a slab is made with the pool */
    clock_make_pool(s, config, false);
}

clock_report reset(const clock_setting &setting, const clock_wanted &wanted)
{
    clock_scene s;
    open_pool(s, setting, wanted, some_pool(), kSomePages);
    CLOCK_CHECK(pst_ticket_stash(s.ticket, s.group, &s.buffers, nullptr, s.stream));
    CLOCK_CHECK(pst_pool_reset(s.pool, PST_RESET_ALL, s.stream));
    return clock_close_scene(s, wanted, 0);
}

/* Bytes of the first pages that are not 0. */
uint64_t left_behind(const clock_scene &s, uint32_t pages)
{
    pst_pool_info info;
    CLOCK_CHECK(pst_pool_get_info(s.pool, &info));
    const char *at = (const char *)info.pages[0];
    uint64_t left = 0;
    for (uint64_t n = 0; n < pages * info.page_bytes; n++)
        left += at[n] != 0;
    return left;
}

clock_report reset_scrubs(const clock_setting &setting, const clock_wanted &wanted)
{
    clock_scene s;
    const pst_pattern pattern = {1, 7, nullptr};
    pst_pool_config config = some_pool();
    config.num_pages = 0; /* as many as the ticket wants */
    config.scrub = true;
    open_pool(s, setting, wanted, config, 64);
    CLOCK_CHECK(pst_group_fill(s.device, s.group, &s.buffers, &pattern, s.stream));
    CLOCK_CHECK(pst_ticket_stash(s.ticket, s.group, &s.buffers, nullptr, s.stream));
    const bool was_clear = left_behind(s, 64) == 0;
    CLOCK_CHECK(pst_pool_reset(s.pool, PST_RESET_PAGES, s.stream));
    return clock_close_scene(s, wanted, was_clear + left_behind(s, 64));
}

clock_report resize(const clock_setting &setting, const clock_wanted &wanted, uint32_t from,
                    uint32_t to)
{
    clock_scene s;
    pst_pool_config config = some_pool();
    pst_pool_info info;
    config.num_pages = from;
    config.max_pages = kPages;
    open_pool(s, setting, wanted, config, 16);
    CLOCK_CHECK(pst_pool_resize(s.pool, to, 0));
    CLOCK_CHECK(pst_pool_get_info(s.pool, &info));
    return clock_close_scene(s, wanted, info.num_pages[0] != to);
}

clock_report grow(const clock_setting &setting, const clock_wanted &wanted)
{
    return resize(setting, wanted, kSomePages, kPages);
}

clock_report shrink(const clock_setting &setting, const clock_wanted &wanted)
{
    return resize(setting, wanted, kPages, kSomePages);
}

clock_report slab(const clock_setting &setting, const clock_wanted &wanted)
{
    clock_scene s;
    pst_pool_config config = some_pool();
    pst_ticket lent;
    config.slab_tickets = 1024;
    config.slab_pages = 64;
    open_pool(s, setting, wanted, config, 64);
    CLOCK_CHECK(pst_ticket_take(s.pool, s.stream, &lent));
    CLOCK_CHECK(pst_ticket_stash(lent, s.group, &s.buffers, nullptr, s.stream));
    CLOCK_CHECK(pst_ticket_give(lent, s.stream));
    return clock_close_scene(s, wanted, 0);
}

clock_report step(const clock_setting &setting, const clock_wanted &wanted)
{
    clock_scene s;
    open_pool(s, setting, wanted, some_pool(), kSomePages);
    CLOCK_CHECK(pst_ticket_stash(s.ticket, s.group, &s.buffers, nullptr, s.stream));
    CLOCK_CHECK(pst_ticket_release(s.ticket, s.stream));
    CLOCK_CHECK(pst_pool_step(s.pool, s.stream));
    pst_pool_status status;
    CLOCK_CHECK(pst_pool_poll(s.pool, &status));
    return clock_close_scene(s, wanted, status.step_demand != kSomePages);
}

clock_report check(const clock_setting &setting, const clock_wanted &wanted)
{
    clock_scene s;
    open_pool(s, setting, wanted, some_pool(), kSomePages);
    CLOCK_CHECK(pst_ticket_stash(s.ticket, s.group, &s.buffers, nullptr, s.stream));
    CLOCK_CHECK(pst_pool_check(s.pool, s.stream));
    CLOCK_CHECK(pst_ticket_release(s.ticket, s.stream));
    return clock_close_scene(s, wanted, 0);
}

clock_report expect(const clock_setting &setting, const clock_wanted &wanted)
{
    clock_scene s;
    open_pool(s, setting, wanted, some_pool(), 16);
    CLOCK_CHECK(psti_clock_expect(s.pool, s.mismatches, 0, s.stream));
    return clock_close_scene(s, wanted, 0);
}

/* ---- patterns ---- */

/* One byte is changed in between, and found. */
clock_report fill_and_verify(const clock_setting &setting, const clock_wanted &wanted,
                             uint32_t rows, uint32_t offset)
{
    clock_scene s;
    const pst_pattern pattern = {1, 7, nullptr};
    clock_form form;
    form.rows = form.live = rows;
    form.offset = offset;
    form.tensors = {clock_tensor(kRowBytes)};
    clock_open_scene(s, setting, wanted, form);
    clock_arm(true);
    CLOCK_CHECK(pst_group_fill(s.device, s.group, &s.buffers, &pattern, s.stream));
    ((char *)s.bases[0])[12345] ^= 1;
    CLOCK_CHECK(pst_group_verify(s.device, s.group, &s.buffers, &pattern, PST_VERIFY_ANY,
                                 s.mismatches, s.stream));
    return clock_close_scene(s, wanted, *s.mismatches != 1);
}

clock_report pattern_tiles(const clock_setting &setting, const clock_wanted &wanted)
{
    return fill_and_verify(setting, wanted, 64, 0);
}

clock_report pattern_odd(const clock_setting &setting, const clock_wanted &wanted)
{
    return fill_and_verify(setting, wanted, 16, 1);
}

/* ---- products ---- */

struct product_form {
    uint32_t m, n, k;
    pst_dtype dtype;
    bool transposes_a;
    std::vector<int32_t> counts; /* of experts */
    pst_live live;
};

/* Small whole numbers: their sums are exact. */
void *make_numbers(clock_scene &s, uint64_t num, pst_dtype dtype)
{
    const bool is_wide = dtype == PST_DTYPE_FP32;
    void *at = clock_alloc(s, num * (is_wide ? 4 : 2));
    for (uint64_t n = 0; n < num; n++) {
        const float value = (float)(n * 2654435761u >> 8 & 7) - 3.0f;
        if (is_wide)
            ((float *)at)[n] = value;
        else
            ((uint16_t *)at)[n] = psti_float_to_bf16(value);
    }
    return at;
}

pst_matrix make_matrix(clock_scene &s, const product_form &form, uint32_t rows, uint32_t columns,
                       bool is_transposed)
{
    const uint64_t size = form.dtype == PST_DTYPE_FP32 ? 4 : 2;
    pst_matrix matrix;
    memset(&matrix, 0, sizeof(matrix));
    matrix.base = make_numbers(s, (uint64_t)form.counts.size() * rows * columns, form.dtype);
    matrix.row_stride = (is_transposed ? rows : columns) * size;
    matrix.expert_stride = (uint64_t)rows * columns * size;
    matrix.dtype = form.dtype;
    matrix.is_transposed = is_transposed;
    return matrix;
}

/* Its result, and the same by the kernel of the host. */
clock_report multiply(const clock_setting &setting, const clock_wanted &wanted,
                      const product_form &form)
{
    clock_scene s;
    clock_open_scene(s, setting, wanted, clock_form());
    pst_product product = PST_PRODUCT_INIT;
    product.m = form.m;
    product.n = form.n;
    product.k = form.k;
    product.num_experts = (uint32_t)form.counts.size();
    product.live = form.live;
    product.counts = form.counts.data();
    product.a = make_matrix(s, form, form.m, form.k, form.transposes_a);
    product.b = make_matrix(s, form, form.k, form.n, !form.transposes_a);
    product.d = make_matrix(s, form, form.m, form.n, false);
    CLOCK_CHECK(psti_clock_product(s.device, &product, s.stream));
    const void *expected = product.d.base;
    product.d = make_matrix(s, form, form.m, form.n, false);
    clock_arm(true);
    CLOCK_CHECK(psti_clock_product(s.device, &product, s.stream));
    const uint64_t bytes = product.num_experts * product.d.expert_stride;
    return clock_close_scene(s, wanted, memcmp(expected, product.d.base, bytes) != 0);
}

/* A layer's: rows of experts are counted; then the gradient of its weight, whose terms are. */
clock_report product_rows(const clock_setting &setting, const clock_wanted &wanted)
{
    return multiply(setting, wanted,
                    {128, 64, 128, PST_DTYPE_BF16, false, {64, 0, 128, 1}, PST_LIVE_M});
}

clock_report product_terms(const clock_setting &setting, const clock_wanted &wanted)
{
    return multiply(setting, wanted, {64, 64, 64, PST_DTYPE_BF16, true, {64, 0, 38}, PST_LIVE_K});
}

clock_report product_fp32(const clock_setting &setting, const clock_wanted &wanted)
{
    return multiply(setting, wanted, {128, 128, 64, PST_DTYPE_FP32, false, {0}, PST_LIVE_ALL});
}

struct other_case {
    psti_op op;
    const char *kernel, *pool, *name;
    const char *what; /* in words */
    bool is_short;
    clock_report (*time)(const clock_setting &setting, const clock_wanted &wanted);
};

const other_case cases[] = {
    {PSTI_OP_RESET, "reset_kernel", "ordered", "pages4096", "everything, 1,024 pages in use", true,
     reset},
    {PSTI_OP_RESET, "reset_kernel", "ordered", "scrub64", "64 pages of one tile are cleared", false,
     reset_scrubs},
    {PSTI_OP_RESIZE, "resize_kernel", "ordered", "grows", "1,024 pages to 4,096", false, grow},
    {PSTI_OP_RESIZE, "resize_kernel", "ordered", "shrinks", "4,096 pages to 1,024", false, shrink},
    {PSTI_OP_SLAB, "slab_kernel", "ordered", "tickets1024", "1,024 records", false, slab},
    {PSTI_OP_STEP, "step_kernel", "ordered", "pages4096", "any step", true, step},
    {PSTI_OP_CHECK, "check_kernel", "ordered", "pages4096", "1,024 pages in one ticket", false,
     check},
    {PSTI_OP_EXPECT, "expect_kernel", "ordered", "same", "what was expected", false, expect},
    {PSTI_OP_FILL, "fill_kernel", "none", "tiles16", "16 tiles of one tensor", true, pattern_tiles},
    {PSTI_OP_FILL, "fill_kernel", "none", "odd", "4 tiles at an odd address", false, pattern_odd},
    {PSTI_OP_VERIFY, "verify_kernel", "none", "tiles16", "16 tiles of one tensor", false,
     pattern_tiles},
    {PSTI_OP_VERIFY, "verify_kernel", "none", "odd", "4 tiles at an odd address", false,
     pattern_odd},
    {PSTI_OP_PRODUCT, "product_kernel", "none", "rows", "bf16, four experts, rows are counted",
     false, product_rows},
    {PSTI_OP_PRODUCT, "product_kernel", "none", "terms", "bf16, three experts, terms are counted",
     true, product_terms},
    {PSTI_OP_PRODUCT, "product_kernel", "none", "fp32", "four tiles of fp32", false, product_fp32},
};

} /* namespace */

void clock_each_other(const clock_setting &setting, const clock_visitor &visit)
{
    for (const other_case &what : cases)
        visit({psti_op_name(what.op), "none", what.pool, what.name, what.is_short}, [&] {
            return what.time(setting, {what.op, what.kernel, false, what.name});
        });
}
