/* What a group accepts, and what it needs. */
#include "tests/harness.h"

#include <inttypes.h>
#include <stdio.h>

#include <pagestash/pagestash.h>

#include "host/stash/stash.h"

static void *const untouched = (void *)(uintptr_t)1;

/* A good config of two spaces and two tensors, for tests to spoil. */
typedef struct draft {
    pst_row_space spaces[PST_MAX_SPACES + 1];
    pst_tensor tensors[PST_MAX_TENSORS + 1];
    pst_group_config config;
} draft;

static void begin(draft *self)
{
    memset(self, 0, sizeof(*self));
    for (int i = 0; i < PST_MAX_SPACES + 1; i++)
        self->spaces[i] = (pst_row_space){.capacity = 4};
    self->spaces[1].kind = PST_ROWS_SEGMENTS;
    self->spaces[1].num_segments = 3;
    for (int i = 0; i < PST_MAX_TENSORS + 1; i++)
        self->tensors[i] = (pst_tensor){.row_bytes = 8};
    self->tensors[1].space = 1;
    self->config = (pst_group_config)PST_GROUP_CONFIG_INIT;
    self->config.spaces = self->spaces;
    self->config.num_spaces = 2;
    self->config.tensors = self->tensors;
    self->config.num_tensors = 2;
}

static void check_refused(const draft *self, const char *message)
{
    pst_group *group = untouched;
    CHECK_STATUS(pst_group_create(&self->config, &group), PST_E_INVALID);
    CHECK(group == untouched);
    CHECK_MSG(strncmp(pst_last_message(), message, strlen(message)) == 0, "\"%s\", not \"%s\"",
              pst_last_message(), message);
}

static void check_accepted(const draft *self)
{
    pst_group *group = NULL;
    CHECK_OK(pst_group_create(&self->config, &group));
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

/* Fault rows 1. */
PST_TEST(Group, NullArgumentsAreRefused)
{
    draft self;
    pst_group *group = untouched;
    pst_group_usage usage;
    begin(&self);
    CHECK_STATUS(pst_group_create(NULL, &group), PST_E_INVALID);
    CHECK_STATUS(pst_group_create(&self.config, NULL), PST_E_INVALID);
    CHECK(group == untouched);
    CHECK_OK(pst_group_create(&self.config, &group));
    CHECK_STATUS(pst_group_measure(NULL, NULL, 0, &usage), PST_E_INVALID);
    CHECK_STATUS(pst_group_measure(group, NULL, 0, NULL), PST_E_INVALID);
    CHECK_EQ(pst_group_num_counts(NULL), 0);
    CHECK_EQ(pst_group_num_counts(group), 4);
    CHECK_OK(pst_group_destroy(group));
    CHECK_OK(pst_group_destroy(NULL));
}

PST_TEST(Group, EveryFieldOfTheConfigIsChecked)
{
    draft self;
    begin(&self);
    CHECK_SPOILED(&self, config.struct_size, 0, "struct_size 0: pst_group_config has ");
    CHECK_SPOILED(&self, config.struct_size, 39, "struct_size 39: ");
    CHECK_SPOILED(&self, config.space_bytes, 0, "space_bytes 0: pst_row_space has ");
    CHECK_SPOILED(&self, config.tensor_bytes, 1000, "tensor_bytes 1000: pst_tensor has ");
    CHECK_SPOILED(&self, config.spaces, NULL, "spaces or tensors is NULL");
    CHECK_SPOILED(&self, config.tensors, NULL, "spaces or tensors is NULL");
    CHECK_SPOILED(&self, config.num_spaces, 0, "num_spaces 0: allowed are 1 to 8");
    CHECK_SPOILED(&self, config.num_spaces, 9, "num_spaces 9: allowed are 1 to 8");
    CHECK_SPOILED(&self, config.num_tensors, 0, "num_tensors 0: allowed are 1 to 64");
    CHECK_SPOILED(&self, config.num_tensors, 65, "num_tensors 65: allowed are 1 to 64");
    self.config.num_spaces = 8;
    self.config.num_tensors = 64;
    check_accepted(&self);
}

/* Fault rows 3. */
PST_TEST(Group, EveryFieldOfASpaceIsChecked)
{
    draft self;
    begin(&self);
    CHECK_SPOILED(&self, spaces[0].kind, (pst_rows_kind)3,
                  "space 0: kind 3: allowed are prefix, segments and sum");
    CHECK_SPOILED(&self, spaces[0].kind, (pst_rows_kind)-1, "space 0: kind -1: allowed are");
    CHECK_SPOILED(&self, spaces[1].count_type, (pst_count_type)3,
                  "space 1: count_type 3: allowed are int32, int64 and host");
    CHECK_SPOILED(&self, spaces[1].count_type, (pst_count_type)-1, "space 1: count_type -1: all");
    CHECK_SPOILED(&self, spaces[1].count_type, PST_COUNT_HOST,
                  "space 1: count_type host: only of a prefix");
    CHECK_SPOILED(&self, spaces[1].capacity, 0, "space 1: capacity 0: must be at least 1");
    CHECK_SPOILED(&self, spaces[0].capacity, -1, "space 0: capacity -1: must be at least 1");
    CHECK_SPOILED(&self, spaces[0].capacity, INT64_MIN, "space 0: capacity -9223372036854775808:");
    CHECK_SPOILED(&self, spaces[0].num_segments, 2, "space 0: num_segments 2: allowed are 0 to 1");
    CHECK_SPOILED(&self, spaces[1].num_segments, 0,
                  "space 1: num_segments 0: allowed are 1 to 1024");
    CHECK_SPOILED(&self, spaces[1].num_segments, 1025,
                  "space 1: num_segments 1025: allowed are 1 to 1024");
    CHECK_SPOILED(&self, spaces[1].padding, 7, "space 1: padding 7: must be 0");
    self.spaces[0].num_segments = 1;
    self.spaces[0].count_type = PST_COUNT_HOST;
    self.spaces[1].num_segments = 1024;
    self.spaces[1].count_type = PST_COUNT_INT64;
    check_accepted(&self);
    self.spaces[1].kind = PST_ROWS_SUM;
    CHECK_SPOILED(&self, spaces[1].count_type, PST_COUNT_HOST,
                  "space 1: count_type host: only of a prefix");
    CHECK_SPOILED(&self, spaces[1].num_segments, 0,
                  "space 1: num_segments 0: allowed are 1 to 1024");
    CHECK_SPOILED(&self, spaces[1].num_segments, 1025,
                  "space 1: num_segments 1025: allowed are 1 to 1024");
}

/* Fault rows 3. */
PST_TEST(Group, EveryFieldOfATensorIsChecked)
{
    draft self;
    begin(&self);
    CHECK_SPOILED(&self, tensors[0].row_bytes, 0, "tensor 0: row_bytes 0: must be at least 1");
    CHECK_SPOILED(&self, tensors[1].space, 2, "tensor 1: space 2: the group has 2 row spaces");
    CHECK_SPOILED(&self, tensors[0].num, 1, "tensor 0: ratio 1/0: allowed are 0/0 and");
    CHECK_SPOILED(&self, tensors[0].den, 1, "tensor 0: ratio 0/1: allowed are 0/0 and");
    self.tensors[0].num = 4;
    self.tensors[0].den = 4;
    CHECK_SPOILED(&self, tensors[0].num, 5, "tensor 0: ratio 5/4: allowed are 0/0 and");
    self.tensors[0].num = self.tensors[0].den = 0;
    CHECK_SPOILED(&self, tensors[0].rounding, (pst_rounding)2,
                  "tensor 0: rounding 2: allowed are up and down");
    CHECK_SPOILED(&self, tensors[0].rounding, (pst_rounding)-1, "tensor 0: rounding -1: allowed");
    CHECK_SPOILED(&self, tensors[1].written_by, 9,
                  "tensor 1: written_by 9: allowed are 0, by a stash, and 1, by a GLU");
    CHECK_SPOILED(&self, tensors[1].layout, 1, "tensor 1: layout 1: allowed is 0, packed rows");
    CHECK_SPOILED(&self, tensors[1].layout, UINT32_MAX, "tensor 1: layout 4294967295: allowed");
}

PST_TEST(Group, EveryStrideOfATensorIsChecked)
{
    draft self;
    begin(&self);
    CHECK_SPOILED(&self, tensors[0].row_stride, 7, "tensor 0: row_stride 7: a row has 8 bytes");
    CHECK_SPOILED(&self, tensors[0].row_stride, 1, "tensor 0: row_stride 1: a row has 8 bytes");
    self.tensors[0].row_stride = 8; /* the packed one by name */
    check_accepted(&self);
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
    self.tensors[1].rounding = PST_ROUND_DOWN; /* 2 rows */
    self.tensors[1].segment_stride = 16;
    check_accepted(&self);
    CHECK_SPOILED(&self, tensors[1].segment_stride, 15,
                  "tensor 1: segment_stride 15: a segment at capacity has 16 bytes");
    self.tensors[1].row_stride = 100; /* the gap behind the last row is nobody's */
    self.tensors[1].segment_stride = 108;
    check_accepted(&self);
    CHECK_SPOILED(&self, tensors[1].segment_stride, 107,
                  "tensor 1: segment_stride 107: a segment at capacity has 108 bytes");
    self.tensors[1].den = 100; /* no rows */
    self.tensors[1].segment_stride = 1;
    check_accepted(&self);
}

/* ---- sizes ---- */

/* Fault rows 4. */
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
        "tensor 0: capacity 9223372036854775807, ratio 1/1, row stride 1: above 2^45 bytes");
    CHECK_SPOILED(&self, tensors[0].row_bytes, UINT64_MAX,
                  "tensor 0: capacity 35184372072448, ratio 1/1, row stride 18446744073709551615:");
    CHECK_SPOILED(&self, tensors[0].row_bytes, 1u << 20, "tensor 0: capacity");
    CHECK_SPOILED(&self, config.num_tensors, 2, "tensor 1: the group is above 2^45 bytes");
    self.tensors[0].segment_stride = (uint64_t)most;
    CHECK_SPOILED(&self, tensors[0].segment_stride, (uint64_t)most + 1,
                  "tensor 0: the group is above 2^45 bytes");
    CHECK_SPOILED(&self, tensors[0].segment_stride, UINT64_MAX,
                  "tensor 0: the group is above 2^45 bytes");
    self.tensors[0].segment_stride = 0;
    CHECK_SPOILED(&self, tensors[0].row_stride, 2,
                  "tensor 0: capacity 35184372072448, ratio 1/1, "
                  "row stride 2: above 2^45 bytes");
    CHECK_SPOILED(&self, tensors[0].row_stride, UINT64_MAX, "tensor 0: capacity 35184372072448, ");
    self.tensors[0].num = 3; /* capacity * num must not overflow, though the quotient is small */
    self.tensors[0].den = UINT32_MAX;
    self.spaces[0].capacity = INT64_MAX / 3;
    check_accepted(&self);
    CHECK_SPOILED(&self, tensors[0].num, 7, "tensor 0: capacity");
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
            first += self->spaces[i].kind == PST_ROWS_SEGMENTS ? self->spaces[i].num_segments : 1;
        const pst_row_space *space = &self->spaces[tensor->space];
        for (uint32_t s = 0; s < (space->kind == PST_ROWS_SEGMENTS ? space->num_segments : 1);
             s++) {
            const wide all = (wide)(values ? values[first + s] : space->capacity) * num;
            const bool up = tensor->rounding == PST_ROUND_UP && all % den != 0;
            const wide live = (all / den + up) * tensor->row_bytes;
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
    self.config.num_tensors = 5;
    self.spaces[0].capacity = 5 * two_32 + 3;
    self.spaces[0].count_type = PST_COUNT_INT64;
    self.spaces[1].capacity = 3 * two_32 + 7;
    self.tensors[0].row_bytes = 1024; /* 20 TiB */
    self.tensors[1].row_bytes = 1;
    self.tensors[2] = (pst_tensor){.row_bytes = 7, .num = 1, .den = 128};
    self.tensors[3] =
        (pst_tensor){.row_bytes = 5, .space = 1, .num = 1000000006, .den = 1000000007};
    self.tensors[4] = self.tensors[3];
    self.tensors[4].rounding = PST_ROUND_DOWN;
    self.tensors[4].row_stride = 7; /* the byte stream has no gaps */
    CHECK_OK(pst_group_create(&self.config, &group));
    for (int p = 0; p < 4; p++) {
        check_measure(group, &self, NULL, pages[p]);
        for (int v = 0; v < 5; v++)
            check_measure(group, &self, values[v], pages[p]);
    }
    CHECK_OK(pst_group_destroy(group));
    self.config.num_tensors = 1;
    self.spaces[0].capacity = ((int64_t)1 << 45) - PSTI_TILE_BYTES;
    self.tensors[0].row_bytes = 1;
    CHECK_OK(pst_group_create(&self.config, &group));
    check_measure(group, &self, NULL, 16384);
    CHECK_OK(pst_group_destroy(group));
}

PST_TEST(Group, MeasureAtTheEdgesOfTilesAndPages)
{
    draft self;
    pst_group *group = NULL;
    begin(&self);
    self.spaces[0].capacity = 100000;
    self.tensors[0].row_bytes = 1;
    self.config.num_tensors = 1;
    CHECK_OK(pst_group_create(&self.config, &group));
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
}

/* A sum has one count, of which the ratio is taken. */
PST_TEST(Group, MeasureOfASum)
{
    draft self;
    pst_group *group = NULL;
    const int64_t values[4] = {7, 1, 2, 3};
    begin(&self);
    self.spaces[0].kind = PST_ROWS_SUM;
    self.spaces[0].capacity = 8;
    self.spaces[0].num_segments = 1000;
    self.tensors[0].num = 1;
    self.tensors[0].den = 2;
    CHECK_OK(pst_group_create(&self.config, &group));
    CHECK_EQ(pst_group_num_counts(group), 4);
    check_measure(group, &self, NULL, 0);
    check_measure(group, &self, values, 0);
    CHECK_OK(pst_group_destroy(group));
}

/* Bytes of 1 to 9 rows at 3/4: up 1 2 3 3 4 5 6 6 7, down 0 1 2 3 3 4 5 6 6. */
/* Fault rows 51. */
PST_TEST(Group, RatiosRoundUpOrDown)
{
    static const uint64_t rows[2][9] = {{1, 2, 3, 3, 4, 5, 6, 6, 7}, {0, 1, 2, 3, 3, 4, 5, 6, 6}};
    draft self;
    begin(&self);
    self.spaces[0].capacity = 9;
    self.tensors[0].num = 3;
    self.tensors[0].den = 4;
    self.config.num_tensors = 1;
    for (int down = 0; down < 2; down++) {
        pst_group *group = NULL;
        pst_group_usage usage;
        self.tensors[0].rounding = down ? PST_ROUND_DOWN : PST_ROUND_UP;
        CHECK_OK(pst_group_create(&self.config, &group));
        for (int64_t count = 1; count <= 9; count++) {
            const int64_t values[4] = {count, 0, 0, 0};
            CHECK_OK(pst_group_measure(group, values, 0, &usage));
            CHECK_EQ(usage.payload_bytes, 8 * rows[down][count - 1]);
        }
        CHECK_OK(pst_group_destroy(group));
    }
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
    CHECK_OK(pst_group_create(&self.config, &group));
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
}

/* ---- forms ---- */

static uint64_t form_of(const pst_group_config *config)
{
    pst_group *group = NULL;
    if (pst_group_create(config, &group) != PST_OK) {
        psti_test_fail(__FILE__, __LINE__, "%s", pst_last_message());
        return 0;
    }
    const uint64_t form = group->form;
    pst_group_destroy(group);
    return form;
}

/* The good draft with one field changed: of another form, or not. */
#define CHECK_FORM(self, field, value, differs)                                        \
    do {                                                                               \
        const uint64_t psti_form = form_of(&(self)->config);                           \
        const draft psti_good = *(self);                                               \
        (self)->field = (value);                                                       \
        CHECK_MSG((form_of(&(self)->config) != psti_form) == (differs), "%s", #field); \
        *(self) = psti_good;                                                           \
    } while (0)

PST_TEST(Group, WhatChangesTheByteStreamIsAnotherForm)
{
    draft self;
    begin(&self);
    self.config.num_tensors = 3;
    self.tensors[2].num = 1;
    self.tensors[2].den = 2;
    CHECK_FORM(&self, config.num_tensors, 2, true);
    CHECK_FORM(&self, config.num_spaces, 3, true);
    CHECK_FORM(&self, spaces[1].num_segments, 2, true);
    CHECK_FORM(&self, tensors[0].row_bytes, 9, true);
    CHECK_FORM(&self, tensors[0].space, 1, true);
    CHECK_FORM(&self, tensors[2].den, 3, true);
    CHECK_FORM(&self, tensors[2].num, 2, true);
    CHECK_FORM(&self, tensors[2].rounding, PST_ROUND_DOWN, true);
}

PST_TEST(Group, WhatLiesOutsideTheByteStreamIsTheSameForm)
{
    draft self;
    begin(&self);
    CHECK_FORM(&self, spaces[0].capacity, 99, false);
    CHECK_FORM(&self, spaces[0].count_type, PST_COUNT_INT64, false);
    CHECK_FORM(&self, spaces[0].count_type, PST_COUNT_HOST, false);
    CHECK_FORM(&self, tensors[1].segment_stride, 40, false);
    CHECK_FORM(&self, tensors[0].row_stride, 24, false);
    const uint64_t prefix = form_of(&self.config);
    self.spaces[0].kind = PST_ROWS_SUM;
    self.spaces[0].num_segments = 16;
    CHECK(form_of(&self.config) == prefix);
    CHECK_FORM(&self, spaces[0].num_segments, 17, false);
    self.spaces[0].kind = PST_ROWS_SEGMENTS;
    self.spaces[0].num_segments = 1;
    CHECK(form_of(&self.config) == prefix);
}

/* The same ratio written otherwise makes the same rows of every count. */
PST_TEST(Group, EqualRatiosAreOneForm)
{
    static const uint32_t ratios[][4] = {
        {0, 0, 1, 1}, {1, 1, 32, 32}, {1, 1, UINT32_MAX, UINT32_MAX}, {1, 32, 3, 96}};
    draft self;
    begin(&self);
    for (size_t i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++) {
        self.tensors[0].num = ratios[i][0];
        self.tensors[0].den = ratios[i][1];
        const uint64_t form = form_of(&self.config);
        self.tensors[0].num = ratios[i][2];
        self.tensors[0].den = ratios[i][3];
        CHECK_MSG(form_of(&self.config) == form, "%u/%u and %u/%u", ratios[i][0], ratios[i][1],
                  ratios[i][2], ratios[i][3]);
    }
}

PST_TEST(Group, TheDescriptionIsCopied)
{
    draft self;
    pst_group *group = NULL;
    pst_group_usage before, after;
    begin(&self);
    CHECK_OK(pst_group_create(&self.config, &group));
    CHECK_OK(pst_group_measure(group, NULL, 0, &before));
    memset(self.spaces, 0xff, sizeof(self.spaces));
    memset(self.tensors, 0xff, sizeof(self.tensors));
    CHECK_OK(pst_group_measure(group, NULL, 0, &after));
    CHECK(memcmp(&before, &after, sizeof(after)) == 0);
    CHECK_OK(pst_group_destroy(group));
}
