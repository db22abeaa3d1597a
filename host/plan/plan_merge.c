/* Merges what seems to belong together, so that a problem where nothing may be wasted becomes small:
 * tensors of one life are stacked, and of two of one size, the second of which begins where the first
 * ends, both get one address. A tiling that was made by cutting is put together again that way, cut by
 * cut. The live bytes of no slot change, so a placement of the blocks is one of the tensors; that there
 * is none of the blocks proves nothing. */
#include "host/base/table.h"
#include "host/plan/plan.h"

enum {
    SMALLER = 2, /* times fewer blocks than tensors, or the blocks are not searched */
    TRIES = 8,
    CLOSE = 1024, /* part of the bound; less than it is not worth a question */
    BRIEF = 8,    /* times fewer steps for questions between the first try and the others */
};

/* A tensor, or two blocks. */
typedef struct block {
    uint32_t begin, end; /* slots */
    uint32_t parts[2];   /* the lower or the earlier one, and the other; of a tensor nothing */
    uint64_t size, address;
    bool is_stacked, is_part; /* of another */
} block;

typedef struct merger {
    const psti_items *items;
    psti_limits *limits;
    psti_best *best;
    uint64_t goal;  /* at least the bound */
    uint64_t steps; /* of a question */
    uint32_t num_blocks, num_waiting;
    block *blocks;              /* [2 n]: tensors, then what is made of them */
    psti_pair *pairs, *follows; /* [n] */
    /* of the search, [n]: those that are no parts */
    uint32_t *index, *begin, *end;
    uint64_t *size, *length, *address;
} merger;

static bool merger_open(merger *m)
{
    const size_t n = m->items->n;
    m->blocks = psti_calloc(2 * n, sizeof(*m->blocks));
    m->pairs = psti_calloc(n, sizeof(*m->pairs));
    m->follows = psti_calloc(n, sizeof(*m->follows));
    m->index = psti_calloc(n, sizeof(*m->index));
    m->begin = psti_calloc(n, sizeof(*m->begin));
    m->end = psti_calloc(n, sizeof(*m->end));
    m->size = psti_calloc(n, sizeof(*m->size));
    m->length = psti_calloc(n, sizeof(*m->length));
    m->address = psti_calloc(n, sizeof(*m->address));
    return m->blocks != NULL && m->pairs != NULL && m->follows != NULL && m->index != NULL &&
           m->begin != NULL && m->end != NULL && m->size != NULL && m->length != NULL &&
           m->address != NULL;
}

static void merger_close(merger *m)
{
    psti_free(m->blocks);
    psti_free(m->pairs);
    psti_free(m->follows);
    psti_free(m->index);
    psti_free(m->begin);
    psti_free(m->end);
    psti_free(m->size);
    psti_free(m->length);
    psti_free(m->address);
}

static uint32_t join(merger *m, uint32_t first, uint32_t second, bool is_stacked)
{
    block *a = &m->blocks[first];
    block *b = &m->blocks[second];
    m->blocks[m->num_blocks] = (block){.begin = a->begin,
                                       .end = b->end,
                                       .parts = {first, second},
                                       .size = is_stacked ? a->size + b->size : a->size,
                                       .is_stacked = is_stacked};
    a->is_part = b->is_part = true;
    return m->num_blocks++;
}

/* Half of the chances are left to the next round, unless the seed is 0: so the order changes. */
static bool waits(merger *m, uint32_t second, uint64_t seed)
{
    const bool does = seed != 0 && psti_mix(seed + second) % 2 == 0;
    m->num_waiting += does;
    return does;
}

/* Blocks of one life become one. */
static void stack(merger *m, uint64_t seed)
{
    uint32_t num = 0;
    for (uint32_t k = 0; k < m->num_blocks; k++)
        if (!m->blocks[k].is_part)
            m->pairs[num++] = (psti_pair){(uint64_t)m->blocks[k].begin << 32 | m->blocks[k].end, k};
    psti_sort_pairs(m->pairs, num);
    for (uint32_t k = 0; k < num;) {
        uint32_t made = (uint32_t)m->pairs[k].value;
        const uint64_t life = m->pairs[k].key;
        while (++k < num && m->pairs[k].key == life) {
            const uint32_t other = (uint32_t)m->pairs[k].value;
            made = waits(m, other, seed) ? other : join(m, made, other, true);
        }
    }
}

/* A block and one of its size that begins where it ends become one: which of several, chance says. */
static void chain(merger *m, uint64_t seed)
{
    uint32_t num = 0;
    for (uint32_t k = 0; k < m->num_blocks; k++) {
        const block *b = &m->blocks[k];
        if (b->is_part)
            continue;
        const uint64_t of_size = psti_mix(b->size);
        const uint64_t value = psti_mix(seed + k) << 32 | k;
        m->pairs[num] = (psti_pair){psti_mix(of_size + b->end), value};
        m->follows[num++] = (psti_pair){psti_mix(of_size + b->begin), value};
    }
    psti_sort_pairs(m->pairs, num);
    psti_sort_pairs(m->follows, num);
    for (uint32_t i = 0, k = 0; i < num && k < num;) {
        const uint32_t first = (uint32_t)m->pairs[i].value;
        const uint32_t second = (uint32_t)m->follows[k].value;
        const block *a = &m->blocks[first];
        const block *b = &m->blocks[second];
        if (a->is_part || m->pairs[i].key < m->follows[k].key) {
            i++;
        } else if (b->is_part || m->pairs[i].key > m->follows[k].key) {
            k++;
        } else {
            if (a->size == b->size && a->end == b->begin && !waits(m, second, seed))
                (void)join(m, first, second, false);
            i++;
            k++;
        }
    }
}

static void merge(merger *m, uint64_t seed)
{
    const psti_items *items = m->items;
    for (uint32_t i = 0; i < items->n; i++)
        m->blocks[i] =
            (block){.begin = items->begin[i], .end = items->end[i], .size = items->size[i]};
    m->num_blocks = items->n;
    for (uint32_t before = 0;
         (before < m->num_blocks || m->num_waiting > 0) && !psti_limits_over(m->limits);) {
        before = m->num_blocks;
        m->num_waiting = 0;
        stack(m, seed);
        chain(m, seed);
        seed = seed != 0 ? psti_mix(seed) : 0;
    }
}

/* A merge leaves one block less. */
static uint32_t num_whole(const merger *m)
{
    return 2 * m->items->n - m->num_blocks;
}

/* The blocks that are no parts. */
static psti_exact_problem cut(merger *m)
{
    uint32_t num = 0;
    for (uint32_t k = 0; k < m->num_blocks; k++) {
        const block *b = &m->blocks[k];
        if (b->is_part)
            continue;
        m->index[num] = k;
        m->begin[num] = b->begin;
        m->end[num] = b->end;
        m->size[num] = b->size;
        m->length[num++] = b->end - b->begin;
    }
    return (psti_exact_problem){num,      m->items->num_slots, m->begin, m->end, m->size, NULL,
                                m->length};
}

/* From the blocks that were placed to their tensors. */
static void take_apart(merger *m, uint32_t num)
{
    const psti_items *items = m->items;
    psti_best *best = m->best;
    for (uint32_t i = 0; i < num; i++)
        m->blocks[m->index[i]].address = m->address[i];
    for (uint32_t k = m->num_blocks; k-- > items->n;) {
        const block *b = &m->blocks[k];
        block *first = &m->blocks[b->parts[0]];
        first->address = b->address;
        m->blocks[b->parts[1]].address = b->address + (b->is_stacked ? first->size : 0);
    }
    best->peak = 0;
    best->stage = PST_STAGE_SEARCH;
    for (uint32_t i = 0; i < items->n; i++) {
        const uint64_t top = m->blocks[i].address + items->size[i];
        best->address[i] = m->blocks[i].address;
        best->peak = top > best->peak ? top : best->peak;
    }
}

static psti_verdict ask(merger *m, uint64_t target)
{
    bool is_denied = false; /* then there are other ways */
    const psti_exact_problem problem = cut(m);
    const psti_verdict verdict =
        psti_search_slice(&problem, target, m->steps, m->limits, m->address, &is_denied);
    if (verdict == PSTI_FOUND)
        take_apart(m, problem.num_tensors);
    return verdict;
}

static bool may_go_on(const merger *m)
{
    return !m->limits->over && !m->limits->out_of_steps;
}

/* Asks for the blocks that merging in another order each time leaves, until a try fits. */
static psti_verdict meet_goal(merger *m, uint32_t first, uint32_t last)
{
    psti_verdict verdict = PSTI_STOPPED;
    for (uint32_t k = first; k < last && may_go_on(m); k++) {
        merge(m, k > 0 ? psti_mix(m->limits->seed + k) | 1 : 0);
        verdict = ask(m, m->goal);
        if (verdict == PSTI_FOUND || verdict == PSTI_NO_MEMORY)
            break;
    }
    return verdict;
}

/* Lowers the peak by bisection; a question without an answer counts as a no. */
static psti_verdict come_near(merger *m)
{
    merge(m, 0);
    psti_verdict verdict = PSTI_STOPPED;
    for (uint64_t low = m->goal; m->best->peak > low + low / CLOSE + 1 && may_go_on(m);) {
        const uint64_t target = low + (m->best->peak - low) / 2;
        verdict = ask(m, target);
        if (verdict == PSTI_NO_MEMORY)
            break;
        if (verdict != PSTI_FOUND)
            low = target;
    }
    return verdict;
}

static bool is_open(psti_verdict verdict)
{
    return verdict != PSTI_FOUND && verdict != PSTI_NO_MEMORY;
}

/* One try at the goal, a brief look how near one comes, so that a short run has something, the other
 * tries, and a long look. */
static psti_verdict search_blocks(merger *m)
{
    const uint64_t steps = m->steps;
    psti_verdict verdict = meet_goal(m, 0, 1);
    if (is_open(verdict)) {
        m->steps = steps / BRIEF;
        verdict = come_near(m);
        m->steps = steps;
    }
    if (verdict != PSTI_NO_MEMORY && m->best->peak > m->goal)
        verdict = meet_goal(m, 1, TRIES);
    return is_open(verdict) ? come_near(m) : verdict;
}

bool psti_search_merged(const psti_items *items, uint64_t goal, uint64_t steps, psti_limits *limits,
                        psti_best *best)
{
    for (uint32_t i = 0; i < items->n; i++)
        if (items->pin[i] != PST_PLAN_FREE)
            return true;
    if (items->num_reserved > 0)
        return true;
    merger m = {.items = items, .limits = limits, .best = best, .steps = steps};
    m.goal = goal > items->bound ? goal : items->bound;
    psti_verdict verdict = merger_open(&m) ? PSTI_STOPPED : PSTI_NO_MEMORY;
    if (verdict != PSTI_NO_MEMORY)
        merge(&m, 0);
    if (verdict != PSTI_NO_MEMORY && num_whole(&m) <= items->n / SMALLER) {
        verdict = search_blocks(&m);
    }
    merger_close(&m);
    return verdict != PSTI_NO_MEMORY;
}
