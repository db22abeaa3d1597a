/* What others may rely on who read pages in place: no aligned 128 bytes of a row cross a page where
 * rows are multiples of 128, and pages, page size and owner words stay where they are. */
#include "tests/conformance/conf.h"

/* Rows of 128, 384 and 16512 bytes (more than a tile), in segments, by a sum, with a ratio. */
static shape make_shape(void)
{
    shape made = {.group = {.num_spaces = 3, .num_tensors = 4}};
    oracle_group *group = &made.group;
    uint64_t at = 67;
    group->spaces[0] =
        (pst_row_space){.kind = PST_ROWS_SEGMENTS, .capacity = 50, .num_segments = 9};
    group->spaces[1] = (pst_row_space){.kind = PST_ROWS_SUM, .capacity = 90, .num_segments = 4};
    group->spaces[2] = (pst_row_space){.capacity = 6};
    group->tensors[0] = (pst_tensor){.row_bytes = 384, .row_stride = 391};
    group->tensors[1] = (pst_tensor){.row_bytes = 128, .num = 1, .den = 3};
    group->tensors[2] = (pst_tensor){.row_bytes = 640, .space = 1};
    group->tensors[3] = (pst_tensor){.row_bytes = 16512, .space = 2};
    for (uint32_t t = 0; t < group->num_tensors; t++) {
        group->at[t] = at;
        at +=
            oracle_num_segments(&group->spaces[group->tensors[t].space]) * oracle_stride(group, t) +
            5;
    }
    made.arena_bytes = (size_t)at;
    return made;
}

/* One ticket's pages, read as a kernel of somebody else's would: the page base and shift that it
 * was told at first, and the page table. */
typedef struct reader {
    lockstep *ls;
    const ls_group *source;
    unsigned char *pages[PSTI_TIERS];
    uint64_t *owner[PSTI_TIERS];
    uint32_t page_shift;
    const ticket_words *words;
    uint64_t num_chunks;
} reader;

static void remember(conf_pair *pair, reader *self)
{
    const psti_pool_view *view = &pair->ls.pool->view;
    *self = (reader){.ls = &pair->ls, .source = &pair->source, .page_shift = view->page_shift};
    for (uint32_t tier = 0; tier < PSTI_TIERS; tier++) {
        self->pages[tier] = view->pages[tier];
        self->owner[tier] = view->owner[tier];
    }
}

/* Called for every live byte: at the first of a chunk of 128 it reads all of it. */
static void read_chunk(void *context, uint32_t tensor, uint64_t offset, uint64_t position)
{
    reader *self = context;
    lockstep *ls = self->ls;
    unsigned char found[128];
    uint64_t owner = 0;
    if (position % 128 != 0 || ls->failed)
        return;
    const uint64_t place = position >> self->page_shift;
    const uint64_t within = position & ((UINT64_C(1) << self->page_shift) - 1);
    const uint32_t id = self->words->table[place];
    const unsigned char *chunk =
        self->pages[id >> 31] + ((size_t)(id & 0x7fffffffu) << self->page_shift) + within;
    if (within + 128 > UINT64_C(1) << self->page_shift)
        LS_FAIL("128 bytes at %llu cross a page", (unsigned long long)position);
    LS_TRY(pst_device_copy(ls->device, found, chunk, 128, ls->stream));
    LS_TRY(pst_device_copy(ls->device, &owner, &self->owner[id >> 31][id & 0x7fffffffu], 8,
                           ls->stream));
    LS_TRY(pst_stream_synchronize(ls->device, ls->stream));
    if (memcmp(found, self->source->model.image + offset, 128) != 0)
        LS_FAIL("tensor %u: 128 bytes at %llu are not those of the row", tensor,
                (unsigned long long)position);
    if ((owner & UINT32_MAX) != self->words->head.index + 1u)
        LS_FAIL("the owner word of page %u names another ticket", id);
    self->num_chunks++;
}

/* Each row begins at a multiple of 128: that many chunks are whole rows. */
static void read_all(reader *self, uint32_t ticket)
{
    const oracle_group *model = &self->source->model;
    const oracle_ticket *expected = &self->ls->oracle->tickets[ticket];
    uint64_t bytes = 0;
    self->words = &self->ls->words_of[ticket];
    self->num_chunks = 0;
    for (uint32_t t = 0; t < model->num_tensors; t++)
        for (uint32_t s = 0; s < oracle_num_segments(&model->spaces[model->tensors[t].space]); s++)
            bytes +=
                oracle_rows(&model->tensors[t],
                            (uint64_t)expected
                                ->counts[oracle_first_count(model, model->tensors[t].space) + s]) *
                model->tensors[t].row_bytes;
    oracle_each_byte(model, expected->counts, read_chunk, self);
    CHECK(bytes > 0);
    CHECK_EQ(self->num_chunks, bytes / 128);
}

CONFORMANCE(Pages, RowsOfMultiplesOf128AreReadInPlace)
{
    static conf_pair self;
    const shape like = make_shape();
    CONF_EACH_MODE (mode) {
        reader other;
        ls_options options = conf_options(mode, 20, 1);
        options.num_host_pages = 10;
        options.max_pages = 70;
        options.max_host_pages = 40;
        if (!conf_pair_open(&self, conf, &options, &like, NULL, 3))
            return;
        lockstep *ls = &self.ls;
        remember(&self, &other);
        for (int i = 0; i < 3 && !ls->failed; i++) {
            /* where it lies, and the strides, change: what lies in the pages does not */
            ls_group_move(
                ls, &self.source,
                shape_place(&self.random, SHAPE_PITCH, SHAPE_SAME_ROOM, &self.source.model),
                &self.random);
            ls_group_random_counts(ls, &self.source, COUNTS_RANDOM, &self.random);
            ls_stash(ls, self.tickets[i], &self.source);
            read_all(&other, self.tickets[i]);
            ls_resize(ls, 20 + 15u * (unsigned)(i + 1), 10 + 7u * (unsigned)(i + 1));
            read_all(&other, self.tickets[i]); /* under the addresses of the beginning */
            if (i == 0)
                ls_demote(ls, self.tickets[0], 3);
            read_all(&other, self.tickets[i]);
        }
        const psti_pool_view *view = &ls->pool->view;
        for (uint32_t tier = 0; tier < PSTI_TIERS; tier++)
            CHECK(view->pages[tier] == other.pages[tier] && view->owner[tier] == other.owner[tier]);
        CHECK_EQ(view->page_shift, other.page_shift);
        CHECK_EQ(ls->oracle->status.flags, 0);
        conf_pair_close(&self);
    }
}
