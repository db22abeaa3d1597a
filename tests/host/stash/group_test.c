/* What a group accepts, and what it needs. */
#include "tests/harness.h"

#include <inttypes.h>
#include <stdio.h>

#include <pagestash/pagestash.h>

#include "host/stash/stash.h"

static void *const untouched = (void *)(uintptr_t)1;
static unsigned char rows[256];
static int64_t counts[PST_MAX_SEGMENTS];

/* A good config of two spaces and two tensors, for tests to spoil. */
typedef struct draft {
    pst_row_space spaces[PST_MAX_SPACES + 1];
    pst_tensor tensors[PST_MAX_TENSORS + 1];
    pst_group_config config;
} draft;

static pst_device *device;

static void begin(draft *self)
{
    memset(self, 0, sizeof(*self));
    for (int i = 0; i < PST_MAX_SPACES + 1; i++)
        self->spaces[i] = (pst_row_space){.counts = counts, .capacity = 4};
    self->spaces[1].kind = PST_ROWS_SEGMENTS;
    self->spaces[1].num_segments = 3;
    for (int i = 0; i < PST_MAX_TENSORS + 1; i++)
        self->tensors[i] = (pst_tensor){.base = rows, .row_bytes = 8};
    self->tensors[1].space = 1;
    self->config = (pst_group_config)PST_GROUP_CONFIG_INIT;
    self->config.spaces = self->spaces;
    self->config.num_spaces = 2;
    self->config.tensors = self->tensors;
    self->config.num_tensors = 2;
    device = NULL;
    CHECK_OK(pst_device_open("host", 0, &device));
}

static void finish(void)
{
    CHECK_EQ(device->live, 0);
    CHECK_OK(pst_device_close(device));
}

static void check_refused(const draft *self, const char *message)
{
    pst_group *group = untouched;
    CHECK_STATUS(pst_group_create(device, &self->config, &group), PST_E_INVALID);
    CHECK(group == untouched);
    CHECK_EQ(device->live, 0);
    CHECK_MSG(strncmp(pst_last_message(), message, strlen(message)) == 0, "\"%s\", not \"%s\"",
              pst_last_message(), message);
}

static void check_accepted(const draft *self)
{
    pst_group *group = NULL;
    CHECK_OK(pst_group_create(device, &self->config, &group));
    CHECK_OK(pst_group_destroy(group));
}

/* Spoils one field of the good draft, which must be refused with this message. */
#define CHECK_SPOILED(self, field, value, message) \
    do {                                           \
        const draft psti_good = *(self);           \
        (self)->field = (value);                   \
        check_refused((self), (message));          \
        *(self) = psti_good;                       \
        check_accepted(self);                      \
    } while (0)

PST_TEST(Group, NullArgumentsAreRefused)
{
    draft self;
    pst_group *group = untouched;
    pst_group_usage usage;
    begin(&self);
    CHECK_STATUS(pst_group_create(NULL, &self.config, &group), PST_E_INVALID);
    CHECK_STATUS(pst_group_create(device, NULL, &group), PST_E_INVALID);
    CHECK_STATUS(pst_group_create(device, &self.config, NULL), PST_E_INVALID);
    CHECK(group == untouched);
    CHECK_OK(pst_group_create(device, &self.config, &group));
    CHECK_STATUS(pst_group_measure(NULL, NULL, 0, &usage), PST_E_INVALID);
    CHECK_STATUS(pst_group_measure(group, NULL, 0, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_group_mark_dirty(NULL, NULL), PST_E_INVALID);
    CHECK_EQ(pst_group_num_counts(NULL), 0);
    CHECK_EQ(pst_group_num_counts(group), 4);
    CHECK_OK(pst_group_destroy(group));
    CHECK_OK(pst_group_destroy(NULL));
    finish();
}

PST_TEST(Group, EveryFieldOfTheConfigIsChecked)
{
    draft self;
    begin(&self);
    CHECK_SPOILED(&self, config.struct_size, 0, "struct_size 0: pst_group_config has ");
    CHECK_SPOILED(&self, config.struct_size, 47, "struct_size 47: ");
    CHECK_SPOILED(&self, config.spaces, NULL, "spaces or tensors is NULL");
    CHECK_SPOILED(&self, config.tensors, NULL, "spaces or tensors is NULL");
    CHECK_SPOILED(&self, config.num_spaces, 0, "num_spaces 0: allowed are 1 to 8");
    CHECK_SPOILED(&self, config.num_spaces, 9, "num_spaces 9: allowed are 1 to 8");
    CHECK_SPOILED(&self, config.num_tensors, 0, "num_tensors 0: allowed are 1 to 64");
    CHECK_SPOILED(&self, config.num_tensors, 65, "num_tensors 65: allowed are 1 to 64");
    self.config.num_spaces = 8;
    self.config.num_tensors = 64;
    self.config.tail_is_zero = true;
    check_accepted(&self);
    finish();
}

PST_TEST(Group, EveryFieldOfASpaceIsChecked)
{
    draft self;
    char aligned[128];
    begin(&self);
    CHECK_SPOILED(&self, spaces[0].kind, (pst_rows_kind)2, "space 0: kind 2: allowed are");
    CHECK_SPOILED(&self, spaces[1].count_type, (pst_count_type)7,
                  "space 1: count_type 7: allowed are int32 and int64");
    CHECK_SPOILED(&self, spaces[1].capacity, 0, "space 1: capacity 0: must be at least 1");
    CHECK_SPOILED(&self, spaces[0].capacity, -1, "space 0: capacity -1: must be at least 1");
    CHECK_SPOILED(&self, spaces[0].capacity, INT64_MIN, "space 0: capacity -9223372036854775808:");
    CHECK_SPOILED(&self, spaces[0].num_segments, 2, "space 0: num_segments 2: allowed are 0 to 1");
    CHECK_SPOILED(&self, spaces[1].num_segments, 0,
                  "space 1: num_segments 0: allowed are 1 to 1024");
    CHECK_SPOILED(&self, spaces[1].num_segments, 1025,
                  "space 1: num_segments 1025: allowed are 1 to 1024");
    self.spaces[0].num_segments = 1;
    self.spaces[1].num_segments = 1024;
    check_accepted(&self);
    snprintf(aligned, sizeof(aligned), "space 0: counts at %p: must be aligned to 4",
             (void *)((char *)counts + 2));
    CHECK_SPOILED(&self, spaces[0].counts, (char *)counts + 2, aligned);
    self.spaces[0].counts = (char *)counts + 4;
    check_accepted(&self);
    snprintf(aligned, sizeof(aligned), "space 0: counts at %p: must be aligned to 8",
             (void *)((char *)counts + 4));
    CHECK_SPOILED(&self, spaces[0].count_type, PST_COUNT_INT64, aligned);
    self.spaces[0].counts = NULL; /* a pure destination */
    check_accepted(&self);
    finish();
}

PST_TEST(Group, EveryFieldOfATensorIsChecked)
{
    draft self;
    begin(&self);
    CHECK_SPOILED(&self, tensors[1].base, NULL, "tensor 1: base is NULL");
    CHECK_SPOILED(&self, tensors[0].row_bytes, 0, "tensor 0: row_bytes 0: must be at least 1");
    CHECK_SPOILED(&self, tensors[1].space, 2, "tensor 1: space 2: the group has 2 row spaces");
    CHECK_SPOILED(&self, tensors[0].num, 1, "tensor 0: ratio 1/0: allowed are 0/0 and");
    CHECK_SPOILED(&self, tensors[0].den, 1, "tensor 0: ratio 0/1: allowed are 0/0 and");
    self.tensors[0].num = 4;
    self.tensors[0].den = 4;
    CHECK_SPOILED(&self, tensors[0].num, 5, "tensor 0: ratio 5/4: allowed are 0/0 and");
    CHECK_SPOILED(&self, tensors[1].segment_stride, 31,
                  "tensor 1: segment_stride 31: a segment at capacity has 32 bytes");
    self.tensors[1].segment_stride = 32;
    check_accepted(&self);
    self.tensors[1].num = 2; /* ceil(4 * 2 / 3) rows of 8 bytes */
    self.tensors[1].den = 3;
    CHECK_SPOILED(&self, tensors[1].segment_stride, 23,
                  "tensor 1: segment_stride 23: a segment at capacity has 24 bytes");
    self.tensors[1].segment_stride = 24;
    check_accepted(&self);
    finish();
}

/* ---- sizes ---- */

PST_TEST(Group, MoreBytesThanTwoTo45AreRefused)
{
    const int64_t most = ((int64_t)1 << 45) - PSTI_TILE_BYTES;
    draft self;
    begin(&self);
    self.config.num_tensors = 1;
    self.tensors[0].row_bytes = 1;
    self.spaces[0].capacity = most;
    check_accepted(&self);
    CHECK_SPOILED(&self, spaces[0].capacity, most + 1, "tensor 0: the group is above 2^45 bytes");
    CHECK_SPOILED(
        &self, spaces[0].capacity, INT64_MAX,
        "tensor 0: capacity 9223372036854775807, ratio 1/1, row_bytes 1: above 2^45 bytes");
    CHECK_SPOILED(&self, tensors[0].row_bytes, UINT64_MAX,
                  "tensor 0: capacity 35184372072448, ratio 1/1, row_bytes 18446744073709551615:");
    CHECK_SPOILED(&self, tensors[0].row_bytes, 1u << 20, "tensor 0: capacity");
    CHECK_SPOILED(&self, config.num_tensors, 2, "tensor 1: the group is above 2^45 bytes");
    self.tensors[0].segment_stride = (uint64_t)most;
    CHECK_SPOILED(&self, tensors[0].segment_stride, (uint64_t)most + 1,
                  "tensor 0: the group is above 2^45 bytes");
    CHECK_SPOILED(&self, tensors[0].segment_stride, UINT64_MAX,
                  "tensor 0: the group is above 2^45 bytes");
    self.tensors[0].segment_stride = 0;
    self.tensors[0].num = 3; /* capacity * num must not overflow, though the quotient is small */
    self.tensors[0].den = UINT32_MAX;
    self.spaces[0].capacity = INT64_MAX / 3;
    check_accepted(&self);
    CHECK_SPOILED(&self, tensors[0].num, 7, "tensor 0: capacity");
    finish();
}

PST_TEST(Group, SegmentsTogetherStayBelowTwoTo45)
{
    draft self;
    begin(&self);
    self.config.num_tensors = 1;
    self.tensors[0].space = 1;
    self.tensors[0].row_bytes = 1;
    self.spaces[1].num_segments = 1024;
    self.spaces[1].capacity = ((int64_t)1 << 35) - 16;
    check_accepted(&self);
    CHECK_SPOILED(&self, spaces[1].capacity, ((int64_t)1 << 35) - 15,
                  "tensor 0: the group is above 2^45 bytes");
    CHECK_SPOILED(&self, tensors[0].segment_stride, (uint64_t)1 << 54,
                  "tensor 0: the group is above 2^45 bytes"); /* 2^64 together */
    finish();
}

/* The same, recomputed in 128 bits. */
static void check_measure(const pst_group *group, const draft *self, const int64_t *values,
                          uint64_t page_bytes)
{
    __extension__ typedef unsigned __int128 wide;
    wide payload = 0, stream = 0;
    pst_group_usage usage = {.pages = 1};
    for (uint32_t t = 0; t < self->config.num_tensors; t++) {
        const pst_tensor *tensor = &self->tensors[t];
        const uint64_t num = tensor->num ? tensor->num : 1, den = tensor->den ? tensor->den : 1;
        uint32_t first = 0;
        wide bytes = 0;
        for (uint32_t i = 0; i < tensor->space; i++)
            first += self->spaces[i].kind == PST_ROWS_PREFIX ? 1 : self->spaces[i].num_segments;
        const pst_row_space *space = &self->spaces[tensor->space];
        for (uint32_t s = 0; s < (space->kind == PST_ROWS_PREFIX ? 1 : space->num_segments); s++) {
            const wide all = (wide)(values ? values[first + s] : space->capacity) * num;
            const wide live = (all / den + (all % den != 0)) * tensor->row_bytes;
            payload += live;
            bytes += (live + 15) / 16 * 16;
        }
        stream += (bytes + 16383) / 16384 * 16384;
    }
    CHECK_OK(pst_group_measure(group, values, page_bytes, &usage));
    const uint64_t page = page_bytes ? page_bytes : 262144;
    CHECK_EQ(usage.payload_bytes, (uint64_t)payload);
    CHECK_EQ(usage.stream_bytes, (uint64_t)stream);
    CHECK_EQ(usage.pages, (uint64_t)((stream + page - 1) / page));
}

PST_TEST(Group, MeasureOfHugeGroups)
{
    static const uint64_t pages[] = {0, 16384, 65536, 4194304};
    const int64_t two_32 = (int64_t)1 << 32;
    const int64_t values[][4] = {{0, 0, 0, 0},
                                 {1, 0, 1, 0},
                                 {two_32, two_32, 0, 1},
                                 {two_32 + 1, two_32 - 1, two_32 / 2, two_32 / 2 + 1},
                                 {5 * two_32 + 3, 3 * two_32 + 7, 1, 3 * two_32 + 7}};
    draft self;
    pst_group *group = NULL;
    begin(&self);
    self.config.num_tensors = 4;
    self.spaces[0].capacity = 5 * two_32 + 3;
    self.spaces[0].count_type = PST_COUNT_INT64;
    self.spaces[1].capacity = 3 * two_32 + 7;
    self.tensors[0].row_bytes = 1024; /* 20 TiB */
    self.tensors[1].row_bytes = 1;
    self.tensors[2] = (pst_tensor){.base = rows, .row_bytes = 7, .num = 1, .den = 128};
    self.tensors[3] = (pst_tensor){
        .base = rows, .row_bytes = 5, .space = 1, .num = 1000000006, .den = 1000000007};
    CHECK_OK(pst_group_create(device, &self.config, &group));
    for (int p = 0; p < 4; p++) {
        check_measure(group, &self, NULL, pages[p]);
        for (int v = 0; v < 5; v++)
            check_measure(group, &self, values[v], pages[p]);
    }
    CHECK_OK(pst_group_destroy(group));
    self.config.num_tensors = 1;
    self.spaces[0].capacity = ((int64_t)1 << 45) - PSTI_TILE_BYTES;
    self.tensors[0].row_bytes = 1;
    CHECK_OK(pst_group_create(device, &self.config, &group));
    check_measure(group, &self, NULL, 16384);
    CHECK_OK(pst_group_destroy(group));
    finish();
}

PST_TEST(Group, MeasureAtTheEdgesOfTilesAndPages)
{
    draft self;
    pst_group *group = NULL;
    begin(&self);
    self.spaces[0].capacity = 100000;
    self.tensors[0].row_bytes = 1;
    self.config.num_tensors = 1;
    CHECK_OK(pst_group_create(device, &self.config, &group));
    static const struct {
        int64_t count;
        uint64_t stream, pages16, pages32;
    } edges[] = {{0, 0, 0, 0},         {1, 16384, 1, 1},     {16384, 16384, 1, 1},
                 {16385, 32768, 2, 1}, {32768, 32768, 2, 1}, {32769, 49152, 3, 2}};
    for (int i = 0; i < 6; i++) {
        const int64_t values[4] = {edges[i].count, 0, 0, 0};
        pst_group_usage usage;
        CHECK_OK(pst_group_measure(group, values, 16384, &usage));
        CHECK_EQ(usage.payload_bytes, edges[i].count);
        CHECK_EQ(usage.stream_bytes, edges[i].stream);
        CHECK_EQ(usage.pages, edges[i].pages16);
        CHECK_OK(pst_group_measure(group, values, 32768, &usage));
        CHECK_EQ(usage.pages, edges[i].pages32);
    }
    CHECK_OK(pst_group_destroy(group));
    finish();
}

PST_TEST(Group, MeasureRefusesCountsAndPages)
{
    static const uint64_t pages[] = {1, 16383, 16385, 8192, 49152, 8388608, UINT64_MAX};
    static const int64_t spoiled[][4] = {
        {5, 0, 0, 0}, {-1, 0, 0, 0}, {0, 0, 0, 5}, {0, 0, INT64_MIN, 0}, {INT64_MAX, 0, 0, 0}};
    static const char *const messages[] = {
        "space 0: count 5: allowed are 0 to 4", "space 0: count -1: allowed are 0 to 4",
        "space 1: count 5: allowed are 0 to 4",
        "space 1: count -9223372036854775808: allowed are 0 to 4",
        "space 0: count 9223372036854775807: allowed are 0 to 4"};
    draft self;
    pst_group *group = NULL;
    pst_group_usage usage = {.pages = 77};
    begin(&self);
    CHECK_OK(pst_group_create(device, &self.config, &group));
    for (int i = 0; i < 7; i++) {
        char expected[96];
        snprintf(expected, sizeof(expected), "page_bytes %" PRIu64 ": allowed are powers of two",
                 pages[i]);
        CHECK_STATUS(pst_group_measure(group, NULL, pages[i], &usage), PST_E_INVALID);
        CHECK(strncmp(pst_last_message(), expected, strlen(expected)) == 0);
    }
    for (int i = 0; i < 5; i++) {
        CHECK_STATUS(pst_group_measure(group, spoiled[i], 0, &usage), PST_E_INVALID);
        CHECK_MSG(strncmp(pst_last_message(), messages[i], strlen(messages[i])) == 0, "%s",
                  pst_last_message());
    }
    CHECK_EQ(usage.pages, 77);
    CHECK_OK(pst_group_destroy(group));
    finish();
}

/* ---- differences ---- */

static void check_difference(const draft *a, const draft *b, const char *text)
{
    pst_group *groups[2] = {NULL, NULL};
    char buffer[256] = "";
    CHECK_OK(pst_group_create(device, &a->config, &groups[0]));
    CHECK_OK(pst_group_create(device, &b->config, &groups[1]));
    const char *found = psti_group_difference(groups[0], groups[1], buffer, sizeof(buffer));
    if (text)
        CHECK_STR(found, text);
    else
        CHECK(found == NULL);
    CHECK_OK(pst_group_destroy(groups[0]));
    CHECK_OK(pst_group_destroy(groups[1]));
}

PST_TEST(Group, DifferencesAreToldByName)
{
    draft a, b;
    begin(&a);
    b = a;
    b.config.spaces = b.spaces;
    b.config.tensors = b.tensors;
    const draft same = b;
    check_difference(&a, &b, NULL);
    b.config.num_tensors = 3;
    check_difference(&a, &b, "3 tensors in 2 row spaces, not 2 in 2");
    b.config.num_tensors = 2;
    b.config.num_spaces = 3;
    check_difference(&a, &b, "2 tensors in 3 row spaces, not 2 in 2");
    b = same, b.config.spaces = b.spaces, b.config.tensors = b.tensors;
    b.spaces[1].num_segments = 2;
    check_difference(&a, &b, "space 1 has 2 segments, not 3");
    b.spaces[1].num_segments = 3;
    b.tensors[1].row_bytes = 4;
    check_difference(&a, &b, "tensor 1 has 4 bytes a row, space 1, ratio 1/1, not 8, 1, 1/1");
    b.tensors[1].row_bytes = 8;
    b.tensors[1].space = 0;
    check_difference(&a, &b, "tensor 1 has 8 bytes a row, space 0, ratio 1/1, not 8, 1, 1/1");
    b.tensors[1].space = 1;
    b.tensors[0].num = 1;
    b.tensors[0].den = 32;
    check_difference(&a, &b, "tensor 0 has 8 bytes a row, space 0, ratio 1/32, not 8, 0, 1/1");
    b.tensors[0].num = 32; /* the same ratio */
    check_difference(&a, &b, NULL);
    b.tensors[0].num = b.tensors[0].den = UINT32_MAX;
    check_difference(&a, &b, NULL);
    b.spaces[0].capacity = 99;
    b.spaces[0].counts = NULL;
    b.spaces[0].count_type = PST_COUNT_INT64;
    b.tensors[1].base = rows + 1;
    b.tensors[1].segment_stride = 40;
    check_difference(&a, &b, NULL); /* all of this may differ */
    finish();
}

/* ---- the dirty extents ---- */

PST_TEST(Group, DirtyExtentsBeginAsTheConfigSays)
{
    draft self;
    pst_group *group = NULL;
    begin(&self);
    for (int zero = 0; zero < 2; zero++) {
        self.config.tail_is_zero = zero;
        CHECK_OK(pst_group_create(device, &self.config, &group));
        for (int i = 0; i < 4; i++)
            CHECK(group->dirty[i] == (zero ? 0 : UINT64_MAX));
        CHECK_OK(pst_group_mark_dirty(group, NULL));
        for (int i = 0; i < 4; i++)
            CHECK(group->dirty[i] == UINT64_MAX);
        CHECK_OK(pst_group_destroy(group));
    }
    finish();
}

PST_TEST(Group, TheDescriptionIsCopied)
{
    draft self;
    pst_group *group = NULL;
    pst_group_usage before, after;
    begin(&self);
    CHECK_OK(pst_group_create(device, &self.config, &group));
    CHECK_OK(pst_group_measure(group, NULL, 0, &before));
    memset(self.spaces, 0xff, sizeof(self.spaces));
    memset(self.tensors, 0xff, sizeof(self.tensors));
    CHECK_OK(pst_group_measure(group, NULL, 0, &after));
    CHECK(memcmp(&before, &after, sizeof(after)) == 0);
    CHECK_OK(pst_group_destroy(group));
    finish();
}
