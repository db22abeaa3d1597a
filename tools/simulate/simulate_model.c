/* From a plain description to the arrays of pst_simulate: schedules, layers, pages. */
#include "tools/simulate/simulate.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int no_memory(const char *what)
{
    return tool_fail(TOOL_NO, "out of memory for the %s of the simulation", what);
}

/* ---- schedules ---- */

static int make_schedule(const simulate_input *input, simulate_stage *stage)
{
    pst_schedule_config config = input->schedule;
    config.stage = stage->rank;
    if (config.kind == PST_SCHEDULE_LIST)
        TOOL_TRY(tool_file_status(
            psti_schedule_of_rank(input->lists, input->lists_name, stage->rank, &stage->schedule)));
    else
        TOOL_PST(pst_schedule_create(&config, &stage->schedule));
    return tool_status(pst_schedule_get_info(stage->schedule, &stage->info));
}

/* How many micro-batches each chunk has, and its slots. */
static int make_chunks(simulate_stage *stage)
{
    stage->num_chunks = stage->info.config.num_chunks;
    stage->chunks = calloc(stage->num_chunks, sizeof(*stage->chunks));
    if (stage->chunks == NULL)
        return no_memory("chunks");
    for (uint64_t n = 0; n < stage->info.num_passes; n++) {
        pst_pass pass;
        TOOL_PST(pst_schedule_get_pass(stage->schedule, n, &pass));
        simulate_chunk *chunk = &stage->chunks[pass.chunk];
        if (pass.micro_batch >= chunk->num_micro_batches)
            chunk->num_micro_batches = pass.micro_batch + 1;
    }
    for (uint32_t c = 0; c < stage->num_chunks; c++) {
        simulate_chunk *chunk = &stage->chunks[c];
        TOOL_PST(pst_schedule_get_slots(stage->schedule, c, &chunk->num_slots));
        chunk->has_weight = calloc((size_t)chunk->num_micro_batches + 1, sizeof(bool));
        if (chunk->has_weight == NULL)
            return no_memory("chunks");
    }
    for (uint64_t n = 0; n < stage->info.num_passes && stage->info.splits_backward; n++) {
        pst_pass pass;
        TOOL_PST(pst_schedule_get_pass(stage->schedule, n, &pass));
        if (pass.kind == PST_PASS_BACKWARD_WEIGHT)
            stage->chunks[pass.chunk].has_weight[pass.micro_batch] = true;
    }
    return TOOL_OK;
}

bool simulate_keeps(const simulate_stage *stage, const pst_visit_key *visit)
{
    return visit->kind == PST_PASS_BACKWARD_INPUT &&
           stage->chunks[visit->chunk].has_weight[visit->micro_batch];
}

/* ---- layers ---- */

pst_chunk_order simulate_chunk_order(const simulate_input *input)
{
    const pst_schedule_kind kind = input->schedule.kind;
    if (input->config.chunk_order != PST_CHUNKS_OF_KIND)
        return input->config.chunk_order;
    if (kind == PST_SCHEDULE_ZB_V || kind == PST_SCHEDULE_DUALPIPE_V)
        return PST_CHUNKS_V;
    return kind == PST_SCHEDULE_DUALPIPE ? PST_CHUNKS_DIRECTIONS : PST_CHUNKS_LOOPED;
}

/* Which virtual stage of its pipeline a chunk of a rank is. */
static uint32_t virtual_stage_of(const simulate_model *model, uint32_t rank, uint32_t chunk)
{
    const uint32_t num_stages = model->input->schedule.num_stages;
    const bool is_back = model->order != PST_CHUNKS_LOOPED && chunk % 2 == 1;
    const uint32_t base = model->order == PST_CHUNKS_DIRECTIONS ? 0 : chunk * num_stages;
    return base + (is_back ? num_stages - 1 - rank : rank);
}

static uint32_t layers_of(const simulate_model *model, uint32_t virtual_stage, uint32_t chunk)
{
    const simulate_input *input = model->input;
    const uint32_t num = model->num_virtual_stages;
    if (input->virtual_layers != NULL)
        return (uint32_t)input->virtual_layers[virtual_stage];
    if (input->num_chunk_layers == 1)
        return input->chunk_layers[0];
    if (input->num_chunk_layers == 0)
        return input->model_layers / num + (virtual_stage < input->model_layers % num);
    if (model->order == PST_CHUNKS_DIRECTIONS)
        return input->chunk_layers[chunk];
    return input->chunk_layers[virtual_stage / input->schedule.num_stages];
}

/* A pipeline can have many virtual stages: no sum over them. */
static uint64_t layers_before(const simulate_model *model, uint32_t virtual_stage, uint32_t chunk)
{
    const simulate_input *input = model->input;
    const uint32_t num_stages = input->schedule.num_stages;
    uint64_t sum = 0;
    if (input->virtual_layers != NULL) { /* of a launch line, which has few */
        for (uint32_t s = 0; s < virtual_stage; s++)
            sum += input->virtual_layers[s];
        return sum;
    }
    if (input->num_chunk_layers == 0) {
        const uint32_t more = input->model_layers % model->num_virtual_stages;
        return (uint64_t)virtual_stage * (input->model_layers / model->num_virtual_stages) +
               (virtual_stage < more ? virtual_stage : more);
    }
    if (input->num_chunk_layers == 1 || model->order == PST_CHUNKS_DIRECTIONS)
        return (uint64_t)virtual_stage * layers_of(model, 0, chunk);
    for (uint32_t s = 0; s < virtual_stage; s += num_stages) {
        const uint32_t left = virtual_stage - s;
        sum += (uint64_t)layers_of(model, s, chunk) * (left < num_stages ? left : num_stages);
    }
    return sum;
}

static bool is_paged(const simulate_input *input, uint64_t model_layer)
{
    const flag_range *moe = &input->moe_layers;
    if (input->has_no_moe)
        return false;
    if (input->moe_before != NULL)
        return input->moe_before[model_layer + 1] > input->moe_before[model_layer];
    return moe->end == 0 || (model_layer >= moe->begin && model_layer < moe->end);
}

static pst_times sum_of(const pst_times *a, const pst_times *b)
{
    return (pst_times){a->before + b->before, a->core + b->core, a->after + b->after};
}

static int set_times(const simulate_input *input, const simulate_visit *visit,
                     pst_simulated_layer *layer)
{
    simulate_times times = input->times;
    if (input->get_times != NULL)
        TOOL_TRY(input->get_times(input->times_user, visit, &times));
    layer->forward = times.forward;
    layer->backward = sum_of(&times.backward, &times.weight);
    layer->backward_input = times.backward;
    layer->backward_weight = times.weight;
    layer->recompute_ns = times.recompute_ns;
    return TOOL_OK;
}

static bool is_of(const simulate_offload *offload, const pst_simulated_layer *layer)
{
    return (offload->chunk == SIMULATE_ALL || offload->chunk == layer->chunk) &&
           offload->layer == layer->layer;
}

static int make_layer(const simulate_model *model, const simulate_stage *stage, uint32_t chunk,
                      uint32_t number, pst_simulated_layer *layer)
{
    const simulate_input *input = model->input;
    const uint64_t model_layer = stage->chunks[chunk].model_layer + number;
    const simulate_visit visit = {
        .rank = stage->rank, .chunk = chunk, .layer = number, .model_layer = model_layer};
    *layer = (pst_simulated_layer)PST_SIMULATED_LAYER_INIT;
    layer->chunk = chunk;
    layer->layer = number;
    layer->keep = is_paged(input, model_layer) ? PST_KEEP_PAGED : PST_KEEP_PLANNED;
    if (layer->keep == PST_KEEP_PAGED)
        layer->num_parts = 1;
    for (uint32_t i = 0; i < input->num_offloads && layer->keep == PST_KEEP_PAGED; i++) {
        const simulate_offload *offload = &input->offloads[i];
        if (!is_of(offload, layer))
            continue;
        layer->policy.host_num = offload->share.num;
        layer->policy.host_den = offload->share.den;
        layer->policy.move = input->move;
    }
    return set_times(input, &visit, layer);
}

static int place_chunks(const simulate_model *model, simulate_stage *stage)
{
    uint64_t num_layers = 0;
    for (uint32_t c = 0; c < stage->num_chunks; c++) {
        simulate_chunk *chunk = &stage->chunks[c];
        const uint32_t virtual_stage = virtual_stage_of(model, stage->rank, c);
        chunk->first = (uint32_t)num_layers;
        chunk->num_layers = layers_of(model, virtual_stage, c);
        chunk->model_layer = layers_before(model, virtual_stage, c);
        num_layers += chunk->num_layers;
    }
    if (num_layers > SIMULATE_MAX_LAYERS)
        return tool_fail(TOOL_USAGE, "rank %" PRIu32 ": %" PRIu64 " layers: allowed are at most %u",
                         stage->rank, num_layers, SIMULATE_MAX_LAYERS);
    stage->num_layers = (uint32_t)num_layers;
    return TOOL_OK;
}

/* Before anything is made that has as many. */
static int count_visits(simulate_stage *stage)
{
    for (uint64_t n = 0; n < stage->info.num_passes; n++) {
        pst_pass pass;
        TOOL_PST(pst_schedule_get_pass(stage->schedule, n, &pass));
        stage->num_visits += stage->chunks[pass.chunk].num_layers;
    }
    if (stage->num_visits > SIMULATE_MOST_VISITS)
        return tool_fail(TOOL_USAGE, "rank %" PRIu32 ": %" PRIu64 " visits: allowed are at most %u",
                         stage->rank, (uint64_t)stage->num_visits, SIMULATE_MOST_VISITS);
    return TOOL_OK;
}

static int make_layers(const simulate_model *model, simulate_stage *stage)
{
    TOOL_TRY(place_chunks(model, stage));
    TOOL_TRY(count_visits(stage));
    stage->num_usages = model->input->is_uniform ? 1 : stage->info.config.num_micro_batches;
    stage->layers = calloc((size_t)stage->num_layers + 1, sizeof(*stage->layers));
    stage->usages =
        calloc((size_t)stage->num_layers * stage->num_usages + 1, sizeof(*stage->usages));
    if (stage->layers == NULL || stage->usages == NULL)
        return no_memory("layers");
    for (uint32_t c = 0; c < stage->num_chunks; c++)
        for (uint32_t l = 0; l < stage->chunks[c].num_layers; l++) {
            const uint32_t i = stage->chunks[c].first + l;
            TOOL_TRY(make_layer(model, stage, c, l, &stage->layers[i]));
            if (stage->layers[i].keep != PST_KEEP_PAGED)
                continue;
            stage->layers[i].usages = stage->usages + (size_t)i * stage->num_usages;
            stage->layers[i].num_usages = stage->num_usages;
        }
    return TOOL_OK;
}

/* ---- the model ---- */

/* All chunks of all stages have layers; what --layers says must fit the chunks. */
static int check_layers(const simulate_model *model, uint32_t num_chunks)
{
    const simulate_input *input = model->input;
    if (input->num_chunk_layers > 1 && input->num_chunk_layers != num_chunks)
        return tool_fail(TOOL_USAGE,
                         "--layers: %" PRIu32 " numbers: allowed is one, or one for each of the "
                         "%" PRIu32 " chunks",
                         input->num_chunk_layers, num_chunks);
    if (input->virtual_layers != NULL && (model->order != PST_CHUNKS_LOOPED ||
                                          input->num_virtual_layers != model->num_virtual_stages))
        return tool_fail(TOOL_USAGE,
                         "--config: says the layers of %" PRIu64 " chunks in a row: the schedule "
                         "has %" PRIu32 "%s: allowed is it with --layers or --model-layers",
                         input->num_virtual_layers, model->num_virtual_stages,
                         model->order == PST_CHUNKS_LOOPED ? "" : " in another order");
    return TOOL_OK;
}

static int count_layers(simulate_model *model, uint32_t num_chunks)
{
    const simulate_input *input = model->input;
    model->order = simulate_chunk_order(input);
    const uint64_t virtual_stages = (uint64_t)input->schedule.num_stages *
                                    (model->order == PST_CHUNKS_DIRECTIONS ? 1 : num_chunks);
    if (virtual_stages == 0 || virtual_stages > UINT32_MAX)
        return tool_fail(TOOL_USAGE,
                         "--stages %" PRIu32 ": with %" PRIu32 " chunks of each these are %" PRIu64
                         " virtual stages: allowed are 1 to %" PRIu32,
                         input->schedule.num_stages, num_chunks, virtual_stages, UINT32_MAX);
    model->num_virtual_stages = (uint32_t)virtual_stages;
    TOOL_TRY(check_layers(model, num_chunks));
    model->num_model_layers = layers_before(model, model->num_virtual_stages, 0);
    if (model->num_model_layers == 0)
        return tool_fail(TOOL_USAGE, "--layers 0: the model has no layer: allowed is at least one");
    if (input->moe_before != NULL && input->num_moe_before != model->num_model_layers)
        return tool_fail(TOOL_USAGE,
                         "--config: says of %" PRIu64 " layers which have experts: the model has "
                         "%" PRIu64 ": allowed is it with --moe-layers",
                         input->num_moe_before, model->num_model_layers);
    if (input->moe_layers.end > model->num_model_layers)
        return tool_fail(TOOL_USAGE,
                         "--moe-layers %" PRIu64 ":%" PRIu64
                         ": allowed is a range within 0:%" PRIu64 ", the layers of the model",
                         input->moe_layers.begin, input->moe_layers.end, model->num_model_layers);
    return TOOL_OK;
}

static int check_steps(const simulate_model *model)
{
    const uint32_t steps = model->input->config.steps;
    uint64_t num_visits = 0;
    for (uint32_t i = 0; i < model->num_stages; i++)
        num_visits += model->stages[i].num_visits;
    if (steps > 1 && num_visits * steps > SIMULATE_MOST_PLAYED)
        return tool_fail(TOOL_USAGE,
                         "--num-steps %" PRIu32 ": %" PRIu64 " visits in each: allowed are at most "
                         "%u in all",
                         steps, num_visits, SIMULATE_MOST_PLAYED);
    return TOOL_OK;
}

/* Each share is of a layer that there is. */
static int check_offloads(const simulate_model *model)
{
    const simulate_input *input = model->input;
    for (uint32_t i = 0; i < input->num_offloads; i++) {
        const simulate_offload *offload = &input->offloads[i];
        bool is_used = false;
        for (uint32_t j = 0; j < i; j++)
            if (input->offloads[j].layer == offload->layer &&
                input->offloads[j].chunk == offload->chunk)
                return tool_fail(TOOL_USAGE,
                                 "--offload: layer %" PRIu32 " stands there twice: allowed is one "
                                 "share for a layer",
                                 offload->layer);
        for (uint32_t s = 0; s < model->num_stages; s++)
            for (uint32_t l = 0; l < model->stages[s].num_layers; l++) {
                const pst_simulated_layer *layer = &model->stages[s].layers[l];
                is_used = is_used || (layer->keep == PST_KEEP_PAGED && is_of(offload, layer));
            }
        if (!is_used && offload->chunk != SIMULATE_ALL)
            return tool_fail(TOOL_USAGE,
                             "--offload: there is no chunk %" PRIu32 " with a layer %" PRIu32
                             " that is paged: allowed is a share of one that is",
                             offload->chunk, offload->layer);
        if (!is_used)
            return tool_fail(TOOL_USAGE,
                             "--offload: no chunk has a layer %" PRIu32
                             " that is paged: allowed is a share of one that is",
                             offload->layer);
    }
    return TOOL_OK;
}

static int make_stages(simulate_model *model)
{
    const simulate_input *input = model->input;
    uint32_t num_chunks = 0;
    for (uint32_t i = 0; i < model->num_stages; i++) {
        simulate_stage *stage = &model->stages[i];
        stage->rank = input->rank == SIMULATE_ALL ? i : input->rank;
        TOOL_TRY(make_schedule(input, stage));
        TOOL_TRY(make_chunks(stage));
        num_chunks = stage->num_chunks > num_chunks ? stage->num_chunks : num_chunks;
        model->schedules[i] = stage->schedule;
    }
    TOOL_TRY(count_layers(model, num_chunks));
    for (uint32_t i = 0; i < model->num_stages; i++) {
        TOOL_TRY(make_layers(model, &model->stages[i]));
        model->layers[i] = model->stages[i].layers;
        model->num_layers[i] = model->stages[i].num_layers;
    }
    TOOL_TRY(check_steps(model));
    return check_offloads(model);
}

int simulate_model_make(const simulate_input *input, simulate_model *model_out)
{
    const bool is_alone = input->rank != SIMULATE_ALL;
    const uint32_t num = is_alone ? 1 : input->schedule.num_stages;
    *model_out = (simulate_model){.input = input, .config = input->config, .num_stages = num};
    model_out->stages = calloc(num, sizeof(*model_out->stages));
    model_out->schedules = calloc(num, sizeof(const pst_schedule *));
    model_out->layers = calloc(num, sizeof(const pst_simulated_layer *));
    model_out->num_layers = calloc(num, sizeof(*model_out->num_layers));
    if (model_out->stages == NULL || model_out->schedules == NULL || model_out->layers == NULL ||
        model_out->num_layers == NULL)
        return no_memory("stages");
    TOOL_TRY(make_stages(model_out));
    model_out->config.num_stages = num;
    model_out->config.alone = is_alone;
    model_out->config.schedules = model_out->schedules;
    model_out->config.layers = model_out->layers;
    model_out->config.num_layers = model_out->num_layers;
    return TOOL_OK;
}

void simulate_model_free(simulate_model *model)
{
    for (uint32_t i = 0; model->stages != NULL && i < model->num_stages; i++) {
        simulate_stage *stage = &model->stages[i];
        pst_schedule_destroy(stage->schedule);
        for (uint32_t c = 0; stage->chunks != NULL && c < stage->num_chunks; c++)
            free(stage->chunks[c].has_weight);
        free(stage->chunks);
        free(stage->layers);
        free(stage->usages);
    }
    free(model->stages);
    free((void *)model->schedules);
    free((void *)model->layers);
    free(model->num_layers);
    *model = (simulate_model){.num_stages = 0};
}

/* ---- pages ---- */

simulate_visit simulate_make_visit(const simulate_model *model, const simulate_stage *stage,
                                   uint32_t chunk, uint32_t layer, uint32_t micro_batch)
{
    const flag_range *moe = &model->input->moe_layers;
    const uint32_t *moe_before = model->input->moe_before;
    const uint64_t model_layer = stage->chunks[chunk].model_layer + layer;
    uint32_t before = 0;
    for (uint32_t c = 0; c < chunk && model->order == PST_CHUNKS_DIRECTIONS; c++)
        before += stage->chunks[c].num_micro_batches;
    return (simulate_visit){
        .rank = stage->rank,
        .chunk = chunk,
        .layer = layer,
        .moe_layer = moe_before != NULL
                         ? moe_before[model_layer]
                         : (uint32_t)(moe->end == 0 ? model_layer : model_layer - moe->begin),
        .micro_batch = micro_batch,
        .model_micro_batch = before + micro_batch,
    };
}

/* A demote moves the share of the layer's largest stash. */
static void set_demote_pages(pst_simulated_layer *layer, uint64_t most)
{
    const pst_layer_policy *policy = &layer->policy;
    if (policy->move != PST_MOVE_DEMOTE || policy->host_num == policy->host_den)
        return; /* all of its pages */
    const uint64_t share = policy->host_den == 0 ? 0 : most * policy->host_num / policy->host_den;
    layer->max_demote_pages = share == 0 ? 1 : share;
}

static int fill_layer(const simulate_model *model, const simulate_stage *stage, uint64_t iteration,
                      uint32_t chunk, uint32_t number)
{
    const simulate_input *input = model->input;
    const simulate_chunk *place = &stage->chunks[chunk];
    pst_group_usage *usages = stage->usages + (size_t)(place->first + number) * stage->num_usages;
    const uint32_t num = input->is_uniform ? 1 : place->num_micro_batches;
    uint64_t most = 0;
    for (uint32_t m = 0; m < num; m++) {
        const simulate_visit visit = simulate_make_visit(model, stage, chunk, number, m);
        TOOL_TRY(input->get_usage(input->usage_user, iteration, &visit, &usages[m]));
        most = usages[m].pages > most ? usages[m].pages : most;
    }
    set_demote_pages(&stage->layers[place->first + number], most);
    return TOOL_OK;
}

int simulate_model_fill(simulate_model *model, uint64_t iteration)
{
    if (model->input->get_usage == NULL)
        return TOOL_OK;
    for (uint32_t i = 0; i < model->num_stages; i++) {
        const simulate_stage *stage = &model->stages[i];
        for (uint32_t c = 0; c < stage->num_chunks; c++)
            for (uint32_t l = 0; l < stage->chunks[c].num_layers; l++)
                if (stage->layers[stage->chunks[c].first + l].keep == PST_KEEP_PAGED)
                    TOOL_TRY(fill_layer(model, stage, iteration, c, l));
    }
    return TOOL_OK;
}
