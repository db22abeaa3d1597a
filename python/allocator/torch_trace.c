/* Writes the trace of what PyTorch asks its allocator for. */
#include "torch_trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/base/table.h"

#define BUFFER_BYTES ((size_t)1 << 20)

struct torch_trace {
    FILE *file;
    bool has_failed;
    uint64_t num_ids;
    psti_map ids;        /* of live tensors, by address */
    pst_stream *streams; /* by number */
    uint64_t num_streams, room_streams;
    char label[48]; /* phase, layer and micro-batch, with the commas between */
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

/* The id of a live tensor, or PSTI_MAP_NONE. */
static uint64_t id_of(const torch_trace *self, const void *address)
{
    return psti_map_get(&self->ids, (uintptr_t)address);
}

/* ---- streams ---- */

static uint32_t number_of(torch_trace *self, pst_stream stream)
{
    for (uint32_t i = 0; i < self->num_streams; i++)
        if (self->streams[i] == stream)
            return i;
    if (psti_grow((void **)&self->streams, &self->room_streams, self->num_streams + 1,
                  sizeof(*self->streams)) != PST_OK) {
        give_up(self, "no memory for streams");
        return 0;
    }
    self->streams[self->num_streams] = stream;
    return (uint32_t)self->num_streams++;
}

/* ---- rows ---- */

torch_trace *torch_trace_open(const char *path)
{
    torch_trace *self = psti_calloc(1, sizeof(*self));
    FILE *file = self ? fopen(path, "we") : NULL;
    if (!file) {
        psti_log(PST_LOG_ERROR, "the trace %s cannot be written: %s", path, strerror(errno));
        psti_free(self);
        return NULL;
    }
    setvbuf(file, NULL, _IOFBF, BUFFER_BYTES);
    self->file = file;
    torch_trace_label(self, PST_PHASE_NONE, PST_TRACE_NONE, PST_TRACE_NONE);
    put(self, "op,id,size,stream,phase,layer,micro_batch,rank,tag\n");
    return self;
}

void torch_trace_malloc(torch_trace *self, int device, const void *address, uint64_t bytes,
                        pst_stream stream)
{
    if (self->has_failed)
        return;
    const uint64_t id = self->num_ids++;
    if (psti_map_set(&self->ids, (uintptr_t)address, id) != PST_OK) {
        give_up(self, "no memory for live tensors");
        return;
    }
    put(self, "malloc,%" PRIu64 ",%" PRIu64 ",%" PRIu32 ",%s,%d,static\n", id, bytes,
        number_of(self, stream), self->label, device);
}

void torch_trace_free(torch_trace *self, int device, const void *address, pst_stream stream)
{
    const uint64_t id = id_of(self, address);
    if (id == PSTI_MAP_NONE)
        return;
    psti_map_remove(&self->ids, (uintptr_t)address);
    put(self, "free,%" PRIu64 ",,%" PRIu32 ",%s,%d,\n", id, number_of(self, stream), self->label,
        device);
}

void torch_trace_use(torch_trace *self, int device, const void *address, pst_stream stream)
{
    const uint64_t id = id_of(self, address);
    if (id != PSTI_MAP_NONE)
        put(self, "mark,%" PRIu64 ",,%" PRIu32 ",%s,%d,use\n", id, number_of(self, stream),
            self->label, device);
}

void torch_trace_mark(torch_trace *self, int device, uint64_t iteration)
{
    put(self, "mark,%" PRIu64 ",,,,,,%d,iteration\n", iteration, device);
}

static void name_number(uint32_t number, char out[12])
{
    if (number == PST_TRACE_NONE)
        out[0] = '\0';
    else
        snprintf(out, 12, "%" PRIu32, number);
}

void torch_trace_label(torch_trace *self, pst_trace_phase phase, uint32_t layer,
                       uint32_t micro_batch)
{
    static const char *const phases[PST_NUM_PHASES] = {"", "forward", "backward", "weight",
                                                       "other"};
    char layer_name[12];
    char micro_batch_name[12];
    name_number(layer, layer_name);
    name_number(micro_batch, micro_batch_name);
    snprintf(self->label, sizeof(self->label), "%s,%s,%s", phases[phase], layer_name,
             micro_batch_name);
}

void torch_trace_close(torch_trace *self)
{
    if (!self)
        return;
    if (fclose(self->file) != 0)
        give_up(self, strerror(errno));
    psti_map_free(&self->ids);
    psti_free(self->streams);
    psti_free(self);
}

void torch_trace_flush(torch_trace *self)
{
    if (fflush(self->file) != 0)
        give_up(self, strerror(errno));
}
