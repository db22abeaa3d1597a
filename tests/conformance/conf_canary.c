/* With PAGESTASH_CHECK=1 (check_mode.canary) a damaged byte behind any part of a pool's memory is told with
 * its part, place and value; without it there are no such bytes. */
#include "tests/conformance/conf.h"

#include <stdio.h>
#include <stdlib.h>

#include "host/stash/stash.h"
#include "tests/host/scheduler/rig.h"

static const char *const names[PSTI_NUM_PARTS] = {
    "pages",
    "freelist",
    "owner words",
    "freelist of host pages",
    "owner words of host pages",
    "marks of a check",
    "sketch of demands",
    "directory of tickets",
    "slab of tickets",
    "state and launch words",
    "status block",
};

typedef struct scene {
    pst_device *device;
    pst_stream stream;
    pst_pool *pool;
} scene;

static void open_scene(scene *self, const conf_run *conf, pst_pool_mode mode, uint64_t max_pages)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    *self = (scene){.device = conf->device};
    config.page_bytes = PST_PAGE_BYTES_MIN;
    config.num_pages = 5;
    config.max_pages = max_pages;
    config.num_host_pages = 3;
    config.mode = mode;
    config.slab_tickets = 3;
    config.max_tickets = 5;
    CHECK_OK(pst_stream_create(self->device, &self->stream));
    CHECK_OK(pst_pool_create(self->device, &config, &self->pool));
}

/* What the poll after a check says; the check itself may say it before. (A pretended GPU has no kernels, and
 * publishes nothing.) */
static pst_status look(const scene *self)
{
    const pst_status checked = pst_pool_check(self->pool, self->stream);
    pst_pool_status status;
    if ((checked != PST_OK && checked != PST_E_DAMAGED) ||
        pst_pool_step(self->pool, self->stream) ||
        pst_stream_synchronize(self->device, self->stream))
        psti_test_fail(__FILE__, __LINE__, "the pool cannot be asked: %s", pst_last_message());
    const pst_status polled = pst_pool_poll(self->pool, &status);
    return polled == PST_E_AGAIN ? PST_OK : polled;
}

static unsigned char exchange_byte(const scene *self, unsigned char *at, unsigned char value)
{
    unsigned char before = 0;
    if (pst_device_copy(self->device, &before, at, 1, self->stream) ||
        pst_stream_synchronize(self->device, self->stream) ||
        pst_device_copy(self->device, at, &value, 1, self->stream) ||
        pst_stream_synchronize(self->device, self->stream))
        psti_test_fail(__FILE__, __LINE__, "no byte: %s", pst_last_message());
    return before;
}

static void damage(const scene *self, uint32_t part, uint64_t i, unsigned char value)
{
    unsigned char *at = self->pool->canaries[part].at + i;
    char says[160];
    const unsigned char before = exchange_byte(self, at, value);
    snprintf(says, sizeof(says),
             "the pool's memory was overwritten behind its %s: byte %u is 0x%02x, not 0x%02x [",
             names[part], (unsigned)i, value, before);
    CHECK_STATUS(look(self), PST_E_DAMAGED);
    CHECK_SAID(says);
    exchange_byte(self, at, before);
    CHECK_OK(look(self));
}

static void damage_each(const scene *self, psti_part first)
{
    for (uint32_t part = first; part < PSTI_NUM_PARTS; part++) {
        const uint64_t bytes = self->pool->canaries[part].bytes;
        CHECK_MSG(bytes >= 256, "%s: %llu bytes", names[part], (unsigned long long)bytes);
        damage(self, part, 0, 0);
        damage(self, part, bytes / 2, 0xff);
        damage(self, part, bytes - 1, 1);
    }
}

static void check_none(const scene *self)
{
    for (uint32_t part = 0; part < PSTI_NUM_PARTS; part++)
        CHECK(!self->pool->canaries[part].at && self->pool->canaries[part].bytes == 0);
    CHECK(!self->pool->canaries_seen);
    CHECK_OK(look(self));
}

static void close_scene(scene *self)
{
    CHECK_OK(pst_pool_destroy(self->pool));
    CHECK_OK(pst_stream_destroy(self->device, self->stream));
}

/* Fault rows 76. */
CONFORMANCE(Canary, DamageBehindEachPartIsTold)
{
    CONF_EACH_MODE (mode) {
        scene self;
        open_scene(&self, conf, mode, 0);
        if (!self.pool)
            return;
        if (psti_env_check_mode())
            damage_each(&self, PSTI_PART_PAGES);
        else
            check_none(&self);
        CHECK_OK(pst_pool_reset(self.pool, PST_RESET_ALL, self.stream));
        close_scene(&self);
    }
}

/* Pages with memory of their own have none behind them; a resize moves none. */
CONFORMANCE(Canary, APoolThatGrowsKeepsIts)
{
    scene self;
    open_scene(&self, conf, PST_POOL_CONCURRENT, 8);
    if (!self.pool)
        return;
    CHECK(!self.pool->canaries[PSTI_PART_PAGES].at);
    if (psti_env_check_mode())
        damage_each(&self, PSTI_PART_RING);
    CHECK_OK(pst_pool_resize(self.pool, 8, 2));
    CHECK_OK(look(&self));
    if (psti_env_check_mode())
        damage(&self, PSTI_PART_RING, 12, 0);
    close_scene(&self);
}

/* What nobody has looked at is told when the pool is destroyed, and it is gone all the same.
 * Fault rows 76. */
CONFORMANCE(Canary, DestroyTellsAndDestroys)
{
    scene self;
    open_scene(&self, conf, PST_POOL_ORDERED, 0);
    const uint32_t live = self.device->live;
    if (psti_env_check_mode()) {
        exchange_byte(&self, self.pool->canaries[PSTI_PART_STATUS].at + 7, 0);
        CHECK_STATUS(pst_pool_destroy(self.pool), PST_E_DAMAGED);
        CHECK_SAID(
            "the pool's memory was overwritten behind its status block: byte 7 is 0x00, not ");
        CHECK(!psti_handle_is(self.pool, PSTI_KIND_POOL));
    } else {
        CHECK_OK(pst_pool_destroy(self.pool));
    }
    CHECK(self.device->live < live);
    CHECK_OK(pst_stream_destroy(self.device, self.stream));
}

/* A captured check is one launch, and leaves the canaries to the others. */
CONFORMANCE(Canary, ACapturedCheckIsOneLaunch)
{
    scene self;
    pst_graph *graph = NULL;
    pst_graph_info info;
    pst_pool_status status;
    open_scene(&self, conf, PST_POOL_ORDERED, 0);
    CHECK_OK(pst_graph_begin(self.device, self.stream));
    CHECK_OK(pst_pool_check(self.pool, self.stream));
    CHECK_OK(pst_graph_end(self.device, self.stream, &graph));
    CHECK_OK(pst_graph_get_info(graph, &info));
    CHECK_EQ(info.num_nodes, 1);
    CHECK_OK(look(&self));
    if (psti_env_check_mode()) {
        unsigned char *at = self.pool->canaries[PSTI_PART_STATE].at;
        const unsigned char before = exchange_byte(&self, at, 0);
        CHECK_OK(pst_graph_launch(graph, self.stream));
        CHECK_OK(pst_stream_synchronize(self.device, self.stream));
        CHECK_OK(pst_pool_poll(self.pool, &status));
        exchange_byte(&self, at, before);
    }
    CHECK_OK(pst_graph_destroy(graph));
    close_scene(&self);
}

/* A ticket that was created has one behind its record, which is looked at when it is destroyed.
 * Fault rows 76. */
CONFORMANCE(Canary, ATicketsIsLookedAtWhenItIsDestroyed)
{
    scene self;
    pst_group *group = NULL;
    pst_ticket ticket;
    uint64_t bytes = 0;
    pst_row_space space = {.capacity = 8};
    pst_tensor tensor = {.row_bytes = 4096};
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = &space;
    config.tensors = &tensor;
    config.num_spaces = config.num_tensors = 1;
    open_scene(&self, conf, PST_POOL_CONCURRENT, 0);
    CHECK_OK(pst_group_create(&config, &group));
    CHECK_OK(pst_ticket_create(self.pool, group, &ticket));
    CHECK_OK(pst_ticket_bytes(self.pool, group, &bytes));
    const uint64_t own = sizeof(psti_ticket_record) + 8 /* a count */ + 2 * 2 * 4 /* two pages */;
    CHECK_EQ(bytes, own + (psti_env_check_mode() ? 256 : 0));
    if (psti_env_check_mode()) {
        exchange_byte(&self, (unsigned char *)psti_ticket_find(ticket)->record + bytes - 1, 0x30);
        CHECK_OK(look(&self));
        CHECK_STATUS(pst_ticket_destroy(ticket), PST_E_DAMAGED);
        CHECK_SAID(
            "memory was overwritten behind the record of ticket 3: byte 255 is 0x30, not 0x");
        CHECK_STATUS(pst_ticket_destroy(ticket), PST_E_INVALID);
        CHECK_OK(pst_ticket_create(self.pool, group, &ticket));
        exchange_byte(&self, (unsigned char *)psti_ticket_find(ticket)->record + own, 0);
        CHECK_STATUS(pst_ticket_destroy(ticket), PST_E_DAMAGED);
        CHECK_SAID("memory was overwritten behind the record of ticket 3: byte 0 is 0x00, not 0x");
    } else {
        CHECK_OK(pst_ticket_destroy(ticket));
    }
    CHECK_OK(pst_group_destroy(group));
    close_scene(&self);
}

/* A scheduler whose ticket was damaged says so and is gone, as is the ticket. Fault rows 76. */
PST_TEST(Canary, ASchedulersTicketsAreLookedAt)
{
    rig *model = calloc(1, sizeof(*model));
    rig_config config = RIG_CONFIG;
    config.schedule.num_stages = 1;
    config.schedule.num_micro_batches = 2;
    config.num_layers[0] = 2;
    config.num_pages = 64;
    rig_open(model, &config);
    rig_is_right(model);
    const psti_ticket *ticket = psti_ticket_find(model->scheduler->tickets[1]);
    unsigned char *behind =
        (unsigned char *)ticket->record +
        psti_record_bytes(&ticket->pool->view, ticket->count_room, ticket->table_pages);
    if (psti_env_check_mode()) {
        behind[5] = 0;
        CHECK_STATUS(pst_scheduler_destroy(model->scheduler), PST_E_DAMAGED);
        CHECK_SAID("memory was overwritten behind the record of ticket ");
        CHECK_STATUS(pst_scheduler_destroy(model->scheduler), PST_E_INVALID);
    } else {
        CHECK_OK(pst_scheduler_destroy(model->scheduler));
    }
    model->scheduler = NULL;
    rig_close(model);
    free(model);
}
