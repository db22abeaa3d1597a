/* The parser of pickles over arbitrary bytes: what it accepts is walked, in as many steps as the
 * file has bytes; and the reader of snapshots over the same bytes. */
#include <stdlib.h>
#include <string.h>

#include "host/trace/trace.h"
#include "tests/bytes.h"

enum { WORDS_PER_BYTE = 3 };

static void require(bool condition)
{
    if (!condition)
        abort();
}

/* Looks at every value that can be reached, as far as the steps go: sharing makes a tree of any
 * size out of few bytes. */
static void walk(const psti_pickle *pickle, psti_value value, uint64_t *steps)
{
    const psti_pickle_type type = psti_pickle_type_of(value);
    uint64_t number = 0;
    require(type > PSTI_PICKLE_NOTHING && type <= PSTI_PICKLE_DICT);
    require(psti_pickle_type_name(type) != NULL);
    if (type == PSTI_PICKLE_INT)
        psti_pickle_u64(pickle, value, &number);
    if (type == PSTI_PICKLE_TEXT) {
        const psti_field text = psti_pickle_text(pickle, value);
        require((const unsigned char *)text.text >= pickle->bytes &&
                (const unsigned char *)text.text + text.length <=
                    pickle->bytes + pickle->num_bytes);
    }
    if (type < PSTI_PICKLE_LIST || *steps == 0)
        return;
    psti_cursor cursor = psti_pickle_first(pickle, value);
    psti_value item;
    uint64_t num_items = 0;
    for (; *steps > 0 && psti_pickle_next(pickle, &cursor, &item); num_items++) {
        --*steps;
        if (psti_pickle_type_of(item) < PSTI_PICKLE_LIST)
            walk(pickle, item, steps);
        else
            require(psti_pickle_type_of(item) <= PSTI_PICKLE_DICT);
    }
    require(type != PSTI_PICKLE_DICT || *steps == 0 || num_items % 2 == 0);
    if (type == PSTI_PICKLE_DICT)
        psti_pickle_find(pickle, value, "device_traces");
}

static pst_status read_snapshot(const uint8_t *data, size_t size)
{
    pst_trace_config config = PST_TRACE_CONFIG_INIT;
    byte_source source = {(const char *)data, size, 0, 0};
    pst_trace *trace = NULL;
    config.format = PST_TRACE_PYTORCH;
    config.name = "fuzz";
    const pst_status status = pst_trace_read(&config, read_bytes, &source, &trace);
    pst_trace_destroy(trace);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    psti_pickle pickle = {.name = "fuzz", .bytes = data, .num_bytes = size};
    uint64_t steps = size;
    if (size == 0)
        pickle.bytes = data = (const uint8_t *)"";
    const pst_status status = psti_pickle_parse(&pickle);
    const uint64_t num_words = pickle.items.num_words + pickle.memo.num_words;
    require(status == PST_OK || status == PST_E_INVALID);
    require(num_words <= WORDS_PER_BYTE * (uint64_t)size + 2);
    if (status == PST_OK)
        walk(&pickle, pickle.root, &steps);
    else
        require(strncmp(pst_last_message(), "fuzz: byte ", 11) == 0);
    psti_pickle_close(&pickle);
    const pst_status snapshot = read_snapshot(data, size);
    require(snapshot == PST_OK || snapshot == PST_E_INVALID);
    require(status == PST_OK || snapshot == PST_E_INVALID);
    return 0;
}
