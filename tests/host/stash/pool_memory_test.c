/* The memory of a pool: what its caller is asked for, and what a pool says that it holds. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/host/stash/scene.h"

static void *const untouched = (void *)(uintptr_t)1;

/* ---- a device with little memory, and a caller that has some of it ---- */

enum { MAX_ASKED = 4 };

static struct {
    uint64_t left[PSTI_TIERS]; /* bytes that the device can still give */
    uint64_t cached;           /* of device memory, that the caller can let go */
    bool refuses;
    bool also_fails; /* calls of the library that fail, by the way */
    pst_device *device;
    uint32_t num_asked;
    struct {
        uint64_t bytes;
        uint32_t tier;
    } asked[MAX_ASKED];
} world;

static const psti_device_ops *real;

static pst_status little_alloc(pst_device *device, size_t bytes, void **address_out)
{
    PSTI_CHECK(bytes <= world.left[0], PST_E_DEVICE_NOMEM,
               "%zu bytes wanted, %" PRIu64 " bytes free", bytes, world.left[0]);
    PSTI_TRY(real->alloc(device, bytes, address_out));
    world.left[0] -= bytes;
    return PST_OK;
}

static uint32_t tier_of(const psti_span *span)
{
    return span->granularity ? PSTI_TIER_HOST : PSTI_TIER_DEVICE;
}

static pst_status little_open(pst_device *device, uint32_t tier, uint64_t reserved, psti_span *span)
{
    PSTI_TRY(real->span_open(device, tier, reserved, span));
    span->granularity = tier == PSTI_TIER_HOST ? 4 * PST_PAGE_BYTES_MIN : 0;
    return PST_OK;
}

static pst_status little_resize(pst_device *device, psti_span *span, uint64_t bytes)
{
    const uint64_t more = bytes > span->mapped ? bytes - span->mapped : 0;
    const uint64_t fewer = bytes < span->mapped ? span->mapped - bytes : 0;
    uint64_t *left = &world.left[tier_of(span)];
    PSTI_CHECK(more <= *left, tier_of(span) ? PST_E_NOMEM : PST_E_DEVICE_NOMEM,
               "%" PRIu64 " bytes wanted, %" PRIu64 " available", more, *left);
    PSTI_TRY(real->span_resize(device, span, bytes));
    *left = *left - more + fewer;
    return PST_OK;
}

/* Lets go of what is cached. Uses the library meanwhile: a lock that it held would show. */
static bool make_room(void *context, uint64_t bytes, uint32_t tier)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    pst_pool *other = NULL;
    if (context == &world && world.num_asked < MAX_ASKED) {
        world.asked[world.num_asked].bytes = bytes;
        world.asked[world.num_asked].tier = tier;
    }
    world.num_asked++;
    if (world.also_fails)
        pst_pool_bytes(&config, NULL);
    const uint64_t left = world.left[0];
    world.left[0] = UINT64_MAX;
    config.num_pages = 1;
    config.max_pages = 2;
    if (pst_pool_create(world.device, &config, &other) || pst_pool_resize(other, 2, 0) ||
        pst_pool_destroy(other))
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
    world.left[0] = left;
    if (world.refuses)
        return false;
    if (tier == PSTI_TIER_DEVICE) {
        world.left[0] += world.cached;
        world.cached = 0;
    }
    return true;
}

static void open_world(small_scene *self)
{
    static psti_device_ops ops;
    small_configs(self);
    memset(&world, 0, sizeof(world));
    world.left[0] = world.left[1] = UINT64_MAX / 2;
    world.device = self->device;
    real = self->device->ops;
    ops = *real;
    ops.alloc = little_alloc;
    ops.span_open = little_open;
    ops.span_resize = little_resize;
    self->device->ops = &ops;
    self->pool_config.max_pages = 20;
    self->pool_config.max_host_pages = 10;
    self->pool_config.make_room = make_room;
    self->pool_config.make_room_context = &world;
}

static void check_asked(uint32_t i, uint32_t tier, uint64_t bytes)
{
    CHECK(world.num_asked > i);
    CHECK_EQ(world.asked[i].tier, tier);
    CHECK_EQ(world.asked[i].bytes, bytes);
}

#define PAGE ((uint64_t)PST_PAGE_BYTES_MIN)

/* ---- at creation ---- */

static void check_not_made(small_scene *self, pst_status status, const char *message)
{
    pst_pool *pool = untouched;
    CHECK_STATUS(pst_pool_create(self->device, &self->pool_config, &pool), status);
    CHECK(pool == untouched);
    CHECK_EQ(self->device->live, 0);
    CHECK_MSG(strstr(pst_last_message(), message) != NULL, "\"%s\", not \"%s\"", pst_last_message(),
              message);
}

PST_TEST(MakeRoom, AFixedPoolAsksForItsBlock)
{
    small_scene self;
    uint64_t bytes = 0;
    char message[256];
    open_world(&self);
    self.pool_config.max_pages = self.pool_config.max_host_pages = 0;
    CHECK_OK(pst_pool_bytes(&self.pool_config, &bytes));
    world.left[0] = 100;
    world.refuses = true;
    snprintf(message, sizeof(message),
             "%" PRIu64 " bytes wanted, 100 bytes free [pool_memory_test.c", bytes);
    check_not_made(&self, PST_E_DEVICE_NOMEM, message);
    snprintf(message, sizeof(message),
             "; make_room was asked for %" PRIu64 " bytes of device memory and refused", bytes);
    check_not_made(&self, PST_E_DEVICE_NOMEM, message);
    CHECK_EQ(world.num_asked, 2); /* once a call */
    check_asked(1, PSTI_TIER_DEVICE, bytes);
    world.refuses = false;
    world.cached = bytes - 101;
    snprintf(message, sizeof(message),
             "%" PRIu64 " bytes wanted, %" PRIu64 " bytes free [pool_memory_test.c", bytes,
             bytes - 1); /* as it was after room was made */
    check_not_made(&self, PST_E_DEVICE_NOMEM, message);
    CHECK(strstr(pst_last_message(), "bytes of device memory, which was not enough") != NULL);
    CHECK_EQ(world.num_asked, 3);
    world.cached = 1;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_EQ(world.num_asked, 4);
    CHECK_EQ(small_status(self.pool).check_errors, 0);
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}

/* Metadata and pages are one wish, asked for once. */
PST_TEST(MakeRoom, AGrowingPoolAsksOncePerTier)
{
    small_scene self;
    uint64_t bytes = 0;
    open_world(&self);
    CHECK_OK(pst_pool_bytes(&self.pool_config, &bytes));
    world.left[0] = 10;
    check_not_made(&self, PST_E_DEVICE_NOMEM, "make_room was asked for");
    CHECK_EQ(world.num_asked, 1);
    check_asked(0, PSTI_TIER_DEVICE, bytes);
    world.left[0] = bytes - 1; /* enough for the metadata */
    world.num_asked = 0;
    check_not_made(&self, PST_E_DEVICE_NOMEM, "49152 bytes of device memory, which was not enough");
    CHECK_EQ(world.num_asked, 1);
    check_asked(0, PSTI_TIER_DEVICE, 3 * PAGE);
    world.left[0] = 10;
    world.cached = bytes - 20; /* the metadata come through, the pages do not */
    world.num_asked = 0;
    check_not_made(&self, PST_E_DEVICE_NOMEM, "49152 bytes wanted, ");
    CHECK_EQ(world.num_asked, 1);
    CHECK_OK(pst_device_close(self.device));
}

PST_TEST(MakeRoom, HostPagesAreAskedForOnTheirOwn)
{
    small_scene self;
    open_world(&self);
    self.pool_config.num_host_pages = 4;
    world.left[1] = 4 * PAGE - 1;
    world.cached = 77;
    check_not_made(&self, PST_E_NOMEM, "65536 bytes wanted, 65535 available");
    CHECK(strstr(pst_last_message(), "; make_room was asked for 65536 bytes of host memory, which "
                                     "was not enough") != NULL);
    CHECK_EQ(world.num_asked, 1);
    check_asked(0, PSTI_TIER_HOST, 4 * PAGE);
    CHECK_EQ(world.cached, 77);
    self.pool_config.make_room = NULL;
    check_not_made(&self, PST_E_NOMEM, "65536 bytes wanted, 65535 available");
    CHECK(strstr(pst_last_message(), "make_room") == NULL);
    CHECK_EQ(world.num_asked, 1);
    CHECK_OK(pst_device_close(self.device));
}

/* Memory of the caller's is not asked for; the host pages beside it are. */
PST_TEST(MakeRoom, ACallersBlockIsNotAskedFor)
{
    small_scene self;
    uint64_t bytes = 0;
    void *memory = NULL;
    open_world(&self);
    self.pool_config.max_pages = 0;
    CHECK_OK(pst_pool_bytes(&self.pool_config, &bytes));
    CHECK_OK(pst_device_alloc(self.device, (size_t)bytes, &memory));
    world.left[0] = 0;
    self.pool_config.memory = memory;
    self.pool_config.memory_bytes = bytes;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_EQ(world.num_asked, 0);
    world.left[1] = PAGE;
    CHECK_STATUS(pst_pool_resize(self.pool, 3, 2), PST_E_NOMEM);
    check_asked(0, PSTI_TIER_HOST, 4 * PAGE); /* whole units of the device */
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_free(self.device, memory));
    CHECK_OK(pst_device_close(self.device));
}

/* ---- at a resize ---- */

static void check_unchanged(const small_scene *self, const pst_pool_info *before)
{
    pst_pool_info now;
    CHECK_OK(pst_pool_get_info(self->pool, &now));
    CHECK(memcmp(&now, before, sizeof(now)) == 0);
    CHECK_EQ(small_status(self->pool).check_errors, 0);
}

PST_TEST(MakeRoom, AResizeThatIsRefusedChangesNothing)
{
    small_scene self;
    pst_pool_info before;
    open_world(&self);
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
    CHECK_OK(pst_pool_get_info(self.pool, &before));
    memset(self.rows, 5, SMALL_BYTES);
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    memset(self.rows, 6, SMALL_BYTES);
    world.left[0] = 3 * PAGE;
    world.left[1] = 2 * PAGE;
    world.refuses = true;
    CHECK_STATUS(pst_pool_resize(self.pool, 7, 0), PST_E_DEVICE_NOMEM);
    CHECK_SAID("65536 bytes wanted, 49152 available [pool_memory_test.c");
    CHECK(strstr(pst_last_message(), "make_room was asked for 65536 bytes of device memory and "
                                     "refused") != NULL);
    check_asked(0, PSTI_TIER_DEVICE, 4 * PAGE);
    check_unchanged(&self, &before);
    world.refuses = false; /* the host tier fails when the device's had been mapped */
    CHECK_STATUS(pst_pool_resize(self.pool, 6, 3), PST_E_NOMEM);
    CHECK(strstr(pst_last_message(),
                 "make_room was asked for 65536 bytes of host memory, which was "
                 "not enough") != NULL);
    CHECK_EQ(world.num_asked, 2);
    check_asked(1, PSTI_TIER_HOST, 4 * PAGE);
    check_unchanged(&self, &before);
    CHECK_EQ(world.left[0], 3 * PAGE);
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    CHECK_EQ(self.rows[0] + self.rows[SMALL_BYTES - 1], 10);
    small_close(&self);
}

PST_TEST(MakeRoom, AResizeGoesOnWhereRoomWasMade)
{
    small_scene self;
    char message[PSTI_MESSAGE_BYTES];
    open_world(&self);
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_STATUS(pst_pool_reset(self.pool, 99, NULL), PST_E_INVALID);
    snprintf(message, sizeof(message), "%s", pst_last_message());
    world.left[0] = PAGE;
    world.cached = 10 * PAGE;
    world.also_fails = true;
    CHECK_OK(pst_pool_resize(self.pool, 8, 3));
    CHECK_STR(pst_last_message(), message); /* a call that succeeds leaves it alone */
    CHECK_EQ(world.num_asked, 1);
    check_asked(0, PSTI_TIER_DEVICE, 5 * PAGE);
    CHECK_EQ(world.left[0], 6 * PAGE);
    CHECK_OK(pst_pool_resize(self.pool, 2, 1)); /* fewer: nobody is asked */
    CHECK_EQ(world.num_asked, 1);
    CHECK_EQ(small_status(self.pool).check_errors, 0);
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}

/* Other failures are no matter of room. */
static pst_status broken_resize(pst_device *device, psti_span *span, uint64_t bytes)
{
    (void)device;
    return bytes > span->mapped ? PSTI_FAIL(PST_E_CUDA, "broken") : PST_OK;
}

PST_TEST(MakeRoom, OtherFailuresAskNobody)
{
    small_scene self;
    open_world(&self);
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    psti_device_ops broken = *self.device->ops;
    const psti_device_ops *const little = self.device->ops;
    broken.span_resize = broken_resize;
    self.device->ops = &broken;
    CHECK_STATUS(pst_pool_resize(self.pool, 8, 0), PST_E_CUDA);
    CHECK_EQ(world.num_asked, 0);
    self.device->ops = little;
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}

static pst_status broken_launch(pst_device *device, psti_op op, const void *args, pst_stream stream)
{
    return op == PSTI_OP_RESIZE ? PSTI_FAIL(PST_E_CUDA, "broken")
                                : real->launch(device, op, args, stream);
}

/* The memory was there, the pool could not be told. */
PST_TEST(MakeRoom, AResizeWhoseLaunchFailsChangesNothing)
{
    small_scene self;
    pst_pool_info before;
    open_world(&self);
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_pool_get_info(self.pool, &before));
    psti_device_ops broken = *self.device->ops;
    const psti_device_ops *const little = self.device->ops;
    broken.launch = broken_launch;
    self.device->ops = &broken;
    const uint64_t left = world.left[0];
    CHECK_STATUS(pst_pool_resize(self.pool, 8, 5), PST_E_CUDA);
    CHECK_EQ(world.left[0], left);
    self.device->ops = little;
    CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, NULL));
    check_unchanged(&self, &before);
    CHECK_OK(pst_pool_resize(self.pool, 8, 5));
    CHECK_EQ(small_status(self.pool).check_errors, 0);
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}

/* ---- what a pool says of itself ---- */

PST_TEST(PoolInfo, ArgumentsAreChecked)
{
    small_scene self;
    pst_pool_info info;
    small_open(&self);
    memset(&info, 0xa5, sizeof(info));
    CHECK_STATUS(pst_pool_get_info(NULL, &info), PST_E_INVALID);
    CHECK_STATUS(pst_pool_get_info(self.pool, NULL), PST_E_INVALID);
    CHECK_SAID("info_out is NULL");
    CHECK_STATUS(pst_pool_get_info_sized(self.pool, &info, sizeof(info) - 8), PST_E_INVALID);
    CHECK_STATUS(pst_pool_get_info_sized(self.pool, &info, sizeof(info) + 8), PST_E_INVALID);
    CHECK_EQ(info.page_bytes, 0xa5a5a5a5a5a5a5a5);
    small_close(&self);
}

/* A fixed pool's bytes are those of pst_pool_bytes. */
PST_TEST(PoolInfo, OfAFixedPool)
{
    small_scene self;
    pst_pool_info info;
    uint64_t bytes = 0;
    small_open(&self);
    CHECK_OK(pst_pool_bytes(&self.pool_config, &bytes));
    CHECK_OK(pst_pool_get_info(self.pool, &info));
    CHECK_EQ(info.page_bytes, PAGE);
    CHECK_EQ(info.page_shift, 14);
    CHECK_EQ(info.num_tickets, 1);
    CHECK_EQ(info.max_tickets, 4);
    CHECK_EQ(info.slab_tickets + info.slab_taken, 0);
    CHECK_EQ(info.num_pages[0], 3);
    CHECK_EQ(info.max_pages[0], 3);
    CHECK_EQ(info.held_bytes[0], 3 * PAGE);
    CHECK_EQ(info.reserved_bytes[0], 3 * PAGE);
    CHECK_EQ(info.metadata_bytes + info.held_bytes[0], bytes);
    CHECK(info.pages[0] == self.pool->view.pages[0]);
    CHECK(info.owners[0] == self.pool->view.owner[0]);
    CHECK_EQ(info.num_pages[1] + info.max_pages[1] + info.held_bytes[1] + info.reserved_bytes[1],
             0);
    CHECK(info.pages[1] == NULL && info.owners[1] == NULL);
    small_close(&self);
}

static void check_tier(const pst_pool_info *info, uint32_t tier, uint64_t pages)
{
    CHECK_EQ(info->num_pages[tier], pages);
    CHECK_EQ(info->held_bytes[tier], pages * PAGE);
    CHECK(info->reserved_bytes[tier] >= info->max_pages[tier] * PAGE);
}

/* The words and bytes at the addresses are those that the ticket got, whatever the pool's size. */
static void check_in_place(const small_scene *self, const pst_pool_info *info)
{
    uint32_t found = 0;
    for (uint64_t page = 0; page < info->num_pages[0]; page++) {
        const unsigned char *at =
            (const unsigned char *)info->pages[0] + (page << info->page_shift);
        if (info->owners[0][page] == 0)
            continue;
        CHECK_EQ(at[0], 0x5c);
        CHECK_EQ(at[info->page_bytes - 1], 0x5c);
        found++;
    }
    CHECK_EQ(found, 2);
    CHECK_EQ(small_status(self->pool).in_use[0], 2);
}

PST_TEST(PoolInfo, AddressesNeverChange)
{
    static const uint32_t sizes[][2] = {{3, 0}, {20, 10}, {5, 10}, {20, 1}, {3, 0}};
    small_scene self;
    pst_pool_info first, now;
    small_configs(&self);
    self.pool_config.max_pages = 20;
    self.pool_config.max_host_pages = 10;
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    CHECK_OK(pst_ticket_create(self.pool, self.group, &self.ticket));
    CHECK_OK(pst_pool_get_info(self.pool, &first));
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        CHECK_OK(pst_pool_resize(self.pool, sizes[i][0], sizes[i][1]));
        CHECK_OK(pst_pool_get_info(self.pool, &now));
        for (uint32_t tier = 0; tier < 2; tier++) {
            check_tier(&now, tier, sizes[i][tier]);
            CHECK(now.pages[tier] == first.pages[tier]);
            CHECK(now.owners[tier] == first.owners[tier]);
            CHECK_EQ(now.reserved_bytes[tier], first.reserved_bytes[tier]);
            CHECK_EQ(now.max_pages[tier], first.max_pages[tier]);
        }
        CHECK_EQ(now.page_shift, first.page_shift);
        CHECK_EQ(now.metadata_bytes, first.metadata_bytes);
        memset(self.rows, 0x5c, SMALL_BYTES);
        CHECK_OK(small_stash(&self, self.ticket, NULL));
        check_in_place(&self, &now);
        CHECK_OK(pst_ticket_release(self.ticket, NULL));
    }
    CHECK(first.pages[1] != NULL && first.owners[1] != NULL);
    small_close(&self);
}

/* The library's figures and those of the config. */
PST_TEST(PoolInfo, MetadataAreAllBesideThePages)
{
    small_scene self;
    pst_pool_info info;
    uint64_t bytes = 0;
    small_configs(&self);
    self.pool_config.max_pages = 20;
    self.pool_config.num_host_pages = 2;
    self.pool_config.slab_tickets = 3;
    CHECK_OK(pst_pool_bytes(&self.pool_config, &bytes));
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    CHECK_OK(pst_pool_get_info(self.pool, &info));
    CHECK_EQ(info.metadata_bytes, bytes - 3 * PAGE);
    CHECK_EQ(info.held_bytes[1], 2 * PAGE);
    CHECK_EQ(info.slab_tickets, 3);
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}
