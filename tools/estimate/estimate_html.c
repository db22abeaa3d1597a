/* The picture of a stage's memory as one HTML page. */
#include "tools/common/picture.h"
#include "tools/estimate/estimate.h"

#include <inttypes.h>

#include "estimate_view.h" /* made by CMake of estimate_view.html and estimate_view.js */

#define MAX_EVENTS (UINT64_C(1) << 20)

typedef struct writer {
    const char *title;
    const estimate_options *options;
    uint64_t stage;
    FILE *file;
    uint64_t num_events;
} writer;

/* Six numbers: chunk and direction, micro-batch, live layers, saved, head, all. */
static bool put_event(void *user, const pst_estimate_event *event)
{
    writer *self = user;
    const uint64_t numbers[] = {2 * event->chunk + event->is_backward,
                                event->micro_batch,
                                event->live_layers,
                                event->saved_bytes,
                                event->head_bytes,
                                event->bytes};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (self->num_events > 0 || i > 0)
            fputc(',', self->file);
        picture_put_number(self->file, numbers[i]);
    }
    self->num_events++;
    return !ferror(self->file);
}

/* What a GPU of each stage holds at its peak, by kind. */
static int put_stages(FILE *file, const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    for (uint64_t i = 0; i < config->pipeline_parallel; i++) {
        pst_estimate_memory memory;
        TOOL_PST(pst_estimate_get_memory(config, i, NULL, &memory));
        fprintf(file, "%s{\"stage\":%" PRIu64, i > 0 ? ",\n" : "", i);
#define PUT_PART(key, member, name) picture_put_field(file, #key, memory.member);
        ESTIMATE_PARTS(PUT_PART)
        picture_put_field(file, "transients", memory.transient_bytes);
        picture_put_field(file, "peak", memory.peak_bytes);
        picture_put_field(file, "overhead",
                          estimate_reserve_of(&options->reserve, memory.peak_bytes));
        fputs(",\"during\":", file);
        picture_put_text(file, memory.transient != NULL ? memory.transient : "");
        fputc('}', file);
    }
    return TOOL_OK;
}

static int put_data(FILE *file, const void *drawn)
{
    writer self = *(const writer *)drawn;
    self.file = file;
    fputs("{\"title\":", file);
    picture_put_text(file, self.title);
    picture_put_field(file, "stage", self.stage);
    picture_put_field(file, "memory", self.options->memory_bytes);
    fputs(",\n\"stages\":[", file);
    TOOL_TRY(put_stages(file, self.options));
    fputs("],\n\"events\":[", file);
    TOOL_PST(pst_estimate_get_timeline(&self.options->config, self.stage, put_event, &self));
    fputs("]}", file);
    return TOOL_OK;
}

/* Two for each micro-batch and chunk. */
int estimate_html_check(const estimate_options *options)
{
    const pst_estimate_config *config = &options->config;
    pst_estimate_memory memory;
    TOOL_PST(pst_estimate_get_memory(config, 0, NULL, &memory));
    const uint64_t passes = memory.num_micro_batches;
    if (passes <= MAX_EVENTS / 2 / config->virtual_stages)
        return TOOL_OK;
    return tool_fail(TOOL_USAGE,
                     "--html: %" PRIu64 " micro-batches of %" PRIu64 " chunks: at most %" PRIu64
                     " events can be drawn",
                     passes, config->virtual_stages, MAX_EVENTS);
}

int estimate_html_write(FILE *file, const char *title, const estimate_options *options,
                        uint64_t stage)
{
    const picture_page page = {estimate_view_html, estimate_view_js, put_data};
    const writer self = {.title = title, .options = options, .stage = stage};
    return picture_write(file, &page, &self);
}
