/* Sequences of operations on the host device, against a plain model. After every operation its
 * pages, its status block and the bytes of both groups' memory are compared. A page id that was
 * damaged must cost that page and no other. */
#include <pagestash/pagestash.h>

#include "host/stash/stash.h"
#include "kernels/core/pool.h"
#include "tests/fuzz/ops_model.h"

enum { MAX_OPS = 200 };

static uint8_t next_byte(void)
{
    if (self.left == 0)
        return 0;
    self.left--;
    return *self.data++;
}

/* ---- operations ---- */

static void set_counts(model_group *group, bool wild)
{
    const uint8_t first = next_byte();
    group->prefix = wild ? (int8_t)first * 16777216 : (int32_t)(first % (group->capacity[0] + 1));
    for (int i = 0; i < COUNTS - 1; i++) {
        const uint8_t byte = next_byte();
        group->segments[i] =
            wild ? (int64_t)((uint64_t)byte << (byte % 64)) : byte % (group->capacity[1] + 1);
    }
}

static void fill_arena(model_group *group, uint64_t seed)
{
    for (uint64_t i = 0; i < group->arena_bytes; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u; /* Knuth */
        group->image[i] = (unsigned char)(seed >> 56);
    }
    memcpy(group->arena, group->image, group->arena_bytes);
}

/* Another id in a live ticket's table: out of range, free, of another ticket, or a second time. */
static void damage(uint32_t index, uint8_t where, uint8_t what)
{
    model_ticket *ticket = &self.tickets[index];
    const psti_pool_view *view = &self.pool->view;
    const uint32_t outside[4] = {PSTI_ID_NONE, PSTI_ID_HOST_BIT, (uint32_t)self.num_pages,
                                 INT32_MAX};
    if (ticket->state != LIVE || ticket->damaged || ticket->pages == 0)
        return;
    uint32_t *table = psti_ticket_table(ticket->ticket->record, COUNTS);
    const uint64_t page = where % ticket->pages;
    const bool inside = what % 2 == 0;
    const uint32_t id = inside ? what / 2 % (uint32_t)self.num_pages : outside[what / 2 % 4];
    const uint64_t mine = psti_owner_word(index, view->state->epoch, page);
    const bool was_mine = inside && *psti_owner_of(view, id) == mine;
    if (id == table[page] || was_mine) /* perhaps one that this ticket lost before */
        return;
    table[page] = id;
    ticket->damaged = true;
    ticket->damaged_page = page;
}

static void renew(uint32_t index)
{
    model_ticket *ticket = &self.tickets[index];
    const bool holds = ticket->state == LIVE && ticket->pages > 0;
    require(pst_ticket_destroy(ticket->ticket) == (holds ? PST_E_BUSY : PST_OK));
    if (holds)
        return;
    require(pst_ticket_create(self.pool, self.groups[0].group, &ticket->ticket) == PST_OK);
    require(pst_ticket_index(ticket->ticket) == index);
    ticket->state = EMPTY;
}

enum {
    COUNTS_OP,
    WILD_OP,
    FILL_OP,
    STASH_OP,
    RESTORE_OP,
    RELEASE_OP,
    RESET_OP,
    STEP_OP,
    CHECK_OP,
    DAMAGE_OP,
    RENEW_OP,
    DIRTY_OP,
    OPS
};

static void enqueue(uint32_t op, uint32_t index, model_group *group, uint8_t argument)
{
    pst_ticket *ticket = self.tickets[index].ticket;
    pst_restore_options options = PST_RESTORE_OPTIONS_INIT;
    pst_graph *graph = NULL;
    const pst_stream stream = argument & 0x80 ? self.stream : NULL; /* by way of a graph */
    pst_status status = PST_OK;
    options.pages = argument & 1 ? PST_RESTORE_KEEP : PST_RESTORE_CONSUME;
    options.tail = argument & 2 ? PST_TAIL_ZERO : PST_TAIL_UNTOUCHED;
    if (stream)
        require(pst_graph_begin(self.device, stream) == PST_OK);
    if (op == STASH_OP)
        status = pst_ticket_stash(ticket, group->group, NULL, stream);
    else if (op == RESTORE_OP)
        status = pst_ticket_restore(ticket, group->group, &options, stream);
    else if (op == RELEASE_OP)
        status = pst_ticket_release(ticket, stream);
    else if (op == RESET_OP)
        status = pst_pool_reset(self.pool, 1 + argument % PST_RESET_ALL, stream);
    else if (op == DIRTY_OP)
        status = pst_group_mark_dirty(group->group, stream);
    require(status == PST_OK);
    if (stream) {
        require(pst_graph_end(self.device, stream, &graph) == PST_OK);
        require(pst_graph_launch(graph, stream) == PST_OK && pst_graph_destroy(graph) == PST_OK);
    }
    if (op == STASH_OP) {
        model_stash(index, group);
    } else if (op == RESTORE_OP) {
        model_restore(index, group, &options);
    } else if (op == RELEASE_OP && self.tickets[index].state == EMPTY) {
        expect_fault(PST_FAULT_EMPTY, index, 0);
    } else if (op == RELEASE_OP) {
        model_free(index);
    } else if (op == RESET_OP) {
        model_reset(1 + argument % PST_RESET_ALL);
    } else if (op == DIRTY_OP) {
        memset(group->dirty, 0xff, sizeof(group->dirty));
    }
}

/* ---- comparison ---- */

/* Each damaged entry is one wrong page, or two where another ticket has it, too. */
static bool pages_are_wrong(uint32_t check_errors)
{
    uint64_t damaged = 0;
    for (uint32_t i = 0; i < self.num_tickets; i++)
        damaged += self.tickets[i].state == LIVE && self.tickets[i].damaged;
    require(check_errors >= damaged + self.lost && check_errors <= 2 * damaged + self.lost);
    return check_errors > 0;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void run_check(void)
{
    require(pst_pool_check(self.pool, NULL) == PST_OK);
    if (pages_are_wrong(self.pool->view.status->check_errors))
        expect_fault(PST_FAULT_CHECK, UINT32_MAX, self.pool->view.status->check_errors);
}

static void run_step(void)
{
    pst_pool_status now;
    model_status *model = &self.status;
    require(pst_pool_step(self.pool, NULL) == PST_OK);
    require(pst_pool_poll(self.pool, &now) == PST_OK);
    const uint64_t in_use = pages_in_use(), wanted = demand();
    const uint64_t step_demand = larger(self.last_demand, wanted);
    model->high_water = larger(model->high_water, larger(self.last_in_use, in_use));
    model->demand_high_water = larger(model->demand_high_water, step_demand);
    require(now.steps == ++model->steps && now.step_valid == !self.faulted);
    require(now.flags == model->flags && now.num_faults == model->num_faults);
    require(now.fault_state == (model->num_faults ? 2 : 0));
    require(now.in_use[0] == in_use && now.in_use[1] == 0 && now.spilled_pages == 0);
    require(now.high_water[0] == model->high_water && now.step_demand == step_demand);
    require(now.demand_high_water == model->demand_high_water);
    if (model->num_faults) {
        require(now.fault == model->fault && now.fault_ticket == model->fault_ticket);
        require(now.fault == PST_FAULT_DAMAGED || now.fault_wanted == model->fault_wanted);
    }
    self.faulted = false;
    self.last_in_use = in_use;
    self.last_demand = wanted;
}

static void compare_bytes(void)
{
    for (int g = 0; g < GROUPS; g++)
        require(memcmp(self.groups[g].arena, self.groups[g].image, self.groups[g].arena_bytes) ==
                0);
}

static void run_one(uint8_t byte)
{
    const uint32_t op = byte % OPS;
    const uint8_t argument = next_byte();
    const uint32_t index = argument / 4 % self.num_tickets;
    model_group *group = &self.groups[argument / 16 % GROUPS];
    if (op == COUNTS_OP || op == WILD_OP)
        set_counts(group, op == WILD_OP);
    else if (op == FILL_OP)
        fill_arena(group, argument);
    else if (op == DAMAGE_OP)
        damage(index, argument, next_byte());
    else if (op == RENEW_OP)
        renew(index);
    else if (op == CHECK_OP)
        run_check();
    else if (op == STEP_OP)
        run_step();
    else
        enqueue(op, index, group, argument);
    run_check();
    run_step();
    compare_bytes();
}

/* ---- setting up ---- */

static void make_group(model_group *group, int64_t rows, int64_t segment_rows, bool tail_is_zero)
{
    const pst_row_space spaces[2] = {{.counts = &group->prefix, .capacity = rows},
                                     {.kind = PST_ROWS_SEGMENTS,
                                      .count_type = PST_COUNT_INT64,
                                      .counts = group->segments,
                                      .capacity = segment_rows,
                                      .num_segments = COUNTS - 1}};
    pst_tensor tensors[TENSORS];
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    uint64_t end = 1; /* not aligned */
    void *arena = NULL;
    group->capacity[0] = rows;
    group->capacity[1] = segment_rows;
    for (uint64_t t = 0; t < TENSORS; t++) {
        const uint64_t all = tensor_bytes(t, group->capacity[t > 0]);
        group->offset[t] = end;
        group->stride[t] = all + (t == 1 ? 7 : 0);
        end += t == 0 ? all : (COUNTS - 2) * group->stride[t] + all;
    }
    group->arena_bytes = end;
    require(end <= ARENA_BYTES);
    require(pst_device_alloc(self.device, end, &arena) == PST_OK);
    group->arena = arena;
    memset(group->arena, 0, end);
    for (uint64_t t = 0; t < TENSORS; t++)
        tensors[t] = (pst_tensor){.base = group->arena + group->offset[t],
                                  .row_bytes = row_bytes[t],
                                  .segment_stride = t == 1 ? group->stride[t] : 0,
                                  .space = t > 0,
                                  .num = 1,
                                  .den = dens[t]};
    config.spaces = spaces;
    config.num_spaces = 2;
    config.tensors = tensors;
    config.num_tensors = TENSORS;
    config.tail_is_zero = tail_is_zero;
    require(pst_group_create(self.device, &config, &group->group) == PST_OK);
    if (!tail_is_zero)
        memset(group->dirty, 0xff, sizeof(group->dirty));
}

static void set_up(const uint8_t *data, size_t size)
{
    pst_pool_config config = PST_POOL_CONFIG_INIT;
    memset(&self, 0, sizeof(self));
    self.data = data;
    self.left = size;
    const uint8_t byte = next_byte();
    config.mode = byte & 1 ? PST_POOL_CONCURRENT : PST_POOL_ORDERED;
    config.page_bytes = self.page_bytes = byte & 2 ? 32768 : 16384;
    config.num_pages = self.num_pages = 1 + byte / 16;
    config.max_tickets = self.num_tickets = 2 + byte / 4 % 3;
    require(pst_device_open("host", 0, &self.device) == PST_OK);
    require(pst_stream_create(self.device, &self.stream) == PST_OK);
    require(pst_pool_create(self.device, &config, &self.pool) == PST_OK);
    make_group(&self.groups[0], 6, 4, byte % 3 == 0);
    make_group(&self.groups[1], 4, 3, byte % 5 == 0);
    for (uint32_t i = 0; i < self.num_tickets; i++)
        require(pst_ticket_create(self.pool, self.groups[0].group, &self.tickets[i].ticket) ==
                PST_OK);
}

static void tear_down(void)
{
    require(pst_pool_reset(self.pool, PST_RESET_ALL, NULL) == PST_OK);
    for (uint32_t i = 0; i < self.num_tickets; i++)
        require(pst_ticket_destroy(self.tickets[i].ticket) == PST_OK);
    for (int g = 0; g < GROUPS; g++) {
        require(pst_group_destroy(self.groups[g].group) == PST_OK);
        require(pst_device_free(self.device, self.groups[g].arena) == PST_OK);
    }
    require(pst_pool_destroy(self.pool) == PST_OK);
    require(pst_stream_destroy(self.device, self.stream) == PST_OK);
    require(pst_device_close(self.device) == PST_OK); /* BUSY if anything were left */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    set_up(data, size);
    for (int i = 0; i < MAX_OPS && self.left > 0; i++)
        run_one(next_byte());
    tear_down();
    return 0;
}
