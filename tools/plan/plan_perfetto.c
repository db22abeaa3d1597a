/* The picture of a static plan as a Chrome trace, for Perfetto. */
#include <inttypes.h>
#include <stdlib.h>

#include "tools/common/picture.h"
#include "tools/common/tool.h"
#include "tools/plan/plan_picture.h"

enum { PLAN_PROCESS = 1, FIRST_LAYER_PROCESS = 2 };

typedef struct change {
    uint64_t instant;
    uint64_t bytes; /* two's complement where they go */
} change;

static int compare(const void *left, const void *right)
{
    const change *a = left;
    const change *b = right;
    return (a->instant > b->instant) - (a->instant < b->instant);
}

static uint64_t process_of(const pst_trace_tensor *tensor)
{
    return tensor->layer == PST_TRACE_NONE ? PLAN_PROCESS
                                           : (uint64_t)tensor->layer + FIRST_LAYER_PROCESS;
}

static int compare_numbers(const void *left, const void *right)
{
    const uint64_t *a = left;
    const uint64_t *b = right;
    return (*a > *b) - (*a < *b);
}

/* One for the plan, one for each layer that occurs. */
static int put_processes(FILE *file, const plan_picture *picture)
{
    uint64_t *processes = calloc(picture->num_tensors + 1, sizeof(*processes));
    if (processes == NULL)
        return tool_fail(TOOL_NO, "out of memory for %" PRIu64 " tensors", picture->num_tensors);
    for (uint64_t i = 0; i < picture->num_tensors; i++)
        processes[i] = process_of(&picture->tensors[i]);
    qsort(processes, picture->num_tensors, sizeof(*processes), compare_numbers);
    fprintf(file,
            "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":", PLAN_PROCESS);
    picture_put_text(file, picture->title);
    fputs("}}", file);
    for (uint64_t i = 0; i < picture->num_tensors; i++) {
        const uint64_t process = processes[i];
        if (process == PLAN_PROCESS || (i > 0 && processes[i - 1] == process))
            continue;
        fprintf(file,
                ",\n{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%" PRIu64
                ",\"args\":{\"name\":\"layer %" PRIu64 "\"}}",
                process, process - FIRST_LAYER_PROCESS);
        fprintf(file,
                ",\n{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%" PRIu64
                ",\"args\":{\"sort_index\":%" PRIu64 "}}",
                process, process);
    }
    free(processes);
    return TOOL_OK;
}

static int put_live(FILE *file, const plan_picture *picture)
{
    const uint64_t up = (picture->align ? picture->align : 512) - 1;
    const uint64_t num = 2 * picture->num_tensors;
    change *changes = calloc(num + 1, sizeof(*changes));
    if (changes == NULL)
        return tool_fail(TOOL_NO, "out of memory for %" PRIu64 " tensors", picture->num_tensors);
    for (uint64_t i = 0; i < picture->num_tensors; i++) {
        const uint64_t bytes = (picture->tensors[i].bytes + up) & ~up;
        changes[2 * i] = (change){picture->tensors[i].begin, bytes};
        changes[2 * i + 1] = (change){picture->tensors[i].end, 0 - bytes};
    }
    qsort(changes, num, sizeof(*changes), compare);
    uint64_t live = 0;
    for (uint64_t i = 0; i < num; i++) {
        live += changes[i].bytes;
        if (i + 1 < num && changes[i + 1].instant == changes[i].instant)
            continue;
        fprintf(file,
                ",\n{\"ph\":\"C\",\"name\":\"live bytes\",\"pid\":%d,\"ts\":%" PRIu64
                ",\"args\":{\"bytes\":%" PRIu64 "}}",
                PLAN_PROCESS, changes[i].instant, live);
    }
    free(changes);
    return TOOL_OK;
}

/* "b" and "e" with the same cat, id and process are one slice. */
static void put_tensor(FILE *file, const pst_trace_tensor *tensor, uint64_t number, uint64_t offset)
{
    const char *phase = plan_phase_name(tensor->phase);
    fprintf(file,
            ",\n{\"ph\":\"b\",\"cat\":\"tensor\",\"id\":%" PRIu64 ",\"name\":\"tensor %" PRIu64
            "\",\"pid\":%" PRIu64 ",\"tid\":0,\"ts\":%" PRIu64 ",\"args\":{\"address\":%" PRIu64
            ",\"bytes\":%" PRIu64,
            number, tensor->id, process_of(tensor), tensor->begin, offset, tensor->bytes);
    if (*phase != 0)
        fprintf(file, ",\"phase\":\"%s\"", phase);
    if (tensor->micro_batch != PST_TRACE_NONE)
        fprintf(file, ",\"micro_batch\":%" PRIu32, tensor->micro_batch);
    fprintf(file,
            "}},\n{\"ph\":\"e\",\"cat\":\"tensor\",\"id\":%" PRIu64 ",\"name\":\"tensor %" PRIu64
            "\",\"pid\":%" PRIu64 ",\"tid\":0,\"ts\":%" PRIu64 "}",
            number, tensor->id, process_of(tensor), tensor->end);
}

int plan_perfetto_write(FILE *file, const plan_picture *picture)
{
    fputs("{\"displayTimeUnit\":\"ns\",\"otherData\":{\"title\":", file);
    picture_put_text(file, picture->title);
    fprintf(file, ",\"peak\":%" PRIu64 ",\"bound\":%" PRIu64 "},\n\"traceEvents\":[\n",
            picture->peak, picture->bound);
    TOOL_TRY(put_processes(file, picture));
    TOOL_TRY(put_live(file, picture));
    for (uint64_t i = 0; i < picture->num_tensors; i++)
        put_tensor(file, &picture->tensors[i], i, picture->offsets[i]);
    fputs("\n]}\n", file);
    return TOOL_OK;
}
