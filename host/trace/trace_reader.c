/* Opening and reading a trace of any format; streams and addresses as files name them. */
#include <inttypes.h>
#include <string.h>

#include "host/base/structs.h"
#include "host/trace/trace.h"

pst_trace_request psti_trace_row(uint64_t line, pst_trace_op op)
{
    return (pst_trace_request){
        .line = line, .layer = PST_TRACE_NONE, .micro_batch = PST_TRACE_NONE, .op = (uint8_t)op};
}

const char *psti_trace_name(const pst_trace_config *config)
{
    return config->name != NULL ? config->name : "trace";
}

uint32_t psti_stream_number(psti_stream_names *streams, uint64_t name)
{
    for (uint32_t i = 0; i < streams->num; i++)
        if (streams->names[i] == name)
            return i;
    if (streams->num == PST_TRACE_MAX_STREAMS)
        return PST_TRACE_MAX_STREAMS;
    streams->names[streams->num] = name;
    return streams->num++;
}

uint64_t psti_address_line(const psti_addresses *addresses, uint64_t address, bool *is_live_out)
{
    const uint64_t value = psti_map_get(&addresses->map, address);
    *is_live_out = value != PSTI_MAP_NONE && (value & 1) != 0;
    return value != PSTI_MAP_NONE ? value >> 1 : 0;
}

pst_status psti_address_set(psti_addresses *addresses, uint64_t address, uint64_t line,
                            bool is_live)
{
    return psti_map_set(&addresses->map, address, line << 1 | is_live);
}

pst_status psti_trace_take_config(const pst_trace_config *given, pst_trace_config *config_out)
{
    PSTI_TAKE(pst_trace_config, config, given);
    PSTI_CHECK((unsigned)config.format < PST_TRACE_NUM_FORMATS, PST_E_INVALID,
               "format %d: allowed is 0..%d", (int)config.format, PST_TRACE_NUM_FORMATS - 1);
    *config_out = config;
    return PST_OK;
}

#define KIND(name, flag, align, text) [name] = &psti_trace_by_##flag,
const psti_trace_kind *const psti_trace_kinds[] = {PST_TRACE_FORMAT_LIST(KIND)};

pst_status pst_trace_reader_open(const pst_trace_config *given, pst_trace_read_fn read,
                                 void *source, pst_trace_reader **reader_out)
{
    pst_trace_config config = {0};
    PSTI_TRY(psti_trace_take_config(given, &config));
    PSTI_CHECK(read != NULL && reader_out != NULL, PST_E_INVALID, "read or reader_out is NULL");
    const psti_trace_kind *kind = psti_trace_kinds[config.format];
    pst_trace_reader *reader = psti_handle_new(sizeof(*reader), PSTI_KIND_READER);
    PSTI_CHECK(reader != NULL, PST_E_NOMEM, "out of memory for a reader");
    reader->config = config;
    reader->name = psti_trace_name(&config);
    reader->read = read;
    reader->source = source;
    reader->kind = kind;
    reader->state = psti_calloc(1, kind->state_bytes);
    if (kind->has_lines)
        reader->lines = psti_lines_open(reader->name, read, source);
    if (reader->state == NULL || (kind->has_lines && reader->lines == NULL)) {
        pst_trace_reader_close(reader);
        return PSTI_FAIL(PST_E_NOMEM, "out of memory for a reader");
    }
    *reader_out = reader;
    return PST_OK;
}

pst_status pst_trace_reader_next(pst_trace_reader *reader, pst_trace_request *request_out)
{
    PSTI_CHECK_HANDLE(reader, READER);
    PSTI_CHECK(request_out != NULL, PST_E_INVALID, "request_out is NULL");
    PSTI_CHECK(!reader->is_over, PST_E_INVALID, "%.200s: the reader has ended: close it",
               reader->name);
    pst_trace_request request;
    const pst_status status = reader->kind->next(reader, &request);
    if (status == PST_OK)
        *request_out = request;
    else
        reader->is_over = true;
    return status;
}

void pst_trace_reader_close(pst_trace_reader *reader)
{
    if (!psti_handle_is(reader, PSTI_KIND_READER))
        return;
    if (reader->kind->close != NULL && reader->state != NULL)
        reader->kind->close(reader);
    psti_free(reader->state);
    psti_free(reader->lines);
    psti_handle_free(reader);
}
