/* Pattern bytes against an own recomputation of what pagestash/pattern.h says. */

#include "tests/host/stash/scene.h"
#include "tests/pattern.h"

enum { CAPACITY = 5, SEGMENTS = 3, ARENA = 4096, GUARD = 0x5a };

/* Two spaces and three tensors of odd sizes in one arena, with gaps. */
typedef struct pattern_scene {
    pst_device *device;
    pst_group *group;
    int32_t prefix;
    int64_t segments[SEGMENTS];
    uint64_t step;
    uint64_t mismatches;
    unsigned char arena[ARENA];
    pst_row_space spaces[2];
    pst_tensor tensors[3];
    void *bases[3];
    const void *counts[2];
    pst_buffers buffers;
} pattern_scene;

static pattern_scene self;

static void open_scene(void)
{
    memset(&self, 0, sizeof(self));
    self.prefix = 3;
    self.segments[0] = 5;
    self.segments[2] = 2;
    self.spaces[0] = (pst_row_space){.capacity = CAPACITY};
    self.spaces[1] = (pst_row_space){.kind = PST_ROWS_SEGMENTS,
                                     .count_type = PST_COUNT_INT64,
                                     .capacity = CAPACITY,
                                     .num_segments = SEGMENTS};
    self.tensors[0] = (pst_tensor){.row_bytes = 13};
    self.tensors[1] = (pst_tensor){.row_bytes = 24, .segment_stride = 200, .space = 1};
    self.tensors[2] = (pst_tensor){.row_bytes = 7, .space = 1, .num = 1, .den = 2};
    self.bases[0] = self.arena + 3;
    self.bases[1] = self.arena + 1000;
    self.bases[2] = self.arena + 2001;
    self.counts[0] = &self.prefix;
    self.counts[1] = self.segments;
    self.buffers = (pst_buffers)PST_BUFFERS_INIT;
    self.buffers.bases = self.bases;
    self.buffers.counts = self.counts;
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = self.spaces;
    config.num_spaces = 2;
    config.tensors = self.tensors;
    config.num_tensors = 3;
    CHECK_OK(pst_device_open("host", 0, &self.device));
    CHECK_OK(pst_group_create(&config, &self.group));
    memset(self.arena, GUARD, ARENA);
}

static void close_scene(void)
{
    CHECK_OK(pst_group_destroy(self.group));
    CHECK_OK(pst_device_close(self.device));
}

/* Calls for each byte of the tensors at capacity. */
typedef void (*visit)(void *context, uint32_t tensor, uint32_t segment, uint64_t offset, bool live,
                      unsigned char *byte);

static void each_byte(visit call, void *context)
{
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t s = 0; s < (t == 0 ? 1 : SEGMENTS); s++) {
            const pst_tensor *tensor = &self.tensors[t];
            const int64_t count = t == 0 ? self.prefix : self.segments[s];
            const bool halved = tensor->den == 2;
            const uint64_t all = (halved ? (CAPACITY + 1) / 2 : CAPACITY) * tensor->row_bytes;
            const uint64_t stride = tensor->segment_stride ? tensor->segment_stride : all;
            const uint64_t live =
                count < 0 || count > CAPACITY
                    ? 0
                    : (uint64_t)(halved ? (count + 1) / 2 : count) * tensor->row_bytes;
            for (uint64_t i = 0; i < all; i++)
                call(context, t, s, i, i < live, (unsigned char *)self.bases[t] + s * stride + i);
        }
}

typedef struct expectation {
    const pst_pattern *pattern;
    unsigned char arena[ARENA];
    uint64_t live_bytes, all_bytes;
} expectation;

static void expect_byte(void *context, uint32_t tensor, uint32_t segment, uint64_t offset,
                        bool live, unsigned char *byte)
{
    expectation *expected = context;
    expected->all_bytes++;
    if (!live)
        return;
    expected->live_bytes++;
    expected->arena[byte - self.arena] =
        pattern_byte(expected->pattern, self.step, tensor, segment, offset);
}

static expectation expect(const pst_pattern *pattern)
{
    expectation expected = {.pattern = pattern};
    memset(expected.arena, GUARD, ARENA);
    each_byte(expect_byte, &expected);
    return expected;
}

static uint64_t verified(const pst_pattern *pattern, int tail)
{
    self.mismatches = 0;
    const pst_status status = pst_group_verify(self.device, self.group, &self.buffers, pattern,
                                               tail, &self.mismatches, NULL);
    return status == PST_OK ? self.mismatches : UINT64_MAX;
}

/* ---- tests ---- */

PST_TEST(Pattern, FillWritesTheLiveBytesAndNoOthers)
{
    static const uint64_t seeds[] = {0, 1, UINT64_MAX};
    open_scene();
    for (int i = 0; i < 27; i++) {
        self.step = seeds[i % 3];
        const pst_pattern pattern = {
            .seed = seeds[i / 3 % 3], .key = seeds[i / 9], .step = &self.step};
        memset(self.arena, GUARD, ARENA);
        const expectation expected = expect(&pattern);
        CHECK_EQ(expected.live_bytes, 3 * 13 + 7 * 24 + 4 * 7);
        CHECK_OK(pst_group_fill(self.device, self.group, &self.buffers, &pattern, NULL));
        CHECK(memcmp(self.arena, expected.arena, ARENA) == 0);
        CHECK_EQ(verified(&pattern, PST_VERIFY_ANY), 0);
        CHECK_EQ(verified(&pattern, GUARD), 0);
    }
    self.step = 0; /* no step is step 0 */
    const pst_pattern pattern = {.seed = 5, .key = 6, .step = NULL};
    const expectation expected = expect(&pattern);
    CHECK_OK(pst_group_fill(self.device, self.group, &self.buffers, &pattern, NULL));
    CHECK(memcmp(self.arena, expected.arena, ARENA) == 0);
    close_scene();
}

typedef struct spoiling {
    const pst_pattern *pattern;
    int tail;
    uint64_t wrong;
} spoiling;

static void spoil_byte(void *context, uint32_t tensor, uint32_t segment, uint64_t offset, bool live,
                       unsigned char *byte)
{
    spoiling *now = context;
    (void)tensor;
    (void)segment;
    (void)offset;
    *byte ^= 0x81;
    if (verified(now->pattern, now->tail) != (live || now->tail >= 0))
        now->wrong++;
    *byte ^= 0x81;
}

PST_TEST(Pattern, VerifySeesEverySingleByte)
{
    const pst_pattern pattern = {.seed = 3, .key = 4};
    open_scene();
    CHECK_OK(pst_group_fill(self.device, self.group, &self.buffers, &pattern, NULL));
    for (int tail = 0; tail < 2; tail++) {
        spoiling now = {.pattern = &pattern, .tail = tail ? GUARD : PST_VERIFY_ANY};
        each_byte(spoil_byte, &now);
        CHECK_EQ(now.wrong, 0);
        CHECK_EQ(verified(&pattern, now.tail), 0);
    }
    self.arena[0] ^= 1; /* outside of the tensors */
    self.arena[1130] ^= 1;
    self.arena[ARENA - 1] ^= 1;
    CHECK_EQ(verified(&pattern, GUARD), 0);
    close_scene();
}

PST_TEST(Pattern, VerifyCountsDifferingBytesExactly)
{
    const pst_pattern pattern = {.seed = 3, .key = 4};
    open_scene();
    CHECK_OK(pst_group_fill(self.device, self.group, &self.buffers, &pattern, NULL));
    for (int i = 0; i < 3 * 13; i++) {
        self.arena[3 + i] ^= 0xff;
        CHECK_EQ(verified(&pattern, PST_VERIFY_ANY), i + 1);
    }
    CHECK_EQ(verified(&pattern, GUARD), 39);
    const uint64_t all = expect(&pattern).all_bytes;
    CHECK_EQ(all, 65 + 3 * 120 + 3 * 21);
    CHECK_EQ(verified(&pattern, 0), 39 + all - expect(&pattern).live_bytes); /* the tails, too */
    self.mismatches = 1000;                                                  /* it adds */
    CHECK_OK(pst_group_verify(self.device, self.group, &self.buffers, &pattern, PST_VERIFY_ANY,
                              &self.mismatches, NULL));
    CHECK_EQ(self.mismatches, 1039);
    close_scene();
}

PST_TEST(Pattern, AnotherSeedStepOrKeyDiffersNearlyEverywhere)
{
    const pst_pattern pattern = {.seed = 3, .key = 4};
    const pst_pattern others[] = {
        {.seed = 4, .key = 4}, {.seed = 3, .key = 5}, {.seed = 3, .key = 4, .step = &self.step}};
    open_scene();
    self.step = 1;
    CHECK_OK(pst_group_fill(self.device, self.group, &self.buffers, &pattern, NULL));
    const uint64_t live = expect(&pattern).live_bytes;
    for (int i = 0; i < 3; i++) {
        const uint64_t differ = verified(&others[i], PST_VERIFY_ANY);
        CHECK_MSG(differ > live * 9 / 10 && differ <= live, "%llu of %llu",
                  (unsigned long long)differ, (unsigned long long)live);
    }
    close_scene();
}

PST_TEST(Pattern, CountsOutOfBoundsWriteNothingAndDifferEverywhere)
{
    static const int64_t bad[] = {-1, CAPACITY + 1, INT64_MIN, INT64_MAX, (int64_t)1 << 32};
    const pst_pattern pattern = {.seed = 3, .key = 4};
    open_scene();
    for (int i = 0; i < 5; i++) {
        memset(self.arena, GUARD, ARENA);
        self.segments[1] = bad[i];
        const expectation expected = expect(&pattern);
        CHECK_OK(pst_group_fill(self.device, self.group, &self.buffers, &pattern, NULL));
        CHECK(memcmp(self.arena, expected.arena, ARENA) == 0);
        CHECK_EQ(verified(&pattern, PST_VERIFY_ANY), 120 + 21); /* segment 1 of two tensors */
        CHECK_EQ(verified(&pattern, GUARD), 120 + 21);
    }
    self.segments[1] = 0;
    self.prefix = -7;
    CHECK_EQ(verified(&pattern, PST_VERIFY_ANY), 65);
    close_scene();
}

/* Counts of other types, and values that the host knows, with a group of the same form. */
PST_TEST(Pattern, CountsOfAnotherKind)
{
    const pst_pattern pattern = {.seed = 8};
    const int64_t prefix = 2;
    int32_t segments[SEGMENTS] = {1, 5, 0};
    pst_row_space spaces[2];
    pst_group *other = NULL;
    open_scene();
    spaces[0] = self.spaces[0];
    spaces[1] = self.spaces[1];
    spaces[0].count_type = PST_COUNT_HOST;
    spaces[1].count_type = PST_COUNT_INT32;
    pst_group_config config = PST_GROUP_CONFIG_INIT;
    config.spaces = spaces;
    config.num_spaces = 2;
    config.tensors = self.tensors;
    config.num_tensors = 3;
    CHECK_OK(pst_group_create(&config, &other));
    pst_buffers buffers = self.buffers;
    const void *const counts[2] = {&prefix, segments};
    buffers.counts = counts;
    CHECK_OK(pst_group_fill(self.device, other, &buffers, &pattern, NULL));
    CHECK_OK(
        pst_group_verify(self.device, other, &buffers, &pattern, GUARD, &self.mismatches, NULL));
    CHECK_EQ(self.mismatches, 0);
    CHECK(verified(&pattern, GUARD) > 0); /* by its own counts it is something else */
    self.prefix = 2;
    self.segments[0] = 1;
    self.segments[1] = 5;
    self.segments[2] = 0;
    CHECK_EQ(verified(&pattern, GUARD), 0);
    CHECK_OK(pst_group_destroy(other));
    close_scene();
}

/* Rows of 13 bytes every 20: the bytes between them belong to nobody. */
PST_TEST(Pattern, GapsBetweenRowsAreLeftAlone)
{
    const pst_pattern pattern = {.seed = 8};
    const uint64_t strides[3] = {20, 30, 9};
    open_scene();
    self.buffers.row_strides = strides;
    CHECK_OK(pst_group_fill(self.device, self.group, &self.buffers, &pattern, NULL));
    for (uint64_t row = 0; row < 3; row++)
        for (uint64_t at = 0; at < 20; at++)
            CHECK_EQ(self.arena[3 + row * 20 + at],
                     at < 13 ? pattern_byte(&pattern, 0, 0, 0, row * 13 + at) : GUARD);
    CHECK_EQ(verified(&pattern, GUARD), 0);
    self.arena[3 + 13] ^= 1; /* a gap */
    CHECK_EQ(verified(&pattern, GUARD), 0);
    self.arena[3 + 2 * 20 + 12] ^= 1;
    CHECK_EQ(verified(&pattern, GUARD), 1);
    close_scene();
}

PST_TEST(Pattern, BadArgumentsAreRefused)
{
    static const int tails[] = {-2, 256, INT32_MIN, INT32_MAX};
    const pst_pattern pattern = {.seed = 3};
    uint64_t mismatches = 7;
    open_scene();
    pst_device *const device = self.device;
    const pst_group *const group = self.group;
    const pst_buffers *const buffers = &self.buffers;
    CHECK_STATUS(pst_group_fill(NULL, group, buffers, &pattern, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_group_fill(device, NULL, buffers, &pattern, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_group_fill(device, group, NULL, &pattern, NULL), PST_E_INVALID);
    CHECK_SAID("buffers is NULL");
    CHECK_STATUS(pst_group_fill(device, group, buffers, NULL, NULL), PST_E_INVALID);
    CHECK_STATUS(pst_group_verify(NULL, group, buffers, &pattern, 0, &mismatches, NULL),
                 PST_E_INVALID);
    CHECK_STATUS(pst_group_verify(device, NULL, buffers, &pattern, 0, &mismatches, NULL),
                 PST_E_INVALID);
    CHECK_STATUS(pst_group_verify(device, group, NULL, &pattern, 0, &mismatches, NULL),
                 PST_E_INVALID);
    CHECK_STATUS(pst_group_verify(device, group, buffers, NULL, 0, &mismatches, NULL),
                 PST_E_INVALID);
    CHECK_STATUS(pst_group_verify(device, group, buffers, &pattern, 0, NULL, NULL), PST_E_INVALID);
    for (int i = 0; i < 4; i++)
        CHECK_STATUS(
            pst_group_verify(device, group, buffers, &pattern, tails[i], &mismatches, NULL),
            PST_E_INVALID);
    self.counts[1] = NULL;
    CHECK_STATUS(pst_group_fill(device, group, buffers, &pattern, NULL), PST_E_INVALID);
    CHECK_SAID("buffers: counts[1] is NULL");
    CHECK_STATUS(pst_group_verify(device, group, buffers, &pattern, 0, &mismatches, NULL),
                 PST_E_INVALID);
    self.counts[1] = self.segments;
    self.bases[2] = NULL;
    CHECK_STATUS(pst_group_verify(device, group, buffers, &pattern, 0, &mismatches, NULL),
                 PST_E_INVALID);
    CHECK_SAID("buffers: bases[2] is NULL");
    CHECK_EQ(mismatches, 7);
    close_scene();
}
