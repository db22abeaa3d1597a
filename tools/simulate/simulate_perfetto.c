/* The timeline of a simulation as a Chrome trace, for Perfetto. */
#include "tools/common/picture.h"
#include "tools/simulate/simulate_picture.h"

#include <inttypes.h>
#include <stdlib.h>

static const char *const passes[] = {"F", "B", "I", "W"};

typedef struct writer {
    const simulate_model *model;
    FILE *file;
    uint64_t **stash_end; /* [stages][layers * most micro-batches]: of the visit's stash */
    uint64_t *most;       /* [stages]: micro-batches of a chunk */
    uint64_t *num_live;   /* [stages]: tickets */
    uint64_t num_flows;
    bool is_first;
} writer;

static void begin(writer *self, const char *phase, uint32_t stage)
{
    fprintf(self->file, "%s\n{\"ph\":\"%s\",\"pid\":%" PRIu32, self->is_first ? "" : ",", phase,
            self->model->stages[stage].rank);
    self->is_first = false;
}

/* In microseconds, exactly. */
static void put_time(FILE *file, const char *name, uint64_t ns)
{
    fprintf(file, ",\"%s\":%" PRIu64 ".%03" PRIu64, name, ns / 1000, ns % 1000);
}

static void put_counter(writer *self, const pst_simulated_event *event, const char *name,
                        const char *key, uint64_t at, uint64_t value)
{
    begin(self, "C", event->stage);
    fprintf(self->file, ",\"name\":\"%s\"", name);
    put_time(self->file, "ts", at);
    fprintf(self->file, ",\"args\":{\"%s\":%" PRIu64 "}}", key, value);
}

static void put_name(FILE *file, const pst_simulated_event *event)
{
    static const char *const names[] = {NULL,      "recompute", "stall",   "bubble",   "stash",
                                        "restore", "demote",    "promote", "swap out", "swap in"};
    const pst_visit_key *visit = &event->visit;
    if (event->kind == PST_SIMULATED_BUBBLE)
        fputs(",\"name\":\"bubble\"", file);
    else if (event->kind == PST_SIMULATED_WORK)
        fprintf(file, ",\"name\":\"%s%" PRIu32 ".%" PRIu32 " layer %" PRIu32 "\"",
                passes[visit->kind], visit->chunk, visit->micro_batch, visit->layer);
    else
        fprintf(file, ",\"name\":\"%s %" PRIu32 ".%" PRIu32 " layer %" PRIu32 "\"",
                names[event->kind], visit->chunk, visit->micro_batch, visit->layer);
}

static void put_slice(writer *self, const pst_simulated_event *event)
{
    const pst_visit_key *visit = &event->visit;
    begin(self, "X", event->stage);
    fprintf(self->file, ",\"tid\":%d", (int)simulate_lane(event));
    put_name(self->file, event);
    put_time(self->file, "ts", event->begin_ns);
    put_time(self->file, "dur", event->end_ns - event->begin_ns);
    fprintf(self->file,
            ",\"args\":{\"chunk\":%" PRIu32 ",\"layer\":%" PRIu32 ",\"micro_batch\":%" PRIu32,
            visit->chunk, visit->layer, visit->micro_batch);
    if (event->kind >= PST_SIMULATED_DO_STASH)
        fprintf(self->file, ",\"pages\":%" PRIu64 ",\"host_pages\":%" PRIu64, event->pages[0],
                event->pages[1]);
    if (event->fault != PST_FAULT_NONE)
        fprintf(self->file, ",\"fault\":\"%s\"", pst_fault_text(event->fault));
    fputs("}}", self->file);
}

/* From the end of a stash to the begin of a restore. */
static void put_flow(writer *self, const pst_simulated_event *event, uint64_t stashed)
{
    const int from = PST_SIMULATED_STASH;
    const uint64_t id = self->num_flows++;
    begin(self, "s", event->stage);
    fprintf(self->file, ",\"cat\":\"pages\",\"name\":\"pages\",\"id\":%" PRIu64 ",\"tid\":%d", id,
            from);
    put_time(self->file, "ts", stashed);
    fputc('}', self->file);
    begin(self, "f", event->stage);
    fprintf(self->file,
            ",\"cat\":\"pages\",\"name\":\"pages\",\"bp\":\"e\",\"id\":%" PRIu64 ",\"tid\":%d", id,
            (int)simulate_lane(event));
    put_time(self->file, "ts", event->begin_ns);
    fputc('}', self->file);
}

static void put_ticket(writer *self, const pst_simulated_event *event)
{
    const simulate_stage *stage = &self->model->stages[event->stage];
    const uint32_t layer = stage->chunks[event->visit.chunk].first + event->visit.layer;
    uint64_t *stashed =
        &self->stash_end[event->stage][layer * self->most[event->stage] + event->visit.micro_batch];
    if (event->kind == PST_SIMULATED_DO_STASH) {
        *stashed = event->begin_ns;
        self->num_live[event->stage]++;
    } else {
        put_flow(self, event, *stashed);
        if (!simulate_keeps(stage, &event->visit))
            self->num_live[event->stage]--;
    }
}

static void on_event(void *user, const pst_simulated_event *event)
{
    writer *self = user;
    put_slice(self, event);
    if (event->kind < PST_SIMULATED_DO_STASH || event->kind > PST_SIMULATED_DO_PROMOTE)
        return;
    const bool is_stash = event->kind == PST_SIMULATED_DO_STASH;
    const uint64_t at = is_stash ? event->begin_ns : event->end_ns;
    put_counter(self, event, "pages in use", "device", at, event->in_use[0]);
    put_counter(self, event, "host pages in use", "host", at, event->in_use[1]);
    if (event->kind > PST_SIMULATED_DO_RESTORE)
        return;
    put_ticket(self, event);
    put_counter(self, event, "tickets live", "tickets", at, self->num_live[event->stage]);
}

static void put_names(writer *self)
{
    for (uint32_t s = 0; s < self->model->num_stages; s++) {
        begin(self, "M", s);
        fprintf(self->file, ",\"name\":\"process_name\",\"args\":{\"name\":\"rank %" PRIu32 "\"}}",
                self->model->stages[s].rank);
        begin(self, "M", s);
        fprintf(self->file,
                ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%" PRIu32 "}}",
                self->model->stages[s].rank);
        for (uint32_t t = 0; t < SIMULATE_NUM_LANES; t++) {
            begin(self, "M", s);
            fprintf(self->file,
                    ",\"tid\":%" PRIu32 ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", t,
                    simulate_lane_names[t]);
        }
    }
}

static int make(writer *self)
{
    const uint32_t num = self->model->num_stages;
    self->stash_end = calloc(num, sizeof(*self->stash_end));
    self->most = calloc(num, sizeof(*self->most));
    self->num_live = calloc(num, sizeof(*self->num_live));
    bool has_all = self->stash_end != NULL && self->most != NULL && self->num_live != NULL;
    for (uint32_t s = 0; s < num && has_all; s++) {
        const simulate_stage *stage = &self->model->stages[s];
        for (uint32_t c = 0; c < stage->num_chunks; c++)
            if (stage->chunks[c].num_micro_batches > self->most[s])
                self->most[s] = stage->chunks[c].num_micro_batches;
        self->stash_end[s] = calloc(stage->num_layers * self->most[s] + 1, sizeof(uint64_t));
        has_all = self->stash_end[s] != NULL;
    }
    return has_all ? TOOL_OK
                   : tool_fail(TOOL_NO, "out of memory for the timeline of %u ranks", num);
}

static void unmake(writer *self)
{
    for (uint32_t s = 0; self->stash_end != NULL && s < self->model->num_stages; s++)
        free(self->stash_end[s]);
    free(self->stash_end);
    free(self->most);
    free(self->num_live);
}

int simulate_write_perfetto(const simulate_job *job, const simulate_model *model, FILE *file)
{
    writer self = {.model = model, .file = file, .is_first = true};
    int code = make(&self);
    if (code == TOOL_OK) {
        fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":", file);
        picture_put_text(file, job->options->schedule);
        fputs("},\n\"traceEvents\":[", file);
        put_names(&self);
        code = simulate_watch(model, on_event, &self);
        fputs("\n]}\n", file);
    }
    unmake(&self);
    return code;
}
