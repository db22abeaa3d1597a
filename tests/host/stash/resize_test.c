/* Host pages and growth: what is refused, and that a failure changes nothing. */
#include "tests/harness.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <pagestash/pagestash.h>

#include "host/stash/stash.h"
#include "tests/host/stash/scene.h"

static pst_device *device;

static bool open_host(void)
{
    return pst_device_open("host", 0, &device) == PST_OK;
}

/* Fault rows 5. */
PST_TEST(PoolSizes, BoundsAreChecked)
{
    static const struct {
        uint64_t pages, host_pages, max_pages, max_host_pages;
        const char *message;
    } bad[] = {
        {1, (uint64_t)INT32_MAX + 1, 0, 0,
         "num_host_pages 2147483648: allowed are 0 to 2147483647"},
        {8, 0, 7, 0, "max_pages 7: allowed are 0 and 8 to 2147483647"},
        {8, 0, UINT64_MAX, 0, "max_pages 18446744073709551615: allowed are 0 and 8 to 2147483647"},
        {8, 0, (uint64_t)INT32_MAX + 1, 0,
         "max_pages 2147483648: allowed are 0 and 8 to 2147483647"},
        {8, 5, 0, 4, "max_host_pages 4: allowed are 0 and 5 to 2147483647"},
        {8, 5, 0, (uint64_t)INT32_MAX + 1,
         "max_host_pages 2147483648: allowed are 0 and 5 to 2147483647"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        pst_pool_config config = PST_POOL_CONFIG_INIT;
        uint64_t bytes = 77;
        config.num_pages = bad[i].pages;
        config.num_host_pages = bad[i].host_pages;
        config.max_pages = bad[i].max_pages;
        config.max_host_pages = bad[i].max_host_pages;
        CHECK_STATUS(pst_pool_bytes(&config, &bytes), PST_E_INVALID);
        CHECK_EQ(bytes, 77);
        CHECK_SAID(bad[i].message);
    }
    pst_pool_config most = PST_POOL_CONFIG_INIT;
    uint64_t bytes;
    most.num_pages = 8;
    most.max_pages = most.max_host_pages = INT32_MAX;
    CHECK_OK(pst_pool_bytes(&most, &bytes));
}

/* Host pages cost ring and owner words on the device, no device pages. */
PST_TEST(PoolSizes, HostPagesAndReserveCostWordsOnly)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    uint64_t plain = 0, with_host = 0, growing = 0;
    config.num_pages = 1024;
    config.page_bytes = 65536;
    CHECK_OK(pst_pool_bytes(&config, &plain));
    config.num_host_pages = 1024;
    CHECK_OK(pst_pool_bytes(&config, &with_host));
    CHECK_EQ(with_host - plain, 1024 * (4 + 8 + 4) - 256); /* the ring of none has one slot */
    config.num_host_pages = 0;
    config.max_pages = 2048;
    CHECK_OK(pst_pool_bytes(&config, &growing));
    CHECK_EQ(growing - plain, 1024 * (4 + 8 + 4) - psti_canary_room()); /* behind pages */
}

/* Fault rows 43. */
PST_TEST(PoolSizes, MoreHostPagesThanMemoryIsAnErrorBeforehand)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_pool *pool = NULL;
    char expected[80];
    if (!open_host())
        return;
    config.num_pages = 1;
    config.page_bytes = 4u << 20;
    const uint64_t all = 2 * psti_available_bytes() / config.page_bytes; /* may change meanwhile */
    snprintf(expected, sizeof(expected), "%" PRIu64 " bytes of host pages wanted, at most ",
             all * config.page_bytes);
    config.num_host_pages = all;
    CHECK_STATUS(pst_pool_create(device, &config, &pool), PST_E_NOMEM);
    CHECK_MSG(strncmp(pst_last_message(), expected, strlen(expected)) == 0, "%s",
              pst_last_message());
    CHECK(pool == NULL);
    config.num_host_pages = 0;
    config.max_host_pages = all; /* only addresses */
    CHECK_OK(pst_pool_create(device, &config, &pool));
    CHECK_STATUS(pst_pool_resize(pool, 1, all), PST_E_NOMEM);
    CHECK_OK(pst_pool_resize(pool, 1, 1));
    CHECK_OK(pst_pool_destroy(pool));
    CHECK_OK(pst_device_close(device));
}

/* Fault rows 29. */
PST_TEST(PoolSizes, ResizeRefusesWhatThePoolWasNotMadeFor)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_pool *pool = NULL;
    if (!open_host())
        return;
    config.num_pages = 4;
    config.max_pages = 9;
    config.max_host_pages = 2;
    CHECK_OK(pst_pool_create(device, &config, &pool));
    CHECK_STATUS(pst_pool_resize(NULL, 1, 1), PST_E_INVALID);
    CHECK_STATUS(pst_pool_resize(pool, 10, 0), PST_E_INVALID);
    CHECK_SAID("num_pages 10: this pool was made for 1 to 9");
    CHECK_STATUS(pst_pool_resize(pool, 0, 0), PST_E_INVALID);
    CHECK_SAID("num_pages 0: this pool was made for 1 to 9");
    CHECK_STATUS(pst_pool_resize(pool, 4, 3), PST_E_INVALID);
    CHECK_SAID("num_host_pages 3: this pool was made for 0 to 2");
    CHECK_OK(pst_pool_destroy(pool));
    CHECK_OK(pst_device_close(device));
}

PST_TEST(PoolSizes, MemoryOfTheCallersStaysAsItIs)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_pool *pool = NULL;
    uint64_t bytes = 0;
    if (!open_host())
        return;
    config.num_pages = 4;
    config.max_host_pages = 2;
    CHECK_OK(pst_pool_bytes(&config, &bytes));
    config.memory = aligned_alloc(256, (size_t)bytes);
    config.memory_bytes = bytes;
    config.max_pages = 5;
    CHECK_STATUS(pst_pool_create(device, &config, &pool), PST_E_INVALID);
    CHECK_SAID("max_pages 5: memory of the caller's cannot grow");
    config.max_pages = 4;
    CHECK_OK(pst_pool_create(device, &config, &pool));
    CHECK_STATUS(pst_pool_resize(pool, 3, 0), PST_E_UNSUPPORTED);
    CHECK_OK(pst_pool_resize(pool, 4, 2)); /* the host tier is the pool's own */
    CHECK_OK(pst_pool_destroy(pool));
    CHECK_OK(pst_device_close(device));
    free(config.memory);
}

/* The first allocation that fails, and every later one, leave a pool of the old size that works. */
PST_TEST(PoolSizes, AFailedResizeChangesNothing)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_pool *pool = NULL;
    if (!open_host())
        return;
    config.num_pages = 4;
    config.page_bytes = 16384;
    config.max_pages = 64;
    config.max_host_pages = 64;
    CHECK_OK(pst_pool_create(device, &config, &pool));
    long failures = 0;
    for (pst_status status = PST_E_NOMEM; status != PST_OK; failures++) {
        psti_fail_allocation_after(failures);
        status = pst_pool_resize(pool, 60, 50);
        psti_fail_allocation_after(-1);
        CHECK(status == PST_OK || status == PST_E_NOMEM);
        CHECK_EQ(pool->num_pages[0], status == PST_OK ? 60 : 4);
        CHECK_EQ(pool->num_pages[1], status == PST_OK ? 50 : 0);
        CHECK_EQ(pool->spans[0].mapped, (uint64_t)pool->num_pages[0] * 16384);
        CHECK_EQ(pool->spans[1].mapped, (uint64_t)pool->num_pages[1] * 16384);
        CHECK_OK(pst_pool_check(pool, NULL));
        CHECK_EQ(small_status(pool).check_errors, 0);
    }
    CHECK(failures >= 3); /* each tier can fail */
    CHECK_OK(pst_pool_destroy(pool));
    CHECK_OK(pst_device_close(device));
}

/* ---- what takes memory away waits for the device ---- */

static const psti_device_ops *real;
static bool is_busy;       /* something was launched and nobody waited since */
static uint32_t num_early; /* calls that took or gave memory meanwhile */

static pst_status busy_launch(pst_device *of, psti_op op, const void *args, pst_stream stream)
{
    is_busy |= op == PSTI_OP_STASH || op == PSTI_OP_RESTORE;
    return real->launch(of, op, args, stream);
}

static pst_status busy_synchronize(pst_device *of)
{
    is_busy = false;
    return real->synchronize(of);
}

static pst_status busy_free(pst_device *of, void *address)
{
    num_early += is_busy;
    return real->free(of, address);
}

static pst_status busy_resize(pst_device *of, psti_span *span, uint64_t bytes)
{
    num_early += is_busy;
    return real->span_resize(of, span, bytes);
}

static void busy_close(pst_device *of, psti_span *span)
{
    num_early += is_busy;
    real->span_close(of, span);
}

PST_TEST(PoolSizes, ResizeAndDestroyWaitForTheDevice)
{
    small_scene self;
    small_configs(&self);
    real = self.device->ops;
    psti_device_ops ops = *real;
    ops.launch = busy_launch;
    ops.synchronize = busy_synchronize;
    ops.free = busy_free;
    ops.span_resize = busy_resize;
    ops.span_close = busy_close;
    self.device->ops = &ops;
    self.pool_config.max_pages = 9;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
    is_busy = false;
    num_early = 0;
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    CHECK_OK(pst_pool_resize(self.pool, 9, 0));
    CHECK_EQ(is_busy, false);
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    CHECK_OK(pst_pool_resize(self.pool, 2, 0));
    CHECK_EQ(is_busy, false);
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    CHECK_OK(pst_ticket_destroy(self.ticket));
    CHECK_EQ(is_busy, false);
    is_busy = true; /* by somebody else */
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_EQ(is_busy, false);
    CHECK_EQ(num_early, 0);
    self.device->ops = real;
    CHECK_OK(pst_group_destroy(self.group));
    CHECK_OK(pst_device_close(self.device));
}
