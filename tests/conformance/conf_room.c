/* A pool that wants more memory than there is asks its caller once, and stays as it was. */
#include "tests/conformance/conf.h"

#include <stdio.h>

#define PAGE_BYTES ((uint64_t)PST_PAGE_BYTES_MAX)

typedef struct room {
    uint32_t num_asked;
    uint64_t bytes;
    uint32_t tier;
} room;

static bool make_none(void *context, uint64_t bytes, uint32_t tier)
{
    room *self = context;
    self->num_asked++;
    self->bytes = bytes;
    self->tier = tier;
    return true; /* though there is none */
}

/* Pages of which there are twice as many as the tier has memory for. */
static uint64_t too_many(const conf_run *conf, uint32_t tier)
{
    pst_device_info info = {.free_bytes = 0};
    if (pst_device_get_info(conf->device, &info) != PST_OK)
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    return 2 * (tier == PSTI_TIER_HOST ? psti_available_bytes() : info.total_bytes) / PAGE_BYTES;
}

static void check_growth(const conf_run *conf, uint32_t tier)
{
    const uint64_t all = too_many(conf, tier);
    room asked = {.num_asked = 0};
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_pool_info before, after;
    pst_pool_status status;
    pst_pool *pool = NULL;
    char wanted[64];
    config.num_pages = 1;
    config.page_bytes = PAGE_BYTES;
    config.max_pages = tier == PSTI_TIER_DEVICE ? all : 0;
    config.max_host_pages = tier == PSTI_TIER_HOST ? all : 0;
    config.make_room = make_none;
    config.make_room_context = &asked;
    CHECK_OK(pst_pool_create(conf->device, &config, &pool));
    CHECK_EQ(asked.num_asked, 0);
    CHECK_OK(pst_pool_get_info(pool, &before));
    const pst_status refused =
        tier == PSTI_TIER_HOST ? pst_pool_resize(pool, 1, all) : pst_pool_resize(pool, all, 0);
    CHECK(refused == PST_E_NOMEM || refused == PST_E_DEVICE_NOMEM);
    CHECK_EQ(asked.num_asked, 1);
    CHECK_EQ(asked.tier, tier);
    CHECK_EQ(asked.bytes, all * PAGE_BYTES - before.held_bytes[tier]);
    snprintf(wanted, sizeof(wanted), "make_room was asked for %llu bytes of ",
             (unsigned long long)asked.bytes);
    CHECK_MSG(strstr(pst_last_message(), wanted) && strstr(pst_last_message(), "not enough"), "%s",
              pst_last_message());
    CHECK_OK(pst_pool_get_info(pool, &after));
    CHECK(memcmp(&before, &after, sizeof(after)) == 0);
    CHECK_OK(pst_pool_resize(pool, 1 + (tier == PSTI_TIER_DEVICE), tier == PSTI_TIER_HOST));
    CHECK_OK(pst_pool_check(pool, NULL));
    CHECK_OK(pst_pool_step(pool, NULL));
    CHECK_OK(pst_device_synchronize(conf->device));
    CHECK_OK(pst_pool_poll(pool, &status));
    CHECK_EQ(status.check_errors, 0);
    CHECK_OK(pst_pool_destroy(pool));
}

/* Fault rows 43. */
CONFORMANCE(Resize, AsksForRoomOnceAndStaysAsItWas)
{
    check_growth(conf, PSTI_TIER_DEVICE);
    check_growth(conf, PSTI_TIER_HOST);
}
