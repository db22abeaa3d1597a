/* Pattern fill and verify on the CPU. */
#include <string.h>

#include "kernels/host/runners.h"

#include "kernels/core/mix.h"
#include "kernels/core/stream.h"

static void fill_bytes(unsigned char *at, uint64_t bytes, uint64_t key)
{
    uint64_t word = 0;
    for (; (word + 1) * 8 <= bytes; word++) {
        const uint64_t value = psti_pattern_word(key, word);
        memcpy(at + word * 8, &value, 8);
    }
    const uint64_t last = psti_pattern_word(key, word);
    memcpy(at + word * 8, &last, bytes - word * 8);
}

static uint64_t differing_bytes(uint64_t a, uint64_t b)
{
    uint64_t count = 0;
    for (uint64_t x = a ^ b; x; x >>= 8)
        count += (x & 0xff) != 0;
    return count;
}

static uint64_t verify_bytes(const unsigned char *at, uint64_t bytes, uint64_t key)
{
    uint64_t wrong = 0;
    for (uint64_t word = 0; word * 8 < bytes; word++) {
        uint64_t value = psti_pattern_word(key, word);
        uint64_t found = value;
        memcpy(&found, at + word * 8, psti_min_u64(8, bytes - word * 8));
        if (found != value)
            wrong += differing_bytes(found, value);
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

static void run(const psti_pattern_args *args, bool verify)
{
    const uint64_t step = args->step ? *args->step : 0;
    uint64_t wrong = 0;
    for (uint32_t t = 0; t < args->num_tensors; t++) {
        const psti_tensor *tensor = &args->tensors[t];
        const psti_space *space = &args->spaces[tensor->space];
        for (uint32_t s = 0; s < space->num_segments; s++) {
            const int64_t count = psti_user_count(space, s);
            const uint64_t all = psti_tensor_bytes(tensor, (uint64_t)space->capacity);
            if (!psti_count_fits(count, space->capacity)) {
                wrong += all;
                continue;
            }
            unsigned char *base = psti_segment_base(tensor, s);
            const uint64_t live = psti_tensor_bytes(tensor, (uint64_t)count);
            const uint64_t key = psti_pattern_key(args->seed, step, args->key, t, s);
            if (!verify) {
                fill_bytes(base, live, key);
                continue;
            }
            wrong += verify_bytes(base, live, key);
            if (args->tail >= 0)
                wrong += verify_tail(base + live, all - live, (unsigned char)args->tail);
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
