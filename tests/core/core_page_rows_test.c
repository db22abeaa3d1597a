/* kernels/core/page_rows.h: where rows lie in pages, against a search byte by byte. */
#include "tests/harness.h"

#include "kernels/core/page_rows.h"

enum { SHIFT = 6, PAGE = 1 << SHIFT, PAGES = 9, DEVICE_PAGES = 6, HOST_PAGES = 4 };

typedef struct scene {
    unsigned char device[DEVICE_PAGES * PAGE], host[HOST_PAGES * PAGE];
    uint64_t device_owner[DEVICE_PAGES], host_owner[HOST_PAGES];
    uint32_t ids[PAGES];
    psti_page_rows rows;
} scene;

#define HOST(index) (0x80000000u | (index))

/* A ticket with pages of both tiers, in no order. */
static void open_scene(scene *self)
{
    static const uint32_t ids[PAGES] = {3, HOST(2), 0, 5, HOST(0), 1, 4, HOST(3), 2};
    const uint64_t first_owner = (uint64_t)0xfffffffd << 32 | 42; /* the high half wraps round */
    *self = (scene){.rows = {.ids = self->ids,
                             .owner = {self->device_owner, self->host_owner},
                             .pages = {self->device, self->host},
                             .max_pages = {DEVICE_PAGES, HOST_PAGES},
                             .first_owner = first_owner,
                             .page_shift = SHIFT}};
    for (uint32_t page = 0; page < PAGES; page++) {
        const uint32_t id = ids[page];
        uint64_t *owner = id >> 31 ? self->host_owner : self->device_owner;
        self->ids[page] = id;
        owner[id & 0x7fffffffu] = first_owner + ((uint64_t)page << 32);
    }
}

static unsigned char *byte_at(scene *self, uint64_t position)
{
    const uint32_t id = self->ids[position / PAGE];
    unsigned char *pages = id >> 31 ? self->host : self->device;
    return pages + (uint64_t)(id & 0x7fffffffu) * PAGE + position % PAGE;
}

/* Whether the range is in one page with the first byte of the run. */
static bool is_whole(const psti_page_rows *rows, uint64_t page, uint64_t row, uint64_t column,
                     uint64_t width)
{
    const uint64_t first = rows->start + row * rows->row_bytes + column;
    return first / PAGE == page && (first + width - 1) / PAGE == page;
}

static void check_run(scene *self, uint64_t row, uint64_t column, uint64_t width)
{
    const psti_page_rows *rows = &self->rows;
    const psti_page_run run = psti_find_page_run(*rows, row, column, width);
    const uint64_t at = rows->start + row * rows->row_bytes + column;
    uint64_t whole = 0;
    while (is_whole(rows, at / PAGE, row + whole, column, width))
        whole++;
    CHECK_EQ(run.page, at / PAGE);
    CHECK_EQ(run.rows, whole);
    CHECK_EQ(run.bytes, whole ? width : PAGE - at % PAGE);
    CHECK_EQ(run.id, self->ids[at / PAGE]);
    CHECK_EQ(run.tier, self->ids[at / PAGE] >> 31);
    CHECK(run.at == byte_at(self, at));
}

PST_TEST(CorePageRows, EveryRangeOfEveryRow)
{
    static const uint64_t lengths[] = {1, 7, 16, 48, 64, 65, 100};
    scene self;
    open_scene(&self);
    for (int i = 0; i < 7; i++)
        for (self.rows.start = 0; self.rows.start < 2 * PAGE; self.rows.start += 13) {
            const uint64_t length = self.rows.row_bytes = lengths[i];
            const uint64_t num = (PAGES * PAGE - self.rows.start) / length;
            for (uint64_t row = 0; row < num; row++)
                for (uint64_t column = 0; column < length; column += 3)
                    for (uint64_t width = 1; width <= length - column; width += 5)
                        check_run(&self, row, column, width);
        }
}

PST_TEST(CorePageRows, APageThatIsNotTheTicketsIsNowhere)
{
    static const uint32_t wrong[] = {DEVICE_PAGES, HOST(HOST_PAGES), UINT32_MAX, HOST(1), 0};
    scene self;
    open_scene(&self);
    self.rows.row_bytes = PAGE;
    for (int i = 0; i < 5; i++) {
        self.ids[3] = wrong[i]; /* 0 is the ticket's, but at another place */
        const psti_page_run run = psti_find_page_run(self.rows, 3, 5, 6);
        CHECK(run.at == NULL);
        CHECK_EQ(run.bytes, 6);
        CHECK_EQ(run.id, wrong[i]);
        CHECK(psti_find_page_run(self.rows, 2, 5, 6).at != NULL);
    }
}
