/* Pattern fill and verify on the CPU. */
#include <string.h>

#include "kernels/host/runners.h"
#include "kernels/host/walk.h"

#include "kernels/core/mix.h"

/* One run of bytes that begins at byte `offset` of its segment's stream. */
static void fill_run(unsigned char *at, uint64_t offset, uint64_t bytes, uint64_t key)
{
    for (uint64_t done = 0, run; done < bytes; done += run) {
        const uint64_t word = psti_pattern_word(key, (offset + done) / 8);
        const uint64_t skip = (offset + done) % 8;
        run = psti_min_u64(bytes - done, 8 - skip);
        if (run == 8)
            memcpy(at + done, &word, 8);
        else
            memcpy(at + done, (const unsigned char *)&word + skip, run);
    }
}

static uint64_t differing_bytes(uint64_t a, uint64_t b)
{
    uint64_t count = 0;
    for (uint64_t x = a ^ b; x; x >>= 8)
        count += (x & 0xff) != 0;
    return count;
}

static uint64_t verify_run(const unsigned char *at, uint64_t offset, uint64_t bytes, uint64_t key)
{
    uint64_t wrong = 0;
    for (uint64_t done = 0, run; done < bytes; done += run) {
        const uint64_t word = psti_pattern_word(key, (offset + done) / 8);
        const uint64_t skip = (offset + done) % 8;
        uint64_t found = word;
        run = psti_min_u64(bytes - done, 8 - skip);
        memcpy((unsigned char *)&found + skip, at + done, run);
        if (found != word)
            wrong += differing_bytes(found, word);
    }
    return wrong;
}

static uint64_t verify_tail(const unsigned char *at, uint64_t bytes, unsigned char value)
{
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < bytes; i++)
        wrong += at[i] != value;
    return wrong;
}

/* What fill and verify do to the rows of one segment; returns bytes that are wrong. */
static uint64_t visit(const psti_pattern_args *args, const psti_tensor *tensor, uint32_t segment,
                      uint64_t live, uint64_t all, uint64_t key, bool verify)
{
    psti_rows rows = rows_at(tensor, psti_segment_base(tensor, segment), all, 0);
    uint64_t wrong = 0;
    live *= tensor->row_bytes;
    all *= tensor->row_bytes;
    for (uint64_t at = 0, run; at < live; at += run) {
        unsigned char *bytes = psti_next_run(&rows, live - at, &run);
        if (verify)
            wrong += verify_run(bytes, at, run, key);
        else
            fill_run(bytes, at, run, key);
    }
    for (uint64_t at = live, run; verify && args->tail >= 0 && at < all; at += run) {
        const unsigned char *bytes = psti_next_run(&rows, all - at, &run);
        wrong += verify_tail(bytes, run, (unsigned char)args->tail);
    }
    return wrong;
}

static void run(const psti_pattern_args *args, bool verify)
{
    const uint64_t step = args->step ? *args->step : 0;
    uint64_t wrong = 0;
    int64_t sums[PSTI_MAX_SPACES];
    for (uint32_t i = 0; i < args->num_spaces; i++)
        sums[i] = args->spaces[i].num_summed ? psti_summed_count(&args->spaces[i]) : 0;
    for (uint32_t t = 0; t < args->num_tensors; t++) {
        const psti_tensor *tensor = &args->tensors[t];
        const psti_space *space = &args->spaces[tensor->space];
        const uint64_t all = psti_tensor_rows(tensor, (uint64_t)space->capacity);
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const int64_t count =
                space->num_summed ? sums[tensor->space] : psti_user_count(space, s);
            const uint64_t key = psti_pattern_key(args->seed, step, args->key, t, s);
            if (psti_count_fits(count, space->capacity))
                wrong += visit(args, tensor, s, psti_tensor_rows(tensor, (uint64_t)count), all, key,
                               verify);
            else
                wrong += all * tensor->row_bytes;
        }
    }
    if (verify && wrong)
        psti_add_acq_rel_u64(args->mismatches, wrong);
}

void psti_host_fill(const void *args)
{
    run(args, false);
}

void psti_host_verify(const void *args)
{
    run(args, true);
}
