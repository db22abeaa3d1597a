/* The source of stash, restore and migrate, with what plans tiles and moves bytes replaced: sums.cuh, copy.cuh,
 * share.cuh, tiles.cuh, walk.cuh. */
#ifndef PSTI_TESTS_MODEL_KERNELS_H
#define PSTI_TESTS_MODEL_KERNELS_H

#include "tests/model/team.h"

#define PSTI_CUDA_SUMS_CUH
#define PSTI_CUDA_COPY_CUH
#define PSTI_CUDA_SHARE_CUH
#define PSTI_CUDA_TILES_CUH
#define PSTI_CUDA_WALK_CUH

struct count_sums {
    uint64_t rows[2 * PSTI_WARP];
};
PSTI_DEVICE void add_up(count_sums &, const psti_space *, uint32_t)
{
}
struct own_count {
    int64_t count, capacity;
};
PSTI_DEVICE own_count load_count(const psti_space *, uint32_t, uint32_t, bool)
{
    return {0, 0};
}
PSTI_DEVICE bool keep_count(count_sums &, uint32_t, const own_count &)
{
    return true;
}
PSTI_DEVICE int64_t caller_count(const count_sums &, const psti_space *, uint32_t, uint32_t)
{
    return 0;
}

enum stream_kind { NEW, KEPT, GAP };
struct tile_plan {
    count_sums sums;
    uint32_t fits;
};
#define PSTI_BOTH_TIERS 3u
struct tile_share {
    uint32_t first, stride, tiers;
};
struct row_span {
};
template <stream_kind kKind>
PSTI_DEVICE int64_t count_of(const tile_plan &, const psti_move_args &, uint32_t, uint32_t,
                             const int64_t *)
{
    return 0;
}
template <stream_kind kKind>
PSTI_DEVICE void plan_plain(tile_plan &plan, const psti_move_args &, const int64_t *, bool fits)
{
    plan.fits = fits;
}
template <stream_kind kKind>
PSTI_DEVICE void plan_tiles(tile_plan &plan, const psti_move_args &, const int64_t *,
                            const uint64_t *)
{
    plan.fits = 1;
}
template <uint32_t kRingBytes> PSTI_DEVICE uint64_t *segment_table(const psti_move_args &)
{
    return NULL;
}
struct two_counts {
};
PSTI_DEVICE bool has_segments(const psti_move_args &)
{
    return false;
}
PSTI_DEVICE void hold_none(tile_plan &)
{
}
PSTI_DEVICE uint32_t first_reader()
{
    return 0;
}
template <stream_kind kKind> PSTI_DEVICE two_counts first_counts(const psti_move_args &)
{
    return {};
}
template <stream_kind kKind, class Copier>
PSTI_DEVICE void hold_counts(tile_plan &, const psti_move_args &, const two_counts &)
{
}
PSTI_DEVICE uint64_t num_tiles_of(const tile_plan &)
{
    return PAGES;
}
PSTI_DEVICE uint32_t tensor_of_tile(const tile_plan &, uint32_t)
{
    return 0;
}
PSTI_DEVICE tile_share share_of_all()
{
    return {team_of(), TEAMS, 3};
}
PSTI_DEVICE tile_share share_of(const psti_move_args &, uint64_t, uint64_t)
{
    return share_of_all();
}
PSTI_DEVICE void zero_run(unsigned char *, uint32_t)
{
}
PSTI_DEVICE void zero_rows(const row_span &, uint32_t)
{
}
PSTI_DEVICE void zero_piece(unsigned char *, uint32_t)
{
}

/* A page's bytes: who wrote them last. */
typedef rl::var<uint32_t> page_bytes;
static page_bytes *contents;
PSTI_DEVICE uint32_t page_of(const void *at)
{
    return (uint32_t)((uintptr_t)at >> PSTI_TILE_SHIFT) - 1;
}
PSTI_DEVICE void clear_tile(unsigned char *to)
{
    contents[page_of(to)](RL_INFO) = 0;
}

struct tile_runs {
};
struct nothing_held {
};

struct copier {
    typedef nothing_held held;
    static const uint32_t kRingBytes = 0;
    static const bool kIsSmall = false;
    static const bool kAsync = false;
    static const bool kHasRows = false;
    static const bool kShifts = false;
    static const bool kLifts = false;
    static const bool kAsks = false;
    tile_runs *runs() const
    {
        return NULL;
    }
    void open()
    {
    }
    void close()
    {
    }
    void tile(unsigned char *to, const unsigned char *from)
    {
        run(to, from, PSTI_TILE_BYTES);
    }
    void run(unsigned char *to, const unsigned char *from, uint32_t)
    {
        if (thread_of() == 0 && words::watches)
            contents[page_of(to)](RL_INFO) = (uint32_t)contents[page_of(from)](RL_INFO);
    }
    void rows(unsigned char *, const row_span &, uint32_t)
    {
    }
    void piece(unsigned char *, const unsigned char *, uint32_t)
    {
    }
};

#include "kernels/cuda/paging/protocol.cuh"

/* In place of walk.cuh. */
template <stream_kind kKind, class Source>
PSTI_DEVICE void move_tiles(Source &source, const move_shared &s, const psti_move_args &args,
                            const int64_t *)
{
    for (uint32_t tile = s.share.first; tile < PAGES && thread_of() == 0; tile += s.share.stride) {
        const uint64_t place = source.find(tile, s.share.tiers);
        const uint32_t mine = (uint32_t)args.ticket_index * PAGES + tile + 1;
        if (!words::watches)
            continue;
        if (place && kKind == NEW)
            contents[page_of((void *)place)](RL_INFO) = mine;
        else if (place && kKind == KEPT)
            RL_ASSERT(contents[page_of((void *)place)](RL_INFO) == mine);
    }
}

#include "kernels/cuda/paging/migrate.cuh"
#include "kernels/cuda/paging/restore.cuh"
#include "kernels/cuda/paging/stash.cuh"

#endif
