#include "bench/stash/json.h"

#define set bench_json_set
#define append bench_json_append
#define whole bench_json_whole
#define real bench_json_real

static json_t *index_value(int index)
{
    return index == BENCH_NO_ANCHOR ? json_null() : json_integer(index);
}

static json_t *row_object(const bench_host_row *row, int op)
{
    json_t *object = json_object();
    set(&object, "op", json_string(op ? "restore" : "stash"));
    set(&object, "bytes", whole(row->bytes));
    set(&object, "pages", whole(row->pages));
    set(&object, "pinned_pages", whole(row->pinned_pages));
    set(&object, "pool_pinned_bytes", whole(row->pool_bytes));
    set(&object, "part", json_boolean(row->is_part));
    set(&object, "offload_num", json_integer(row->num));
    set(&object, "offload_den", json_integer(row->den));
    set(&object, "num_sms", json_integer(row->num_sms));
    bench_json_set_times(&object, &row->seconds[op], row->bytes);
    set(&object, "share_of_engine", real(row->share_of_engine[op]));
    set(&object, "share_of_sm_copy", real(row->share_of_sm_copy[op]));
    set(&object, "mismatched_bytes", whole(row->mismatched_bytes));
    return object;
}

static json_t *pin_object(const bench_pin *pin)
{
    json_t *object = json_object();
    set(&object, "bytes", whole(pin->bytes));
    set(&object, "seconds", real(pin->seconds));
    return object;
}

static json_t *recovery_object(const bench_recovery *recovery)
{
    json_t *object = json_object();
    const bool has = recovery->seconds.samples > 0;
    set(&object, "unavailable", bench_json_text(recovery->unavailable));
    set(&object, "grown_bytes", whole(recovery->grown_bytes));
    set(&object, "samples", json_integer(recovery->seconds.samples));
    set(&object, "seconds_min", has ? real(recovery->seconds.min) : json_null());
    set(&object, "seconds_median", has ? real(recovery->seconds.median) : json_null());
    set(&object, "seconds_max", has ? real(recovery->seconds.max) : json_null());
    set(&object, "mismatched_bytes", whole(recovery->mismatched_bytes));
    return object;
}

static json_t *anchors_object(const int *index)
{
    json_t *object = json_object();
    set(&object, "to_host", index_value(index[0]));
    set(&object, "from_host", index_value(index[1]));
    return object;
}

json_t *bench_host_tier_value(const bench_report *report)
{
    const bench_host_tier *tier = &report->host_tier;
    json_t *object, *rows, *pins;
    if (tier->bytes == 0)
        return json_null();
    object = json_object();
    rows = json_array();
    pins = json_array();
    for (size_t i = 0; i < tier->num_rows; i++)
        for (int op = 0; op < 2; op++)
            append(&rows, row_object(&tier->rows[i], op));
    for (size_t i = 0; i < tier->num_pins; i++)
        append(&pins, pin_object(&tier->pins[i]));
    set(&object, "bytes", whole(tier->bytes));
    set(&object, "engine", anchors_object(tier->engine));
    set(&object, "sm_copy", anchors_object(tier->sm_copy));
    set(&object, "rows", rows);
    set(&object, "pin", pins);
    set(&object, "recovery", recovery_object(&tier->recovery));
    return object;
}
