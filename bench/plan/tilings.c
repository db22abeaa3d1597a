/* Tilings of a rectangle: instances of the planner whose best peak is known. */
#include "bench/plan/tilings.h"

#include "kernels/core/mix.h"

enum { MAX_FAILURES = 1000 };

static uint64_t draw(uint64_t *state, uint64_t below)
{
    return psti_mix_next(state) % below;
}

static bool cut(tile *whole, tile *rest, uint64_t *random)
{
    const bool in_time = draw(random, 2) == 0;
    const uint64_t low = in_time ? whole->begin : whole->bottom;
    const uint64_t length = (in_time ? whole->end : whole->top) - low;
    if (length < 2)
        return false;
    const uint64_t at = low + 1 + draw(random, length - 1);
    *rest = *whole;
    if (in_time)
        whole->end = rest->begin = at;
    else
        whole->top = rest->bottom = at;
    return true;
}

uint32_t tilings_make(uint32_t num_tiles, uint64_t width, uint64_t height, uint64_t seed,
                      tile *tiles)
{
    uint64_t random = seed;
    uint32_t count = 1;
    tiles[0] = (tile){0, width, 0, height};
    for (int failures = 0; count < num_tiles && failures < MAX_FAILURES;) {
        if (cut(&tiles[draw(&random, count)], &tiles[count], &random))
            count++;
        else
            failures++;
    }
    for (uint32_t i = count; i > 1; i--) {
        const uint32_t j = (uint32_t)draw(&random, i);
        const tile other = tiles[j];
        tiles[j] = tiles[i - 1];
        tiles[i - 1] = other;
    }
    return count;
}
