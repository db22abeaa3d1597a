/* Addresses of a plan that no tensor uses from one instant to another. */
#include <inttypes.h>
#include <stdlib.h>

#include <pagestash/plan.h>

#include "host/plan/plan.h"

/* A tensor or reserved range: addresses [low, high) are taken at the instants [begin, end). */
typedef struct box {
    uint64_t low, high;
    uint64_t begin, end;
} box;

typedef struct sweep {
    const pst_plan_problem *problem;
    uint64_t align, arena_bytes;
    box *boxes; /* by rising low */
    uint64_t num_boxes;
} sweep;

static int compare(const void *left, const void *right)
{
    const box *a = left;
    const box *b = right;
    return (a->low > b->low) - (a->low < b->low);
}

/* The first instant at which every stream may reuse the bytes. */
static uint64_t last_use(const pst_plan_problem *problem, uint64_t tensor)
{
    uint64_t end = problem->tensors[tensor].end;
    if (problem->num_streams <= 1)
        return end;
    for (uint32_t r = 0; r < problem->num_streams; r++) {
        const uint64_t release = problem->releases[tensor * problem->num_streams + r];
        end = release > end ? release : end;
    }
    return end;
}

static pst_status make_boxes(sweep *self, const uint64_t *offsets)
{
    const pst_plan_problem *problem = self->problem;
    const uint64_t up = self->align - 1;
    self->boxes = psti_calloc(problem->num_tensors + problem->num_reserved + 1, sizeof(box));
    PSTI_CHECK(self->boxes, PST_E_NOMEM, "out of memory for %" PRIu64 " tensors",
               problem->num_tensors);
    for (uint64_t i = 0; i < problem->num_tensors; i++) {
        const pst_plan_tensor *tensor = &problem->tensors[i];
        PSTI_CHECK(tensor->bytes >= 1 && tensor->bytes <= PST_PLAN_MAX_BYTES &&
                       offsets[i] <= PST_PLAN_MAX_BYTES,
                   PST_E_INVALID,
                   "tensor %" PRIu64 ": bytes %" PRIu64 ", offset %" PRIu64
                   ": allowed are 1 to 2^62, and up to 2^62",
                   i, tensor->bytes, offsets[i]);
        PSTI_CHECK(tensor->begin < tensor->end, PST_E_INVALID,
                   "tensor %" PRIu64 ": begin %" PRIu64 " is not below end %" PRIu64, i,
                   tensor->begin, tensor->end);
        self->boxes[self->num_boxes++] =
            (box){offsets[i] & ~up, (offsets[i] + tensor->bytes + up) & ~up, tensor->begin,
                  last_use(problem, i)};
    }
    for (uint32_t i = 0; i < problem->num_reserved; i++) {
        const pst_plan_range *range = &problem->reserved[i];
        PSTI_CHECK(range->begin <= range->end && range->end <= PST_PLAN_MAX_BYTES, PST_E_INVALID,
                   "reserved range %u: %" PRIu64 ":%" PRIu64 ": allowed are A <= B <= 2^62", i,
                   range->begin, range->end);
        if (range->begin < range->end)
            self->boxes[self->num_boxes++] =
                (box){range->begin & ~up, (range->end + up) & ~up, 0, UINT64_MAX};
    }
    qsort(self->boxes, self->num_boxes, sizeof(box), compare);
    return PST_OK;
}

/* Writes what lies between the boxes that are live in the span, as far as there is room; returns
 * how many ranges there are. */
static uint64_t find_idle(const sweep *self, const pst_plan_range *span, pst_plan_range *ranges,
                          uint64_t capacity)
{
    uint64_t count = 0;
    uint64_t free_from = 0;
    for (uint64_t i = 0; i <= self->num_boxes; i++) {
        const box end = {.low = self->arena_bytes, .high = self->arena_bytes, .end = UINT64_MAX};
        const box *next = i < self->num_boxes ? &self->boxes[i] : &end;
        if (next != &end && (next->begin >= span->end || next->end <= span->begin))
            continue;
        const uint64_t low = next->low < self->arena_bytes ? next->low : self->arena_bytes;
        if (low > free_from) {
            if (count < capacity)
                ranges[count] = (pst_plan_range){free_from, low};
            count++;
        }
        free_from = next->high > free_from ? next->high : free_from;
    }
    return count;
}

static pst_status check_problem(const pst_plan_problem *problem)
{
    PSTI_CHECK((problem->align & (problem->align - 1)) == 0 && problem->align < PST_PLAN_MAX_BYTES,
               PST_E_INVALID, "align %" PRIu64 ": allowed are powers of two", problem->align);
    PSTI_CHECK((problem->num_reserved == 0 || problem->reserved) &&
                   (problem->num_streams <= 1 || problem->releases),
               PST_E_INVALID, "reserved or releases is NULL");
    return PST_OK;
}

static pst_status check_arguments(const pst_plan_problem *problem, uint64_t arena_bytes,
                                  const pst_plan_range *spans, uint32_t num_spans)
{
    PSTI_TRY(check_problem(problem));
    const uint64_t align = problem->align ? problem->align : 512;
    PSTI_CHECK(arena_bytes <= PST_PLAN_MAX_BYTES && arena_bytes % align == 0, PST_E_INVALID,
               "arena_bytes %" PRIu64 ": allowed are multiples of %" PRIu64 " up to 2^62",
               arena_bytes, align);
    PSTI_CHECK(num_spans == 0 || spans, PST_E_INVALID, "spans is NULL");
    for (uint32_t s = 0; s < num_spans; s++)
        PSTI_CHECK(spans[s].begin < spans[s].end, PST_E_INVALID,
                   "span %u: begin %" PRIu64 " is not below end %" PRIu64, s, spans[s].begin,
                   spans[s].end);
    return PST_OK;
}

static pst_status find_all(const pst_plan_problem *problem, const uint64_t *offsets,
                           uint64_t arena_bytes, const pst_plan_range *spans, uint32_t num_spans,
                           uint64_t *firsts, pst_plan_range *ranges, uint64_t capacity)
{
    PSTI_CHECK(firsts && (offsets || problem->num_tensors == 0) && (ranges || capacity == 0),
               PST_E_INVALID, "problem, offsets, firsts or ranges is NULL");
    PSTI_TRY(check_arguments(problem, arena_bytes, spans, num_spans));
    sweep self = {.problem = problem,
                  .align = problem->align ? problem->align : 512,
                  .arena_bytes = arena_bytes};
    pst_status status = make_boxes(&self, offsets);
    uint64_t count = 0; /* nothing is written if there is no room for all */
    for (uint32_t s = 0; capacity > 0 && s < num_spans && status == PST_OK; s++)
        count += find_idle(&self, &spans[s], NULL, 0);
    if (status == PST_OK && count > capacity)
        status = PSTI_FAIL(PST_E_INVALID, "capacity %" PRIu64 ": there are %" PRIu64 " ranges",
                           capacity, count);
    uint64_t first = 0;
    for (uint32_t s = 0; s < num_spans && status == PST_OK; s++) {
        firsts[s] = first;
        const uint64_t room = capacity > first ? capacity - first : 0;
        first += find_idle(&self, &spans[s], room ? ranges + first : NULL, room);
    }
    if (status == PST_OK)
        firsts[num_spans] = first;
    psti_free(self.boxes);
    return status;
}

pst_status pst_plan_idle(const pst_plan_problem *problem, const uint64_t *offsets,
                         uint64_t arena_bytes, const pst_plan_range *spans, uint32_t num_spans,
                         uint64_t *firsts, pst_plan_range *ranges, uint64_t capacity)
{
    psti_plan_taken taken;
    PSTI_TRY(psti_plan_take(problem, &taken));
    return psti_plan_drop(&taken, find_all(&taken.problem, offsets, arena_bytes, spans, num_spans,
                                           firsts, ranges, capacity));
}
