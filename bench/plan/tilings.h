/* Rectangles that fill a larger one without a gap, made by cutting it again and again: an instance
 * of the planner whose best peak is `height` and where nothing may be wasted. */
#ifndef PAGESTASH_BENCH_TILINGS_H
#define PAGESTASH_BENCH_TILINGS_H

#include <stdint.h>

typedef struct tile {
    uint64_t begin, end;  /* instants */
    uint64_t bottom, top; /* addresses */
} tile;

/* Cuts one of the tiles, all alike, at an instant or an address, until there are num_tiles, and
 * shuffles them. Returns how many: fewer where nothing is left to cut. The same for a seed. */
uint32_t tilings_make(uint32_t num_tiles, uint64_t width, uint64_t height, uint64_t seed,
                      tile *tiles);

#endif
