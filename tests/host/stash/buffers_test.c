/* Addresses of one launch: what is refused, what is taken from the group, and what lies in a pool. */
#include <inttypes.h>
#include <stdio.h>

#include "tests/host/base/child.h"
#include "tests/host/stash/scene.h"

/* Every operation with these buffers refuses them, and does nothing. */
static void check_refused(const small_scene *self, const char *message)
{
    const pst_pattern pattern = {.seed = 1};
    uint64_t mismatches = 7;
    char whole[256];
    snprintf(whole, sizeof(whole), "source%s", message);
    CHECK_STATUS(small_stash(self, self->ticket, NULL), PST_E_INVALID);
    CHECK_SAID(whole);
    snprintf(whole, sizeof(whole), "buffers%s", message);
    CHECK_STATUS(pst_group_fill(self->device, self->group, &self->buffers, &pattern, NULL),
                 PST_E_INVALID);
    CHECK_SAID(whole);
    CHECK_STATUS(
        pst_group_verify(self->device, self->group, &self->buffers, &pattern, 0, &mismatches, NULL),
        PST_E_INVALID);
    CHECK_SAID(whole);
    CHECK_EQ(mismatches, 7);
    CHECK_EQ(small_status(self->pool).num_faults, 0);
}

static void check_destination_refused(const small_scene *self, const char *message)
{
    char whole[256];
    snprintf(whole, sizeof(whole), "destination%s", message);
    CHECK_STATUS(small_restore(self, self->ticket, NULL), PST_E_INVALID);
    CHECK_SAID(whole);
    CHECK_EQ(small_status(self->pool).num_faults, 0);
}

/* Messages of strides and sizes name no role. */
static void check_stride_refused(const small_scene *self, const char *message)
{
    CHECK_STATUS(small_stash(self, self->ticket, NULL), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_STATUS(small_restore(self, self->ticket, NULL), PST_E_INVALID);
    CHECK_SAID(message);
    CHECK_EQ(small_status(self->pool).num_faults, 0);
}

/* Fault rows 13. */
PST_TEST(Buffers, PointersAndSizesAreChecked)
{
    small_scene self;
    small_open(&self);
    const pst_buffers good = self.buffers;
    self.buffers.struct_size = 0;
    CHECK_STATUS(small_stash(&self, self.ticket, NULL), PST_E_INVALID);
    CHECK_SAID("struct_size 0: pst_buffers has ");
    CHECK_STATUS(small_restore(&self, self.ticket, NULL), PST_E_INVALID);
    self.buffers.struct_size = sizeof(pst_buffers) + 8;
    CHECK_STATUS(small_restore(&self, self.ticket, NULL), PST_E_INVALID);
    self.buffers = good;
    self.buffers.bases = NULL;
    check_refused(&self, ": bases is NULL");
    check_destination_refused(&self, ": bases is NULL");
    self.buffers = good;
    self.bases[0] = NULL;
    check_refused(&self, ": bases[0] is NULL");
    check_destination_refused(&self, ": bases[0] is NULL");
    self.bases[0] = self.rows;
    self.buffers.counts = NULL;
    check_refused(&self, ": counts is NULL");
    self.buffers = good;
    self.counts[0] = NULL;
    check_refused(&self, ": counts[0] is NULL");
    small_close(&self);
}

/* ---- counts ---- */

static void open_with_counts(small_scene *self, pst_count_type type)
{
    small_configs(self);
    self->space.count_type = type;
    CHECK_OK(pst_pool_create(self->device, &self->pool_config, &self->pool));
    CHECK_OK(pst_group_create(&self->group_config, &self->group));
    CHECK_OK(pst_ticket_create(self->pool, self->group, &self->ticket));
}

/* Fault rows 6. */
PST_TEST(Buffers, CountsAreAligned)
{
    static const int sizes[] = {4, 8, 8};
    _Alignas(8) static char memory[24];
    for (int type = PST_COUNT_INT32; type <= PST_COUNT_HOST; type++) {
        small_scene self;
        open_with_counts(&self, (pst_count_type)type);
        for (int offset = 0; offset <= 8; offset++) {
            char message[96];
            self.counts[0] = memory + offset;
            if (offset % sizes[type] == 0) {
                CHECK_OK(small_stash(&self, self.ticket, NULL));
                CHECK_OK(pst_ticket_release(self.ticket, NULL));
                continue;
            }
            snprintf(message, sizeof(message), ": counts[0] at %p: must be aligned to %d",
                     self.counts[0], sizes[type]);
            check_refused(&self, message);
        }
        small_close(&self);
    }
}

/* What the first call says where the counts, then the rows, are in memory that the device has not. */
PST_CHILD(buffers_elsewhere)
{
    small_scene self;
    small_open(&self);
    self.counts[0] = (void *)(uintptr_t)16;
    puts(pst_status_name(small_stash(&self, self.ticket, NULL)));
    puts(pst_last_message());
    self.counts[0] = &self.count;
    self.bases[0] = (void *)(uintptr_t)32;
    puts(pst_status_name(small_stash(&self, self.ticket, NULL)));
    puts(pst_last_message());
    self.bases[0] = self.rows;
    puts(pst_status_name(small_stash(&self, self.ticket, NULL)));
}

/* Fault rows 12. */
PST_TEST(Buffers, CheckModeRefusesMemoryThatTheDeviceHasNot)
{
    static const char *const check[] = {"PAGESTASH_CHECK=1", NULL};
    static const char counts[] =
        "PST_E_INVALID\naddress 0x10: no memory of this process has 4 bytes";
    static const char rows[] = "PST_E_INVALID\naddress 0x20: no memory of this process has 32768 ";
    child_result child;
    CHECK(child_run("buffers_elsewhere", check, &child) && child.exited);
    CHECK_MSG(strncmp(child.out, counts, strlen(counts)) == 0, "%s", child.out);
    CHECK_MSG(strstr(child.out, rows) != NULL, "%s", child.out);
    CHECK_MSG(strstr(child.out, "]\nPST_OK\n") != NULL, "%s", child.out);
}

/* Fault rows 9. */
PST_TEST(Buffers, ACountOfTheHostIsCheckedAtOnce)
{
    static const int64_t bad[] = {-1, SMALL_CAPACITY + 1, INT64_MIN, INT64_MAX, (int64_t)1 << 32};
    const int64_t capacity = 5;
    int64_t count = 0;
    char message[96];
    small_scene self;
    open_with_counts(&self, PST_COUNT_HOST);
    self.counts[0] = &count;
    for (int i = 0; i < 5; i++) {
        count = bad[i];
        snprintf(message, sizeof(message), ": count %" PRId64 " of space 0: allowed are 0 to 8",
                 count);
        check_refused(&self, message);
    }
    self.buffers.capacities = &capacity; /* of this launch */
    count = 6;
    check_refused(&self, ": count 6 of space 0: allowed are 0 to 5");
    count = 5;
    memset(self.rows, 3, SMALL_BYTES);
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    count = 77; /* it was read */
    memset(self.rows, 4, SMALL_BYTES);
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    for (int at = 0; at < SMALL_BYTES; at++)
        CHECK_EQ(self.rows[at], at < 5 * SMALL_ROW ? 3 : 4);
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    small_close(&self);
}

/* ---- capacities and strides ---- */

PST_TEST(Buffers, CapacitiesAndStridesAreChecked)
{
    int64_t capacity = -1;
    uint64_t row_stride = 1, segment_stride = 1;
    small_scene self;
    small_open(&self);
    const pst_buffers good = self.buffers;
    self.buffers.capacities = &capacity;
    check_refused(&self, ": capacities[0] -1: allowed are 0 and above");
    check_destination_refused(&self, ": capacities[0] -1: allowed are 0 and above");
    capacity = INT64_MAX;
    check_stride_refused(&self, "tensor 0: capacity 9223372036854775807, ratio 1/1");
    capacity = 4;
    self.buffers = good;
    self.buffers.row_strides = &row_stride;
    check_stride_refused(&self, "tensor 0: row_stride 1: a row has 4096 bytes");
    row_stride = 4095;
    check_stride_refused(&self, "tensor 0: row_stride 4095: a row has 4096 bytes");
    row_stride = UINT64_MAX;
    check_stride_refused(&self, "tensor 0: capacity 8, ratio 1/1, row stride 18446744073709551615");
    self.buffers = good;
    self.buffers.segment_strides = &segment_stride;
    check_stride_refused(&self, "tensor 0: segment_stride 1: a segment at capacity has 32768");
    segment_stride = SMALL_BYTES - 1;
    check_stride_refused(&self, "tensor 0: segment_stride 32767: a segment at capacity has 32768");
    self.buffers.capacities = &capacity; /* now it is large enough */
    self.count = 4;
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    row_stride = 16384; /* and now it is not: 3 strides and a row */
    self.buffers.row_strides = &row_stride;
    check_stride_refused(&self, "tensor 0: segment_stride 32767: a segment at capacity has 53248");
    segment_stride = UINT64_MAX;
    check_stride_refused(&self, "tensor 0: the group is above 2^45 bytes");
    CHECK_OK(pst_ticket_release(self.ticket, NULL));
    small_close(&self);
}

/* What psti_place makes of buffers. */
typedef struct placed {
    psti_space spaces[PSTI_MAX_SPACES];
    psti_tensor tensors[PSTI_MAX_TENSORS];
    psti_placing placing;
} placed;

static pst_status place(const small_scene *self, const pst_pool *pool, placed *out)
{
    memset(out, 0xee, sizeof(*out));
    out->placing = (psti_placing){
        .spaces = out->spaces, .tensors = out->tensors, .may_skip = true, .pool = pool};
    return psti_place(self->device, self->group, &self->buffers, "these", &out->placing);
}

PST_TEST(Buffers, ZeroMeansTheGroups)
{
    const int64_t none[1] = {0}, fewer[1] = {5};
    const uint64_t zero[1] = {0}, wide[1] = {5000}, far[1] = {99999};
    small_scene self;
    placed it;
    small_configs(&self);
    self.space.kind = PST_ROWS_SEGMENTS;
    self.space.num_segments = 3;
    self.tensor.row_stride = 4200;
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    const pst_buffers plain = self.buffers;
    for (int given = 0; given < 2; given++) {
        self.buffers.capacities = given ? none : NULL;
        self.buffers.row_strides = given ? zero : NULL;
        self.buffers.segment_strides = given ? zero : NULL;
        CHECK_OK(place(&self, NULL, &it));
        CHECK_EQ(it.spaces[0].capacity, SMALL_CAPACITY);
        CHECK_EQ(it.tensors[0].row_stride, 4200);
        CHECK_EQ(it.tensors[0].segment_stride, 4200 * SMALL_CAPACITY);
        CHECK(it.tensors[0].base == self.rows);
    }
    self.buffers = plain;
    self.buffers.capacities = fewer; /* packed is packed by what this launch says */
    CHECK_OK(place(&self, NULL, &it));
    CHECK_EQ(it.tensors[0].segment_stride, 4200 * 5);
    self.buffers.row_strides = wide;
    CHECK_OK(place(&self, NULL, &it));
    CHECK_EQ(it.tensors[0].row_stride, 5000);
    CHECK_EQ(it.tensors[0].segment_stride, 5000 * 5);
    self.buffers.segment_strides = far;
    CHECK_OK(place(&self, NULL, &it));
    CHECK_EQ(it.tensors[0].segment_stride, 99999);
    CHECK_EQ(it.placing.max_tiles, 4); /* 3 segments of 5 rows of 4 KiB in tiles of 16 KiB */
    CHECK_OK(pst_group_destroy(self.group));
    self.tensor.segment_stride = 88888; /* a group's own is taken over */
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    self.buffers = plain;
    self.buffers.row_strides = wide;
    CHECK_OK(place(&self, NULL, &it));
    CHECK_EQ(it.tensors[0].segment_stride, 88888);
    CHECK_OK(pst_group_destroy(self.group));
    CHECK_OK(pst_device_close(self.device));
}

PST_TEST(Buffers, ABaseThatIsNullIsSeen)
{
    small_scene self;
    placed it;
    small_configs(&self);
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    CHECK_OK(place(&self, NULL, &it));
    CHECK_EQ(it.placing.skips, false);
    self.bases[0] = NULL;
    CHECK_OK(place(&self, NULL, &it));
    CHECK_EQ(it.placing.skips, true);
    CHECK_OK(pst_group_destroy(self.group));
    CHECK_OK(pst_device_close(self.device));
}

/* The arrays are read by the call.
 * Fault rows 37. */
PST_TEST(Buffers, ACapturedLaunchKeepsWhatItWasTold)
{
    static unsigned char wide[SMALL_CAPACITY * 5000];
    small_scene self;
    pst_stream stream = NULL;
    pst_graph *graph = NULL;
    void *bases[1] = {wide};
    const void *counts[1] = {&self.count};
    int64_t capacities[1] = {7};
    uint64_t row_strides[1] = {5000}, segment_strides[1] = {0};
    pst_buffers buffers = PST_BUFFERS_INIT;
    small_open(&self);
    buffers.bases = bases;
    buffers.counts = counts;
    buffers.capacities = capacities;
    buffers.row_strides = row_strides;
    buffers.segment_strides = segment_strides;
    CHECK_OK(pst_stream_create(self.device, &stream));
    CHECK_OK(pst_graph_begin(self.device, stream));
    CHECK_OK(pst_ticket_stash(self.ticket, self.group, &buffers, NULL, stream));
    CHECK_OK(small_restore(&self, self.ticket, stream));
    bases[0] = NULL;
    counts[0] = NULL;
    capacities[0] = -1;
    row_strides[0] = segment_strides[0] = 3;
    self.bases[0] = NULL;
    memset(&buffers, 0xff, sizeof(buffers));
    CHECK_OK(pst_graph_end(self.device, stream, &graph));
    for (self.count = 0; self.count < SMALL_CAPACITY; self.count++) {
        for (size_t at = 0; at < sizeof(wide); at++)
            wide[at] = (unsigned char)(at / 5000 + 1);
        memset(self.rows, 0x55, SMALL_BYTES);
        CHECK_OK(pst_graph_launch(graph, stream));
        for (int at = 0; at < SMALL_BYTES; at++)
            CHECK_EQ(self.rows[at], at < self.count * SMALL_ROW ? at / SMALL_ROW + 1 : 0x55);
    }
    CHECK_EQ(small_status(self.pool).num_faults, 0);
    CHECK_OK(pst_graph_launch(graph, stream)); /* 8 of 7 rows: the capacity was kept, too */
    CHECK_EQ(small_status(self.pool).fault, PST_FAULT_COUNT);
    CHECK_OK(pst_graph_destroy(graph));
    CHECK_OK(pst_stream_destroy(self.device, stream));
    small_close(&self);
}

/* ---- in the pool's own memory ---- */

/* Whether it is refused for that. (With PAGESTASH_CHECK=1 memory that nobody has is refused, too.) */
static bool lies_in_pool(const small_scene *self, const pst_pool *pool)
{
    placed it;
    return place(self, pool, &it) == PST_E_INVALID &&
           strstr(pst_last_message(), "lie in the pool's memory") != NULL;
}

/* With rows of one byte, capacity 1000: [base, base + 1000) against [first, first + bytes). */
static void check_edges(small_scene *self, const pst_pool *pool, const unsigned char *first,
                        uint64_t bytes)
{
    const struct {
        const unsigned char *base;
        bool is_outside;
    } cases[] = {
        {first - 1000, true},       {first - 999, false},       {first, false},
        {first + 1, false},         {first + bytes / 2, false}, {first + bytes - 1000, false},
        {first + bytes - 1, false}, {first + bytes, true}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char message[128];
        if (cases[i].is_outside && psti_env_check_mode())
            continue; /* no memory may be there */
        self->bases[0] = (void *)(uintptr_t)cases[i].base;
        CHECK_MSG(lies_in_pool(self, pool) != cases[i].is_outside, "case %zu", i);
        if (cases[i].is_outside)
            continue;
        snprintf(message, sizeof(message),
                 "these: bases[0] at %p: 1000 bytes lie in the pool's memory", self->bases[0]);
        CHECK_SAID(message);
    }
}

static void make_bytes_group(small_scene *self)
{
    self->space.capacity = 1000;
    self->tensor.row_bytes = 1;
    CHECK_OK(pst_group_create(&self->group_config, &self->group));
}

/* Both tiers, also what is only reserved and has no memory yet; and the metadata. */
/* Fault rows 14. */
PST_TEST(Buffers, NothingMayLieInThePoolsMemory)
{
    small_scene self;
    small_configs(&self);
    make_bytes_group(&self);
    self.pool_config.num_host_pages = 2;
    self.pool_config.max_host_pages = 5;
    for (int grows = 0; grows < 2; grows++) {
        self.pool_config.max_pages = grows ? 9 : 0;
        CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
        const psti_pool_view *view = &self.pool->view;
        const unsigned char *metadata = (const unsigned char *)view->ring[0];
        const uint64_t bytes = self.pool->metadata_bytes;
        if (grows) {
            check_edges(&self, self.pool, view->pages[0], 9 * PST_PAGE_BYTES_MIN);
            check_edges(&self, self.pool, metadata, bytes);
        } else { /* one block */
            check_edges(&self, self.pool, view->pages[0], 3 * PST_PAGE_BYTES_MIN + bytes);
        }
        check_edges(&self, self.pool, view->pages[1], 5 * PST_PAGE_BYTES_MIN);
        CHECK_OK(pst_pool_destroy(self.pool));
    }
    CHECK_OK(pst_group_destroy(self.group));
    CHECK_OK(pst_device_close(self.device));
}

/* A tensor that begins before the pages and ends behind them.
 * Fault rows 14. */
PST_TEST(Buffers, NothingMayLieAroundThePages)
{
    small_scene self;
    small_configs(&self);
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    self.space.capacity = 1 << 20;
    self.tensor.row_bytes = 1;
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    self.bases[0] = self.pool->view.pages[0] - 5000;
    CHECK(lies_in_pool(&self, self.pool));
    self.bases[0] = self.pool->view.pages[0] - (1 << 20);
    CHECK(!lies_in_pool(&self, self.pool));
    CHECK_OK(pst_group_destroy(self.group));
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}

/* The last row ends it: neither its gap nor that of the last segment reaches into the pages. */
PST_TEST(Buffers, TheGapBehindTheLastRowIsNobodys)
{
    small_scene self;
    const uint64_t row_stride = 100, segment_stride = 5000;
    small_configs(&self);
    CHECK_OK(pst_pool_create(self.device, &self.pool_config, &self.pool));
    self.space = (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = 10, .num_segments = 3};
    self.tensor.row_bytes = 16;
    CHECK_OK(pst_group_create(&self.group_config, &self.group));
    self.buffers.row_strides = &row_stride;
    self.buffers.segment_strides = &segment_stride;
    const uint64_t reach = 2 * segment_stride + 9 * row_stride + 16;
    self.bases[0] = self.pool->view.pages[0] - reach;
    CHECK(!lies_in_pool(&self, self.pool));
    self.bases[0] = self.pool->view.pages[0] - reach + 1;
    CHECK(lies_in_pool(&self, self.pool));
    CHECK_OK(pst_group_destroy(self.group));
    CHECK_OK(pst_pool_destroy(self.pool));
    CHECK_OK(pst_device_close(self.device));
}

PST_TEST(Buffers, SourceAndDestinationAreHeldAgainstThePool)
{
    small_scene self, other;
    small_open(&self);
    small_open(&other);
    CHECK_OK(small_stash(&self, self.ticket, NULL));
    self.bases[0] = self.pool->view.pages[0];
    char message[96];
    snprintf(message, sizeof(message), ": bases[0] at %p: 32768 bytes lie in the pool's memory",
             self.bases[0]);
    check_destination_refused(&self, message);
    CHECK_STATUS(small_stash(&self, self.ticket, NULL), PST_E_INVALID);
    /* pages of another pool are memory as any other */
    CHECK_OK(pst_ticket_stash(other.ticket, self.group, &self.buffers, NULL, NULL));
    CHECK_OK(pst_ticket_release(other.ticket, NULL));
    self.bases[0] = self.rows;
    CHECK_OK(small_restore(&self, self.ticket, NULL));
    CHECK_EQ(small_status(self.pool).num_faults + small_status(other.pool).num_faults, 0);
    small_close(&other);
    small_close(&self);
}
