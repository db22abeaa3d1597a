/* The timeline of a simulation as one HTML page. */
#include "simulate_view.h" /* made by CMake of simulate_view.html and simulate_view.js */
#include "tools/common/picture.h"
#include "tools/simulate/simulate_picture.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct writer {
    const simulate_job *job;
    const simulate_model *model;
    FILE *file;
    uint64_t *num_visits; /* [stages]: begun so far */
    pst_visit_key *last;  /* [stages]: the visit begun last */
    uint64_t quota;       /* visits of a stage at its begin, and as many at its end */
    uint64_t num_events;
    bool leaves_out;
} writer;

/* Work comes in parts where a stall is between them. */
static void count_visit(writer *self, const pst_simulated_event *event)
{
    pst_visit_key *last = &self->last[event->stage];
    const bool is_same =
        self->num_visits[event->stage] > 0 && simulate_is_same_visit(last, &event->visit);
    self->num_visits[event->stage] += !is_same;
    *last = event->visit;
}

static bool is_shown(writer *self, const pst_simulated_event *event)
{
    const uint64_t all = self->model->stages[event->stage].num_visits;
    if (event->kind == PST_SIMULATED_WORK)
        count_visit(self, event);
    const uint64_t num = self->num_visits[event->stage];
    return !self->leaves_out || num <= self->quota || num + self->quota > all;
}

/* Thirteen numbers: stage, lane, kind, pass, chunk, layer, micro-batch, begin, end, pages, in use. */
static void put_event(void *user, const pst_simulated_event *event)
{
    writer *self = user;
    const uint64_t kind = (uint64_t)event->kind + (event->fault != PST_FAULT_NONE ? 100 : 0);
    const uint64_t numbers[] = {event->stage,
                                simulate_lane(event),
                                kind,
                                event->visit.kind,
                                event->visit.chunk,
                                event->visit.layer,
                                event->visit.micro_batch,
                                event->begin_ns,
                                event->end_ns,
                                event->pages[0],
                                event->pages[1],
                                event->in_use[0],
                                event->in_use[1]};
    if (!is_shown(self, event))
        return;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (self->num_events > 0 || i > 0)
            fputc(i == 0 ? '\n' : ',', self->file);
        if (self->num_events > 0 && i == 0)
            fputc(',', self->file);
        picture_put_number(self->file, numbers[i]);
    }
    self->num_events++;
}

static void put_ranks(const writer *self)
{
    fputs(",\"ranks\":[", self->file);
    for (uint32_t s = 0; s < self->model->num_stages; s++)
        fprintf(self->file, "%s%" PRIu32, s > 0 ? "," : "", self->model->stages[s].rank);
    fputs("],\"lanes\":[", self->file);
    for (int lane = 0; lane < SIMULATE_NUM_LANES; lane++)
        fprintf(self->file, "%s\"%s\"", lane > 0 ? "," : "", simulate_lane_names[lane]);
    fputs("]", self->file);
}

static uint64_t shown_pages(uint64_t pages)
{
    return pages == SIMULATE_AUTO ? 0 : pages; /* 0: as many as it takes */
}

static int put_data(FILE *file, const void *drawn)
{
    writer self = *(const writer *)drawn;
    uint64_t all = 0;
    self.file = file;
    for (uint32_t s = 0; s < self.model->num_stages; s++)
        all += self.model->stages[s].num_visits;
    self.leaves_out = all > SIMULATE_MAX_VISITS;
    self.quota = SIMULATE_MAX_VISITS / self.model->num_stages / 2;
    fputs("{\"title\":", file);
    picture_put_text(file, self.job->options->schedule);
    picture_put_field(file, "visits", all);
    picture_put_field(file, "shown", self.leaves_out ? self.quota : 0);
    picture_put_field(file, "pages", shown_pages(self.model->config.num_pages[0]));
    picture_put_field(file, "host_pages", shown_pages(self.model->config.num_pages[1]));
    put_ranks(&self);
    fputs(",\n\"events\":[", file);
    TOOL_TRY(simulate_watch(self.model, put_event, &self));
    fputs("]}", file);
    return TOOL_OK;
}

int simulate_write_html(const simulate_job *job, const simulate_model *model, FILE *file)
{
    const picture_page page = {simulate_view_html, simulate_view_js, put_data};
    writer self = {.job = job, .model = model};
    self.num_visits = calloc(model->num_stages, sizeof(*self.num_visits));
    self.last = calloc(model->num_stages, sizeof(*self.last));
    int code = TOOL_OK;
    if (self.num_visits == NULL || self.last == NULL)
        code = tool_fail(TOOL_NO, "out of memory for the page of %u ranks", model->num_stages);
    else
        code = picture_write(file, &page, &self);
    free(self.num_visits);
    free(self.last);
    return code;
}
