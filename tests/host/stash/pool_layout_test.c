/* Sizes of pools and of their parts: the walk that counts and carves. */
#include "tests/host/stash/scene.h"

#include <inttypes.h>

static uint64_t round_256(uint64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* With PAGESTASH_CHECK=1, behind each part. */
static uint64_t canary(void)
{
    return psti_env_check_mode() ? 256 : 0;
}

/* What docs and header say a pool has: pages, a ring, owner words, scratch of check, sketch,
 * directory, records of the slab, state line, status block, each from a multiple of 256. */
static uint64_t expected_bytes(uint64_t page_bytes, uint64_t pages, uint64_t tickets)
{
    uint64_t slots = 1;
    while (slots < pages)
        slots *= 2;
    return round_256(pages * page_bytes) + round_256(slots * 4) + round_256(pages * 8) +
           round_256(4) /* the ring of the empty host tier */ + round_256(pages * 4) + 2048 +
           round_256(tickets * 8) + round_256(120) + round_256(128) + 10 * canary();
}

PST_TEST(PoolLayout, BytesAreThoseOfItsParts)
{
    static const uint64_t pages[] = {1, 2, 3, 4, 5, 64, 65, 1000003, 2147483647};
    static const uint32_t shifts[] = {0, 14, 18, 22};
    static const uint32_t tickets[] = {0, 1, 33, 1u << 20};
    for (int p = 0; p < 9; p++)
        for (int s = 0; s < 4; s++)
            for (int t = 0; t < 4; t++) {
                uint64_t bytes = 0;
                pst_pool_config config = PST_POOL_CONFIG_INIT;
                config.num_pages = pages[p];
                config.page_bytes = shifts[s] ? (uint64_t)1 << shifts[s] : 0;
                config.max_tickets = tickets[t];
                CHECK_OK(pst_pool_bytes(&config, &bytes));
                CHECK_EQ(bytes, expected_bytes(shifts[s] ? config.page_bytes : 262144, pages[p],
                                               tickets[t] ? tickets[t] : 4096));
            }
}

/* A record: 80 bytes, counts, page ids, and where there is a host tier as many ids more. */
static void check_slab(uint32_t tickets, uint64_t pages, uint32_t counts, uint64_t host_pages,
                       uint64_t record_bytes)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    uint64_t plain = 0, bytes = 0;
    config.num_pages = 300;
    config.num_host_pages = host_pages;
    config.max_tickets = tickets;
    CHECK_OK(pst_pool_bytes(&config, &plain));
    config.slab_tickets = tickets;
    config.slab_pages = pages;
    config.slab_counts = counts;
    CHECK_OK(pst_pool_bytes(&config, &bytes));
    CHECK_EQ(bytes - plain, tickets * round_256(record_bytes) + canary());
}

PST_TEST(PoolLayout, ASlabHasARecordPerTicket)
{
    check_slab(1, 10, 4, 0, 80 + 4 * 8 + 10 * 4);
    check_slab(1000, 10, 4, 0, 80 + 4 * 8 + 10 * 4);
    check_slab(7, 0, 0, 0, 80 + 64 * 8 + 300 * 4); /* 64 counts, all pages */
    check_slab(7, 10, 1, 50, 80 + 8 + 2 * 10 * 4);
    check_slab(7, 0, 1, 50, 80 + 8 + 2 * 350 * 4); /* of both tiers */
    check_slab(7, 351, 1, 50, 80 + 8 + 2 * 350 * 4);
    check_slab(7, UINT64_MAX, 8192, 0, 80 + 8192 * 8 + 300 * 4);
    check_slab(1u << 20, 25, 6, 0, 228); /* one and the next multiple of 256 */
    check_slab(1u << 20, 32, 6, 0, 256);
    check_slab(1u << 20, 33, 6, 0, 260);
}

PST_TEST(PoolLayout, MaxTicketsIsAtLeastTheSlabs)
{
    static const uint32_t slabs[] = {0, 1, 4096, 4097, 1u << 20};
    for (int i = 0; i < 5; i++) {
        pst_pool_config config = PST_POOL_CONFIG_INIT;
        psti_pool_view view = {0};
        psti_slab_layout slab;
        uint64_t bytes = 0;
        config.num_pages = 1;
        config.slab_tickets = slabs[i];
        CHECK_OK(psti_pool_view_of(&config, &view, &slab, &bytes));
        CHECK_EQ(view.max_tickets, slabs[i] > 4096 ? slabs[i] : 4096);
        CHECK_EQ(slab.num, slabs[i]);
        config.max_tickets = slabs[i];
        CHECK_OK(psti_pool_view_of(&config, &view, &slab, &bytes));
        CHECK_EQ(view.max_tickets, slabs[i] ? slabs[i] : 4096);
    }
}

/* Of a pool with both tiers and a slab: no two parts share a byte, and each begins aligned. */
PST_TEST(PoolLayout, PartsDoNotOverlap)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    psti_pool_view view = {0};
    psti_slab_layout slab;
    uint64_t bytes = 0;
    bool overflow = false;
    psti_canary canaries[PSTI_NUM_PARTS] = {{NULL, 0}};
    unsigned char *const base = (unsigned char *)(uintptr_t)4096;
    config.num_pages = 5;
    config.num_host_pages = 6;
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.slab_tickets = 3;
    config.slab_pages = 7;
    config.slab_counts = 9;
    config.fails_fast = true;
    CHECK_OK(psti_pool_view_of(&config, &view, &slab, &bytes));
    CHECK_EQ(view.fails_fast, 1);
    CHECK_EQ(psti_pool_layout(&view, &slab, base, false, canaries, &overflow), bytes);
    const struct {
        const void *at;
        uint64_t bytes;
    } parts[] = {{view.pages[0], 5 * PST_PAGE_BYTES_MIN},
                 {view.ring[0], 8 * 4},
                 {view.owner[0], 5 * 8},
                 {view.ring[1], 8 * 4},
                 {view.owner[1], 6 * 8},
                 {view.seen, 11 * 4},
                 {view.sketch, 512 * 4},
                 {view.tickets, 4096 * 8},
                 {slab.first, 3 * slab.record_bytes},
                 {view.state, sizeof(psti_pool_state)},
                 {view.status, sizeof(pst_pool_status)}};
    const unsigned char *end = base;
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        CHECK_MSG((const unsigned char *)parts[i].at >= end && (uintptr_t)parts[i].at % 256 == 0,
                  "part %zu at %p", i, parts[i].at);
        end = (const unsigned char *)parts[i].at + parts[i].bytes;
        CHECK_MSG(canaries[i].at == (canary() ? end : NULL), "part %zu, canary at %p", i,
                  (void *)canaries[i].at);
        end += canaries[i].bytes;
        CHECK_MSG(canaries[i].bytes >= canary() && (!canary() || (uintptr_t)end % 256 == 0),
                  "part %zu, canary of %" PRIu64 " bytes", i, canaries[i].bytes);
    }
    CHECK(canary() ? end == base + bytes : end <= base + bytes);
    CHECK_EQ(slab.record_bytes, 256); /* 80 + 9 * 8 + 2 * 7 * 4 */
}
