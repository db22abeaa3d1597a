/* How many rows of a trace are read in a second of the processor. */
#include "bench/plan/plan_bench.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS = 1000000, ROW_BYTES = 64 };

typedef struct text_source {
    const char *text;
    size_t left;
} text_source;

static ptrdiff_t read_text(void *source, void *buffer, size_t bytes)
{
    text_source *from = source;
    const size_t got = from->left < bytes ? from->left : bytes;
    memcpy(buffer, from->text, got);
    from->text += got;
    from->left -= got;
    return (ptrdiff_t)got;
}

static size_t write_rows(char *text)
{
    size_t used = (size_t)sprintf(text, "op,id,size,stream,phase,layer,micro_batch,rank,tag\n");
    for (unsigned id = 0; id < ROWS / 2; id++)
        used += (size_t)sprintf(text + used,
                                "malloc,%u,%u,0,forward,%u,0,0,static\n"
                                "free,%u,,0,forward,%u,0,0,static\n",
                                id, id % 1000 * 512 + 512, id % 80, id, id % 80);
    return used;
}

/* As STAlloc writes them: pointers that come back, and in a free no size. */
static size_t write_stalloc(char *text)
{
    size_t used = (size_t)sprintf(text, "Iteration Index : 0\nmicro-batch : F\n");
    for (unsigned id = 0; id < ROWS / 2; id++)
        used += (size_t)sprintf(text + used, "1 0x7f%08x %u 0\n0 0x7f%08x 0 0\n", id % 4096 * 512,
                                id % 1000 * 512 + 512, id % 4096 * 512);
    return used;
}

static void read_rows(const char *name, pst_trace_format format, size_t (*write)(char *text))
{
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    char *text = bench_need(malloc((size_t)(ROWS + 1) * ROW_BYTES));
    const size_t bytes = write(text);
    bench_series series = {.num = 0};
    config.format = format;
    for (int i = 0; i < PLAN_BENCH_SAMPLES; i++) {
        text_source source = {text, bytes};
        pst_trace_reader *reader;
        pst_trace_request request;
        const double begin = bench_cpu();
        bench_check_status(pst_trace_reader_open(&config, read_text, &source, &reader));
        for (uint64_t k = 0; k < ROWS; k++)
            bench_check_status(pst_trace_reader_next(reader, &request));
        pst_trace_reader_close(reader);
        bench_series_add(&series, bench_cpu() - begin);
    }
    free(text);
    const double rate = ROWS / bench_summary(&series).median;
    say("%-26s %.2f million rows per second, target 1 %s\n", name, rate / 1e6,
        rate >= 1e6 ? "met" : "missed");
    json_t *row = json_object();
    json_put_text(&row, "name", name);
    json_put_whole(&row, "rows", ROWS);
    json_put(&row, "rows_per_second", json_number(rate));
    json_put(&row, "target_rows_per_second", json_number(1e6));
    json_add(&rows, row);
}

void run_reader(void)
{
    read_rows("trace reader", PST_TRACE_CSV, write_rows);
    read_rows("trace reader, STAlloc's", PST_TRACE_STALLOC, write_stalloc);
}
