/* DualPipe and DualPipeV: eight phases, in which forwards and backwards start in pairs. */
#include "host/schedule/schedule.h"

typedef struct dual {
    psti_pass_list *list;
    uint32_t chunk[2];                  /* the one that goes first on this rank, and the other */
    uint32_t forwards[2], backwards[2]; /* so far, in the same order */
    uint64_t input;                     /* where to look for the oldest backward of an input */
} dual;

/* Ranks on one side of the middle. */
static uint64_t half_of(const pst_schedule_config *config)
{
    return config->kind == PST_SCHEDULE_DUALPIPE ? config->num_stages / 2 : config->num_stages;
}

/* Ranks between this one and its end of the pipeline. */
static uint64_t outer_of(const pst_schedule_config *config)
{
    const uint32_t last = config->num_stages - 1, r = config->stage;
    return config->kind == PST_SCHEDULE_DUALPIPE && last - r < r ? last - r : r;
}

static uint64_t per_chunk(const pst_schedule_config *config)
{
    return config->num_micro_batches / (config->kind == PST_SCHEDULE_DUALPIPE ? 2u : 1u);
}

static void forward(dual *self, int which)
{
    psti_pass_put(self->list, PST_PASS_FORWARD, self->chunk[which], self->forwards[which]++);
}

static void backward(dual *self, int which, bool is_split)
{
    psti_pass_put(self->list, is_split ? PST_PASS_BACKWARD_INPUT : PST_PASS_BACKWARD,
                  self->chunk[which], self->backwards[which]++);
}

/* Of the oldest input backward. */
static void weight(dual *self)
{
    const pst_pass *passes = self->list->passes;
    while (passes[self->input].kind != PST_PASS_BACKWARD_INPUT)
        self->input++;
    const pst_pass *input = &passes[self->input++];
    psti_pass_put(self->list, PST_PASS_BACKWARD_WEIGHT, input->chunk, input->micro_batch);
}

/* A forward of one and a backward of the other. */
static void both(dual *self, int forwards, bool pairs)
{
    forward(self, forwards);
    self->list->passes[self->list->num - 1].pairs = pairs;
    backward(self, 1 - forwards, false);
}

/* Phase 6: from the middle on, the weights are left for later. */
static void drain(dual *self, uint64_t num)
{
    for (uint64_t i = 0; i < num; i++) {
        const bool is_late = i > num / 2;
        backward(self, 1, is_late || (i == num / 2 && num % 2 == 0));
        backward(self, 0, is_late || i == num / 2);
    }
}

/* pre: room for the whole list. */
void psti_schedule_dualpipe(const pst_schedule_config *config, psti_pass_list *list)
{
    const uint64_t half = half_of(config), outer = outer_of(config), inner = half - outer - 1;
    const bool is_back = config->kind == PST_SCHEDULE_DUALPIPE && config->stage >= half;
    dual self = {.list = list, .chunk = {is_back, !is_back}, .input = list->num};
    for (uint64_t i = 0; i < 2 * inner; i++)
        forward(&self, 0);
    for (uint64_t i = 0; i <= outer; i++) {
        forward(&self, 0);
        forward(&self, 1);
    }
    for (uint64_t i = 0; i < inner; i++) {
        backward(&self, 1, true);
        weight(&self);
        forward(&self, 1);
    }
    for (uint64_t i = 0; i < per_chunk(config) - 2 * half + outer + 1; i++) {
        both(&self, 0, i > 0 || inner > 0); /* in the middle the first two follow each other */
        both(&self, 1, true);
    }
    for (uint64_t i = 0; i < inner; i++) {
        backward(&self, 1, false);
        both(&self, 1, true);
    }
    drain(&self, outer + 1);
    for (uint64_t i = 0; i < inner; i++) {
        weight(&self);
        backward(&self, 0, true);
    }
    for (uint64_t i = 0; i <= outer; i++)
        weight(&self);
}

uint64_t psti_schedule_dualpipe_count(const pst_schedule_config *config)
{
    return 4 * per_chunk(config) + 2 * half_of(config) - outer_of(config) - 1;
}
