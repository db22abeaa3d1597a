#include "torch_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <pagestash/pagestash.h>

#include "host/base/base.h"

#define BUFFER_BYTES ((size_t)1 << 20)
#define NO_ID UINT64_MAX

/* A live tensor. */
typedef struct place {
    const void *address; /* NULL: empty */
    uint64_t id;
} place;

struct torch_trace {
    FILE *file;
    bool has_failed;
    uint64_t num_ids;
    place *table; /* open addressing, at most half full */
    uint64_t table_size, num_live;
    pst_stream *streams; /* by number */
    uint32_t num_streams, room_streams;
};

static void give_up(torch_trace *self, const char *why)
{
    if (!self->has_failed)
        psti_log(PST_LOG_ERROR, "the trace ends here: %s", why);
    self->has_failed = true;
}

__attribute__((format(printf, 2, 3))) static void put(torch_trace *self, const char *format, ...)
{
    va_list values;
    if (self->has_failed)
        return;
    va_start(values, format);
    const int result = vfprintf(self->file, format, values);
    va_end(values);
    if (result < 0)
        give_up(self, strerror(errno));
}

/* ---- ids ---- */

static uint64_t slot_of(const torch_trace *self, const void *address)
{
    const uint64_t mask = self->table_size - 1;
    uint64_t at = (uint64_t)(uintptr_t)address / 16 * UINT64_C(0x9e3779b97f4a7c15) >> 32 & mask;
    while (self->table[at].address && self->table[at].address != address)
        at = (at + 1) & mask;
    return at;
}

static bool grow(torch_trace *self)
{
    place *old = self->table;
    const uint64_t before = self->table_size;
    place *table = psti_calloc(before * 2, sizeof(*table));
    if (!table)
        return false;
    self->table = table;
    self->table_size = before * 2;
    for (uint64_t i = 0; i < before; i++)
        if (old[i].address)
            table[slot_of(self, old[i].address)] = old[i];
    psti_free(old);
    return true;
}

/* Takes a place out, and moves up what stands behind it for want of room. */
static void take_out(torch_trace *self, uint64_t at)
{
    const uint64_t mask = self->table_size - 1;
    self->table[at].address = NULL;
    self->num_live--;
    for (uint64_t next = (at + 1) & mask; self->table[next].address; next = (next + 1) & mask) {
        const place moved = self->table[next];
        self->table[next].address = NULL;
        self->table[slot_of(self, moved.address)] = moved;
    }
}

/* ---- streams ---- */

static uint32_t number_of(torch_trace *self, pst_stream stream)
{
    for (uint32_t i = 0; i < self->num_streams; i++)
        if (self->streams[i] == stream)
            return i;
    if (self->num_streams == self->room_streams) {
        const uint32_t room = self->room_streams ? self->room_streams * 2 : 16;
        pst_stream *streams = psti_calloc(room, sizeof(pst_stream));
        if (!streams) {
            give_up(self, "no memory for streams");
            return 0;
        }
        for (uint32_t i = 0; i < self->num_streams; i++)
            streams[i] = self->streams[i];
        psti_free(self->streams);
        self->streams = streams;
        self->room_streams = room;
    }
    self->streams[self->num_streams] = stream;
    return self->num_streams++;
}

/* ---- rows ---- */

torch_trace *torch_trace_open(const char *path)
{
    enum { FIRST_PLACES = 1024 };
    torch_trace *self = psti_calloc(1, sizeof(*self));
    place *table = psti_calloc(FIRST_PLACES, sizeof(*table));
    FILE *file = self && table ? fopen(path, "we") : NULL;
    if (!file) {
        psti_log(PST_LOG_ERROR, "the trace %s cannot be written: %s", path, strerror(errno));
        psti_free(self);
        psti_free(table);
        return NULL;
    }
    setvbuf(file, NULL, _IOFBF, BUFFER_BYTES);
    self->file = file;
    self->table = table;
    self->table_size = FIRST_PLACES;
    put(self, "op,id,size,stream,phase,layer,micro_batch,rank,tag\n");
    return self;
}

void torch_trace_malloc(torch_trace *self, int device, const void *address, uint64_t bytes,
                        pst_stream stream)
{
    if (self->has_failed)
        return;
    if (self->num_live * 2 >= self->table_size && !grow(self)) {
        give_up(self, "no memory for live tensors");
        return;
    }
    const uint64_t at = slot_of(self, address);
    self->table[at] = (place){address, self->num_ids++};
    self->num_live++;
    put(self, "malloc,%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",,,,%d,static\n", self->table[at].id,
        bytes, number_of(self, stream), device);
}

void torch_trace_free(torch_trace *self, int device, const void *address, pst_stream stream)
{
    const uint64_t at = slot_of(self, address);
    const place found = self->table[at];
    if (!found.address)
        return;
    take_out(self, at);
    put(self, "free,%" PRIu64 ",,%" PRIu32 ",,,,%d,\n", found.id, number_of(self, stream), device);
}

void torch_trace_use(torch_trace *self, int device, const void *address, pst_stream stream)
{
    const place found = self->table[slot_of(self, address)];
    if (found.address)
        put(self, "mark,%" PRIu64 ",,%" PRIu32 ",,,,%d,use\n", found.id, number_of(self, stream),
            device);
}

void torch_trace_mark(torch_trace *self, int device, uint64_t iteration)
{
    put(self, "mark,%" PRIu64 ",,,,,,%d,iteration\n", iteration, device);
}

void torch_trace_flush(torch_trace *self)
{
    if (fflush(self->file) != 0)
        give_up(self, strerror(errno));
}
