/* Lifetimes of what layers keep, and a time that no choice is below.
 *
 * Of pages that are live at an instant, those beyond the device's must be on the host. They went there
 * between the earliest forward among them and that instant, and come back before the latest of their
 * backwards. Where the link takes longer for them than the main stream, without a stall, for such a
 * window, the rest is exposed; windows that do not overlap add up. (These are the windows in which
 * a schedule by earliest deadline is late: Liu and Layland 1973, Baruah et al. 1990.) */
#include <stdlib.h>

#include "host/base/arith.h"
#include "host/policy/policy.h"

#define NANOSECONDS UINT64_C(1000000000)

static pst_status no_memory(uint64_t num)
{
    (void)PSTI_FAIL(PST_E_NOMEM, "no memory for %llu visits or passes", (unsigned long long)num);
    return PST_E_NOMEM;
}

/* ---- the main stream without copies ---- */

typedef struct main_clock {
    const psti_stage *stage;
    uint64_t *begins; /* [passes] */
    uint32_t *first;  /* [chunks + 1]: into order */
    uint32_t *order;  /* layers of each chunk, from 0 */
} main_clock;

static const pst_times *times_of(const pst_simulated_layer *layer, pst_pass_kind kind)
{
    switch (kind) {
    case PST_PASS_FORWARD:
        return &layer->forward;
    case PST_PASS_BACKWARD:
        return &layer->backward;
    case PST_PASS_BACKWARD_INPUT:
        return &layer->backward_input;
    case PST_PASS_BACKWARD_WEIGHT:
    default:
        return &layer->backward_weight;
    }
}

static uint64_t sum_times(const pst_times *times)
{
    return PSTI_SUM(times->before, times->core, times->after);
}

static void clock_free(main_clock *clock)
{
    psti_free(clock->begins);
    psti_free(clock->first);
    psti_free(clock->order);
}

static pst_status clock_make(main_clock *clock, const psti_stage *stage)
{
    const pst_schedule *schedule = stage->schedule;
    const pst_simulated_layer *layers = stage->layers[0];
    *clock = (main_clock){.stage = stage};
    clock->begins = psti_calloc((size_t)schedule->num_passes + 1, sizeof(uint64_t));
    clock->first = psti_calloc(schedule->num_chunks + 1u, sizeof(uint32_t));
    clock->order = psti_calloc(stage->num_layers + 1u, sizeof(uint32_t));
    if (!clock->begins || !clock->first || !clock->order) {
        clock_free(clock);
        return no_memory(schedule->num_passes);
    }
    for (uint32_t i = 0; i < stage->num_layers; i++)
        clock->first[layers[i].chunk + 1]++;
    for (uint32_t c = 0; c < schedule->num_chunks; c++)
        clock->first[c + 1] += clock->first[c];
    for (uint32_t i = 0; i < stage->num_layers; i++)
        clock->order[clock->first[layers[i].chunk] + layers[i].layer] = i;
    uint64_t now = 0;
    for (uint64_t p = 0; p < schedule->num_passes; p++) {
        const pst_pass *pass = &schedule->passes[p];
        clock->begins[p] = now;
        for (uint32_t l = clock->first[pass->chunk]; l < clock->first[pass->chunk + 1]; l++)
            now = psti_plus(now, sum_times(times_of(&layers[clock->order[l]], pass->kind)));
    }
    return PST_OK;
}

/* From the begin of a pass to the begin hook of a layer of it. */
static uint64_t until_hook(const main_clock *clock, const pst_pass *pass, uint32_t layer)
{
    const pst_simulated_layer *layers = clock->stage->layers[0];
    const uint32_t first = clock->first[pass->chunk], end = clock->first[pass->chunk + 1];
    const bool is_forward = pass->kind == PST_PASS_FORWARD;
    uint64_t sum = times_of(&layers[clock->order[first + layer]], pass->kind)->before;
    for (uint32_t l = is_forward ? first : first + layer + 1;
         l < (is_forward ? first + layer : end); l++)
        sum = psti_plus(sum, sum_times(times_of(&layers[clock->order[l]], pass->kind)));
    return sum;
}

/* What a visit keeps is there from its forward's end hook to its first backward's begin hook. */
static void life_of(const main_clock *clock, const psti_life *life, uint32_t i, uint64_t *from,
                    uint64_t *to)
{
    const pst_schedule *schedule = clock->stage->schedule;
    const pst_simulated_layer *layer = &clock->stage->layers[0][i];
    const pst_pass *forward = &schedule->passes[life->forward];
    const pst_pass *backward = &schedule->passes[life->first_backward];
    *from = PSTI_SUM(clock->begins[life->forward], until_hook(clock, forward, layer->layer),
                     layer->forward.core);
    *to = psti_plus(clock->begins[life->first_backward], until_hook(clock, backward, layer->layer));
}

pst_status psti_bound_lifetimes(psti_stage *stage)
{
    main_clock clock;
    stage->num_visits = 0;
    PSTI_TRY(clock_make(&clock, stage));
    for (uint64_t p = 0; p < stage->schedule->num_passes; p++) {
        const uint32_t chunk = stage->schedule->passes[p].chunk;
        stage->num_visits += clock.first[chunk + 1] - clock.first[chunk];
    }
    for (uint32_t i = 0; i < stage->num_layers; i++) {
        const psti_schedule_chunk *chunk = &stage->schedule->chunks[stage->layers[0][i].chunk];
        stage->places[i].lifetime_ns = UINT64_MAX;
        for (uint32_t m = 0; m < chunk->num_micro_batches; m++) {
            uint64_t from = 0, to = 0;
            if (stage->schedule->is_forward_only)
                continue;
            life_of(&clock, &chunk->lives[m], i, &from, &to);
            stage->places[i].lifetime_ns = psti_min(stage->places[i].lifetime_ns, to - from);
        }
    }
    clock_free(&clock);
    return PST_OK;
}

/* ---- the bound ---- */

typedef struct held {
    uint64_t from, to, bytes; /* of the byte stream */
} held;

/* Live bytes of a byte stream, at least; what crosses the link are these. */
typedef struct live_share {
    uint64_t payload, stream;
} live_share;

/* Main-stream time in which something must cross the link, and what of it is exposed at least. */
typedef struct window {
    uint64_t from, to, exposed;
} window;

static int compare_held(const void *a, const void *b)
{
    const held *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

static int compare_windows(const void *a, const void *b)
{
    const window *x = a, *y = b;
    return (x->to > y->to) - (x->to < y->to);
}

static bool only_paged(const psti_place *place)
{
    for (uint32_t o = 0; o < place->num_options; o++)
        if (place->options[o].keep != PST_KEEP_PAGED)
            return false;
    return true;
}

static void note_share(live_share *least, const pst_group_usage *usage)
{
    if (least->stream == 0 || (psti_wide)usage->payload_bytes * least->stream <
                                  (psti_wide)least->payload * usage->stream_bytes)
        *least = (live_share){usage->payload_bytes, usage->stream_bytes};
}

static uint64_t usage_bytes(const pst_simulated_layer *layer, uint32_t micro_batch,
                            live_share *least)
{
    uint64_t bytes = 0;
    const uint32_t parts = layer->num_parts ? layer->num_parts : 1;
    const uint32_t u = layer->num_usages == 1 ? 0 : micro_batch;
    for (uint32_t part = 0; part < parts; part++) {
        const pst_group_usage *usage = &layer->usages[(uint64_t)part * layer->num_usages + u];
        bytes = psti_plus(bytes, usage->stream_bytes);
        if (usage->stream_bytes > 0)
            note_share(least, usage);
    }
    return bytes;
}

/* All that layers keep which cannot be anything but paged. */
static uint64_t list_held(const psti_stage *stage, const main_clock *clock, held *list,
                          live_share *least)
{
    uint64_t num = 0;
    for (uint32_t i = 0; i < stage->num_layers; i++) {
        const pst_simulated_layer *layer = &stage->layers[0][i];
        const psti_schedule_chunk *chunk = &stage->schedule->chunks[layer->chunk];
        for (uint32_t m = 0; only_paged(&stage->places[i]) && m < chunk->num_micro_batches; m++) {
            held *of = &list[num++];
            life_of(clock, &chunk->lives[m], i, &of->from, &of->to);
            of->bytes = usage_bytes(layer, m, least);
        }
    }
    qsort(list, num, sizeof(*list), compare_held);
    return num;
}

/* What device pages hold, and what can be in sets instead: more than any choice has. */
static uint64_t most_device_bytes(const psti_problem *problem, const psti_stage *stage,
                                  uint64_t most_bytes)
{
    const pst_policy_config *config = &problem->config;
    uint64_t fixed = psti_plus(stage->static_bytes, config->reserve_bytes);
    for (uint32_t i = 0; i < stage->num_layers; i++)
        if (stage->places[i].num_options > 1)
            fixed -= stage->places[i].allowed.planned_bytes;
    uint64_t bytes = psti_times(problem->simulation.num_pages[0], problem->page_bytes);
    if (config->gpu_bytes != PST_POLICY_UNLIMITED)
        bytes = psti_min(bytes, config->gpu_bytes > fixed ? config->gpu_bytes - fixed : 0);
    psti_form forms[PSTI_MAX_FORMS];
    const uint32_t num_forms = psti_forms_list(problem, forms);
    uint64_t sets = 0;
    for (uint32_t f = 0; f < num_forms; f++) {
        const uint64_t num = (uint64_t)forms[f].num_sources + forms[f].num_destinations;
        sets = num > sets ? num : sets;
    }
    return psti_plus(bytes, psti_times(sets, most_bytes));
}

static void add_window(window *windows, uint64_t *num, uint64_t from, uint64_t to, uint64_t bytes,
                       uint64_t rate)
{
    if (rate == 0)
        return;
    const uint64_t takes = psti_saturate((psti_wide)bytes * NANOSECONDS / rate);
    if (takes > to - from)
        windows[(*num)++] = (window){.from = from, .to = to, .exposed = takes - (to - from)};
}

/* At each end of a forward: what is live, since when, until when. */
static uint64_t list_windows(const psti_problem *problem, const held *list, uint64_t num,
                             uint64_t device_bytes, live_share least, window *windows)
{
    uint64_t num_windows = 0, oldest = 0;
    for (uint64_t n = 0; n < num; n++) {
        const uint64_t now = list[n].from;
        uint64_t bytes = 0, from = now, to = now;
        while (oldest < n && list[oldest].to <= now)
            oldest++;
        for (uint64_t k = oldest; k <= n; k++) {
            if (list[k].to <= now)
                continue;
            bytes = psti_plus(bytes, list[k].bytes);
            from = psti_min(from, list[k].from);
            to = list[k].to > to ? list[k].to : to;
        }
        if (bytes <= device_bytes || bytes == PSTI_TOO_MUCH)
            continue;
        const uint64_t live =
            psti_saturate((psti_wide)(bytes - device_bytes) * least.payload / least.stream);
        const uint64_t sure = live > n ? live - n : 0; /* a byte of each is rounded off */
        add_window(windows, &num_windows, from, now, sure, problem->simulation.rates.out_rate);
        add_window(windows, &num_windows, now, to, sure, problem->simulation.rates.in_rate);
    }
    return num_windows;
}

/* The most that windows which do not overlap expose. best: [num + 1]. */
static uint64_t sum_windows(window *windows, uint64_t num, uint64_t *best)
{
    qsort(windows, num, sizeof(*windows), compare_windows);
    best[0] = 0;
    for (uint64_t n = 0; n < num; n++) {
        uint64_t low = 0, high = n; /* windows [0, low) end before this one begins */
        while (low < high) {
            const uint64_t middle = (low + high) / 2;
            if (windows[middle].to <= windows[n].from)
                low = middle + 1;
            else
                high = middle;
        }
        const uint64_t with = psti_plus(best[low], windows[n].exposed);
        best[n + 1] = with > best[n] ? with : best[n];
    }
    return best[num];
}

typedef struct room {
    held *list;
    window *windows;
    uint64_t *best;
} room;

static pst_status sum_stage(const psti_problem *problem, const psti_stage *stage, const room *in,
                            uint64_t *bound_out)
{
    main_clock clock;
    live_share least = {0};
    uint64_t most_bytes = 0;
    PSTI_TRY(clock_make(&clock, stage));
    const uint64_t num = list_held(stage, &clock, in->list, &least);
    clock_free(&clock);
    for (uint64_t n = 0; n < num; n++)
        most_bytes = in->list[n].bytes > most_bytes ? in->list[n].bytes : most_bytes;
    const uint64_t device = most_device_bytes(problem, stage, most_bytes);
    const uint64_t num_windows =
        least.stream ? list_windows(problem, in->list, num, device, least, in->windows) : 0;
    *bound_out = sum_windows(in->windows, num_windows, in->best);
    return PST_OK;
}

static pst_status bound_stage(const psti_problem *problem, const psti_stage *stage,
                              uint64_t *bound_out)
{
    const uint64_t most = psti_plus(stage->num_visits, 1);
    room all = {
        .list = psti_calloc((size_t)most, sizeof(held)),
        .windows = psti_calloc((size_t)most * 2, sizeof(window)),
        .best = psti_calloc((size_t)most * 2 + 1, sizeof(uint64_t)),
    };
    const bool has_room = all.list && all.windows && all.best;
    const pst_status status =
        has_room ? sum_stage(problem, stage, &all, bound_out) : no_memory(most);
    psti_free(all.best);
    psti_free(all.windows);
    psti_free(all.list);
    return status;
}

pst_status psti_bound_exposed(psti_problem *problem, uint64_t *bound_out)
{
    *bound_out = 0;
    const pst_simulation_config *simulation = &problem->simulation;
    /* Waits for other stages, and slower work beside a copy, make windows longer without exposing
     * anything; steps that follow each other share windows. */
    if ((problem->num_stages > 1 && !simulation->alone) || simulation->interference_per_mille > 0 ||
        simulation->steps > 1)
        return PST_OK;
    for (uint32_t s = 0; s < problem->num_stages; s++) {
        uint64_t bound = 0;
        if (problem->stages[s].schedule->is_forward_only)
            continue;
        PSTI_TRY(bound_stage(problem, &problem->stages[s], &bound));
        *bound_out = bound > *bound_out ? bound : *bound_out;
    }
    return PST_OK;
}
