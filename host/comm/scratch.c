/* Scratch: named buffers that have one user at a time, behind addresses that never move. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/base/nvtx.h"
#include "host/base/structs.h"
#include "host/comm/comm.h"

#define MOST_BYTES ((uint64_t)1 << 45) /* of one name, as of a group */
#define GRAIN ((uint64_t)64 << 10)     /* of memory, where the device has none of its own */

typedef struct text {
    char bytes[PST_SCRATCH_MAX_NAME_BYTES];
} text;

/* The three events of a buffer. A captured stream cannot wait for what was recorded outside its
 * capture but by an external wait, and nobody outside for what was recorded in it but
 * externally. */
typedef enum order {
    ORDER_EAGER, /* the last release outside captures */
    ORDER_NODE,  /* external: the last release of any graph that ran */
    ORDER_EDGE,  /* the last release in the capture `edge_capture` */
    NUM_ORDERS
} order;

typedef struct buffer {
    text name;
    psti_span span;
    psti_hold hold; /* graphs that leased it */
    pst_event events[NUM_ORDERS];
    bool is_recorded[NUM_ORDERS];
    pst_stream eager_stream, edge_stream; /* of the releases that those events stand for */
    uint64_t edge_capture;                /* the last capture that leased it; 0: none */
    uint64_t lease;                       /* live; 0: none */
    uint64_t lease_bytes;
    uint64_t lease_capture; /* in which it was leased; 0: outside */
    uint32_t scope;         /* number of scopes around the lease */
    text leased_at, lease_scope;
    uint64_t released; /* the lease before */
    text released_at;
} buffer;

typedef struct scope {
    struct scope *outer;
    uint32_t depth; /* from 1 */
    text place;
} scope;

struct pst_scratch {
    psti_handle handle;
    pst_device *device;
    uint64_t reserve_bytes;
    scope *innermost;
    pst_scratch_info info;
    buffer buffers[PST_SCRATCH_MAX_NAMES];
};

pst_device *psti_scratch_device(const pst_scratch *scratch)
{
    return scratch->device;
}

pst_status psti_scratch_check_operand(const pst_scratch *scratch, const char *name,
                                      const void *address, uint64_t bytes)
{
    const uintptr_t at = (uintptr_t)address;
    for (uint32_t i = 0; i < scratch->info.num_names; i++) {
        const buffer *of = &scratch->buffers[i];
        const uintptr_t begin = (uintptr_t)of->span.address;
        const bool is_in = at - begin < of->span.reserved || begin - at < bytes;
        PSTI_CHECK(of->lease || !is_in, PST_E_INVALID,
                   "%s at %p lies in scratch '%s', which is not leased: %s%s", name, address,
                   of->name.bytes, of->released ? "released by " : "it never was",
                   of->released_at.bytes);
    }
    return PST_OK;
}

/* ---- names ---- */

static pst_status take_text(const char *what, const char *given, text *text_out)
{
    PSTI_CHECK(given && given[0], PST_E_INVALID, "%s is %s", what, given ? "empty" : "NULL");
    const size_t length = strnlen(given, sizeof(text_out->bytes));
    PSTI_CHECK(length < sizeof(text_out->bytes), PST_E_INVALID,
               "%s '%.*s...': at most %d bytes are allowed", what, 32, given,
               PST_SCRATCH_MAX_NAME_BYTES - 1);
    memset(text_out, 0, sizeof(*text_out));
    memcpy(text_out->bytes, given, length);
    return PST_OK;
}

static const char *scope_text(const pst_scratch *self)
{
    return self->innermost ? self->innermost->place.bytes : "no scope";
}

/* The buffer of a name, which has no addresses yet where it is new. */
static pst_status find_buffer(pst_scratch *self, const char *name, buffer **buffer_out)
{
    text wanted;
    PSTI_TRY(take_text("name", name, &wanted));
    for (uint32_t i = 0; i < self->info.num_names; i++)
        if (strcmp(self->buffers[i].name.bytes, wanted.bytes) == 0) {
            *buffer_out = &self->buffers[i];
            return PST_OK;
        }
    PSTI_CHECK(self->info.num_names < PST_SCRATCH_MAX_NAMES, PST_E_BUSY,
               "'%s': the scratch has %d names already", wanted.bytes, PST_SCRATCH_MAX_NAMES);
    buffer *made = &self->buffers[self->info.num_names];
    memset(made, 0, sizeof(*made));
    made->name = wanted;
    *buffer_out = made;
    return PST_OK;
}

static bool is_new(const pst_scratch *self, const buffer *of)
{
    return of == &self->buffers[self->info.num_names];
}

/* ---- memory ---- */

static pst_status check_bytes(const pst_scratch *self, const buffer *of, uint64_t bytes)
{
    PSTI_CHECK(bytes > 0 && bytes <= self->reserve_bytes, PST_E_INVALID,
               "'%s': %" PRIu64 " bytes: allowed are 1 to reserve_bytes, %" PRIu64, of->name.bytes,
               bytes, self->reserve_bytes);
    return PST_OK;
}

/* At least so many bytes behind the buffer's addresses. Leaves all as it was where it fails. */
static pst_status grow(pst_scratch *self, buffer *of, uint64_t bytes)
{
    const psti_device_ops *ops = self->device->ops;
    if (!of->span.address)
        PSTI_TRY(ops->span_open(self->device, PSTI_TIER_DEVICE, self->reserve_bytes, &of->span));
    if (is_new(self, of))
        self->info.num_names++;
    if (bytes <= of->span.mapped)
        return PST_OK;
    const uint64_t grain = of->span.granularity ? of->span.granularity : GRAIN;
    uint64_t wanted = (bytes + grain - 1) / grain * grain;
    if (wanted > of->span.reserved)
        wanted = of->span.reserved;
    const uint64_t before = of->span.mapped;
    PSTI_TRY(ops->span_resize(self->device, &of->span, wanted));
    self->info.mapped_bytes += of->span.mapped - before;
    if (self->info.mapped_bytes > self->info.peak_mapped_bytes)
        self->info.peak_mapped_bytes = self->info.mapped_bytes;
    return PST_OK;
}

pst_status pst_scratch_reserve(pst_scratch *scratch, const char *name, uint64_t bytes)
{
    PSTI_CHECK_HANDLE(scratch, SCRATCH);
    buffer *of = scratch->buffers;
    PSTI_TRY(find_buffer(scratch, name, &of));
    PSTI_TRY(check_bytes(scratch, of, bytes));
    return grow(scratch, of, bytes);
}

/* Whether the buffer's releases have been passed. Fails: CAPTURE, CUDA. */
static pst_status wait_for_releases(const pst_scratch *self, const buffer *of)
{
    for (int o = ORDER_EAGER; o <= ORDER_NODE; o++)
        if (of->is_recorded[o])
            PSTI_TRY(pst_event_synchronize(self->device, of->events[o]));
    return PST_OK;
}

pst_status pst_scratch_trim(pst_scratch *scratch)
{
    PSTI_CHECK_HANDLE(scratch, SCRATCH);
    for (uint32_t i = 0; i < scratch->info.num_names; i++)
        PSTI_TRY(wait_for_releases(scratch, &scratch->buffers[i]));
    for (uint32_t i = 0; i < scratch->info.num_names; i++) {
        buffer *of = &scratch->buffers[i];
        const uint64_t before = of->span.mapped;
        if (of->lease || before == 0 || psti_hold_count(scratch->device, &of->hold) > 0)
            continue;
        PSTI_TRY(scratch->device->ops->span_resize(scratch->device, &of->span, 0));
        scratch->info.mapped_bytes -= before - of->span.mapped;
    }
    return PST_OK;
}

/* ---- the order of streams ---- */

static pst_status need_event(const pst_scratch *self, buffer *of, order which)
{
    return of->events[which] ? PST_OK : psti_part_event_create(self->device, &of->events[which]);
}

/* A captured stream's first lease waits for whatever came last when the graph is launched; so both
 * events are needed now, though nothing may have been recorded. */
static pst_status wait_in_capture(pst_scratch *self, buffer *of, pst_stream stream,
                                  const psti_capture_of *capture)
{
    const psti_device_ops *ops = self->device->ops;
    if (of->edge_capture == capture->id) {
        if (!of->is_recorded[ORDER_EDGE] || of->edge_stream == stream)
            return PST_OK;
        self->info.num_waits++;
        return ops->event_wait(self->device, of->events[ORDER_EDGE], stream, false);
    }
    for (int o = ORDER_EAGER; o <= ORDER_NODE; o++)
        PSTI_TRY(ops->event_wait(self->device, of->events[o], stream, true));
    self->info.num_waits++;
    return PST_OK;
}

static pst_status wait_eagerly(pst_scratch *self, buffer *of, pst_stream stream)
{
    const psti_device_ops *ops = self->device->ops;
    const bool is_other = of->is_recorded[ORDER_EAGER] && of->eager_stream != stream;
    if (is_other)
        PSTI_TRY(ops->event_wait(self->device, of->events[ORDER_EAGER], stream, false));
    if (of->is_recorded[ORDER_NODE])
        PSTI_TRY(ops->event_wait(self->device, of->events[ORDER_NODE], stream, false));
    self->info.num_waits += is_other || of->is_recorded[ORDER_NODE];
    return PST_OK;
}

/* All that a lease here and its release will need and that can be refused. */
static pst_status prepare(pst_scratch *self, buffer *of, const psti_capture_of *capture)
{
    PSTI_TRY(need_event(self, of, ORDER_EAGER));
    if (!capture->id)
        return PST_OK;
    PSTI_TRY(need_event(self, of, ORDER_NODE));
    PSTI_TRY(need_event(self, of, ORDER_EDGE));
    return psti_hold_in(self->device, capture, &of->hold);
}

/* ---- lease and release ---- */

static uint64_t new_id(void)
{
    static uint64_t last; /* of all scratches: another's lease is none of this one */
    return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

static pst_status check_free(const buffer *of, const text *place)
{
    PSTI_CHECK(of->lease == 0, PST_E_BUSY,
               "'%s' is wanted by '%s', but '%s' has leased it, in %s, and not released it",
               of->name.bytes, place->bytes, of->leased_at.bytes, of->lease_scope.bytes);
    return PST_OK;
}

static void note_lease(pst_scratch *self, buffer *of, uint64_t bytes, uint64_t capture,
                       const text *place)
{
    pst_scratch_info *info = &self->info;
    of->lease = new_id();
    of->lease_bytes = bytes;
    of->lease_capture = capture;
    of->leased_at = *place;
    of->scope = self->innermost ? self->innermost->depth : 0;
    snprintf(of->lease_scope.bytes, sizeof(of->lease_scope.bytes), "%s", scope_text(self));
    info->num_leases++;
    info->num_live++;
    info->leased_bytes += bytes;
    if (info->leased_bytes > info->peak_leased_bytes)
        info->peak_leased_bytes = info->leased_bytes;
}

pst_status pst_scratch_lease(pst_scratch *scratch, const char *name, uint64_t bytes,
                             const char *place, pst_stream stream, pst_lease *lease_out)
{
    text at;
    psti_capture_of capture;
    PSTI_CHECK_HANDLE(scratch, SCRATCH);
    buffer *of = scratch->buffers;
    PSTI_RANGE("pst_scratch_lease");
    PSTI_CHECK(lease_out, PST_E_INVALID, "lease_out is NULL");
    PSTI_TRY(find_buffer(scratch, name, &of));
    PSTI_TRY(take_text("place", place, &at));
    PSTI_TRY(check_bytes(scratch, of, bytes));
    PSTI_TRY(check_free(of, &at));
    PSTI_TRY(scratch->device->ops->capture_of(scratch->device, stream, &capture));
    PSTI_CHECK(capture.id == 0 || bytes <= of->span.mapped, PST_E_CAPTURE,
               "'%s' has %" PRIu64 " bytes, %" PRIu64
               " are wanted by '%s' in a capture: pst_scratch_reserve them before",
               of->name.bytes, of->span.mapped, bytes, at.bytes);
    PSTI_TRY(grow(scratch, of, bytes));
    PSTI_TRY(prepare(scratch, of, &capture));
    PSTI_TRY(capture.id ? wait_in_capture(scratch, of, stream, &capture)
                        : wait_eagerly(scratch, of, stream));
    if (capture.id && of->edge_capture != capture.id) {
        of->edge_capture = capture.id;
        of->is_recorded[ORDER_EDGE] = false;
    }
    note_lease(scratch, of, bytes, capture.id, &at);
    *lease_out = (pst_lease){of->span.address, bytes, of->lease};
    return PST_OK;
}

static pst_status find_lease(pst_scratch *self, const pst_lease *lease, buffer **buffer_out)
{
    PSTI_CHECK(lease->id, PST_E_INVALID, "lease: it is none, or was released");
    for (uint32_t i = 0; i < self->info.num_names; i++) {
        buffer *of = &self->buffers[i];
        PSTI_CHECK(of->released != lease->id, PST_E_INVALID,
                   "lease of '%s': '%s' has released it before", of->name.bytes,
                   of->released_at.bytes);
        if (of->lease == lease->id) {
            *buffer_out = of;
            return PST_OK;
        }
    }
    return PSTI_FAIL(PST_E_INVALID, "lease %" PRIu64 " is no live one of this scratch", lease->id);
}

/* What a release records, for those who come after. */
static pst_status record_release(pst_scratch *self, buffer *of, pst_stream stream,
                                 const psti_capture_of *capture)
{
    const psti_device_ops *ops = self->device->ops;
    PSTI_TRY(prepare(self, of, capture));
    if (!capture->id) {
        PSTI_TRY(ops->event_record(self->device, of->events[ORDER_EAGER], stream, false));
        of->is_recorded[ORDER_EAGER] = true;
        of->eager_stream = stream;
        return PST_OK;
    }
    PSTI_TRY(ops->event_record(self->device, of->events[ORDER_EDGE], stream, false));
    PSTI_TRY(ops->event_record(self->device, of->events[ORDER_NODE], stream, true));
    of->is_recorded[ORDER_EDGE] = of->is_recorded[ORDER_NODE] = true;
    of->edge_stream = stream;
    of->edge_capture = capture->id;
    return PST_OK;
}

/* A release counts where its lease does. In a capture it records nothing for work that was enqueued
 * outside; and behind a capture nothing of its graph says any more when that is done. */
static pst_status check_edge(const pst_scratch *self, const buffer *of, uint64_t capture,
                             const text *place)
{
    if (of->lease_capture == capture)
        return PST_OK;
    PSTI_CHECK(of->lease_capture, PST_E_ORDER,
               "'%s' is released in a capture by '%s', but '%s' has leased it outside of that: "
               "release it before the capture or behind it",
               of->name.bytes, place->bytes, of->leased_at.bytes);
    PSTI_CHECK(psti_hold_count(self->device, &of->hold) == 0, PST_E_ORDER,
               "'%s' is released by '%s' outside the capture in which '%s' has leased it: a graph "
               "of that capture must not be launched, since no other lease waits for it",
               of->name.bytes, place->bytes, of->leased_at.bytes);
    return PST_OK;
}

static pst_status enqueue_release(pst_scratch *self, buffer *of, const text *place,
                                  pst_stream stream)
{
    psti_capture_of capture;
    PSTI_TRY(self->device->ops->capture_of(self->device, stream, &capture));
    PSTI_TRY(check_edge(self, of, capture.id, place));
    if (psti_is_check_mode())
        PSTI_TRY(pst_device_fill(self->device, of->span.address, 0xff, of->lease_bytes, stream));
    return record_release(self, of, stream, &capture);
}

pst_status pst_scratch_release(pst_scratch *scratch, pst_lease *lease, const char *place,
                               pst_stream stream)
{
    text at;
    PSTI_CHECK_HANDLE(scratch, SCRATCH);
    buffer *of = scratch->buffers;
    PSTI_RANGE("pst_scratch_release");
    PSTI_CHECK(lease, PST_E_INVALID, "lease is NULL");
    PSTI_TRY(take_text("place", place, &at));
    PSTI_TRY(find_lease(scratch, lease, &of));
    const pst_status status = enqueue_release(scratch, of, &at, stream);
    const bool is_refused = status == PST_E_ORDER || status == PST_E_CAPTURE;
    if (status == PST_E_INVALID || (is_refused && of->lease_capture == 0))
        return status; /* no stream of the device's, or its work may run still */
    scratch->info.num_live--;
    scratch->info.leased_bytes -= of->lease_bytes;
    of->released = of->lease;
    of->released_at = at;
    of->lease = 0;
    *lease = (pst_lease){.id = 0};
    return status;
}

/* ---- scopes ---- */

pst_status pst_scratch_scope_begin(pst_scratch *scratch, const char *place)
{
    text at;
    PSTI_CHECK_HANDLE(scratch, SCRATCH);
    PSTI_TRY(take_text("place", place, &at));
    scope *made = psti_calloc(1, sizeof(*made));
    PSTI_CHECK(made, PST_E_NOMEM, "no memory for a scope");
    made->outer = scratch->innermost;
    made->depth = made->outer ? made->outer->depth + 1 : 1;
    made->place = at;
    scratch->innermost = made;
    return PST_OK;
}

pst_status pst_scratch_scope_end(pst_scratch *scratch)
{
    PSTI_CHECK_HANDLE(scratch, SCRATCH);
    PSTI_CHECK(scratch->innermost, PST_E_ORDER, "no scope is open");
    const scope ended = *scratch->innermost;
    const buffer *left = NULL;
    psti_free(scratch->innermost);
    scratch->innermost = ended.outer;
    for (uint32_t i = 0; i < scratch->info.num_names; i++) {
        buffer *of = &scratch->buffers[i];
        if (of->lease == 0 || of->scope != ended.depth)
            continue;
        of->scope--;
        left = of;
    }
    PSTI_CHECK(!left, PST_E_ORDER,
               "the scope '%s' ends, but '%s', which '%s' has leased in it, was not released",
               ended.place.bytes, left->name.bytes, left->leased_at.bytes);
    return PST_OK;
}

/* ---- create, destroy, info ---- */

pst_status pst_scratch_create(pst_device *device, const pst_scratch_config *config,
                              pst_scratch **scratch_out)
{
    PSTI_CHECK_HANDLE(device, DEVICE);
    PSTI_CHECK(scratch_out, PST_E_INVALID, "scratch_out is NULL");
    PSTI_TAKE_OPTIONS(pst_scratch_config, own, config);
    const uint64_t most = own.reserve_bytes ? own.reserve_bytes : 2 * device->info.total_bytes;
    PSTI_CHECK(most <= MOST_BYTES, PST_E_INVALID, "reserve_bytes %" PRIu64 ": at most %" PRIu64,
               most, MOST_BYTES);
    pst_scratch *made = psti_handle_new(sizeof(*made), PSTI_KIND_SCRATCH);
    PSTI_CHECK(made, PST_E_NOMEM, "no memory for a scratch");
    made->device = device;
    made->reserve_bytes = most;
    psti_device_retain(device, PSTI_LIVE_SCRATCH);
    *scratch_out = made;
    return PST_OK;
}

static pst_status check_unused(const pst_scratch *self)
{
    for (uint32_t i = 0; i < self->info.num_names; i++) {
        const buffer *of = &self->buffers[i];
        PSTI_CHECK(of->lease == 0, PST_E_BUSY, "'%s' is leased by '%s', in %s", of->name.bytes,
                   of->leased_at.bytes, of->lease_scope.bytes);
        const uint32_t graphs = psti_hold_count(self->device, &of->hold);
        PSTI_CHECK(graphs == 0, PST_E_BUSY, "%u captured graphs lease '%s'", graphs,
                   of->name.bytes);
    }
    for (uint32_t i = 0; i < self->info.num_names; i++)
        PSTI_TRY(wait_for_releases(self, &self->buffers[i]));
    return PST_OK;
}

pst_status pst_scratch_destroy(pst_scratch *scratch)
{
    if (!scratch)
        return PST_OK;
    PSTI_CHECK_HANDLE(scratch, SCRATCH);
    pst_device *device = scratch->device;
    const pst_status status = check_unused(scratch);
    if (status != PST_OK && status != PST_E_CUDA) /* what cannot work goes, too */
        return status;
    for (uint32_t i = 0; i < scratch->info.num_names; i++) {
        buffer *of = &scratch->buffers[i];
        device->ops->span_close(device, &of->span);
        for (int o = 0; o < NUM_ORDERS; o++)
            psti_part_event_destroy(device, of->events[o]);
    }
    while (scratch->innermost) {
        scope *outer = scratch->innermost->outer;
        psti_free(scratch->innermost);
        scratch->innermost = outer;
    }
    psti_device_release(device, PSTI_LIVE_SCRATCH);
    psti_handle_free(scratch);
    return PST_OK;
}

pst_status pst_scratch_get_info_sized(const pst_scratch *scratch, pst_scratch_info *info_out,
                                      size_t info_bytes)
{
    PSTI_CHECK_HANDLE(scratch, SCRATCH);
    PSTI_CHECK(info_out, PST_E_INVALID, "info_out is NULL");
    PSTI_TRY(PSTI_CHECK_SIZE(pst_scratch_info, info_bytes));
    memcpy(info_out, &scratch->info, info_bytes);
    return PST_OK;
}
