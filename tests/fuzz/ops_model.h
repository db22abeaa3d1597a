/* The plain model of ops_fuzz.c: what each ticket holds, how many pages are free, what the status
 * block says. Functions called model_X do what the library's X must have done. */
#ifndef PAGESTASH_TESTS_OPS_MODEL_H
#define PAGESTASH_TESTS_OPS_MODEL_H

#include <stdlib.h>
#include <string.h>

#include <pagestash/pagestash.h>

enum {
    GROUPS = 2,
    TICKETS = 4,
    TENSORS = 3,
    COUNTS = 4, /* one of the prefix, three of the segments */
    PIECES = 7, /* segments of all tensors */
    STREAM_BYTES = 7 * 16384,
    ARENA_BYTES = 80000
};

/* What a program may have learned about the first fault. */
typedef struct model_status {
    uint32_t flags, num_faults, fault, fault_ticket;
    uint64_t fault_wanted;
    uint64_t high_water, demand_high_water, steps;
} model_status;

typedef struct model_group {
    pst_group *group;
    unsigned char *arena, image[ARENA_BYTES];
    uint64_t arena_bytes;
    int32_t prefix;
    int64_t segments[COUNTS - 1];
    int64_t capacity[2];
    uint64_t dirty[COUNTS];
    uint64_t offset[TENSORS], stride[TENSORS];
} model_group;

typedef struct model_ticket {
    pst_ticket *ticket;
    enum { EMPTY, LIVE, FAILED } state;
    int64_t counts[COUNTS];
    uint64_t pages; /* LIVE: held, FAILED: wanted */
    bool damaged;
    uint64_t damaged_page;
    unsigned char bytes[STREAM_BYTES];
} model_ticket;

/* A segment of a tensor in the byte stream. */
typedef struct piece {
    uint64_t tensor, segment, bytes, position;
} piece;

static const uint64_t row_bytes[TENSORS] = {5000, 4099, 100};
static const uint32_t dens[TENSORS] = {1, 1, 3};

static struct {
    const uint8_t *data;
    size_t left;
    pst_device *device;
    pst_stream stream;
    pst_pool *pool;
    uint64_t page_bytes, num_pages, lost;
    uint32_t num_tickets;
    bool faulted; /* in this step */
    uint64_t last_in_use, last_demand;
    model_group groups[GROUPS];
    model_ticket tickets[TICKETS];
    model_status status;
} self;

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* ---- the model ---- */

static uint64_t tensor_bytes(uint64_t tensor, int64_t rows)
{
    return ((uint64_t)rows + dens[tensor] - 1) / dens[tensor] * row_bytes[tensor];
}

/* Where everything lies in the byte stream; returns the pages it takes. */
static uint64_t lay_out(const int64_t *counts, piece *pieces)
{
    uint64_t cursor = 0;
    for (uint64_t t = 0, i = 0; t < TENSORS; t++) {
        cursor = (cursor + 16383) / 16384 * 16384;
        for (uint64_t s = 0; s < (t == 0 ? 1 : COUNTS - 1); s++) {
            const uint64_t bytes = tensor_bytes(t, counts[t == 0 ? 0 : 1 + s]);
            pieces[i++] = (piece){.tensor = t, .segment = s, .bytes = bytes, .position = cursor};
            cursor = (cursor + bytes + 15) / 16 * 16;
        }
    }
    cursor = (cursor + 16383) / 16384 * 16384;
    return (cursor + self.page_bytes - 1) / self.page_bytes;
}

static uint64_t offset_of(const model_group *group, const piece *at)
{
    return group->offset[at->tensor] + at->segment * group->stride[at->tensor];
}

static void expect_fault(pst_fault fault, uint32_t ticket, uint64_t wanted)
{
    self.status.flags |= 1u << fault;
    self.faulted = true;
    if (self.status.num_faults++ > 0)
        return;
    self.status.fault = fault;
    self.status.fault_ticket = ticket;
    self.status.fault_wanted = wanted;
}

static uint64_t pages_in_use(void)
{
    uint64_t pages = self.lost;
    for (uint32_t i = 0; i < self.num_tickets; i++)
        pages += self.tickets[i].state == LIVE ? self.tickets[i].pages : 0;
    return pages;
}

static uint64_t demand(void)
{
    uint64_t pages = pages_in_use();
    for (uint32_t i = 0; i < self.num_tickets; i++)
        pages += self.tickets[i].state == FAILED ? self.tickets[i].pages : 0;
    return pages;
}

static void model_stash(uint32_t index, const model_group *source)
{
    model_ticket *ticket = &self.tickets[index];
    int64_t counts[COUNTS] = {source->prefix, source->segments[0], source->segments[1],
                              source->segments[2]};
    piece pieces[PIECES];
    if (ticket->state == LIVE) {
        expect_fault(PST_FAULT_LIVE, index, 0);
        return;
    }
    ticket->state = FAILED;
    ticket->pages = 0;
    for (int i = 0; i < COUNTS; i++)
        if (counts[i] < 0 || counts[i] > source->capacity[i > 0]) {
            expect_fault(PST_FAULT_COUNT, index, (uint64_t)counts[i]);
            return;
        }
    ticket->pages = lay_out(counts, pieces);
    if (ticket->pages > self.num_pages - pages_in_use()) {
        expect_fault(PST_FAULT_EXHAUSTED, index, ticket->pages);
        return;
    }
    ticket->state = LIVE;
    ticket->damaged = false;
    memcpy(ticket->counts, counts, sizeof(counts));
    for (int i = 0; i < PIECES; i++)
        memcpy(ticket->bytes + pieces[i].position, source->image + offset_of(source, &pieces[i]),
               pieces[i].bytes);
}

static void model_copy(const model_ticket *ticket, model_group *to)
{
    piece pieces[PIECES];
    lay_out(ticket->counts, pieces);
    for (int i = 0; i < PIECES; i++) {
        const uint64_t at = offset_of(to, &pieces[i]);
        for (uint64_t b = 0; b < pieces[i].bytes; b++) {
            const uint64_t page = (pieces[i].position + b) / self.page_bytes;
            if (!ticket->damaged || page != ticket->damaged_page)
                to->image[at + b] = ticket->bytes[pieces[i].position + b];
        }
    }
}

static void model_zero(const model_ticket *ticket, model_group *to)
{
    for (uint64_t t = 0; t < TENSORS; t++)
        for (uint64_t s = 0; s < (t == 0 ? 1 : COUNTS - 1); s++) {
            const uint64_t i = t == 0 ? 0 : 1 + s;
            const uint64_t all = (uint64_t)to->capacity[i > 0];
            const uint64_t dirty = to->dirty[i] < all ? to->dirty[i] : all;
            const uint64_t from = tensor_bytes(t, ticket->counts[i]);
            const uint64_t end = tensor_bytes(t, (int64_t)dirty);
            if (end > from)
                memset(to->image + to->offset[t] + s * to->stride[t] + from, 0, end - from);
        }
}

static void model_free(uint32_t index)
{
    model_ticket *ticket = &self.tickets[index];
    if (ticket->state == LIVE && ticket->damaged) {
        expect_fault(PST_FAULT_DAMAGED, index, 0);
        self.lost++;
    }
    ticket->state = EMPTY;
}

static void model_restore(uint32_t index, model_group *to, const pst_restore_options *options)
{
    model_ticket *ticket = &self.tickets[index];
    if (ticket->state == EMPTY) {
        expect_fault(PST_FAULT_EMPTY, index, 0);
        return;
    }
    if (ticket->state == FAILED) {
        expect_fault(PST_FAULT_FAILED, index, 0);
    } else {
        for (int i = 0; i < COUNTS; i++)
            if (ticket->counts[i] > to->capacity[i > 0]) {
                expect_fault(PST_FAULT_DESTINATION, index, 0);
                return;
            }
        if (ticket->damaged)
            expect_fault(PST_FAULT_DAMAGED, index, 0);
        model_copy(ticket, to);
        if (options->tail == PST_TAIL_ZERO)
            model_zero(ticket, to);
        for (int i = 0; i < COUNTS; i++) {
            const uint64_t live = (uint64_t)ticket->counts[i];
            if (options->tail == PST_TAIL_ZERO || to->dirty[i] < live)
                to->dirty[i] = live;
        }
    }
    if (options->pages == PST_RESTORE_CONSUME)
        model_free(index);
}

static void model_reset(uint32_t what)
{
    if (what & PST_RESET_PAGES) {
        for (uint32_t i = 0; i < self.num_tickets; i++)
            self.tickets[i].state = EMPTY;
        self.lost = 0;
    }
    if (what & PST_RESET_FAULTS) {
        self.status.flags = self.status.num_faults = 0;
        self.faulted = false;
    }
    if (what & PST_RESET_STATISTICS) {
        self.status.high_water = self.status.demand_high_water = 0;
        self.last_in_use = self.last_demand = 0;
    }
}

#endif
