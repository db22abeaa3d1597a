/* Random plans, right by construction, replayed by programs that stray: other sizes and streams,
 * requests left out, added, exchanged, and freed late. A model that knows nothing of plans holds
 * the live blocks: none may overlap, each keeps its bytes, and the figures must add up. */
#include "tests/host/arena/arena_scene.h"

enum { MAX_TENSORS = 80, MAX_ROWS = 3 * MAX_TENSORS, UNIT = 64, MAX_UNITS = 8, MAX_LIVE = 1024 };

typedef struct model_block {
    unsigned char *address;
    uint64_t bytes;
    uint32_t tensor; /* of the plan, or UINT32_MAX */
    unsigned stream;
    uint8_t value;
} model_block;

typedef struct world {
    arena_scene scene;
    uint64_t seed;
    pst_plan_row rows[MAX_ROWS];
    uint32_t num_rows;
    model_block live[MAX_LIVE];
    uint32_t num_live;
    uint64_t requests, planned;
    uint8_t next_value;
    uint32_t num_streams;
    bool strays;
} world;

static uint32_t draw(world *self, uint32_t below)
{
    self->seed = self->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(self->seed >> 33) % (below ? below : 1);
}

/* Whether this deviates; one request in twenty where deviations are wanted. */
static bool chance(world *self)
{
    return self->strays && draw(self, 20) == 0;
}

/* ---- a plan ---- */

/* The lowest address that is free in the plan just now. */
static uint64_t place(const pst_plan_row *const *live, uint32_t num_live, uint64_t bytes)
{
    uint64_t offset = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < num_live; i++)
            if (offset < live[i]->offset + live[i]->bytes && live[i]->offset < offset + bytes) {
                offset = (live[i]->offset + live[i]->bytes + UNIT - 1) / UNIT * UNIT;
                moved = true;
            }
    }
    return offset;
}

static void make_plan(world *self)
{
    const pst_plan_row *live[MAX_TENSORS];
    uint32_t num_live = 0;
    uint32_t num_tensors = 0;
    const uint32_t num_sizes = 1 + draw(self, MAX_UNITS);
    const uint32_t wanted = 1 + draw(self, MAX_TENSORS);
    self->num_rows = 0;
    while (num_tensors < wanted || num_live) {
        pst_plan_row *row = &self->rows[self->num_rows++];
        *row = (pst_plan_row){.line = self->num_rows};
        const uint32_t what = draw(self, 20);
        if ((what == 0 && num_tensors < wanted) || self->num_rows == 1) {
            row->op = PST_PLAN_OP_MARK;
            if (self->num_rows > MAX_TENSORS / 2)
                self->num_rows--; /* marks enough */
        } else if (num_tensors < wanted && (num_live == 0 || what < 12)) {
            row->id = num_tensors++;
            row->bytes = (1 + draw(self, num_sizes)) * UNIT - draw(self, 2);
            row->stream = draw(self, self->num_streams);
            row->offset = place(live, num_live, row->bytes);
            live[num_live++] = row;
        } else if (num_live) {
            const uint32_t pick = draw(self, num_live);
            row->op = PST_PLAN_OP_FREE;
            row->id = live[pick]->id;
            live[pick] = live[--num_live];
        } else {
            self->num_rows--;
        }
    }
}

/* ---- the program ---- */

static void ask_for(world *self, uint32_t tensor, uint64_t bytes, unsigned stream)
{
    void *address = NULL;
    CHECK_OK(pst_arena_malloc(self->scene.arena, bytes, &address, stream_at(stream)));
    model_block *block = &self->live[self->num_live++];
    *block = (model_block){address, bytes, tensor, stream, self->next_value++};
    CHECK(self->num_live < MAX_LIVE && (uintptr_t)address % UNIT == 0);
    for (uint32_t i = 0; i + 1 < self->num_live; i++) {
        const model_block *other = &self->live[i];
        CHECK(block->address + bytes <= other->address ||
              other->address + other->bytes <= block->address);
    }
    memset(address, block->value, bytes);
    self->requests++;
    self->planned += offset_of(&self->scene, address) != FALLBACK;
    if (self->strays)
        return;
    const pst_plan_row *row = self->rows;
    while (row->op != PST_PLAN_OP_MALLOC || row->id != tensor)
        row++;
    CHECK_EQ(offset_of(&self->scene, address), row->offset);
}

static void drop(world *self, uint32_t index)
{
    const model_block block = self->live[index];
    for (uint64_t i = 0; i < block.bytes; i++)
        CHECK_EQ(block.address[i], block.value);
    self->live[index] = self->live[--self->num_live];
    CHECK_OK(pst_arena_free(self->scene.arena, block.address, stream_at(block.stream)));
    CHECK_STATUS(pst_arena_free(self->scene.arena, block.address, stream_at(block.stream)),
                 PST_E_INVALID);
}

static void play_row(world *self, const pst_plan_row *row)
{
    if (row->op == PST_PLAN_OP_MARK) {
        CHECK_OK(pst_arena_iteration(self->scene.arena));
        return;
    }
    if (row->op == PST_PLAN_OP_FREE) {
        const bool is_late = chance(self); /* or never comes */
        for (uint32_t i = self->num_live; i-- > 0 && !is_late;)
            if (self->live[i].tensor == row->id)
                drop(self, i);
        return;
    }
    if (chance(self))
        return;
    if (chance(self))
        ask_for(self, UINT32_MAX, (1 + draw(self, MAX_UNITS)) * UNIT, draw(self, 4));
    const uint64_t bytes = chance(self) ? 1 + draw(self, MAX_UNITS * UNIT) : row->bytes;
    ask_for(self, (uint32_t)row->id, bytes, chance(self) ? draw(self, 4) : row->stream);
    if (chance(self))
        drop(self, draw(self, self->num_live)); /* early */
    if (chance(self) && self->num_live)
        CHECK_OK(pst_arena_record_stream(self->scene.arena,
                                         self->live[draw(self, self->num_live)].address,
                                         stream_at(draw(self, 4))));
}

static void play_iterations(world *self)
{
    for (int k = 0; k < 4 && !psti_test_failed(); k++) {
        /* what was never planned, or is late, goes at last */
        for (uint32_t i = self->num_live; i-- > 0;)
            if (draw(self, 3) == 0 || !self->strays)
                drop(self, i);
        for (uint32_t i = 0; i < self->num_rows; i++) {
            const bool swaps = i + 1 < self->num_rows && chance(self) &&
                               self->rows[i + 1].op == PST_PLAN_OP_MALLOC &&
                               self->rows[i].op == PST_PLAN_OP_MALLOC;
            play_row(self, &self->rows[i + swaps]);
            if (swaps)
                play_row(self, &self->rows[i++]);
        }
    }
}

static void check_figures(const world *self)
{
    const pst_arena_stats stats = scene_stats(&self->scene);
    uint64_t planned_bytes = 0;
    uint64_t fallback_bytes = 0;
    for (uint32_t i = 0; i < self->num_live; i++) {
        if (offset_of(&self->scene, self->live[i].address) == FALLBACK)
            fallback_bytes += 512; /* the smallest class holds all of them */
        else
            planned_bytes += (self->live[i].bytes + UNIT - 1) / UNIT * UNIT;
    }
    CHECK_EQ(stats.requests, self->requests);
    CHECK_EQ(stats.planned, self->planned);
    CHECK_EQ(stats.live, self->num_live);
    CHECK_EQ(stats.planned_bytes, planned_bytes);
    CHECK_EQ(stats.fallback_bytes, fallback_bytes);
    CHECK_EQ(stats.fallback_allocs * 512, stats.taken_bytes);
    const uint64_t *of = stats.deviations;
    CHECK_EQ(stats.requests - stats.planned, of[PST_DEVIATION_SIZE] + of[PST_DEVIATION_STREAM] +
                                                 of[PST_DEVIATION_EXTRA] +
                                                 of[PST_DEVIATION_BLOCKED]);
    if (!self->strays)
        CHECK_STR(stats.first_deviation, "");
}

static void live_once(uint64_t seed, bool strays, uint32_t num_streams, uint64_t *planned,
                      uint64_t *requests)
{
    static world self;
    self = (world){.seed = seed, .num_streams = num_streams, .strays = strays};
    scene_begin(&self.scene);
    self.scene.config.align = UNIT;
    self.scene.config.lookahead = draw(&self, 2) ? 0 : 3;
    make_plan(&self);
    CHECK_OK(pst_plan_file_make(self.rows, self.num_rows, &self.scene.plan));
    CHECK_OK(pst_arena_create(NULL, self.scene.plan, &self.scene.config, &self.scene.arena));
    play_iterations(&self);
    check_figures(&self);
    CHECK_MSG(!psti_test_failed(), "seed %llu", (unsigned long long)seed);
    while (self.num_live)
        drop(&self, self.num_live - 1);
    *planned += self.planned;
    *requests += self.requests;
    scene_close(&self.scene);
}

PST_TEST(ArenaRandom, ProgramsThatDoAsPlannedNeverDeviate)
{
    uint64_t planned = 0;
    uint64_t requests = 0;
    for (uint32_t seed = 1; seed <= 200 && !psti_test_failed(); seed++)
        live_once(seed, false, 1 + seed % 3, &planned, &requests);
    CHECK_EQ(planned, requests);
}

/* Fault rows 59. */
PST_TEST(ArenaRandom, ProgramsThatStrayLoseNoByte)
{
    for (uint32_t num_streams = 1; num_streams <= 3; num_streams++) {
        uint64_t planned = 0;
        uint64_t requests = 0;
        for (uint64_t seed = 1000; seed < 1250 && !psti_test_failed(); seed++)
            live_once(seed, true, num_streams, &planned, &requests);
        /* and still most requests, or with streams a good part, get what was planned */
        const uint64_t wanted = num_streams == 1 ? requests * 3 / 5 : requests / 3;
        CHECK_MSG(planned > wanted, "%u streams: %llu of %llu requests were planned", num_streams,
                  (unsigned long long)planned, (unsigned long long)requests);
    }
}
