/* The picture of a static plan as one HTML page. */
#include "tools/plan/plan_picture.h"

#include "plan_view.h" /* made by CMake of plan_view.html and plan_view.js */
#include "tools/common/picture.h"
#include "tools/common/tool.h"

const char *plan_phase_name(uint8_t phase)
{
    static const char *const names[PST_NUM_PHASES] = {"", "forward", "backward", "weight", "other"};
    return phase < PST_NUM_PHASES ? names[phase] : "";
}

static uint64_t field(const plan_picture *picture, int which, uint64_t tensor)
{
    const pst_trace_tensor *t = &picture->tensors[tensor];
    switch (which) {
    case 0:
        return t->id;
    case 1:
        return t->bytes;
    case 2:
        return picture->offsets[tensor];
    case 3:
        return t->begin;
    case 4:
        return t->end;
    case 5: /* 0: none */
        return t->layer == PST_TRACE_NONE ? 0 : (uint64_t)t->layer + 1;
    case 6:
        return t->micro_batch == PST_TRACE_NONE ? 0 : (uint64_t)t->micro_batch + 1;
    default:
        return t->phase < PST_NUM_PHASES ? t->phase : 0;
    }
}

static int put_data(FILE *file, const void *drawn)
{
    const plan_picture *picture = drawn;
    static const char *const names[] = {"id",  "bytes", "offset",      "begin",
                                        "end", "layer", "micro_batch", "phase"};
    fputs("{\"title\":", file);
    picture_put_text(file, picture->title);
    picture_put_field(file, "align", picture->align ? picture->align : 512);
    picture_put_field(file, "peak", picture->peak);
    picture_put_field(file, "bound", picture->bound);
    fputs(",\"phases\":[", file);
    for (int phase = 0; phase < PST_NUM_PHASES; phase++)
        fprintf(file, "%s\"%s\"", phase ? "," : "", plan_phase_name((uint8_t)phase));
    fputc(']', file);
    for (int f = 0; f < (int)(sizeof(names) / sizeof(names[0])); f++) {
        fprintf(file, ",\n\"%s\":[", names[f]);
        for (uint64_t i = 0; i < picture->num_tensors; i++) {
            if (i > 0)
                fputc(',', file);
            picture_put_number(file, field(picture, f, i));
        }
        fputc(']', file);
    }
    fputc('}', file);
    return TOOL_OK;
}

int plan_html_write(FILE *file, const plan_picture *picture)
{
    const picture_page page = {plan_view_html, plan_view_js, put_data};
    return picture_write(file, &page, picture);
}
